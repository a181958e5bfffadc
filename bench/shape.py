#!/usr/bin/env python3
"""Measures `tollway shape` on real TCP connections, compared with Linux HTB and TBF in the same networks.

  python3 bench/shape.py            everything, 100 Mb/s and 1 Gb/s
  python3 bench/shape.py --quick    100 Mb/s, shorter runs
  python3 bench/shape.py --json     one JSON object on standard output
  python3 bench/shape.py --backend bpf --only many

Flows are the kernel's, from one network namespace to others over links that `tollway exec` emulates; their rates are from the
kernel's own counters (TCP_INFO), on the wire. Ten thousand connections are between two namespaces without an emulator in the way, and
written to and read by `bench/many.c`. Needs root, a release build, `tc` for HTB and TBF, and `cc` and `ip` for the ten thousand.
"""

import argparse
import errno
import json
import os
import resource
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.path.join(HERE, "..", "target", "release", "tollway")
ME = [sys.executable, os.path.abspath(__file__)]
PORT = 9000


# What runs inside the network.


def sink(rate):
    """Reads whatever comes to any connection; no more than `rate` bytes a second of each, if that is not 0."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if rate:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    listener.bind(("0.0.0.0", PORT))
    listener.listen(4096)
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    open_ones, buffer, begin = {}, bytearray(1 << 20), {}
    while True:
        for number, _ in poll.poll(0.01 if rate else -1):
            if number == listener.fileno():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    continue
                connection.setblocking(False)
                open_ones[connection.fileno()] = connection
                if rate:
                    begin[connection.fileno()] = [time.monotonic(), 0]
                else:
                    poll.register(connection, select.EPOLLIN)
            elif not drain(open_ones[number], buffer):
                poll.unregister(number)
                open_ones.pop(number).close()
        for number, (since, read) in list(begin.items()):
            due = int((time.monotonic() - since) * rate) - read
            while due > 0:
                try:
                    got = open_ones[number].recv_into(buffer, min(due, len(buffer)))
                except BlockingIOError:
                    # What it did not send it has lost.
                    begin[number][0] += due / rate
                    break
                except OSError:
                    got = 0
                if not got:
                    open_ones.pop(number).close()
                    begin.pop(number)
                    break
                begin[number][1] += got
                due -= got


def drain(connection, buffer):
    try:
        for _ in range(16):
            if not connection.recv_into(buffer):
                return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def info(connection):
    """Payload bytes acknowledged, segments sent again, payload of a segment, time stamps."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    acked = struct.unpack_from("=Q", raw, 120)[0]
    return acked, struct.unpack_from("=I", raw, 100)[0], struct.unpack_from("=I", raw, 16)[0], raw[5] & 1


def connect(host, law):
    """A connection that is being made."""
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, law.encode())
    # An Ethernet's, over loopback too.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
    connection.setblocking(False)
    connection.connect_ex((host, PORT))
    return connection


class Senders:
    """Connections that always have something to send."""

    def __init__(self, plan):
        self.poll = select.epoll()
        self.flows = {}
        self.names = []
        self.chunk = memoryview(bytes(1 << 18))
        for name, host, count, law in plan:
            host = socket.gethostbyname(host)
            for i in range(count):
                self.add(name, host, law)
                # A listener's backlog is not endless.
                if i % 500 == 499:
                    self.run(0.3)
        self.run(0.5)

    def add(self, name, host, law):
        connection = connect(host, law)
        self.flows[connection.fileno()] = connection
        self.names.append((name, connection))
        self.poll.register(connection, select.EPOLLOUT)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for number, _ in self.poll.poll(left):
                try:
                    self.flows[number].send(self.chunk)
                except OSError as error:
                    if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOTCONN):
                        raise

    def counters(self):
        return time.monotonic(), [info(connection) for _, connection in self.names]

    def measure(self, seconds):
        """For each connection its name, Mb/s on the wire, and segments sent again from its beginning."""
        begin, before = self.counters()
        self.run(seconds)
        end, after = self.counters()
        rows = []
        for (name, _), old, new in zip(self.names, before, after):
            mss = new[2]
            wire = (new[0] - old[0]) * (mss + 40 + 12 * new[3]) / mss
            rows.append({"flow": name, "mbps": wire * 8e-6 / (end - begin), "resent": new[1]})
        return rows


