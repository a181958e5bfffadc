"""Programs of tenants that do not cooperate, as a table: `attacks.py list` prints it as JSON.

`attacks.py run USER NAME HOST HOST6 PORT LINK` is the program NAME as an unprivileged user. It sends all it
can to HOST and HOST6 over the interface LINK. Without the kernel's feature it prints `refused` and ends.
`attacks.py sink PORT` reads at the far end. `attacks.py frames LINK` makes packets leave LINK one by one.
Each new kernel feature for sockets gets a row.
"""

import collections
import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
BLOCK = bytes(1 << 16)
DATAGRAM = BLOCK[:1400]
IP, IP6, TCP, UDP, SOL = 0, 41, 6, 17, socket.SOL_SOCKET
MPTCP, SCTP, UDPLITE = 262, 132, 136
FREEBIND, FREEBIND6, MTU6, ROUTING6, PACKET6 = 15, 78, 24, 57, 50
SEGMENT, CORK = 103, 1
CLONE_FILES, CLONE_NEWUSER, CLONE_NEWNET = 0x400, 0x10000000, 0x40000000
SYS = {"x86_64": {"exit": 60, "bpf": 321}, "aarch64": {"exit": 93, "bpf": 280}}[os.uname().machine]
TABLE = {}
(HOST, HOST6, PORT, LINK) = ("", "", 0, "")
ARGUMENTS = []


class Refused(Exception):
    """The kernel lacks the feature, or does not allow it to this user."""


def attack(name, does, needs="Linux 6.12", finding=False, arguments=(), quiet=False):
    """Adds a program. `finding`: it broke the limit once. `quiet`: it may send nothing to the network."""

    def add(program):
        TABLE[name] = (program, arguments, {"name": name, "does": does, "needs": needs, "finding": finding, "quiet": quiet})
        return program

    return add


def asked(*call):
    """A call that an older kernel, or one built without the feature, refuses."""
    try:
        return call[0](*call[1:])
    except OSError as error:
        raise Refused(str(error)) from error


# Building blocks.


def connect(protocol=0, host=None, port=None, before=None):
    host = host or HOST
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = asked(socket.socket, family, socket.SOCK_STREAM, protocol)
    if before:
        before(sock)
    sock.connect((host, port or PORT))
    return sock


def stream(protocol=0, host=None, before=None, block=BLOCK):
    sock = connect(protocol, host, before=before)
    while True:
        sock.sendall(block)


def udp(host=None):
    sock = socket.socket(socket.AF_INET6 if ":" in (host or HOST) else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(SOL, socket.SO_SNDBUF, 1 << 21)
    return sock


def flood(sock, size=1400, to=None, echo=False):
    """Sends datagrams of a size without end; drops are not a reason to stop."""
    to, data = to or ((HOST6 if sock.family == socket.AF_INET6 else HOST), PORT), BLOCK[:size]
    if echo:
        data = struct.pack("!BBHHH", 128, 0, 0, 1, 1) + data
    while True:
        try:
            sock.sendto(data, to)
        except OSError as error:
            # EPERM is the limit's drop.
            if error.errno in (13, 19, 22, 90, 92, 95, 97, 99, 101):
                raise Refused(str(error)) from error
            time.sleep(0.0001)


def threads(count, work, *args):
    for _ in range(count):
        threading.Thread(target=work, args=args, daemon=True).start()
    while True:
        time.sleep(1)


def processes(count, work, *args):
    for _ in range(count):
        if os.fork() == 0:
            work(*args)
    while True:
        time.sleep(1)


def churn(size, host=None, end="orderly"):
    ending = collections.deque()
    while True:
        with contextlib.suppress(OSError):
            sock = connect(host=host)
            if end == "reset":
                sock.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
            left = size
            while left > 0:
                left -= sock.send(BLOCK[:left])
            if end != "orderly":
                sock.close()
                continue
            ending.append(sock)
            sock.shutdown(socket.SHUT_WR)
            # What waits to be sent is on few sockets, as the sink has a descriptor for each.
            while len(ending) > 16:
                with ending.popleft() as oldest:
                    oldest.recv(1)


def device(sock):
    sock.setsockopt(SOL, socket.SO_BINDTODEVICE, LINK.encode())


def options4(sock):
    sock.setsockopt(IP, 4, b"\1" * 40)


def segments6(count):
    """A segment-routing header, the one extension header that needs no privileges."""
    header = struct.pack("!BBBBBBH", 0, 2 * count, 4, 0, count - 1, 0, 0)
    header += socket.inet_pton(socket.AF_INET6, HOST6) * count
    return lambda sock: asked(sock.setsockopt, IP6, ROUTING6, header)


def own(link, family=socket.AF_INET):
    """An address of this machine on an interface."""
    words = ["ip", "-json", "-4" if family == socket.AF_INET else "-6", "addr", "show", "dev", link, "scope", "global"]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)[0]["addr_info"][0]["local"]


