"""A hub's interface and its peers.

  hub.py hub NAME SECONDS      makes the TUN interface NAME, prints "ready", and from the first packet on counts for SECONDS, after one
                               more to begin with, the bytes to each address; prints them as JSON
  hub.py send SECONDS RATE...  sends UDP for SECONDS to 10.3.0.1, 10.3.0.2, ... at RATE each, in Mb/s of IP packets
"""

import fcntl
import json
import os
import socket
import struct
import sys
import time

SIZE = 1000


def hub(name, seconds):
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
    print("ready", flush=True)
    counts, begin = {}, None
    while True:
        packet = os.read(tun, 65536)
        now = time.monotonic()
        if packet[0] >> 4 != 4 or packet[9] != 17:
            continue
        begin = begin or now + 1
        if now >= begin + seconds:
            break
        if now >= begin:
            to = socket.inet_ntoa(packet[16:20])
            counts[to] = counts.get(to, 0) + len(packet)
    print(json.dumps(counts), flush=True)


def send(seconds, rates):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gaps = [SIZE * 8e-6 / rate for rate in rates]
    begin = time.monotonic()
    due = [begin + gap * i / len(gaps) for i, gap in enumerate(gaps)]
    while (now := time.monotonic()) < begin + seconds:
        for i, gap in enumerate(gaps):
            while due[i] <= now:
                out.sendto(bytes(SIZE - 28), (f"10.3.0.{i + 1}", 9))
                due[i] += gap
        time.sleep(max(min(due) - time.monotonic(), 0))


if sys.argv[1] == "hub":
    hub(sys.argv[2], float(sys.argv[3]))
else:
    send(float(sys.argv[2]), [float(rate) for rate in sys.argv[3:]])
