#!/usr/bin/env python3
"""Slow receivers at one of three sites: `tollway overlay` beside a cluster of three `nats-server` and three Zenoh routers.

  python3 bench/slow.py            some 50 s a case
  python3 bench/slow.py --json     one JSON object on standard output

Each pair of sites is joined by one TCP connection through a relay that passes 20 Mb/s in each direction. At site `a` two publishers offer 1 MB/s each,
in messages of 1 kB: one to the group `same`, one to the group `other`. `same` has a receiver at `b`, and at `c` one that reads slowly; `other` has a
receiver at `c`. Cases of the slow one: none, reads 100 kB/s, stops, begins to read after 10 s. All systems run at the same time, with clients of the
same program; those of Zenoh use its Python package and block when it is congested. The figures of a case are taken over its last 20 s, and `lost` after
all receivers have read what is left. Needs a release build; `nats-server` from Debian and `pip install eclipse-zenoh` are the peers.
"""

import argparse
import json
import multiprocessing
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.environ.get("TOLLWAY", os.path.join(HERE, "..", "target", "release", "tollway"))
LINK = 20e6 / 8
SIZE, RATE = 1000, 1000
WARM, SPAN, LATE, PATIENCE = 5, 20, 10, 12
CASES = {"none": "fast", "100-kB-per-s": "100000", "stops": "stops", "starts-10-s-late": "late"}


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
        time.sleep(0.05)
    sys.exit(f"nothing listens at port {number}")


# Links


def carry(source, target):
    """Copies bytes at the rate of a link, until either end closes."""
    due = time.monotonic()
    try:
        while part := source.recv(8192):
            due = max(due, time.monotonic() - 0.01) + len(part) / LINK
            time.sleep(max(due - time.monotonic(), 0))
            target.sendall(part)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def relay(listener, to):
    while True:
        near, _ = listener.accept()
        far = socket.socket()
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        if far.connect_ex(("127.0.0.1", to)):
            near.close()
            continue
        for ends in ((near, far), (far, near)):
            threading.Thread(target=carry, args=ends, daemon=True).start()


def relays(pairs):
    """Relays for (port, target) pairs."""
    for number, to in pairs:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        listener.bind(("127.0.0.1", number))
        listener.listen()
        threading.Thread(target=relay, args=(listener, to), daemon=True).start()
    threading.Event().wait()


# Clients: `begin`, `end` are the times between which messages are counted. A publisher's count is
# of messages that its server has taken.


class Nats:
    def __init__(self, number):
        self.socket = socket.socket()
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 65536)
        self.socket.connect(("127.0.0.1", number))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b'CONNECT {"verbose":false}\r\n')
        self.bytes = b""

    def subscribe(self, subject):
        self.socket.sendall(f"SUB {subject} 1\r\nPING\r\n".encode())

    def publish(self, subject, numbers):
        """Returns once the server has taken them."""
        head = f"PUB {subject} {SIZE}\r\n".encode()
        self.socket.sendall(b"".join(head + b"%-*d\r\n" % (SIZE, number) for number in numbers) + b"PING\r\n")
        self.socket.settimeout(None)
        while b"PONG" not in self.bytes:
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionError
            self.bytes += part
        self.bytes = b""

    def read(self, most, patience):
        """Numbers of messages that have come: `most` bytes are read. None at the end."""
        if not select.select([self.socket], [], [], patience)[0]:
            return []
        try:
            part = self.socket.recv(most)
        except OSError:
            return None
        if not part:
            return None
        *lines, self.bytes = (self.bytes + part).split(b"\r\n")
        if b"PING" in lines:
            self.socket.sendall(b"PONG\r\n")
        return [int(line) for line in lines if len(line) == SIZE]


