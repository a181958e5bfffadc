/* A load for any server that speaks NATS' text protocol, written so that the server is what is measured.
 *
 *   nats pub HOST PORT SUBJECT SIZE COUNT [RATE]   publishes COUNT messages of SIZE bytes, RATE a second if given
 *   nats sub HOST PORT SUBJECT COUNT [RATE]        receives COUNT messages, reading RATE bytes a second if given
 *
 * Every message carries the time of its publication (CLOCK_MONOTONIC, ns) in its first 8 bytes and its number in the next 8.
 * Prints one line of JSON. `sub` prints `ready` first, once the server has answered, and checks that numbers come in order.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void until(uint64_t then) {
    struct timespec t = {(time_t)(then / 1000000000u), (long)(then % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void put(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t done = send(fd, bytes, len, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) die("send");
        bytes += done;
        len -= (size_t)done;
    }
}

/* Reads a line that is not INFO or PING. */
static void expect(int fd, const char *word) {
    char line[4096];
    for (;;) {
        size_t len = 0;
        while (len < sizeof line - 1) {
            if (recv(fd, line + len, 1, 0) != 1) die("recv");
            if (line[len++] == '\n') break;
        }
        line[len] = 0;
        if (!strncmp(line, word, strlen(word))) return;
        if (!strncmp(line, "-ERR", 4)) {
            fprintf(stderr, "%s", line);
            exit(1);
        }
    }
}

static int dial(const char *host, const char *port, int receive) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &to.sin_addr);
    if (receive) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const char *hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"lang\":\"c\",\"name\":\"bench\"}\r\nPING\r\n";
    put(fd, hello, strlen(hello));
    expect(fd, "PONG");
    return fd;
}

static int publish(char **argv, int argc) {
    int fd = dial(argv[0], argv[1], 0);
    size_t size = strtoul(argv[3], NULL, 10), batch = 1 << 16;
    uint64_t count = strtoull(argv[4], NULL, 10);
    double rate = argc > 5 ? atof(argv[5]) : 0;
    char line[256], *out = malloc(batch + size + 300);
    int head = snprintf(line, sizeof line, "PUB %s %zu\r\n", argv[2], size);
    size_t len = 0;
    uint64_t start = now();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t stamp = rate > 0 ? start + (uint64_t)((double)i * 1e9 / rate) : 0;
        if (rate > 0) {
            if (stamp > now()) {
                put(fd, out, len);
                len = 0;
                until(stamp);
            }
        } else if (i % 64 == 0 || stamp == 0) {
            stamp = now();
        }
        memcpy(out + len, line, (size_t)head);
        len += (size_t)head;
        memset(out + len, 'x', size);
        memcpy(out + len, &stamp, 8);
        memcpy(out + len + 8, &i, 8);
        len += size;
        out[len++] = '\r';
        out[len++] = '\n';
        if (len >= batch) {
            put(fd, out, len);
            len = 0;
        }
    }
    put(fd, out, len);
    put(fd, "PING\r\n", 6);
    expect(fd, "PONG");
    printf("{\"published\": %llu, \"seconds\": %.6f}\n", (unsigned long long)count, (double)(now() - start) * 1e-9);
    return 0;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int subscribe(char **argv, int argc) {
    double rate = argc > 4 ? atof(argv[4]) : 0;
    int fd = dial(argv[0], argv[1], rate > 0 ? 1 << 16 : 0);
    uint64_t count = strtoull(argv[3], NULL, 10), got = 0, disorder = 0, last = 0, begin = 0;
    char text[256];
    snprintf(text, sizeof text, "SUB %s 1\r\nPING\r\n", argv[2]);
    put(fd, text, strlen(text));
    expect(fd, "PONG");
    printf("ready\n");
    fflush(stdout);
    size_t room = 1 << 21, have = 0;
    char *in = malloc(room);
    uint32_t *late = malloc(sizeof *late * (count ? count : 1));
    uint64_t start = now(), taken = 0;
    const char *why = "";
    while (got < count) {
        size_t want = room - have;
        if (rate > 0) {
            until(start + (uint64_t)((double)taken * 1e9 / rate));
            if (want > 16384) want = 16384;
        }
        ssize_t len = recv(fd, in + have, want, 0);
        if (len < 0 && errno == EINTR) continue;
        if (len <= 0) {
            why = "closed";
            break;
        }
        taken += (uint64_t)len;
        have += (size_t)len;
        uint64_t at = now();
        size_t used = 0;
        for (;;) {
            char *end = memchr(in + used, '\n', have - used);
            if (!end) break;
            size_t next = (size_t)(end - in) + 1;
            if (in[used] == 'M') {
                char *digits = end - 1;
                while (digits[-1] != ' ') digits--;
                size_t size = strtoul(digits, NULL, 10);
                if (have - next < size + 2) break;
                uint64_t stamp, number;
                memcpy(&stamp, in + next, 8);
                memcpy(&number, in + next + 8, 8);
                if (got == 0) begin = at;
                else if (number != last + 1) disorder++;
                last = number;
                if (got < count) late[got] = (uint32_t)((at - stamp) / 1000);
                got++;
                next += size + 2;
            } else if (in[used] == 'P' && in[used + 1] == 'I') {
                put(fd, "PONG\r\n", 6);
            } else if (in[used] == '-') {
                why = "error";
                fprintf(stderr, "%.*s\n", (int)(next - used), in + used);
            }
            used = next;
        }
        memmove(in, in + used, have - used);
        have -= used;
    }
    uint64_t end = now();
    uint64_t n = got < count ? got : count;
    qsort(late, n, sizeof *late, compare);
    printf("{\"received\": %llu, \"seconds\": %.6f, \"disorder\": %llu, \"p50_us\": %u, \"p99_us\": %u, \"ended\": \"%s\"}\n",
           (unsigned long long)got, (double)(end - begin) * 1e-9, (unsigned long long)disorder,
           n ? late[n / 2] : 0, n ? late[n * 99 / 100] : 0, why);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 7 && !strcmp(argv[1], "pub")) return publish(argv + 2, argc - 2);
    if (argc >= 6 && !strcmp(argv[1], "sub")) return subscribe(argv + 2, argc - 2);
    fprintf(stderr, "usage: nats pub HOST PORT SUBJECT SIZE COUNT [RATE] | nats sub HOST PORT SUBJECT COUNT [RATE]\n");
    return 2;
}
