/* The least a program can do between two interfaces: everything that comes on one goes out on the other, trains of segments whole.
 *
 *   cc -O2 -o forwarder forwarder.c && ./forwarder IF1 IF2
 *
 * What `tollway exec` is measured against: AF_PACKET sockets with PACKET_VNET_HDR, one thread, no queue, no law, no clock.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int open_on(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    int on = 1, large = 64 << 20;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) || bind(fd, (struct sockaddr *)&at, sizeof at)) {
        perror(name);
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof large);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
    return fd;
}

int main(int argc, char **argv) {
    static char buffer[1 << 17];
    if (argc != 3) return 2;
    struct pollfd fds[2] = {{open_on(argv[1]), POLLIN, 0}, {open_on(argv[2]), POLLIN, 0}};
    /* As the emulator does, where it may: on a busy machine priority would be all that is measured. */
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    puts("ready");
    fflush(stdout);
    for (;;) {
        poll(fds, 2, -1);
        for (int i = 0; i < 2; i++)
            for (int n = 0; n < 64; n++) {
                ssize_t len = recv(fds[i].fd, buffer, sizeof buffer, 0);
                if (len <= 0) break;
                while (send(fds[1 - i].fd, buffer, (size_t)len, 0) < 0) {
                    struct pollfd out = {fds[1 - i].fd, POLLOUT, 0};
                    poll(&out, 1, 10);
                }
            }
    }
}