# TCP.


@attack("tcp", "one connection")
def _():
    stream()


@attack("tcp-6", "one connection over IPv6")
def _():
    stream(host=HOST6)


@attack("tcp-200", "two hundred connections")
def _():
    threads(200, stream)


@attack("bursts-tcp", "sixteen connections that write at the same instants")
def _():
    socks = [connect() for _ in range(16)]
    while True:
        for sock in socks:
            with contextlib.suppress(BlockingIOError):
                sock.send(BLOCK, socket.MSG_DONTWAIT)
        time.sleep(0.25)


@attack("mptcp", "one MPTCP connection", "CONFIG_MPTCP")
def _():
    stream(MPTCP)


@attack("mptcp-join", "MPTCP with a second subflow, which a thread of the kernel opens", "CONFIG_MPTCP", finding=True)
def _():
    threads(4, stream, MPTCP)


@attack("mptcp-50", "fifty MPTCP connections", "CONFIG_MPTCP")
def _():
    threads(50, stream, MPTCP)


@attack("clone-files", "a thread with a private descriptor table")
def _():
    def hidden():
        assert LIBC.unshare(CLONE_FILES) == 0
        stream()

    threads(1, hidden)


@attack("exited-main", "a process whose first thread has ended")
def _():
    threading.Thread(target=stream, daemon=True).start()
    LIBC.syscall(SYS["exit"], 0)


for size in (5_000, 20_000, 60_000, 1_000_000):

    @attack(f"loops-{size // 1000}k", f"eight loops of connections of {size} bytes", arguments=(size,))
    def _(size):
        threads(8, churn, size)


@attack("loops-6", "eight loops of connections of 20 kB over IPv6")
def _():
    threads(8, churn, 20_000, HOST6)


@attack("resets", "connections that end with a reset")
def _():
    threads(8, churn, 20_000, None, "reset")


@attack("orphans", "connections that are closed before their data has left")
def _():
    threads(8, churn, 200_000, None, "orphan")


@attack("forks", "processes that live for one connection")
def _():
    def one():
        sock = connect()
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                sock.send(BLOCK)

    while True:
        child = os.fork()
        if child == 0:
            one()
            os._exit(0)
        os.waitpid(child, 0)


@attack("nodelay", "fifty connections that send single bytes")
def _():
    def bytewise():
        sock = connect(before=lambda sock: sock.setsockopt(TCP, socket.TCP_NODELAY, 1))
        while True:
            sock.sendall(b"x")

    threads(50, bytewise)


@attack("small-segments", "segments of 88 bytes with 40 bytes of IP options", finding=True)
def _():
    def before(sock):
        sock.setsockopt(TCP, socket.TCP_MAXSEG, 88)
        options4(sock)

    stream(before=before)


@attack("routed-segments", "a connection with a segment-routing header", "CONFIG_IPV6", finding=True)
def _():
    stream(host=HOST6, before=segments6(40))


@attack("laws", "a connection that changes its congestion control")
def _():
    sock = connect()

    def change():
        while True:
            for law in (b"cubic", b"reno", b"bbr"):
                with contextlib.suppress(OSError):
                    sock.setsockopt(TCP, socket.TCP_CONGESTION, law)
                time.sleep(0.01)

    threading.Thread(target=change, daemon=True).start()
    while True:
        sock.sendall(BLOCK)


@attack("paces", "connections that set their own pace, again and again")
def _():
    def one():
        sock = connect()
        sock.setblocking(False)
        while True:
            sock.setsockopt(SOL, 47, struct.pack("Q", 10**10))
            with contextlib.suppress(OSError):
                sock.send(BLOCK)

    threads(4, one)


@attack("fast-open", "connections whose SYN has data", "CONFIG_INET")
def _():
    def one():
        while True:
            with contextlib.suppress(OSError), socket.socket() as sock:
                sock.sendto(BLOCK[:40_000], 0x20000000, (HOST, PORT))

    threads(8, one)


@attack("urgent", "a connection of urgent data")
def _():
    sock = connect()
    while True:
        sock.send(BLOCK, socket.MSG_OOB)


@attack("sendfile", "sendfile(2)")
def _():
    with tempfile.TemporaryFile() as file:
        file.write(BLOCK * 16)
        sock = connect()
        while True:
            os.sendfile(sock.fileno(), file.fileno(), 0, 1 << 20)