class Agent:
    """`tollway shape` in this namespace."""

    def __init__(self, policies, where=(), backend="inet-diag"):
        self.where = list(where)
        self.folder = tempfile.mkdtemp()
        self.file = os.path.join(self.folder, "policies.toml")
        self.socket = os.path.join(self.folder, "run", "shape.sock")
        self.write(policies)
        self.process = subprocess.Popen(
            [*self.where, TOLLWAY, "shape", "--policy", self.file, "--socket", self.socket, "--backend", backend],
            stderr=subprocess.PIPE, text=True,
        )
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                sys.exit(self.process.stderr.read())
            time.sleep(0.01)

    def write(self, policies):
        with open(self.file + ".new", "w") as file:
            file.write(policies)
        os.replace(self.file + ".new", self.file)

    def status(self):
        told = subprocess.run(
            [TOLLWAY, "shape", "status", "--json", "--socket", self.socket], capture_output=True, check=True
        )
        return json.loads(told.stdout)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()
        shutil.rmtree(self.folder)


class Tc:
    """A queueing discipline in the way of everything that leaves."""

    def __init__(self, *lines):
        self.device = next(name for _, name in socket.if_nameindex() if name not in ("lo", "sit0", "tunl0"))
        for line in lines:
            subprocess.run(["tc", *line.replace("DEV", self.device).split()], check=True)

    def end(self):
        subprocess.run(["tc", "qdisc", "del", "dev", self.device, "root"], check=True)


def limits_now(where=()):
    """How every connection that has a pace set may send, bytes a second, by the kernel's word."""
    listed = subprocess.run([*where, "ss", "-tniH", "state", "established"], capture_output=True, text=True, check=True).stdout
    # `ss` prints the limit behind the rate: `pacing_rate 24Mbps/25Mbps`.
    return [word for line in listed.splitlines() if "pacing_rate" in line
            for word in [line.split("pacing_rate ")[1].split()[0]] if "/" in word]


def four(case, mbps, law, warm, seconds, backend):
    plan = [(f"{rtt} ms", host, 1, law) for host, rtt in zip(("a", "b", "c", "d"), (50, 300, 300, 600))]
    senders = Senders(plan)
    acting = act(case, mbps, backend)
    senders.run(warm)
    rows = senders.measure(seconds)
    acting.end()
    return rows


def act(case, mbps, backend):
    if case in ("shape", "peak"):
        peak = f'peak = "{mbps * 1.05:g} Mbps"\n' if case == "peak" else ""
        return Agent(f'[link]\nrate = "{mbps} Mbps"\n{peak}[aggregate.all]\n', backend=backend)
    if case == "htb":
        return Tc(
            "qdisc add dev DEV root handle 1: htb default 1",
            f"class add dev DEV parent 1: classid 1:1 htb rate {mbps}mbit",
            # As long as an Ethernet card's.
            "qdisc add dev DEV parent 1:1 pfifo limit 1000",
        )
    return Tc(f"qdisc add dev DEV root tbf rate {mbps}mbit burst {max(mbps * 1000 // 80, 16000)} latency 50ms")


def receiver(mbps, warm, seconds, backend):
    """The last of four reads 5 Mb/s."""
    senders = Senders([(host, host, 1, "cubic") for host in ("a", "b", "c", "slow")])
    agent = act("shape", mbps, backend)
    senders.run(warm)
    rows = senders.measure(seconds)
    agent.end()
    return rows


def address(host):
    return socket.gethostbyname(host)


def tenants(mbps, warm, seconds, backend):
    """Tenants 1 : 3 with 2 and 560 connections."""
    text = f'[link]\nrate = "{mbps} Mbps"\n[aggregate.one]\nto = "{address("a")}"\nweight = 1\n' \
           f'[aggregate.three]\nto = "{address("b")}"\nweight = 3\n'
    senders = Senders([("one", "a", 2, "cubic"), ("three", "b", 560, "cubic")])
    agent = Agent(text, backend=backend)
    senders.run(warm)
    rows = senders.measure(seconds)
    agent.end()
    return rows


def change(mbps, backend):
    """Policies change, are wrong, and the agent is killed."""
    senders = Senders([(host, host, 1, "cubic") for host in ("a", "b", "c", "d")])
    agent = act("shape", mbps, backend)
    senders.run(6)
    agent.write(f'version = "half"\n[link]\nrate = "{mbps / 2:g} Mbps"\n[aggregate.all]\n')
    begin = time.monotonic()
    while agent.status()["version"] != "half":
        senders.run(0.002)
    installed = time.monotonic() - begin
    senders.run(1)
    half = sum(row["mbps"] for row in senders.measure(3))
    agent.write("[link]\nrate = \"1 Mbqs\"\n")
    senders.run(0.3)
    wrong = agent.status()
    before = len(limits_now())
    begin = time.monotonic()
    agent.process.kill()
    while limits_now() and time.monotonic() < begin + 10:
        time.sleep(0.002)
    freed = time.monotonic() - begin
    agent.end()
    return {"installed_s": installed, "half_mbps": half, "kept": wrong["version"], "trouble": wrong["trouble"],
            "paced": before, "freed_s": freed, "left": len(limits_now())}


# What runs outside.


