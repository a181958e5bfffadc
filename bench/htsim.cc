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
#include <iostream>
#include <random>
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

// A flow over `there` and `back` from `start` on; of `bytes`, if not 0.
static void flow(TcpRtxTimerScanner &timers, Route *there, Route *back, simtime_picosec start, uint64_t bytes) {
    TcpSrc *source = new TcpSrc(nullptr, nullptr, events());
    TcpSink *sink = new TcpSink();
    if (bytes > 0) source->set_flowsize(bytes);
    timers.registerTcp(*source);
    there->push_back(sink);
    back->push_back(source);
    source->connect(*there, *back, *sink, start);
}

static void dumbbell(TcpRtxTimerScanner &timers, int flows) {
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

static void short_flows(TcpRtxTimerScanner &timers, int flows) {
    std::mt19937_64 random(1);
    std::exponential_distribution<double> gap(1000);
    Link ahead = link(100, timeFromMs(5.0), 500), behind = link(100, timeFromMs(5.0), 500);
    double start = 0;
    for (int i = 0; i < flows; i++) {
        Route *there = new Route(), *back = new Route();
        cross(there, ahead);
        cross(back, behind);
        start += gap(random);
        flow(timers, there, back, timeFromSec(start), 7000);
    }
}

static void tree(TcpRtxTimerScanner &timers, int k) {
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
    TcpRtxTimerScanner timers(timeFromMs(10), events());
    if (!strcmp(argv[1], "dumbbell")) dumbbell(timers, n);
    else if (!strcmp(argv[1], "short")) short_flows(timers, n);
    else tree(timers, n);
    double setup = cpu();
    while (events().doNextEvent()) {
    }
    double run = cpu() - setup;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"packet_hops\": %llu, \"setup_s\": %f, \"run_cpu_s\": %f, \"peak_rss_bytes\": %llu}\n",
           (unsigned long long)hops, setup, run, usage.ru_maxrss * 1024ULL);
}