@attack("splice", "splice(2)")
def _():
    with tempfile.TemporaryFile() as file:
        file.write(BLOCK)
        file.flush()
        (read, write), sock = os.pipe(), connect()
        while True:
            count = os.splice(file.fileno(), write, 1 << 16, offset_src=0)
            while count > 0:
                count -= os.splice(read, sock.fileno(), count)


@attack("zerocopy", "MSG_ZEROCOPY", "Linux 4.14")
def _():
    sock = connect(before=lambda sock: asked(sock.setsockopt, SOL, 60, 1))
    while True:
        with contextlib.suppress(OSError):
            sock.send(BLOCK, 0x4000000)
        with contextlib.suppress(OSError):
            sock.recvmsg(0, 1 << 12, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)


@attack("zerocopy-receive", "a connection that also receives by TCP_ZEROCOPY_RECEIVE", "Linux 4.18")
def _():
    sock = connect()
    address = LIBC.mmap
    address.restype = ctypes.c_void_p
    room = address(None, 1 << 16, mmap.PROT_READ, mmap.MAP_SHARED, sock.fileno(), ctypes.c_long(0))
    if room == ctypes.c_void_p(-1).value:
        raise Refused("mmap")
    while True:
        with contextlib.suppress(OSError):
            sock.getsockopt(TCP, 35, 64)
        sock.sendall(BLOCK)


@attack("tls", "a connection with TLS in the kernel", "CONFIG_TLS")
def _():
    sock = connect()
    asked(sock.setsockopt, TCP, 31, b"tls")
    asked(sock.setsockopt, 282, 1, struct.pack("HH", 0x0304, 51) + bytes(36))
    while True:
        sock.sendall(BLOCK)


@attack("authenticated", "a connection with the authentication option", "CONFIG_TCP_AO")
def _():
    key = struct.pack("HH", socket.AF_INET, 0) + socket.inet_aton(HOST) + bytes(120) + b"hmac(sha1)" + bytes(54)
    key += struct.pack("iIHBBBBBBB", 0, 0, 0, 32, 1, 1, 12, 0, 16, 0) + bytes(80)
    stream(before=lambda sock: asked(sock.setsockopt, TCP, 38, key))


def serve(protocol):
    """Sends on connections that the far end opens."""
    listener = asked(socket.socket, socket.AF_INET, socket.SOCK_STREAM, protocol)
    listener.bind(("", 0))
    listener.listen(64)
    call = struct.pack("!H", listener.getsockname()[1])
    callers = [connect(port=PORT + 1) for _ in range(8)]
    for caller in callers:
        caller.send(call)

    def one():
        sock, _ = listener.accept()
        while True:
            sock.sendall(BLOCK)

    threads(len(callers), one)


@attack("accepted", "connections that the far end opens")
def _():
    serve(0)


@attack("accepted-mptcp", "TCP connections that the far end opens to an MPTCP socket", "CONFIG_MPTCP")
def _():
    serve(MPTCP)


@attack("mptcp-fallback", "MPTCP connections to a server without it", "CONFIG_MPTCP")
def _():
    def one():
        sock = asked(socket.socket, socket.AF_INET, socket.SOCK_STREAM, MPTCP)
        sock.connect((HOST, PORT + 1))
        while True:
            sock.sendall(BLOCK)

    threads(4, one)


@attack("exits", "processes that exit with much data unsent, which the kernel sends again")
def _():
    while True:
        child = os.fork()
        if child == 0:
            for _ in range(16):
                sock = connect()
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    while True:
                        sock.send(BLOCK)
            os._exit(0)
        os.waitpid(child, 0)


@attack("passed", "a socket of another network namespace's process, passed over a Unix socket")
def _():
    here, there = socket.socketpair(socket.AF_UNIX)
    if os.fork() == 0:
        sock = udp()
        socket.send_fds(here, [b"x"], [sock.fileno()])
        os._exit(0)
    _, descriptors, _, _ = socket.recv_fds(there, 1, 1)
    os.wait()
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise Refused("unshare")
    flood(socket.socket(fileno=descriptors[0]))


# UDP and other protocols.


for size in (1400, 64, 1, 65_000):

    @attack(f"udp-{size}", f"datagrams of {size} bytes", arguments=(size,))
    def _(size):
        flood(udp(), size)


@attack("udp-4", "datagrams of four processes")
def _():
    processes(4, flood, udp())


