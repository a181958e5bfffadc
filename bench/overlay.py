#!/usr/bin/env python3
"""Messages per second of `tollway overlay`'s processor, beside nats-server's, with the same client.

  python3 bench/overlay.py            one site beside nats-server: 1 to 1, 1 to 3, latency; one link with TLS; three sites; slow receivers (bench/slow.py)
  python3 bench/overlay.py --quick    fewer messages
  python3 bench/overlay.py --link     only the link with TLS, beside a leaf node of nats-server
  python3 bench/overlay.py --json     one JSON object on standard output

The client is `bench/nats.c`. What counts is the server's own processor time, which the kernel keeps for the process: whatever else the
machine does moves it little. Servers take turns, round by round. Needs a release build and `cc`; `nats-server` from Debian is the peer.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import slow

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.environ.get("TOLLWAY", os.path.join(HERE, "..", "target", "release", "tollway"))
TICK = os.sysconf("SC_CLK_TCK")
SIZE = 1024


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_port(number):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", number)) == 0:
                return
        time.sleep(0.02)
    sys.exit(f"nothing listens at port {number}")


class Server:
    """A server, and what it has used of a processor."""

    def __init__(self, name, command, number):
        self.name, self.port = name, number
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_port(number)

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

    def end(self):
        self.process.terminate()
        self.process.wait()


def tollway(folder, name="a", more="", number=None):
    number = number or port()
    path = os.path.join(folder, f"{name}.toml")
    with open(path, "w") as file:
        file.write(f'site = "{name}"\nlisten = "127.0.0.1:{number}"\n{more}')
    command = [TOLLWAY, "overlay", "--config", path, "--socket", os.path.join(folder, f"run-{name}", "overlay.sock")]
    return Server("tollway", command, number)


def nats():
    number = port()
    return Server("nats", ["nats-server", "-a", "127.0.0.1", "-p", str(number)], number)


def load(client, from_port, to_ports, count, rate=None, size=SIZE):
    """Publishes `count` messages, to a subscriber at each of `to_ports`; answers what publisher and subscribers say."""
    subject = f"bench.{time.monotonic_ns()}"
    readers = []
    for number in to_ports:
        reader = subprocess.Popen([client, "sub", "127.0.0.1", str(number), subject, str(count)], stdout=subprocess.PIPE, text=True)
        if reader.stdout.readline() != "ready\n":
            sys.exit("a subscriber was refused")
        readers.append(reader)
    if set(to_ports) != {from_port}:
        # Subscriptions are flooded.
        time.sleep(1)
    writer = [client, "pub", "127.0.0.1", str(from_port), subject, str(size), str(count)] + ([str(rate)] if rate else [])
    said = json.loads(subprocess.run(writer, capture_output=True, text=True, check=True).stdout)
    heard = [json.loads(reader.communicate(timeout=600)[0]) for reader in readers]
    for one in heard:
        if one["received"] != count or one["disorder"]:
            sys.exit(f"messages were lost or out of order: {one}")
    return said, heard


def throughput(client, server, receivers, count):
    before = server.cpu()
    said, heard = load(client, server.port, [server.port] * receivers, count)
    used = max(server.cpu() - before, 1 / TICK)
    seconds = max(said["seconds"], *(one["seconds"] for one in heard))
    return {"per_cpu_second": count / used, "per_second": count / seconds}


def make_keys(folder):
    os.makedirs(folder, exist_ok=True)
    subprocess.run([TOLLWAY, "overlay", "keys", folder, "--site", "a", "--site", "b", "--site", "c"], check=True, stdout=subprocess.DEVNULL)


def linked_sites(folder):
    """Two sites, and the link between them, with TLS."""
    at = port()
    keys = '[keys]\nauthority = "ca.pem"\ncertificate = "{0}.pem"\nkey = "{0}.key"\n'
    b = tollway(folder, "b", keys.format("b") + f'[links]\nlisten = "127.0.0.1:{at}"\n[link.a]\nrate = "10 Gbps"\n')
    a = tollway(folder, "a", keys.format("a") + f'[link.b]\naddress = "127.0.0.1:{at}"\nrate = "10 Gbps"\n')
    return [a, b]


def leaf_nodes(folder):
    """A leaf node of nats-server and its hub, with TLS between them."""
    at = port()

    def start(name, leafnodes):
        number, path = port(), os.path.join(folder, f"{name}.json")
        with open(path, "w") as file:
            json.dump({"listen": f"127.0.0.1:{number}", "leafnodes": leafnodes}, file)
        return Server("nats", ["nats-server", "-c", path], number)

    def tls(name):
        return {key: os.path.join(folder, file) for key, file in (("cert_file", f"{name}.pem"), ("key_file", f"{name}.key"), ("ca_file", "ca.pem"))}

    hub = start("hub", {"listen": f"127.0.0.1:{at}", "tls": {**tls("b"), "verify": True}})
    return [start("leaf", {"remotes": [{"url": f"tls://127.0.0.1:{at}", "tls": tls("a")}]}), hub]


def link(client, folder, rounds, count):
    """From one site to the other over their link; the processor time of both counts."""
    make_keys(folder)
    pairs = [linked_sites(folder)] + ([leaf_nodes(folder)] if shutil.which("nats-server") else [])
    time.sleep(2)
    result = {}
    for size in (16, 128, 1024):
        rows = {pair[0].name: [] for pair in pairs}
        for _ in range(rounds):
            for pair in pairs:
                before = [server.cpu() for server in pair]
                said, heard = load(client, pair[0].port, [pair[1].port], count, size=size)
                each = [max(server.cpu() - then, 1 / TICK) for server, then in zip(pair, before)]
                seconds = max(said["seconds"], heard[0]["seconds"])
                rows[pair[0].name].append({"per_cpu_second": count / sum(each), "per_second": count / seconds, "sender": each[0] / sum(each)})
        case = {name: {key: statistics.median(row[key] for row in those) for key in those[0]} for name, those in rows.items()}
        if "nats" in case:
            case["ratio"] = statistics.median(ours["per_cpu_second"] / theirs["per_cpu_second"] for ours, theirs in zip(rows["tollway"], rows["nats"]))
        result[size] = case
    for pair in pairs:
        for server in pair:
            server.end()
    return result


def show_link(result):
    for size, case in result.items():
        for name, row in case.items():
            if name == "ratio":
                print(f"link, {size} B: {row:.2f} of a leaf node's messages per processor second")
            else:
                print(f"link, {size} B {name:8} {row['per_cpu_second']:12,.0f} per processor second {row['per_second']:12,.0f} per second, "
                      f"{row['sender']:.0%} at the sender's")


def sites(client, folder, count):
    """From the first of three sites in a chain, over TLS, to subscribers at all."""
    make_keys(folder)
    at = {name: port() for name in "abc"}
    keys = '[keys]\nauthority = "ca.pem"\ncertificate = "{0}.pem"\nkey = "{0}.key"\n[links]\nlisten = "127.0.0.1:{1}"\n'
    links = {"a": "b", "b": "c", "c": ""}
    others = {"a": "", "b": "a", "c": "b"}
    running = []
    for name in "cba":
        more = keys.format(name, at[name])
        for peer in links[name]:
            more += f'[link.{peer}]\naddress = "127.0.0.1:{at[peer]}"\nrate = "1 Gbps"\n'
        for peer in others[name]:
            more += f'[link.{peer}]\nrate = "1 Gbps"\n'
        running.append(tollway(folder, name, more))
    time.sleep(3)
    before = [server.cpu() for server in running]
    said, heard = load(client, running[2].port, [server.port for server in running], count)
    used = [server.cpu() - then for server, then in zip(running, before)]
    seconds = max(said["seconds"], *(one["seconds"] for one in heard))
    result = {"per_second": count / seconds, "per_cpu_second": {name: count / max(cpu, 1 / TICK) for name, cpu in zip("cba", used)}}
    for server in running:
        server.end()
    return result


def goals(result):
    """Goals beside nats-server, and whether each is met; empty without nats-server."""
    late = result["latency"]
    if "nats" not in late:
        return {}
    return {
        "1 to 1 and 1 to 3: at least NATS' messages a processor second": all(result[case]["ratio"] >= 1 for case in ("1-1", "1-3")),
        "latency p50 and p99 at most 1.2 of NATS'": all(late["tollway"][key] <= 1.2 * late["nats"][key] for key in ("p50_us", "p99_us")),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rounds, count = (3, 300_000) if args.quick else (7, 2_000_000)
    if not os.path.exists(TOLLWAY):
        sys.exit("there is no release build: make build")
    if not shutil.which("cc"):
        sys.exit("there is no C compiler: apt-get install build-essential")
    result = {"message_bytes": SIZE, "messages": count, "rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        client = os.path.join(folder, "nats")
        subprocess.run(["cc", "-O2", "-o", client, os.path.join(HERE, "nats.c")], check=True)
        result["link-tls"] = link(client, os.path.join(folder, "link"), rounds, count)
        if args.link:
            return print(json.dumps(result)) if args.json else show_link(result["link-tls"])
        servers = [tollway(folder)]
        if shutil.which("nats-server"):
            servers.append(nats())
        else:
            print("note: there is no nats-server (apt-get install nats-server): nothing is compared", file=sys.stderr)
        for receivers in (1, 3):
            rows = {server.name: [] for server in servers}
            for _ in range(rounds):
                for server in servers:
                    rows[server.name].append(throughput(client, server, receivers, count))
            case = {name: {key: statistics.median(row[key] for row in those) for key in those[0]} for name, those in rows.items()}
            if "nats" in case:
                pairs = zip(rows["tollway"], rows["nats"])
                case["ratio"] = statistics.median(ours["per_cpu_second"] / theirs["per_cpu_second"] for ours, theirs in pairs)
            result[f"1-{receivers}"] = case
        # At a tenth of what the peer can do.
        rate = result["1-1"].get("nats", result["1-1"]["tollway"])["per_second"] / 10
        late = {}
        for server in servers:
            heard = [load(client, server.port, [server.port], int(rate * (2 if args.quick else 10)), rate)[1][0] for _ in range(rounds)]
            late[server.name] = {key: statistics.median(one[key] for one in heard) for key in ("p50_us", "p99_us")}
        result["latency"] = {"per_second": rate, **late}
        result["memory_bytes"] = {server.name: server.rss() for server in servers}
        for server in servers:
            server.end()
        result["three-sites-tls"] = sites(client, os.path.join(folder, "sites"), count // 10)
    result["slow-receivers"] = slow.run()
    result["goals"] = {**goals(result), **result["slow-receivers"].pop("goals")}
    if args.json:
        print(json.dumps(result))
        return
    for case in ("1-1", "1-3"):
        for name, row in result[case].items():
            if name == "ratio":
                print(f"{case}: {row:.2f} of nats-server's messages per processor second")
            else:
                print(f"{case} {name:8} {row['per_cpu_second']:12,.0f} per processor second {row['per_second']:12,.0f} per second")
    for name, row in late.items():
        print(f"latency at {rate:,.0f}/s, {name}: median {row['p50_us']:.0f} µs, 99th percentile {row['p99_us']:.0f} µs")
    show_link(result["link-tls"])
    three = result["three-sites-tls"]
    print(f"three sites over TLS: {three['per_second']:,.0f} per second; per processor second " +
          ", ".join(f"{name} {value:,.0f}" for name, value in three["per_cpu_second"].items()))
    slow.show(result["slow-receivers"]["rows"], result["goals"])


if __name__ == "__main__":
    main()
