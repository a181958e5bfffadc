"""A tenant that does not cooperate: `attack.py KIND HOST PORT` sends all it can; `attack.py sink HOST PORT` reads it."""

import collections
import ctypes
import os
import selectors
import socket
import sys
import threading
import time

MPTCP = 262
CLONE_FILES = 0x400
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
LIBC = ctypes.CDLL(None, use_errno=True)
BLOCK = bytes(1 << 16)


def connect(host, port, protocol=0):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    sock.connect((host, port))
    return sock


def stream(host, port, protocol=0):
    sock = connect(host, port, protocol)
    while True:
        sock.sendall(BLOCK)


def hidden(host, port):
    """A thread with a private descriptor table."""
    assert LIBC.unshare(CLONE_FILES) == 0
    stream(host, port)


def churn(host, port, size):
    ending = collections.deque()
    while True:
        try:
            sock = connect(host, port)
            ending.append(sock)
            left = size
            while left > 0:
                left -= sock.send(BLOCK[:left])
            sock.shutdown(socket.SHUT_WR)
            # What waits to be sent is on few sockets, as the sink has a descriptor for each.
            while len(ending) > 16:
                with ending.popleft() as oldest:
                    oldest.recv(1)
        except OSError:
            time.sleep(0.01)


def threads(count, work, *args):
    for _ in range(count):
        threading.Thread(target=work, args=args, daemon=True).start()


def datagrams(host, port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, port))
    while True:
        try:
            sock.send(BLOCK[:1400])
        except OSError:
            time.sleep(0.0001)


def sink(host, port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1000)
    listener.setblocking(False)
    poll = selectors.DefaultSelector()
    poll.register(listener, selectors.EVENT_READ)
    room = bytearray(1 << 18)
    print("listening", flush=True)
    while True:
        for key, _ in poll.select():
            if key.fileobj is listener:
                sock, _ = listener.accept()
                sock.setblocking(False)
                poll.register(sock, selectors.EVENT_READ)
                continue
            try:
                if key.fileobj.recv_into(room) > 0:
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            poll.unregister(key.fileobj)
            key.fileobj.close()


def main():
    kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if kind == "sink":
        sink(host, port)
    # As an unprivileged user; its control group was joined before.
    os.setgid(65534)
    os.setuid(65534)
    if kind == "ordinary":
        stream(host, port)
    elif kind == "mptcp":
        stream(host, port, MPTCP)
    elif kind == "clone-files":
        threads(1, hidden, host, port)
    elif kind == "exited-main":
        threads(1, stream, host, port)
        LIBC.syscall(SYS_EXIT, 0)
    elif kind == "loops-20k":
        threads(8, churn, host, port, 20_000)
    elif kind == "loops-1m":
        threads(8, churn, host, port, 1_000_000)
    elif kind == "many":
        threads(200, stream, host, port)
    elif kind == "datagrams":
        datagrams(host, port)
    while True:
        time.sleep(1)


main()