for pause in (60, 100, 250):

    @attack(f"bursts-{pause}", "datagrams in bursts of all that the limit lets pass at once", finding=True, arguments=(pause,))
    def _(pause):
        sock = udp()
        while True:
            with contextlib.suppress(OSError):
                while True:
                    sock.sendto(DATAGRAM, (HOST, PORT))
            time.sleep(pause / 1000)


@attack("udp-6", "IPv6 datagrams")
def _():
    flood(udp(HOST6))


@attack("udp-500", "five hundred UDP sockets")
def _():
    socks = [udp() for _ in range(500)]
    while True:
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.sendto(DATAGRAM, (HOST, PORT))


@attack("fragments-6", "IPv6 datagrams in fragments of 1280 bytes")
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, MTU6, 1280)
    flood(sock, 60_000)


@attack("routed-fragments", "fragmented IPv6 datagrams with a segment-routing header", "CONFIG_IPV6", finding=True)
def _():
    sock = udp(HOST6)
    segments6(60)(sock)
    flood(sock, 20_000)


@attack("routed-gso", "segmented IPv6 datagrams with a segment-routing header", "CONFIG_IPV6", finding=True)
def _():
    sock = udp(HOST6)
    segments6(80)(sock)
    asked(sock.setsockopt, UDP, SEGMENT, 50)
    flood(sock, 50 * 60)


@attack("gso", "datagrams in segments of 1400 bytes", "Linux 4.18")
def _():
    sock = udp()
    asked(sock.setsockopt, UDP, SEGMENT, 1400)
    flood(sock, 1400 * 40)


@attack("gso-6", "IPv6 datagrams in segments of 1200 bytes", "Linux 4.18")
def _():
    sock = udp(HOST6)
    asked(sock.setsockopt, UDP, SEGMENT, 1200)
    flood(sock, 1200 * 40)


@attack("small-gso", "datagrams in segments of 10 bytes with 40 bytes of IP options", "Linux 4.18", finding=True)
def _():
    sock = udp()
    options4(sock)
    asked(sock.setsockopt, UDP, SEGMENT, 10)
    flood(sock, 10 * 120)


@attack("odd-gso", "datagrams in segments of each size, by a control message", "Linux 4.18")
def _():
    sock = udp()
    while True:
        for size in range(1, 1400, 13):
            with contextlib.suppress(OSError):
                sock.sendmsg([BLOCK[: size * 60 + 1 if size < 1000 else size * 40 + 1]], [(UDP, SEGMENT, struct.pack("H", size))], 0, (HOST, PORT))


@attack("zerocopy-gso", "segmented datagrams by MSG_ZEROCOPY", "Linux 5.0")
def _():
    sock = udp()
    asked(sock.setsockopt, SOL, 60, 1)
    asked(sock.setsockopt, UDP, SEGMENT, 1400)
    while True:
        with contextlib.suppress(OSError):
            sock.sendto(BLOCK[: 1400 * 40], 0x4000000, (HOST, PORT))
        with contextlib.suppress(OSError):
            sock.recvmsg(0, 1 << 12, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)


@attack("mapped", "IPv4 datagrams of an IPv6 socket")
def _():
    flood(udp("::"), 1400, (f"::ffff:{HOST}", PORT))


@attack("udp-splice", "datagrams by splice(2)")
def _():
    sock = udp()
    sock.connect((HOST, PORT))
    (read, write), data = os.pipe(), DATAGRAM
    while True:
        os.write(write, data)
        try:
            os.splice(read, sock.fileno(), len(data))
        except OSError:
            os.read(read, len(data))


@attack("corked", "datagrams that are put together in the kernel")
def _():
    sock = udp()
    sock.connect((HOST, PORT))
    while True:
        with contextlib.suppress(OSError):
            sock.setsockopt(UDP, CORK, 1)
            for _ in range(40):
                sock.send(DATAGRAM)
        with contextlib.suppress(OSError):
            sock.setsockopt(UDP, CORK, 0)


@attack("classes", "datagrams of each class and priority")
def _():
    sock = udp()
    while True:
        for priority in range(7):
            sock.setsockopt(IP, socket.IP_TOS, priority << 5)
            sock.setsockopt(SOL, socket.SO_PRIORITY, priority)
            for _ in range(100):
                with contextlib.suppress(OSError):
                    sock.sendto(DATAGRAM, (HOST, PORT))


@attack("launch-times", "datagrams with a launch time (SO_TXTIME)", "Linux 4.19")
def _():
    sock = udp()
    asked(sock.setsockopt, SOL, 61, struct.pack("iI", time.CLOCK_MONOTONIC, 0))
    while True:
        with contextlib.suppress(OSError):
            sock.sendmsg([DATAGRAM], [(SOL, 61, struct.pack("Q", time.monotonic_ns() + 1000))], 0, (HOST, PORT))


