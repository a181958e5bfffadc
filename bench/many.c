// Thousands of TCP connections that always have something to send, and who reads them: the traffic of `shape.py --only many`, in C
// and without copies so that it is not what holds the connections back.
//
//   many sink PORT                         reads whatever comes, until it is killed
//   many send ADDRESS PORT COUNT SECONDS LAW
//                                          writes to COUNT connections; says `ready` when all are open, and then tells about them
//
// What it tells are lines of JSON, one in 50 ms: `t_s` since `ready`, `paced` connections with SO_MAX_PACING_RATE set, Jain's `jain` index of these
// limits (of all, if all have one), their `sum_mbps` of payload, and how many were `dry`, with nothing left to send, when they were looked at;
// a last line has the `rates_mbps` of payload that arrived in the second half of the time, the index of these and segments sent again. It
// keeps the connections open until its standard input ends.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 16384, EVENTS = 512, WAITING = 200 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void sink(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) fail("listen");
    watch(epoll, listener, EPOLLIN);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd, reader;
            if (fd == listener) {
                while ((reader = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) watch(epoll, reader, EPOLLIN);
                continue;
            }
            // Of TCP, MSG_TRUNC throws away what it reads.
            ssize_t got = recv(fd, 0, 1 << 20, MSG_TRUNC);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close(fd);
        }
    }
}

struct flows {
    int epoll, count, *fd;
    uint64_t *acked;
};

// Writes wherever there is room until `end`.
static void run(struct flows *flows, double end) {
    static char chunk[CHUNK];
    struct epoll_event events[EVENTS];
    for (double left; (left = end - now()) > 0;) {
        int n = epoll_wait(flows->epoll, events, EVENTS, (int)(left * 1e3) + 1);
        for (int i = 0; i < n; i++)
            if (send(events[i].data.fd, chunk, CHUNK, MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR)
                fail("send");
    }
}

static double jain(double sum, double squares, int n) {
    return squares > 0 ? sum * sum / (n * squares) : 0;
}

static void tell(struct flows *flows, double begin) {
    double sum = 0, squares = 0, at = now() - begin;
    int paced = 0, dry = 0;
    for (int i = 0; i < flows->count; i++) {
        uint64_t limit = 0;
        socklen_t len = sizeof limit;
        int unsent = 0;
        if (getsockopt(flows->fd[i], SOL_SOCKET, SO_MAX_PACING_RATE, &limit, &len)) fail("getsockopt");
        ioctl(flows->fd[i], SIOCOUTQNSD, &unsent);
        dry += unsent == 0;
        if (limit == UINT64_MAX) continue;
        paced++;
        sum += limit;
        squares += (double)limit * limit;
    }
    printf("{\"t_s\": %.3f, \"paced\": %d, \"jain\": %.4f, \"sum_mbps\": %.2f, \"dry\": %d}\n", at, paced,
           paced == flows->count ? jain(sum, squares, paced) : 0.0, sum * 8e-6, dry);
    fflush(stdout);
}

static struct tcp_info info(int fd) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len)) fail("TCP_INFO");
    return info;
}

static int send_all(const char *host, int port, int count, double seconds, const char *law) {
    struct flows flows = {epoll_create1(0), count, calloc(count, sizeof(int)), calloc(count, sizeof(uint64_t))};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
    // A queue that is short enough for ten thousand of them, and never empty at their rates.
    int lowest = CHUNK, mss = 1460;
    for (int i = 0; i < count; i++) {
        int fd = flows.fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowest, sizeof lowest);
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss);
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, law, strlen(law))) fail(law);
        if (connect(fd, (void *)&address, sizeof address)) fail("connect");
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    // All begin at once.
    for (int i = 0; i < count; i++) watch(flows.epoll, flows.fd[i], EPOLLOUT);
    run(&flows, now() + 1);
    printf("ready\n");
    fflush(stdout);
    double begin = now(), half = 0;
    for (double next = begin; now() < begin + seconds;) {
        tell(&flows, begin);
        if (!half && now() >= begin + seconds / 2) {
            half = now();
            for (int i = 0; i < count; i++) flows.acked[i] = info(flows.fd[i]).tcpi_bytes_acked;
        }
        run(&flows, next = (next + 0.05 > now() ? next + 0.05 : now() + 0.05));
    }
    double sum = 0, squares = 0, span = now() - half, resent = 0;
    for (int i = 0; i < count; i++) {
        struct tcp_info last = info(flows.fd[i]);
        double rate = (last.tcpi_bytes_acked - flows.acked[i]) / span;
        sum += rate;
        squares += rate * rate;
        resent += last.tcpi_total_retrans;
    }
    printf("{\"rates_mbps\": %.3f, \"jain\": %.4f, \"resent\": %.0f}\n", sum * 8e-6, jain(sum, squares, count), resent);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "sink")) sink(atoi(argv[2]));
    if (argc == 7 && !strcmp(argv[1], "send"))
        return send_all(argv[2], atoi(argv[3]), atoi(argv[4]), atof(argv[5]), argv[6]);
    fprintf(stderr, "many sink PORT | many send ADDRESS PORT COUNT SECONDS LAW\n");
    return 2;
}