class Zenoh:
    def __init__(self, number):
        import zenoh

        self.zenoh = zenoh
        self.session = zenoh.open(zenoh_config("client", [], [number]))

    def subscribe(self, subject):
        self.queue = self.session.declare_subscriber(subject, self.zenoh.handlers.FifoChannel(16))

    def publish(self, subject, numbers):
        for number in numbers:
            block = self.zenoh.CongestionControl.BLOCK
            self.session.put(subject, b"%-*d" % (SIZE, number), congestion_control=block)

    def read(self, most, patience):
        end, got = time.monotonic() + patience, []
        while len(got) * SIZE < most:
            sample = self.queue.try_recv()
            if sample is not None:
                got.append(int(bytes(sample.payload)))
            elif got or time.monotonic() > end:
                break
            else:
                time.sleep(0.001)
        return got


def zenoh_config(mode, listen, connect):
    import zenoh

    config = zenoh.Config()
    endpoints = {"listen/endpoints": listen, "connect/endpoints": connect}
    for key, ports in endpoints.items():
        config.insert_json5(key, json.dumps([f"tcp/127.0.0.1:{number}" for number in ports]))
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    if mode == "client":
        for side in ("so_sndbuf", "so_rcvbuf"):
            config.insert_json5(f"transport/link/tcp/{side}", "65536")
    return config


def publisher(kind, number, subject, begin, end, results):
    client = KINDS[kind](number)
    sent = counted = 0
    start = begin - WARM
    time.sleep(max(start - time.monotonic(), 0))
    try:
        while time.monotonic() < end:
            # What could not be sent in time is not made up for.
            late = int((time.monotonic() - start) * RATE) - sent
            start += max(late - 100, 0) / RATE
            count = min(late, 100)
            client.publish(subject, range(sent, sent + count))
            counted += count if begin <= time.monotonic() < end else 0
            sent += count
            time.sleep(0.005)
    except OSError:
        pass
    results.put((subject, {"sent": sent, "counted_sent": counted}))
    # A session that ends may take along what it has not sent.
    time.sleep(30)


def subscriber(kind, number, name, subject, manner, begin, end, results):
    client = KINDS[kind](number)
    client.subscribe(subject)
    numbers, counted, taken, quiet, ended = set(), 0, 0, time.monotonic(), False
    starts = begin - WARM + {"late": LATE, "stops": WARM + SPAN + 8}.get(manner, 0)
    time.sleep(max(starts - time.monotonic(), 0))
    rate = float(manner) if manner.isdigit() else None
    while time.monotonic() < end + 30:
        now = time.monotonic()
        if rate and now < end and taken > (now - starts) * rate:
            time.sleep(0.01)
            continue
        got = client.read(4096 if rate and now < end else 1 << 17, 1)
        if got is None:
            ended = True
            break
        taken += len(got) * SIZE
        counted += len(got) if begin <= now < end else 0
        numbers.update(got)
        quiet = now if got or now < end else quiet
        if now > end and now - quiet > 4:
            break
    # Messages before the subscription was known at every site do not count as lost.
    missing = max(numbers) + 1 - min(numbers) - len(numbers) if numbers else 0
    last = max(numbers, default=-1)
    results.put((name, {"received": len(numbers), "counted": counted, "gaps": missing, "last": last, "ended": ended}))
    time.sleep(10)


KINDS = {"nats": Nats, "zenoh": Zenoh}


# Servers


def tollway(folder, at, links, relayed):
    subprocess.run(
        [TOLLWAY, "overlay", "keys", folder, "--site", "a", "--site", "b", "--site", "c"], check=True, stdout=subprocess.DEVNULL
    )
    running = []
    for name in "cba":
        text = f'site = "{name}"\nlisten = "127.0.0.1:{at[name]}"\npatience = "{PATIENCE} s"\n'
        text += f'[keys]\nauthority = "ca.pem"\ncertificate = "{name}.pem"\nkey = "{name}.key"\n[links]\nlisten = "127.0.0.1:{links[name]}"\n'
        for pair, number in relayed.items():
            if name in pair:
                text += f'[link.{pair.strip(name)}]\nrate = "20 Mbps"\n'
                text += f'address = "127.0.0.1:{number}"\n' if pair[0] == name else ""
        path = os.path.join(folder, f"{name}.toml")
        with open(path, "w") as file:
            file.write(text + f'[spool]\nfolder = "spool-{name}"\n')
        command = [TOLLWAY, "overlay", "--config", path, "--socket", os.path.join(folder, f"run-{name}", "overlay.sock")]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return running