@attack("multicast", "datagrams to a group")
def _():
    sock = udp()
    sock.setsockopt(IP, socket.IP_MULTICAST_IF, socket.inet_aton(own(LINK)))
    flood(sock, 1400, ("239.1.1.1", PORT))


@attack("multicast-6", "IPv6 datagrams to all of the network")
def _():
    flood(udp(HOST6), 1200, ("ff02::1", PORT, 0, socket.if_nametoindex(LINK)))


@attack("own-group", "datagrams to a group that this process is in, with hop limit 0 and 1")
def _():
    sock = udp()
    sock.bind(("", 0))
    group = ("239.1.1.2", sock.getsockname()[1])
    sock.setsockopt(IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + socket.inet_aton(own(LINK)))
    while True:
        for limit in (0, 1):
            sock.setsockopt(IP, socket.IP_MULTICAST_TTL, limit)
            with contextlib.suppress(OSError):
                sock.sendto(DATAGRAM, group)


def reports(sock, level, join, leave, group):
    """Joins and leaves groups in four processes, which the kernel reports, beside a flood of datagrams."""
    for number in range(4):
        if os.fork() == 0:
            while True:
                for host in range(1, 1 << 15):
                    for option in (join, leave):
                        with contextlib.suppress(OSError):
                            sock.setsockopt(level, option, group(number, host))
    flood(udp())


@attack("reports", "joins of groups, which the kernel reports, beside datagrams", finding=True, quiet=True)
def _():
    here = socket.inet_aton(own(LINK))
    group = lambda number, host: bytes([239, number + 1, host >> 8, host & 255]) + here
    reports(udp(), IP, socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP, group)


@attack("reports-6", "the same of IPv6 groups", finding=True, quiet=True)
def _():
    link, head = struct.pack("I", socket.if_nametoindex(LINK)), socket.inet_pton(socket.AF_INET6, "ff05::")[:8]
    group = lambda number, host: head + struct.pack("!II", number, host) + link
    reports(udp(HOST6), IP6, socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP, group)


@attack("broadcast", "datagrams to all of the network")
def _():
    sock = udp()
    sock.setsockopt(SOL, socket.SO_BROADCAST, 1)
    flood(sock, 1400, (own(LINK).rsplit(".", 1)[0] + ".255", PORT))


@attack("udp-lite", "UDP-Lite datagrams", "before Linux 7")
def _():
    flood(asked(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, UDPLITE))


