#!/usr/bin/env python3
"""Measures the throughput and the timing accuracy of `tollway exec`, compared with a bare forwarder.

  python3 bench/exec.py            everything
  python3 bench/exec.py --quick    shorter runs
  python3 bench/exec.py --json     one JSON object on standard output

Throughput is that of one TCP connection between two namespaces, both ends and what is between them on this machine: through `tollway
exec` with trains of segments whole (GSO) and packet by packet, and through `bench/forwarder.c` (AF_PACKET, root only). Each number is the
best of several runs, since other work on a machine only takes away. Accuracy is measured with IPv4 and with IPv6. Needs a release build, and `cc` for the forwarder.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.path.join(HERE, "..", "target", "release", "tollway")
ME = [sys.executable, os.path.abspath(__file__)]
PORT = 9000


# Of IP: 64 bytes of payload in UDP, and the part of a full packet that TCP carries.
HEADERS = {"server": (20, 1448 / 1500), "fd77::2": (40, 1428 / 1500)}


def listen():
    return socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)


def source(seconds):
    """Serves one connection: sends as much as it takes for so long."""
    listener = listen()
    print("ready", flush=True)
    chunk = bytes(1 << 20)
    while True:
        connection, _ = listener.accept()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                connection.sendall(chunk)
        except OSError:
            pass
        connection.close()


def sink(host):
    """Reads a connection to its end and prints bits a second, the first fifth of a second left out."""
    connection = socket.create_connection((host, PORT))
    buffer = bytearray(1 << 20)
    begin, total, skipped = time.monotonic(), 0, None
    while length := connection.recv_into(buffer):
        total += length
        if skipped is None and time.monotonic() - begin > 0.2:
            skipped, since = total, time.monotonic()
    print((total - skipped) * 8 / (time.monotonic() - since), flush=True)


def echo():
    receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    receiver.bind(("::", PORT))
    # Somebody listening for TCP is how the run knows that the server is there.
    listener = listen()
    while True:
        data, sender = receiver.recvfrom(2048)
        receiver.sendto(data, sender)


def pings(host, count):
    """Round trips of datagrams, milliseconds."""
    family, *_, address = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.connect(address)
    trips = []
    for _ in range(count):
        sent = time.perf_counter()
        sender.send(b"x" * 64)
        sender.recv(2048)
        trips.append((time.perf_counter() - sent) * 1e3)
        time.sleep(0.005)
    print(json.dumps(trips), flush=True)


def tollway(link, server, client):
    """Runs `client` over `link`; answers what it printed, and the report."""
    quoted = " ".join(ME + server)
    command = [TOLLWAY, "exec", "--link", link, "--json", "--serve", quoted, "--"] + ME + client
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    said = [line for line in done.stderr.splitlines() if line[:1] in "[0123456789"]
    return json.loads(said[-1]), json.loads(done.stdout)


def bare(seconds):
    """The same connection through the bare forwarder, and what processor time it took, or None if it can't be had."""
    if os.geteuid() or not shutil.which("cc") or not shutil.which("ip"):
        return None, None
    with tempfile.TemporaryDirectory() as folder:
        forwarder = os.path.join(folder, "forwarder")
        subprocess.run(["cc", "-O2", "-o", forwarder, os.path.join(HERE, "forwarder.c")], check=True)
        names = [f"tollway-bench-{os.getpid()}-{side}" for side in "abm"]
        running = []
        try:
            for name in names:
                subprocess.run(["ip", "netns", "add", name], check=True)
            macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
            inside = lambda name, *words: subprocess.run(["ip", "netns", "exec", name, *words], check=True)
            for i, name in enumerate(names[:2]):
                # The forwarder's ends are in a namespace of their own, so that nothing else sees
                # the packets.
                inside(names[2], "ip", "link", "add", f"fw{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
                inside(names[2], "sysctl", "-qw", f"net.ipv6.conf.fw{i}.disable_ipv6=1")
                inside(names[2], "ip", "link", "set", f"fw{i}", "up")
                inside(name, "ip", "link", "set", "eth0", "address", macs[i])
                inside(name, "ip", "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
                inside(name, "ip", "link", "set", "eth0", "up")
                inside(name, "ip", "neigh", "add", f"10.78.0.{2 - i}", "lladdr", macs[1 - i], "dev", "eth0")
            begin = lambda name, *words: subprocess.Popen(
                ["ip", "netns", "exec", name, *words], stdout=subprocess.PIPE, text=True
            )
            running.append(begin(names[2], forwarder, "fw0", "fw1"))
            running[0].stdout.readline()
            running.append(begin(names[1], *ME, "--source", str(seconds)))
            running[1].stdout.readline()
            done = subprocess.run(
                ["ip", "netns", "exec", names[0], *ME, "--sink", "10.78.0.2"], capture_output=True, text=True, check=True
            )
            with open(f"/proc/{running[0].pid}/stat") as stat:
                ticks = sum(int(field) for field in stat.read().rsplit(")", 1)[1].split()[11:13])
            return float(done.stdout), ticks / os.sysconf("SC_CLK_TCK")
        finally:
            for process in running:
                process.kill()
                process.wait()
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False)


def accuracy(host, seconds):
    """Rate and delays of a link beside what is due, to a host by its name or address."""
    header, part = HEADERS[host]
    rate, report = tollway("100Mbps 10ms", ["--source", str(2 * seconds)], ["--sink", host])
    down = next(link for link in report["links"] if link["link"] == "down")
    trips, quiet = tollway("100Mbps 10ms", ["--echo"], ["--pings", host, "200"])
    trips.sort()
    # There and back.
    due = 2 * (10 + (64 + 8 + header) * 8 / 100e6 * 1e3)
    return {
        "rate_best_second_mbps": down["best_second_mbps"],
        "rate_error": down["best_second_mbps"] / 100 - 1,
        "goodput_to_expected": rate / (100e6 * part),
        "added_delay_ms": {f"p{at}": trips[len(trips) * at // 100] - due for at in (50, 90, 99)},
        "lateness_us": quiet["lateness_us"],
        "kept_up": report["kept_up"] and quiet["kept_up"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="shorter runs, fewer of them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--source", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--sink", help=argparse.SUPPRESS)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pings", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.source is not None:
        return source(options.source)
    if options.sink:
        return sink(options.sink)
    if options.echo:
        return echo()
    if options.pings:
        return pings(options.pings[0], int(options.pings[1]))

    seconds, runs = (2, 3) if options.quick else (5, 5)
    def through(link):
        rate, report = tollway(link, ["--source", str(seconds)], ["--sink", "server"])
        return rate, report["emulator_cpu_s"]

    # In turn, so that what else the machine does meets all of them.
    ways = [lambda: through("100Gbps limit=16MB"), lambda: through("100Gbps limit=10000packets"), lambda: bare(seconds)]
    rounds = [[way() for way in ways] for _ in range(runs)]
    best = lambda way: max((entry[way][0] for entry in rounds if entry[way][0]), default=None)
    whole, single, forwarded = (best(way) for way in range(3))
    # Of the thread that forwards: on a machine with other work it says more than the rate, which
    # hangs on when the two ends run.
    a_second = lambda way: max(
        (rate * seconds / 1e9 / cpu for rate, cpu in (entry[way] for entry in rounds) if rate and cpu), default=None
    )
    per_cpu = {"gso": a_second(0), "packets": a_second(1), "forwarder": a_second(2)}

    measured = {
        "gso_gbps": whole / 1e9,
        "packets_gbps": single / 1e9,
        "forwarder_gbps": forwarded and forwarded / 1e9,
        "gso_to_forwarder": forwarded and whole / forwarded,
        "gbit_per_cpu_second": per_cpu,
        "gso_to_forwarder_per_cpu": per_cpu["forwarder"] and per_cpu["gso"] / per_cpu["forwarder"],
        **accuracy("server", seconds),
        "ipv6": accuracy("fd77::2", seconds),
        "load": os.getloadavg()[0],
        "processors": os.cpu_count(),
    }
    if options.json:
        print(json.dumps(measured, indent=2))
        return
    number = lambda value, unit: "–" if value is None else f"{value:.2f} {unit}"
    print(f"one TCP connection, trains whole      {number(measured['gso_gbps'], 'Gb/s')}")
    print(f"one TCP connection, packet by packet  {number(measured['packets_gbps'], 'Gb/s')}")
    print(f"bare AF_PACKET forwarder, GSO         {number(measured['forwarder_gbps'], 'Gb/s')}")
    print(f"a processor second of ours, the same  {number(per_cpu['gso'], 'Gbit')}, packet by packet {number(per_cpu['packets'], 'Gbit')}")
    print(f"a processor second of the forwarder   {number(per_cpu['forwarder'], 'Gbit')}")
    print(f"a link of 100 Mb/s, its best second   {number(measured['rate_best_second_mbps'], 'Mb/s')}")
    for family, of in (("IPv4", measured), ("IPv6", measured["ipv6"])):
        added = of["added_delay_ms"]
        print(f"added to a round trip of 20 ms, {family}  {added['p50']:.3f} ms (median), {added['p99']:.3f} ms (99 %)")


if __name__ == "__main__":
    main()