def nats(folder, at, links, relayed):
    running = []
    for name in "cba":
        routes = ", ".join(f'"nats://127.0.0.1:{number}"' for pair, number in relayed.items() if pair[0] == name)
        path = os.path.join(folder, f"{name}.conf")
        with open(path, "w") as file:
            file.write(
                f"listen: 127.0.0.1:{at[name]}\nserver_name: {name}\n"
                f"cluster {{ name: x, listen: 127.0.0.1:{links[name]}, no_advertise: true, routes: [{routes}] }}\n"
            )
        command = ["nats-server", "-c", path]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return running


def zenoh_router(listen, connect):
    import zenoh

    session = zenoh.open(zenoh_config("router", listen, connect))
    threading.Event().wait()
    session.close()


def zenoh(_folder, at, links, relayed):
    running = []
    for name in "cba":
        connect = [number for pair, number in relayed.items() if pair[0] == name]
        running.append(multiprocessing.Process(target=zenoh_router, args=([at[name], links[name]], connect), daemon=True))
        running[-1].start()
    return running


def established(number):
    """Connections of a server at this port, by the kernel's table."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(row[1].endswith(f":{number:04X}") and row[3] == "01" for row in rows)


# Cases

SYSTEMS = {
    # Servers, their clients, and what the slow receiver subscribes to.
    "tollway-price": (tollway, "nats", "$TOLL.price.same"),
    "tollway-spool": (tollway, "nats", "$TOLL.spool.same"),
    "nats": (nats, "nats", "same"),
    "zenoh": (zenoh, "zenoh", "same"),
}


class Trial:
    """One system, one case."""

    def __init__(self, system, case, folder):
        servers, kind, pattern = SYSTEMS[system]
        os.makedirs(folder)
        self.system, self.case = system, case
        self.at, links = ({name: port() for name in "abc"} for _ in range(2))
        relayed = {pair: port() for pair in ("ab", "ac", "bc")}
        self.processes = [self.begin(relays, [(number, links[pair[1]]) for pair, number in relayed.items()])]
        for number in relayed.values():
            await_port(number)
        self.servers = servers(folder, self.at, links, relayed)
        for number in self.at.values():
            await_port(number)
        time.sleep(3)
        self.results = multiprocessing.Queue()
        self.starts = time.monotonic() + 3 + WARM
        self.ends = self.starts + SPAN
        span = (self.starts, self.ends, self.results)
        self.processes += [
            self.begin(subscriber, kind, self.at["c"], "other", "other", "fast", *span),
            self.begin(subscriber, kind, self.at["b"], "same", "same", "fast", *span),
        ]
        self.expected = 4
        if case != "none":
            self.processes.append(self.begin(subscriber, kind, self.at["c"], "slow", pattern, CASES[case], *span))
            self.expected += 1
        for subject in ("same", "other"):
            self.processes.append(self.begin(publisher, kind, self.at["a"], subject, *span))
        self.cut = None
        threading.Thread(target=self.watch, daemon=True).start()

    @staticmethod
    def begin(target, *args):
        process = multiprocessing.Process(target=target, args=args, daemon=True)
        process.start()
        return process

    def watch(self):
        """Notes when the site of the slow receiver has a connection less."""
        time.sleep(max(self.starts - WARM + 1 - time.monotonic(), 0))
        before = established(self.at["c"])
        while time.monotonic() < self.ends + 4:
            if established(self.at["c"]) < before:
                self.cut = time.monotonic() - (self.starts - WARM)
                return
            time.sleep(0.2)

    def finish(self):
        said = {}
        for _ in range(self.expected):
            name, one = self.results.get(timeout=120)
            said.setdefault(name, {}).update(one)
        for process in self.processes + self.servers:
            process.terminate()
        for process in self.processes + self.servers:
            process.join() if hasattr(process, "join") else process.wait()
        row = {"case": self.case, "system": self.system}
        for name in ("other", "same"):
            row[f"{name}_sent_per_s"] = said[name]["counted_sent"] / SPAN
            row[f"{name}_received_per_s"] = said[name]["counted"] / SPAN
            row[f"{name}_lost"] = said[name]["gaps"] + said[name]["sent"] - 1 - said[name]["last"]
        if "slow" in said:
            slow = said["slow"]
            row["slow_received_per_s"] = slow["counted"] / SPAN
            row["slow_lost"] = slow["gaps"] + said["same"]["sent"] - 1 - slow["last"]
            row["slow_cut_after_s"] = self.cut
        return row


def run(peers=True, cases=tuple(CASES)):
    """Rows of all cases, and whether the promises hold."""
    systems = [name for name in SYSTEMS if name.startswith("tollway")]
    if shutil.which("nats-server") and peers:
        systems.append("nats")
    elif peers:
        print("note: there is no nats-server (apt-get install nats-server)", file=sys.stderr)
    try:
        import zenoh as _

        systems += ["zenoh"] * peers
    except ImportError:
        if peers:
            print("note: there is no Zenoh (pip install eclipse-zenoh)", file=sys.stderr)
    rows = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            trials = [Trial(system, case, os.path.join(folder, system)) for system in systems]
            rows += [trial.finish() for trial in trials]
    base = {row["system"]: row for row in rows if row["case"] == "none"}
    for row in rows:
        for key in ("other_received_per_s", "same_sent_per_s", "same_received_per_s"):
            row[key.replace("_per_s", "_of_base")] = row[key] / max(base[row["system"]][key], 1e-9)
    return {"rows": rows, "goals": goals(rows)}


def goals(rows):
    """The promises, and whether each is kept in every case."""
    ours = {(row["case"], row["system"]): row for row in rows if row["system"].startswith("tollway")}
    priced = [row for (_, system), row in ours.items() if system == "tollway-price"]
    spooled = [row for (_, system), row in ours.items() if system == "tollway-spool"]
    slow = [row for row in priced if row["case"] == "100-kB-per-s"]
    alive = [row for row in priced + spooled if row["case"] in ("100-kB-per-s", "starts-10-s-late")]
    dead = [row for row in priced if row["case"] == "stops"]
    return {
        "other groups keep 98 % of their rate": all(row["other_received_of_base"] >= 0.98 for row in ours.values()),
        "the same group with `spool` keeps 90 %": all(row["same_sent_of_base"] >= 0.9 for row in spooled),
        "with `price` it goes at the slowest's pace": all(row["same_sent_per_s"] * SIZE <= 1.2 * 100_000 for row in slow),
        "nothing is lost": all(row["slow_lost"] == 0 for row in alive)
        and all(row["same_lost"] == row["other_lost"] == 0 for row in ours.values()),
        f"a dead receiver is disconnected within {PATIENCE} s and two": all(
            row["slow_cut_after_s"] is not None and row["slow_cut_after_s"] <= PATIENCE + 2 for row in dead
        ),
    }


def show(rows, goals):
    print(f"{'case':18}{'system':15}{'other':>8}{'same':>8}{'slow, per s':>13}{'slow lost':>11}{'cut after':>11}")
    for row in rows:
        of_base = f"{row['other_received_of_base']:8.1%}{row['same_sent_of_base']:8.1%}"
        rest = ""
        if "slow_lost" in row:
            cut = "-" if row["slow_cut_after_s"] is None else f"{row['slow_cut_after_s']:.1f} s"
            rest = f"{row['slow_received_per_s']:13.1f}{row['slow_lost']:11}{cut:>11}"
        print(f"{row['case']:18}{row['system']:15}{of_base}{rest}")
    for what, met in goals.items():
        print(f"{'met  ' if met else 'UNMET'} {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    args = parser.parse_args()
    if not os.path.exists(TOLLWAY):
        sys.exit("there is no release build: make build")
    result = run()
    print(json.dumps(result)) if args.json else show(**result)


if __name__ == "__main__":
    main()