@attack("ping", "echo requests", "net.ipv4.ping_group_range")
def _():
    sock = asked(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    request = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + DATAGRAM
    while True:
        with contextlib.suppress(OSError):
            sock.sendto(request, (HOST, 0))


@attack("ping-6", "IPv6 echo requests in fragments", "net.ipv4.ping_group_range")
def _():
    flood(asked(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6), 60_000, echo=True)


def echo_from_elsewhere(size, to):
    """Sends echo requests from the far end's address, which gets the answers."""
    sock = asked(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    asked(sock.bind, (HOST6, 0))
    flood(sock, size, to, echo=True)


@attack("echoes-elsewhere", "echo requests of 60 kB to this machine from another's address", "net.ipv4.ping_group_range")
def _():
    echo_from_elsewhere(60_000, (own(LINK, socket.AF_INET6), 0))


@attack("echoes-of-all", "echo requests to all of the network from another's address", "net.ipv4.ping_group_range", finding=True)
def _():
    echo_from_elsewhere(1200, ("ff02::1", 0, 0, socket.if_nametoindex(LINK)))


@attack("sctp", "an SCTP association", "CONFIG_IP_SCTP")
def _():
    stream(SCTP)


@attack("vsock", "a connection to the machine's host", "CONFIG_VSOCKETS", quiet=True)
def _():
    sock = asked(socket.socket, socket.AF_VSOCK, socket.SOCK_STREAM)
    sock.settimeout(1)
    asked(sock.connect, (2, PORT))
    while True:
        sock.sendall(BLOCK)


# Addresses.


@attack("same-ends", "IPv6 datagrams whose source is their destination (IPV6_FREEBIND)", finding=True)
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    sock.bind((HOST6, 5555))
    flood(sock)


@attack("foreign-source", "IPv6 datagrams from an address of another machine", finding=True)
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    sock.bind(("fd99::77", 5555))
    flood(sock)


@attack("named-source", "the same by IPV6_PKTINFO", finding=True)
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    info = socket.inet_pton(socket.AF_INET6, HOST6) + struct.pack("I", 0)
    while True:
        with contextlib.suppress(OSError):
            sock.sendmsg([DATAGRAM], [(IP6, PACKET6, info)], 0, (HOST6, PORT))


@attack("loopback-net", "datagrams to 127.0.0.2 over an interface (SO_BINDTODEVICE)", "Linux 5.7", finding=True)
def _():
    sock = udp()
    device(sock)
    flood(sock, 1400, ("127.0.0.2", PORT))


@attack("own-address", "datagrams to an address of this machine over another interface", "Linux 5.7", finding=True)
def _():
    sock, there = udp(), own("t2")
    device(sock)
    sock.bind((there, 0))
    flood(sock, 1400, (there, PORT))


@attack("other-port", "datagrams to a port that no filter names")
def _():
    flood(udp(), 1400, (HOST, 9))


@attack("source-route", "datagrams with a source route over this machine")
def _():
    sock = udp()
    here = socket.inet_aton(own(LINK))
    asked(sock.setsockopt, IP, 4, bytes([131, 11, 4]) + here + socket.inet_aton(HOST) + b"\0")
    flood(sock)


@attack("resets-elsewhere", "SYN packets to this machine from an address of another, which gets the resets", finding=True)
def _():
    def one():
        here = own(LINK, socket.AF_INET6)
        while True:
            with socket.socket(socket.AF_INET6) as sock, contextlib.suppress(OSError):
                sock.setblocking(False)
                sock.setsockopt(IP6, FREEBIND6, 1)
                sock.bind((HOST6, 0))
                sock.connect((here, 1))

    processes(4, one)


@attack("errors-elsewhere", "datagrams to this machine from an address of another, which gets the errors", finding=True)
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    sock.bind((HOST6, 0))
    here = own(LINK, socket.AF_INET6)
    sock.connect((here, 1))
    while True:
        with contextlib.suppress(OSError):
            sock.send(DATAGRAM)


@attack("small-errors", "small datagrams to this machine from many addresses of others, which get the errors", finding=True)
def _():
    sock = udp(HOST6)
    sock.setsockopt(IP6, FREEBIND6, 1)
    to, net = (own(LINK, socket.AF_INET6), 1), socket.inet_pton(socket.AF_INET6, HOST6)[:12]
    for source in range(1 << 16, 1 << 32):
        # An error is 48 bytes longer. The kernel sends ten thousand a second, and few to one address.
        with contextlib.suppress(OSError):
            sock.sendmsg([BLOCK[:219]], [(IP6, PACKET6, net + struct.pack("!II", source, 0))], 0, to)


@attack("neighbours", "small datagrams to addresses of the network that nobody has", "Linux 6.12")
def _():
    sock, sock6 = udp(), udp(HOST6)
    sock6.setsockopt(IP6, FREEBIND6, 1)
    here, here6 = own(LINK), own(LINK, socket.AF_INET6)
    net = socket.inet_pton(socket.AF_INET6, HOST6)[:12]
    while True:
        for host in range(10, 250):
            with contextlib.suppress(OSError):
                sock.sendto(b"", (f"{here.rsplit('.', 1)[0]}.{host}", PORT))
            source = net + struct.pack("!II", time.monotonic_ns() & 0xFFFFFFFF | 1 << 31, 0)
            with contextlib.suppress(OSError):
                sock6.sendmsg([BLOCK[:219]], [(IP6, PACKET6, source)], 0, (f"{here6[: here6.rindex(':')]}:{host:x}", PORT))


@attack("loopback-device", "datagrams to another machine over the loopback device", "Linux 5.7", quiet=True)
def _():
    def one(sock, to):
        sock.setsockopt(SOL, socket.SO_BINDTODEVICE, b"lo")
        flood(sock, 1400, to)

    if os.fork() == 0:
        one(udp(HOST6), (HOST6, PORT))
    one(udp(), (HOST, PORT))


@attack("routed-here", "datagrams over this machine's own address by a segment-routing header", "CONFIG_IPV6", finding=True)
def _():
    sock, here = udp(HOST6), socket.inet_pton(socket.AF_INET6, own(LINK, socket.AF_INET6))
    header = struct.pack("!BBBBBBH", 0, 4, 4, 1, 1, 0, 0) + here * 2
    asked(sock.setsockopt, IP6, ROUTING6, header)
    flood(sock, 1200)


# Other ways into the kernel.


def in_own_namespaces(user):
    """Enters new user and network namespaces, as this user or another one there."""
    uid, gid = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise Refused("unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {uid} 1"), ("gid_map", f"{user} {gid} 1")):
        # An encoding is a module that this user may not be able to read.
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)