def jain(rates):
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if any(rates) else 0.0


def network(mbps, hosts):
    """A star: one-way delays in milliseconds by host, links fast enough and queues deep enough not to matter."""
    text = 'name = "star"\nduration = "1 s"\n[node.server]\n'
    for host, delay in hosts.items():
        text += f'[node.{host}]\n[link.{host}]\nfrom = "server"\nto = "{host}"\nrate = "{mbps * 4} Mbps"\n' \
                f'delay = "{delay} ms"\nlimit = "64 MiB"\n'
    return text


def inside(mbps, hosts, case, slow=0):
    """Runs `case` at the server of a star, and answers what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "star.toml")
        with open(path, "w") as file:
            file.write(network(mbps, hosts))
        command = [TOLLWAY, "exec", path, "--node", "server", "--json"]
        for host in hosts:
            rate = slow if host == "slow" else 0
            command += ["--serve", f"{host}={shlex.join(ME + ['--sink', str(rate)])}"]
        command += ["--", *ME, "--inside", json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if line.startswith("RESULT ")]
        if done.returncode or not said:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr}")
        if not json.loads(done.stdout)["kept_up"]:
            what = " ".join(str(case[key]) for key in ("kind", "case", "law", "mbps") if key in case)
            print(f"note: the emulator did not keep up ({what}): what that run says is its doing, too", file=sys.stderr)
        return json.loads(said[-1][len("RESULT "):])


def tune(mbps):
    """Windows of the longest round trip at the whole rate have to fit into buffers."""
    most = max(int(mbps * 1e6 / 8 * 0.6 * 4), 4 << 20)
    for key, value in (("tcp_wmem", f"4096 16384 {most}"), ("tcp_rmem", f"4096 131072 {most}")):
        with open(f"/proc/sys/net/ipv4/{key}", "w") as file:
            file.write(value)


def run_inside(case):
    tune(case["mbps"])
    done = {"four": four, "receiver": receiver, "tenants": tenants, "change": change}
    kind = case.pop("kind")
    print("RESULT " + json.dumps(done[kind](**case)), file=sys.stderr, flush=True)


class Pair:
    """Two network namespaces with a cable between them, which are gone when their processes are."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        own = os.readlink("/proc/self/ns/net")
        for holder in self.holders:
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                time.sleep(0.01)
        self.near, self.far = (["nsenter", "--net", "--target", str(holder.pid)] for holder in self.holders)
        try:
            self.connect()
        except subprocess.CalledProcessError:
            self.end()
            raise

    def connect(self):
        run = lambda where, line: subprocess.run([*where, *shlex.split(line)], check=True)
        run(self.near, f"ip link add near type veth peer name far netns {self.holders[1].pid}")
        # Where round trips are next to nothing the kernel sends up to 64 KiB of a connection at a
        # time, however slow its pace: with segments of two, as over a distance.
        run(self.near, "ip link set near gso_max_segs 2")
        for where, name, address in (self.near, "near", "10.9.0.1/24"), (self.far, "far", "10.9.0.2/24"):
            run(where, f"ip address add {address} dev {name}")
            run(where, f"ip link set {name} up")
            run(where, "sysctl -qw net.ipv4.ip_local_port_range='1024 65000'")

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def many(count, mbps, seconds, backend, law):
    """`count` connections that always have data: how soon all have equal parts, what they use then, and the agent's part of a processor."""
    if not all(map(shutil.which, ("cc", "ip", "nsenter", "unshare"))):
        print("note: many connections are left out: `cc`, `ip`, `nsenter` or `unshare` is missing", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "many")
        subprocess.run(["cc", "-O2", "-o", program, os.path.join(HERE, "many.c")], check=True)
        pair = Pair()
        reader = subprocess.Popen([*pair.far, program, "sink", str(PORT)])
        time.sleep(0.2)
        sender = subprocess.Popen(
            [*pair.near, program, "send", "10.9.0.2", str(PORT), str(count), str(seconds), law],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        try:
            if not sender.stdout.readline():
                sys.exit("bench/many.c could not open its connections")
            agent = Agent(f'[link]\nrate = "{mbps} Mbps"\n[aggregate.all]\n', pair.near, backend)
            converged, before, last, dry = None, None, None, []
            for line in sender.stdout:
                said = json.loads(line)
                if "rates_mbps" in said:
                    break
                last = said
                if not converged and last["paced"] == count and last["jain"] > 0.99 and last["sum_mbps"] < 1.02 * mbps:
                    converged = last["t_s"]
                if last["t_s"] > seconds / 2:
                    before = before or agent.status()
                    dry.append(last["dry"] / count)
            after = agent.status()
            agent.end()
            left = len(limits_now(pair.near))
        finally:
            sender.kill()
            reader.kill()
            pair.end()
    dry = sum(dry) / len(dry)
    if dry > 0.02:
        print(f"note: the sender did not keep up: {dry:.0%} of the connections had nothing to send", file=sys.stderr)
    held = {}
    for one in after["connections"]:
        held[one["limited_by"]] = held.get(one["limited_by"], 0) + 1
    # Of an Ethernet's segments, with time stamps.
    return {"connections": count, "law": law, "converged_s": converged, "tick_ms": after["tick_ms"], "held": held,
            "cpu": (after["cpu_s"] - before["cpu_s"]) / (after["time_s"] - before["time_s"]),
            "used": said["rates_mbps"] * 1500 / 1448 / mbps, "jain": said["jain"], "resent": said["resent"], "dry": dry,
            "limits_jain": last["jain"], "limits_used": last["sum_mbps"] * 1500 / 1448 / mbps, "left": left}


STAR = {"a": 25, "b": 150, "c": 150, "d": 300}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="100 Mb/s only, shorter runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", help="one of four, receiver, tenants, change, many")
    parser.add_argument("--mbps", type=int, action="append", help="the rate of the four flows; may be given several times")
    parser.add_argument("--backend", choices=("inet-diag", "bpf"), default="inet-diag", help="what paces")
    parser.add_argument("--sink", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.sink is not None:
        return sink(options.sink)
    if options.inside:
        return run_inside(json.loads(options.inside))
    if os.geteuid():
        sys.exit("bench/shape.py needs root: it reaches into namespaces and sets queueing disciplines")
    wanted = lambda kind: options.only in (None, kind)
    out = {}
    say = lambda text: None if options.json else print(text, flush=True)
    how = {"backend": options.backend}
    warm, seconds = (15, 8) if options.quick else (30, 20)

    if wanted("four"):
        out["four"] = []
        for mbps in options.mbps or ((100,) if options.quick else (100, 1000)):
            # A peak makes up for what BBR leaves when it empties its window, which CUBIC doesn't.
            for case, laws in (("shape", ("cubic", "bbr")), ("peak", ("bbr",)), ("htb", ("cubic", "bbr")), ("tbf", ("cubic", "bbr"))):
                for law in laws:
                    # BBR empties its window every 10 s to see the round trip, and has what it
                    # missed back over the next: four of these.
                    span = 40 if law == "bbr" else seconds
                    rows = inside(mbps, STAR, {"kind": "four", "case": case, "mbps": mbps, "law": law, "warm": warm, "seconds": span, **how})
                    rates = [row["mbps"] for row in rows]
                    row = {"case": case, "law": law, "mbps": mbps, "rates_mbps": rates, "jain": jain(rates),
                           "used": sum(rates) / mbps, "resent": sum(row["resent"] for row in rows)}
                    out["four"].append(row)
                    say(f"{case:6} {law:6} {mbps} Mb/s: {' '.join(f'{rate:.2f}' for rate in rates)}  "
                        f"Jain {row['jain']:.4f}  {row['used']:.1%} of the rate  {row['resent']} resent")
    if wanted("receiver"):
        hosts = {"a": 25, "b": 25, "c": 25, "slow": 25}
        rows = inside(100, hosts, {"kind": "receiver", "mbps": 100, "warm": 6, "seconds": seconds, **how}, slow=5e6 / 8)
        rates = [row["mbps"] for row in rows]
        fair = (100 - rates[3]) / 3
        out["receiver"] = {"rates_mbps": rates, "off": max(abs(rate / fair - 1) for rate in rates[:3])}
        say(f"receiver of 5 Mb/s: {' '.join(f'{rate:.2f}' for rate in rates)}, the others off by {out['receiver']['off']:.2%}")
    if wanted("tenants"):
        rows = inside(100, {"a": 25, "b": 25}, {"kind": "tenants", "mbps": 100, "warm": 8, "seconds": seconds, **how})
        sums = {name: sum(row["mbps"] for row in rows if row["flow"] == name) for name in ("one", "three")}
        out["tenants"] = {**sums, "off": max(abs(sums["one"] / 25 - 1), abs(sums["three"] / 75 - 1)),
                          "resent": sum(row["resent"] for row in rows)}
        say(f"tenants 1 : 3 of 2 and 560 connections: {sums['one']:.2f} and {sums['three']:.2f} Mb/s, off by {out['tenants']['off']:.2%}")
    if wanted("change"):
        out["change"] = inside(100, STAR, {"kind": "change", "mbps": 100, **how})
        say(f"change: {out['change']}")
    if wanted("many"):
        count = 2000 if options.quick else 10000
        out["many"] = [many(count, 1000, 2 * seconds, options.backend, law) for law in ("cubic", "bbr")]
        for row in out["many"]:
            say(f"many: {row}")
    if options.json:
        print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
