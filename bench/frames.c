/* Servers and clients of length-framed messages, for bench/switch.py.
 *
 *   frames serve ECHO PORT...            servers that read, and write all back if ECHO is 1
 *   frames load HOST PORT SESSIONS SIZE SECONDS ECHO
 *                                        sessions that always have more; prints bytes that came to the other end
 *   frames ping HOST PORT SESSIONS SIZE SECONDS RATE
 *                                        one message outstanding a session, RATE messages a second in all; prints
 *                                        the times until answers came: count, p50, p99, in microseconds
 *
 * A message of SIZE bytes begins with its length of four bytes, which does not count itself.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 18 };

static char buffer[BUFFER];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int socket_at(struct sockaddr_in *at, const char *host, int port) {
    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_port = htons(port);
    inet_pton(AF_INET, host, &at->sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void watch(int poll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("epoll_ctl");
}

/* What a server has read of a connection and not written back. */
struct rest {
    char *bytes;
    size_t from, to;
};

static void serve(int echo, int count, char **ports) {
    int poll = epoll_create1(0), listeners[64];
    static struct rest rests[1 << 16];
    for (int i = 0; i < count; i++) {
        struct sockaddr_in at;
        listeners[i] = socket_at(&at, "127.0.0.1", atoi(ports[i]));
        if (bind(listeners[i], (void *)&at, sizeof at) < 0 || listen(listeners[i], 1024) < 0)
            fail("bind");
        watch(poll, listeners[i], EPOLLIN);
    }
    for (;;) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd, listener = 0;
            for (int k = 0; k < count; k++)
                listener |= listeners[k] == fd;
            if (listener) {
                int one = 1, new = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
                if (new < 0)
                    continue;
                setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                watch(poll, new, EPOLLIN);
                continue;
            }
            struct rest *rest = &rests[fd];
            int open = 1;
            if (rest->to > rest->from) {
                ssize_t done = write(fd, rest->bytes + rest->from, rest->to - rest->from);
                if (done > 0)
                    rest->from += done;
                else if (done < 0 && errno != EAGAIN)
                    open = 0;
            }
            if (open && rest->to == rest->from) {
                if (rest->bytes) {
                    free(rest->bytes);
                    memset(rest, 0, sizeof *rest);
                    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
                    epoll_ctl(poll, EPOLL_CTL_MOD, fd, &event);
                }
                ssize_t len = read(fd, buffer, BUFFER);
                if (len == 0 || (len < 0 && errno != EAGAIN))
                    open = 0;
                else if (echo && len > 0) {
                    ssize_t done = write(fd, buffer, len);
                    if (done < 0 && errno != EAGAIN)
                        open = 0;
                    else if (done < len) {
                        done = done < 0 ? 0 : done;
                        rest->bytes = malloc(len - done);
                        memcpy(rest->bytes, buffer + done, len - done);
                        rest->from = 0, rest->to = len - done;
                        struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
                        epoll_ctl(poll, EPOLL_CTL_MOD, fd, &event);
                    }
                }
            }
            if (!open) {
                free(rest->bytes);
                memset(rest, 0, sizeof *rest);
                close(fd);
            }
        }
    }
}

static int connect_to(const char *host, int port) {
    struct sockaddr_in at;
    int fd = socket_at(&at, host, port);
    if (connect(fd, (void *)&at, sizeof at) < 0)
        fail("connect");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void fill(char *bytes, int size, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t len = htonl(size - 4);
        memset(bytes + (size_t)i * size, 'a' + i % 26, size);
        memcpy(bytes + (size_t)i * size, &len, 4);
    }
}

static void load(const char *host, int port, int sessions, int size, double seconds, int echo) {
    int poll = epoll_create1(0), batch = BUFFER / size;
    static size_t at[1 << 16];
    char *frames = malloc((size_t)batch * size);
    size_t all = (size_t)batch * size;
    fill(frames, size, batch);
    for (int i = 0; i < sessions; i++)
        watch(poll, connect_to(host, port), EPOLLIN | EPOLLOUT);
    double begin = now(), end = begin + seconds;
    uint64_t sent = 0, got = 0;
    while (now() < end) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (events[i].events & EPOLLIN) {
                ssize_t len = read(fd, buffer, BUFFER);
                if (len == 0 || (len < 0 && errno != EAGAIN))
                    fail("a session has ended");
                got += len > 0 ? len : 0;
            }
            if (events[i].events & EPOLLOUT) {
                ssize_t len = write(fd, frames + at[fd], all - at[fd]);
                if (len < 0 && errno != EAGAIN)
                    fail("write");
                if (len > 0) {
                    sent += len;
                    at[fd] = (at[fd] + len) % all;
                }
            }
        }
    }
    printf("{\"bytes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)(echo ? got : sent), now() - begin);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ping(const char *host, int port, int sessions, int size, double seconds, double rate) {
    int poll = epoll_create1(0), *fds = calloc(sessions, sizeof *fds), idle = sessions, next = 0;
    static double since[1 << 16];
    static int left[1 << 16];
    char *frame = malloc(size);
    fill(frame, size, 1);
    for (int i = 0; i < sessions; i++) {
        fds[i] = connect_to(host, port);
        watch(poll, fds[i], EPOLLIN);
    }
    size_t room = (size_t)(rate * seconds) + 1024, count = 0;
    double *times = malloc(room * sizeof *times);
    double begin = now(), due = begin, end = begin + seconds;
    while (now() < end) {
        double t = now();
        while (t >= due && idle > 0) {
            while (left[fds[next]])
                next = (next + 1) % sessions;
            int fd = fds[next];
            next = (next + 1) % sessions;
            since[fd] = now();
            left[fd] = size;
            idle--;
            if (write(fd, frame, size) != size)
                fail("write");
            due += 1 / rate;
        }
        /* What could not be sent in time is not made up for. */
        if (due < t - 0.01)
            due = t;
        struct epoll_event events[64];
        int ready = epoll_wait(poll, events, 64, 0);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            ssize_t len = read(fd, buffer, BUFFER);
            if (len == 0 || (len < 0 && errno != EAGAIN))
                fail("a session has ended");
            left[fd] -= len > 0 ? len : 0;
            if (left[fd] <= 0) {
                if (count < room && since[fd] > begin + seconds / 5)
                    times[count++] = now() - since[fd];
                left[fd] = 0;
                idle++;
            }
        }
    }
    qsort(times, count, sizeof *times, by_value);
    if (!count)
        fail("no answer came");
    printf("{\"count\": %zu, \"p50_us\": %.2f, \"p99_us\": %.2f}\n", count, times[count / 2] * 1e6, times[count * 99 / 100] * 1e6);
}

int main(int count, char **words) {
    /* A client that leaves ends its session, not the servers. */
    signal(SIGPIPE, SIG_IGN);
    if (count > 3 && !strcmp(words[1], "serve"))
        serve(atoi(words[2]), count - 3, words + 3);
    else if (count == 8 && !strcmp(words[1], "load"))
        load(words[2], atoi(words[3]), atoi(words[4]), atoi(words[5]), atof(words[6]), atoi(words[7]));
    else if (count == 8 && !strcmp(words[1], "ping"))
        ping(words[2], atoi(words[3]), atoi(words[4]), atoi(words[5]), atof(words[6]), atof(words[7]));
    else {
        fprintf(stderr, "see the head of bench/frames.c\n");
        return 2;
    }
    return 0;
}