def pair():
    """A pair of interfaces, made by this user's own root."""
    for words in (
        "link add v0 type veth peer name v1",
        "addr add 10.1.1.1/24 dev v0",
        "link set v0 up",
        "link set v1 up",
        "neigh add 10.1.1.2 lladdr 02:00:00:00:00:02 dev v0",
    ):
        subprocess.run(["ip", *words.split()], check=True)


@attack("own-namespace", "datagrams in a namespace of its own, as the other tenant's user there", finding=True, quiet=True)
def _():
    # The interfaces are root's there, and the sockets the other user's: as `unshare --keep-caps` does.
    in_own_namespaces(0)
    pair()
    sock = udp()
    flood(sock, 1400, ("10.1.1.2", PORT))


@attack("other-user", "datagrams in a namespace of its own that calls its user by the other tenant's number", finding=True, quiet=True)
def _():
    in_own_namespaces(os.getuid() + 1)
    # As `unshare --keep-caps` does, so that `ip` may add interfaces without being root there.
    head, data = struct.pack("II", 0x20080522, 0), bytearray(24)
    LIBC.capget(head, (ctypes.c_char * 24).from_buffer(data))
    sets = list(struct.unpack("6I", data))
    sets[2], sets[5] = sets[1], sets[4]
    LIBC.capset(head, struct.pack("6I", *sets))
    LIBC.prctl(47, 2, 12, 0, 0)
    pair()
    flood(udp(), 1400, ("10.1.1.2", PORT))


@attack("renamed", "datagrams of a user namespace that calls its user by the other tenant's number")
def _():
    uid = os.getuid()
    if LIBC.unshare(CLONE_NEWUSER) != 0:
        raise Refused("unshare")
    file = os.open("/proc/self/uid_map", os.O_WRONLY)
    os.write(file, f"{uid + 1} {uid} 1".encode())
    flood(udp())


@attack("packet-sockets", "packet sockets in a namespace of its own", "CONFIG_PACKET", quiet=True)
def _():
    in_own_namespaces(0)
    pair()
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind(("v0", 0x0800))
    frame = b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x08\0" + DATAGRAM
    while True:
        with contextlib.suppress(OSError):
            sock.send(frame)


@attack("packet-socket", "a packet socket on the machine's interface", "CONFIG_PACKET", quiet=True)
def _():
    asked(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)


@attack("xdp", "an AF_XDP socket on the machine's interface", "CONFIG_XDP_SOCKETS", quiet=True)
def _():
    sock = asked(socket.socket, 44, socket.SOCK_RAW)
    asked(sock.setsockopt, 283, 2, struct.pack("I", 64))
    raise Refused("no memory registered")


@attack("bpf", "a program of its own, and the limit's detached", "Linux 6.12", arguments=(1,))
def _(_):
    # BPF_PROG_LOAD and BPF_PROG_DETACH at the root of the control groups, then as before.
    code = ctypes.create_string_buffer(struct.pack("<BBhi", 0xB7, 0, 0, 1) + struct.pack("<BBhi", 0x95, 0, 0, 0))
    name = ctypes.create_string_buffer(b"GPL")
    load = struct.pack("IIQQ", 8, 2, ctypes.addressof(code), ctypes.addressof(name)) + bytes(96)
    assert LIBC.syscall(SYS["bpf"], 5, load, len(load)) < 0, "the kernel takes programs of any user"
    with contextlib.suppress(OSError):
        group = os.open("/sys/fs/cgroup", os.O_RDONLY)
        for kind in (1, 3):
            detach = struct.pack("IIIII", group, 0, kind, 0, 0) + bytes(44)
            assert LIBC.syscall(SYS["bpf"], 9, detach, len(detach)) < 0, "the kernel detaches the limit"
    flood(udp())


@attack("repair", "a connection in repair mode", arguments=(1,), quiet=True)
def _(_):
    sock = socket.socket()
    asked(sock.setsockopt, TCP, 19, 1)


