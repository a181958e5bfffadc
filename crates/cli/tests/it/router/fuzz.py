"""Sends BYTES bytes of damaged frames out of INTERFACE to the hardware address TO. Prints the number of frames.

  fuzz.py INTERFACE TO BYTES SEED

Each is one of some well-formed frames, cut at a random length, with random bytes in random places: mostly in its headers.
"""

import random
import socket
import struct
import sys

interface, to, most, seed = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", "")), int(sys.argv[3]), int(sys.argv[4])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0))
link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
random.seed(seed)

HERE, THERE = bytes([10, 2, 0, 2]), bytes([10, 1, 0, 2])
HERE6, THERE6 = bytes.fromhex("fd02" + "0" * 27 + "2"), bytes.fromhex("fd01" + "0" * 27 + "2")
PORTS = struct.pack("!HH", 5001, 5002)


def ip(protocol, body, flags=0, options=b""):
    words = (0x45 + len(options) // 4, 0, 20 + len(options) + len(body), 7, flags, 64, protocol, 0, HERE, THERE)
    return struct.pack("!BBHHHBBH4s4s", *words) + options + body


def ip6(protocol, body):
    return struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + HERE6 + THERE6 + body


def tcp(options, data=bytes(1200)):
    options += bytes(-len(options) % 4)
    return PORTS + struct.pack("!IIBBHHH", 1, 1, (5 + len(options) // 4) << 4, 16, 500, 0, 0) + options + data


UDP = PORTS + struct.pack("!HH", 1208, 0) + bytes(1200)
# Options of XCP (kinds 14 and 15), an experiment's (253), timestamps, three SACK blocks.
OPTIONS = [
    b"",
    bytes([14, 8, 1, 0, 3, 0, 0, 9, 15, 4, 0, 9]),
    bytes([253, 12, 0x58, 0x43, *range(8)]),
    bytes([1, 1, 8, 10, *range(8), 1, 1, 5, 26, *range(24)]),
]
PACKETS = [(0x0800, ip(6, tcp(options))) for options in OPTIONS] + [(0x86DD, ip6(6, tcp(options))) for options in OPTIONS]
PACKETS += [
    (0x0800, ip(17, UDP)),
    (0x0800, ip(17, UDP, flags=0x2000)),
    (0x0800, ip(17, UDP, flags=0x00A0)),
    (0x0800, ip(17, UDP, options=bytes([7, 11, 4, *range(9)]))),
    (0x0800, ip(1, bytes([3, 4, 0, 0, 0, 0, 5, 0]) + ip(6, tcp(b"", b"")))),
    (0x0800, ip(4, ip(6, tcp(b"")))),
    (0x86DD, ip6(17, UDP)),
    (0x86DD, ip6(0, bytes([60, 0, 5, 2, 0, 0, 1, 0, 44, 0, 1, 0, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 7]) + UDP)),
    (0x86DD, ip6(43, bytes([6, 2, 0, 1, *range(20)]) + tcp(b""))),
    (0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + bytes(20)),
    (0x8847, bytes(64)),
]
FRAMES = []
for kind, packet in PACKETS:
    for tags in (b"", bytes([0x81, 0, 0, 5]), bytes([0x88, 0xA8, 0, 9, 0x81, 0, 0, 5])):
        FRAMES.append(to + bytes([2, 0, 0, 0, 0, 1]) + tags + struct.pack("!H", kind) + packet)

sent = count = 0
while sent < most:
    bits = random.getrandbits(128)
    frame = bytearray(FRAMES[bits % len(FRAMES)])
    bits >>= 8
    if not bits & 7:
        del frame[14 + (bits >> 3) % (len(frame) - 14) :]
    bits >>= 16
    for _ in range(bits & 3):
        bits >>= 16
        # Behind the addresses, which must be those of the interface.
        frame[12 + (bits & 0xFF) % min(len(frame) - 12, 90)] = bits >> 8 & 0xFF
    try:
        link.send(frame)
    except OSError:
        continue
    sent, count = sent + len(frame), count + 1
print(count)
