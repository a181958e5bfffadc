"""Sends COUNT echo requests of SIZE bytes, one every INTERVAL seconds, and prints how many were answered within a second.

  ping.py ADDRESS COUNT INTERVAL SIZE [whole]    with `whole`, packets must not be fragmented
"""

import errno
import select
import socket
import struct
import sys
import time

address, count, interval, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
v6 = ":" in address
ask, reply = (128, 129) if v6 else (8, 0)
family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if v6 else (socket.AF_INET, socket.IPPROTO_ICMP)
raw = socket.socket(family, socket.SOCK_RAW, protocol)
if "whole" in sys.argv[5:]:
    raw.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
number = int(time.time() * 1e6) & 0xFFFF


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~((total >> 16) + total) & 0xFFFF


answered, sent, end = set(), 0, time.monotonic()
due = end
while sent < count or (len(answered) < sent and time.monotonic() < end):
    if sent < count and time.monotonic() >= due:
        body = struct.pack("!BBHHH", ask, 0, 0, number, sent) + bytes(size & ~1)
        if not v6:
            body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
        try:
            raw.sendto(body, (address, 0))
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                print("cannot send:", error, file=sys.stderr)
        sent, due, end = sent + 1, due + interval, time.monotonic() + 1
    wait = (due if sent < count else end) - time.monotonic()
    if select.select([raw], [], [], max(wait, 0))[0]:
        packet = raw.recv(1 << 16)
        packet = packet if v6 else packet[(packet[0] & 15) * 4 :]
        kind, _, _, whose, which = struct.unpack("!BBHHH", packet[:8])
        if (kind, whose) == (reply, number):
            answered.add(which)
print(len(answered))