class Ring:
    """The least of io_uring: a queue of requests that are all sends on one socket."""

    def __init__(self, flags):
        params = bytearray(struct.pack("IIIIIII", 0, 0, flags, 0, 1000, 0, 0) + bytes(92))
        buffer = (ctypes.c_char * len(params)).from_buffer(params)
        self.ring = LIBC.syscall(425, 64, buffer)
        if self.ring < 0:
            raise Refused(os.strerror(ctypes.get_errno()))
        head, tail, mask, _, _, _, array = struct.unpack_from("7I", params, 40)
        chead, ctail = struct.unpack_from("2I", params, 80)
        cqes = struct.unpack_from("I", params, 80 + 20)[0]
        size = max(array + 4 * 64, cqes + 16 * 128)
        self.map = mmap.mmap(self.ring, size, flags=mmap.MAP_SHARED, offset=0)
        self.entries = mmap.mmap(self.ring, 64 * 64, flags=mmap.MAP_SHARED, offset=0x10000000)
        (self.tail, self.mask, self.array, self.chead, self.ctail) = (tail, mask, array, chead, ctail)

    def word(self, at, value=None):
        if value is not None:
            struct.pack_into("I", self.map, at, value & 0xFFFFFFFF)
        return struct.unpack_from("I", self.map, at)[0]

    def send(self, sock, data, address, poll):
        for _ in range(32):
            tail = self.word(self.tail)
            index = tail & 63
            entry = struct.pack("BBHiQQIIQ", 26, 0, 0, sock.fileno(), 0, address, len(data), 0, 0) + bytes(24)
            self.entries[index * 64 : index * 64 + 64] = entry
            struct.pack_into("I", self.map, self.array + 4 * index, index)
            self.word(self.tail, tail + 1)
        LIBC.syscall(426, self.ring, 0 if poll else 32, 0 if poll else 32, 3 if poll else 1, None, 0)
        if poll:
            time.sleep(0.0002)
        self.word(self.chead, self.word(self.ctail))


@attack("io-uring", "sends by io_uring", "CONFIG_IO_URING", arguments=(0,))
@attack("io-uring-poll", "sends by io_uring's own thread", "CONFIG_IO_URING", arguments=(2,))
def _(flags):
    ring, sock = Ring(flags), udp()
    sock.connect((HOST, PORT))
    data = ctypes.create_string_buffer(DATAGRAM)
    while True:
        ring.send(sock, DATAGRAM, ctypes.addressof(data), flags != 0)


# The far end, and the command line.


def sink(port):
    """Reads connections; ignores datagrams, which must find a socket, or errors come back. A connection to the next
    port, which has no MPTCP, may ask by two bytes for a connection to its sender's port of that number.
    """
    deaf = udp("::")
    deaf.bind(("::", port))
    deaf.setsockopt(SOL, socket.SO_RCVBUF, 1)
    poll = selectors.DefaultSelector()
    listeners = []
    for offset, protocol in ((0, MPTCP), (1, 0)):
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
        listener.setsockopt(SOL, socket.SO_REUSEADDR, 1)
        listener.setsockopt(IP6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", port + offset))
        listener.listen(1000)
        listener.setblocking(False)
        poll.register(listener, selectors.EVENT_READ)
        listeners.append(listener)
    room = bytearray(1 << 18)
    print("listening", flush=True)
    while True:
        for key, _ in poll.select():
            sock = key.fileobj
            if sock in listeners:
                sock, caller = sock.accept()
                sock.setblocking(False)
                poll.register(sock, selectors.EVENT_READ, caller[0] if key.fileobj is listeners[1] else None)
                continue
            try:
                count = sock.recv_into(room)
                if count >= 2 and key.data and (wanted := struct.unpack_from("!H", room)[0]):
                    back = socket.socket(socket.AF_INET6)
                    back.setblocking(False)
                    back.connect_ex((key.data, wanted))
                    poll.register(back, selectors.EVENT_READ)
                if count > 0:
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            poll.unregister(sock)
            sock.close()


def frames(link):
    """Turns off TCP's segmentation in the interface, so that its counters see what a wire sees."""
    value = ctypes.create_string_buffer(struct.pack("II", 0x1F, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8946, struct.pack("16sQ16x", link.encode(), ctypes.addressof(value)))


def main():
    global HOST, HOST6, PORT, LINK
    if sys.argv[1] == "list":
        print(json.dumps([row for _, _, row in TABLE.values()]))
    elif sys.argv[1] == "sink":
        sink(int(sys.argv[2]))
    elif sys.argv[1] == "frames":
        for link in sys.argv[2:]:
            frames(link)
    else:
        user, name, HOST, HOST6, port, LINK = sys.argv[2:]
        PORT = int(port)
        if os.getuid() != int(user):
            os.setgroups([])
            os.setresgid(*[int(user)] * 3)
            os.setresuid(*[int(user)] * 3)
            LIBC.prctl(38, 1, 0, 0, 0)  # no new privileges
            LIBC.prctl(4, 1, 0, 0, 0)  # its own files under /proc, as a program has them
        try:
            program, arguments, _ = TABLE[name]
            program(*arguments)
        except Refused as why:
            print("refused:", why, flush=True)
        except KeyboardInterrupt:
            pass
        while name not in ("repair",):
            time.sleep(1)


main()
