// The workloads of dumbbell.toml, short.toml and tree.toml for htsim (https://github.com/Broadcom/csg-htsim), of which nothing is
// here: bench/sim.py builds this against a checkout.
//
//   htsim KIND N SECONDS      dumbbell with N flows; short with N flows; tree of k = N
//
// htsim's TCP has no SACK. A packet-hop is a packet that enters a pipe.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "config.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue.h"
#include "route.h"
#include "tcp.h"

static uint64_t hops = 0;

class CountedPipe : public Pipe {
 public:
    CountedPipe(simtime_picosec delay, EventList &events) : Pipe(delay, events) {}
    void receivePacket(Packet &packet) override {
        hops++;
        Pipe::receivePacket(packet);
    }
};

struct Link {
    Queue *queue;
    CountedPipe *pipe;
};

static EventList &events() { return EventList::getTheEventList(); }

static Link link(double mbps, simtime_picosec delay, int packets) {
    return {new Queue(speedFromMbps(mbps), memFromPkt(packets), events(), nullptr), new CountedPipe(delay, events())};
}

static void cross(Route *route, const Link &link) {
    route->push_back(link.queue);
    route->push_back(link.pipe);
}

// Scans flows for timeouts as TcpRtxTimerScanner does, but not those that are over.
class Timers : public EventSource {
 public:
    explicit Timers(EventList &events) : EventSource(events, "timers") { eventlist().sourceIsPendingRel(*this, PERIOD); }
    void add(TcpSrc &source) { flows_.push_back(&source); }
    void doNextEvent() override {
        auto over = [](TcpSrc *source) { return source->_last_acked >= source->_flow_size; };
        flows_.erase(std::remove_if(flows_.begin(), flows_.end(), over), flows_.end());
        for (TcpSrc *source : flows_) source->rtx_timer_hook(eventlist().now(), PERIOD);
        eventlist().sourceIsPendingRel(*this, PERIOD);
    }

 private:
    static constexpr simtime_picosec PERIOD = 10000000000;
    std::vector<TcpSrc *> flows_;
};

// A flow over `there` and `back` from `start` on; of `bytes`, if not 0.
static void flow(Timers &timers, Route *there, Route *back, simtime_picosec start, uint64_t bytes) {
    TcpSrc *source = new TcpSrc(nullptr, nullptr, events());
    TcpSink *sink = new TcpSink();
    if (bytes > 0) source->set_flowsize(bytes);
    timers.add(*source);
    there->push_back(sink);
    back->push_back(source);
    source->connect(*there, *back, *sink, start);
}

static void dumbbell(Timers &timers, int flows) {
    std::mt19937_64 random(1);
    // As bench/sim.py has it: 100 Mb/s and 500 packets up to a thousand flows, a hundred times that for a hundred thousand.
    double scale = flows > 10000 ? 100 : 1;
    Link ahead = link(100 * scale, timeFromMs(10.0), 500 * scale), behind = link(100 * scale, timeFromMs(10.0), 1000000);
    for (int i = 0; i < flows; i++) {
        simtime_picosec delay = timeFromUs(flows > 1 ? 40000.0 * i / (flows - 1) : 0.0);
        Route *there = new Route(), *back = new Route();
        cross(there, link(1000, delay, 100000));
        cross(there, ahead);
        cross(there, link(1000, 0, 100000));
        cross(back, link(1000, 0, 100000));
        cross(back, behind);
        cross(back, link(1000, delay, 100000));
        flow(timers, there, back, random() % timeFromSec(1.0), 0);
    }
}

// Begins a flow at each instant of a Poisson process.
class Arrivals : public EventSource {
 public:
    Arrivals(EventList &events, Timers &timers, int flows)
        : EventSource(events, "arrivals"), timers_(timers), left_(flows), random_(1), gap_(1000),
          ahead_(link(100, timeFromMs(5.0), 500)), behind_(link(100, timeFromMs(5.0), 500)) {
        eventlist().sourceIsPendingRel(*this, timeFromSec(gap_(random_)));
    }
    void doNextEvent() override {
        Route *there = new Route(), *back = new Route();
        cross(there, ahead_);
        cross(back, behind_);
        flow(timers_, there, back, eventlist().now(), 7000);
        if (--left_ > 0) eventlist().sourceIsPendingRel(*this, timeFromSec(gap_(random_)));
    }

 private:
    Timers &timers_;
    int left_;
    std::mt19937_64 random_;
    std::exponential_distribution<double> gap_;
    Link ahead_, behind_;
};

static void tree(Timers &timers, int k) {
    std::mt19937_64 random(1);
    int half = k / 2, edges = k * half, hosts = edges * half;
    auto links = [](int n) {
        std::vector<Link> all;
        for (int i = 0; i < n; i++) all.push_back(link(1000, timeFromUs(10.0), 100));
        return all;
    };
    // By the lower end and, beyond hosts, the choice there; the same for the way down.
    std::vector<Link> host_up = links(hosts), host_down = links(hosts), edge_up = links(edges * half),
                      edge_down = links(edges * half), agg_up = links(edges * half), agg_down = links(edges * half);
    auto route = [&](int from, int to) {
        Route *route = new Route();
        int e = from / half, f = to / half, a = random() % half, c = random() % half;
        cross(route, host_up[from]);
        if (e != f) cross(route, edge_up[e * half + a]);
        if (e / half != f / half) {
            cross(route, agg_up[(e / half * half + a) * half + c]);
            cross(route, agg_down[(f / half * half + a) * half + c]);
        }
        if (e != f) cross(route, edge_down[f * half + a]);
        cross(route, host_down[to]);
        return route;
    };
    std::vector<int> to(hosts);
    for (int i = 0; i < hosts; i++) to[i] = i;
    std::shuffle(to.begin(), to.end(), random);
    for (int i = 0; i < hosts; i++) {
        if (to[i] != i) flow(timers, route(i, to[i]), route(to[i], i), 0, 0);
    }
}

static double cpu() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    // It says what it does for each flow.
    std::cout.setstate(std::ios::failbit);
    Packet::set_packet_size(1460);
    int n = atoi(argv[2]);
    events().setEndtime(timeFromSec(atof(argv[3])));
    Timers timers(events());
    if (!strcmp(argv[1], "dumbbell")) dumbbell(timers, n);
    else if (!strcmp(argv[1], "short")) new Arrivals(events(), timers, n);
    else tree(timers, n);
    double setup = cpu();
    while (events().doNextEvent()) {
    }
    double run = cpu() - setup;
    // The most memory of this program, not of the one that started it.
    unsigned long long peak_kb = 0;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) sscanf(line.c_str(), "VmHWM: %llu", &peak_kb);
    printf("{\"packet_hops\": %llu, \"setup_s\": %f, \"run_cpu_s\": %f, \"peak_rss_bytes\": %llu}\n",
           (unsigned long long)hops, setup, run, peak_kb * 1024);
}
