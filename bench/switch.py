#!/usr/bin/env python3
"""`tollway switch` beside HAProxy and nginx's stream module: bytes and frames a processor second, latency, memory.

  python3 bench/switch.py            everything, 5 s a run
  python3 bench/switch.py --quick    1 s a run
  python3 bench/switch.py --json     one JSON object on standard output

All three stand between the same clients and the same four servers on loopback (`bench/frames.c`); clients and servers are the same processes'
for all. HAProxy has `nbthread 1`, TCP mode, no splicing; nginx one worker. They choose a server once a connection, the switch for each frame,
round-robin. Processor time is the proxy's own, of all its threads, from the kernel (`schedstat`). Medians of five pairs, in which the proxies take
turns. Times to an answer are taken at a tenth of HAProxy's frames a processor second, with the part of these frames that was answered: on two
cores, clients, servers and one proxy together carry few more of 1 KB. Needs a release build, `cc`, and Debian's `haproxy`, `nginx` and `libnginx-mod-stream`; what is missing is said and left out.
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

HERE = os.path.dirname(os.path.abspath(__file__))
TOLLWAY = os.path.join(HERE, "..", "target", "release", "tollway")
NGINX_MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"
MEMBERS = 4


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def await_port(port, process):
    for _ in range(500):
        if process.poll() is not None:
            sys.exit(f"{process.args[0]} has ended: {process.stderr.read() if process.stderr else ''}")
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.01)
    sys.exit(f"{process.args[0]} does not listen")


class Proxy:
    """A process between clients and servers."""

    def __init__(self, name, folder, servers, echo):
        self.name, self.folder = name, folder
        (self.port,) = free_ports(1)
        words = getattr(self, name)(servers, echo)
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        await_port(self.port, self.process)

    def file(self, name, text):
        path = os.path.join(self.folder, f"{self.port}-{name}")
        with open(path, "w") as file:
            file.write(text)
        return path

    def switch(self, servers, echo):
        members = "".join(f'[member.m{i}]\naddress = "127.0.0.1:{port}"\n' for i, port in enumerate(servers))
        answers = "any" if echo else "none"
        config = self.file(
            "switch.toml",
            f'listen = "127.0.0.1:{self.port}"\nframes = "u32"\npolicy = "round-robin"\nanswers = "{answers}"\n{members}',
        )
        return [TOLLWAY, "switch", "--config", config, "--socket", os.path.join(self.folder, f"{self.port}.sock")]

    def haproxy(self, servers, _echo):
        lines = "".join(f"  server m{i} 127.0.0.1:{port}\n" for i, port in enumerate(servers))
        config = self.file(
            "haproxy.cfg",
            "global\n  nbthread 1\n  maxconn 8000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n"
            f"  timeout server 1h\nlisten front\n  bind 127.0.0.1:{self.port}\n  balance roundrobin\n{lines}",
        )
        return ["haproxy", "-f", config, "-db", "-dS"]

    def nginx(self, servers, _echo):
        lines = "".join(f"server 127.0.0.1:{port};\n" for port in servers)
        config = self.file(
            "nginx.conf",
            f"load_module {NGINX_MODULE};\nworker_processes 1;\nmaster_process off;\ndaemon off;\npid {self.folder}/{self.port}.pid;\n"
            f"error_log {self.folder}/{self.port}.log crit;\nevents {{ worker_connections 8000; }}\n"
            f"stream {{ upstream u {{ {lines} }} server {{ listen 127.0.0.1:{self.port}; proxy_pass u; tcp_nodelay on; }} }}\n",
        )
        return ["nginx", "-c", config, "-p", self.folder]

    def cpu(self):
        """Seconds of processor time."""
        folder = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{folder}/{task}/schedstat").read().split()[0]) for task in os.listdir(folder)) * 1e-9

    def memory(self):
        """Bytes of its own."""
        for line in open(f"/proc/{self.process.pid}/smaps_rollup"):
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
        return 0

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def frames(tool, *words):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"frames {' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout)


def throughput(tool, proxy, sessions, size, seconds, echo):
    before = proxy.cpu()
    done = frames(tool, "load", "127.0.0.1", proxy.port, sessions, size, seconds, int(echo))
    cpu = proxy.cpu() - before
    return done["bytes"] / cpu


def latency(tool, args, direct, proxies, sessions, size, seconds, rate):
    """Times to an answer at `rate` frames a second, and the part of these frames that was answered. One session has one frame outstanding."""
    row = {"sessions": sessions, "frame_bytes": size, "frames_per_s": rate}
    ways = {"direct": direct, **{proxy.name: proxy.port for proxy in proxies}}
    times = {name: [] for name in ways}
    for _ in range(args.pairs):
        for name, port in ways.items():
            times[name].append(frames(tool, "ping", "127.0.0.1", port, sessions, size, seconds, rate))
    for name, done in times.items():
        for part in ("p50_us", "p99_us"):
            row[f"{name}_{part}"] = statistics.median(one[part] for one in done)
        # The first fifth is not counted.
        row[f"{name}_answered"] = statistics.median(one["count"] / (0.8 * seconds * rate) for one in done)
    for name in ways:
        if name not in ("direct", "switch"):
            row[f"p50_of_{name}"] = statistics.median(a["p50_us"] / b["p50_us"] for a, b in zip(times["switch"], times[name]))
    return row


def memory_a_session(name, folder, ports, count):
    """Memory of a new proxy for each of `count` idle sessions that all members have answered once. A proxy that has had load has free memory for
    all of them."""
    proxy = Proxy(name, folder, ports, True)
    frame = (60).to_bytes(4, "big") + bytes(60)

    def session():
        one = socket.create_connection(("127.0.0.1", proxy.port))
        for _ in range(MEMBERS):
            one.sendall(frame)
            if one.recv(64, socket.MSG_WAITALL) != frame:
                sys.exit(f"{name}: a frame was not answered")
        return one

    try:
        first = session()
        before = proxy.memory()
        sessions = [session() for _ in range(count)]
        # The switch gives back what it needs no longer at its next sweep.
        time.sleep(0.2)
        after = proxy.memory()
        for one in [first, *sessions]:
            one.close()
    finally:
        proxy.end()
    return (after - before) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1 s a run")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--pairs", type=int, default=5, help="how often each is measured (5)")
    args = parser.parse_args()
    seconds = 1 if args.quick else 5
    names = ["switch"]
    for name, there in [("haproxy", shutil.which("haproxy")), ("nginx", shutil.which("nginx") and os.path.exists(NGINX_MODULE))]:
        if there:
            names.append(name)
        else:
            print(f"left out: there is no {name}", file=sys.stderr)
    if not os.path.exists(TOLLWAY):
        sys.exit("there is no release build: make build")
    folder = tempfile.mkdtemp()
    tool = os.path.join(folder, "frames")
    subprocess.run(["cc", "-O2", "-o", tool, os.path.join(HERE, "frames.c")], check=True)
    result = {"pairs": args.pairs, "seconds": seconds, "members": MEMBERS, "throughput": [], "latency": [], "memory": []}
    running = []
    try:
        for echo in (False, True):
            ports = free_ports(MEMBERS)
            servers = subprocess.Popen([tool, "serve", str(int(echo)), *map(str, ports)], stderr=subprocess.PIPE, text=True)
            running.append(servers)
            await_port(ports[-1], servers)
            proxies = [Proxy(name, folder, ports, echo) for name in names]
            running += [proxy.process for proxy in proxies]
            loads = {}
            for sessions in (1, 100):
                for size in (1024, 8192):
                    rows = {name: [] for name in names}
                    for _ in range(args.pairs):
                        for proxy in proxies:
                            rows[proxy.name].append(throughput(tool, proxy, sessions, size, seconds, echo))
                    row = {"echo": echo, "sessions": sessions, "frame_bytes": size}
                    for name in names:
                        row[f"{name}_mbytes_per_cpu_s"] = statistics.median(rows[name]) / 1e6
                        row[f"{name}_kframes_per_cpu_s"] = statistics.median(rows[name]) / size / 1e3
                    for name in names[1:]:
                        row[f"of_{name}"] = statistics.median(a / b for a, b in zip(rows["switch"], rows[name]))
                    loads[sessions, size] = statistics.median(rows[names[min(1, len(names) - 1)]]) / size / 10
                    result["throughput"].append(row)
                    say(args, row)
            if echo:
                for (sessions, size), rate in loads.items():
                    row = latency(tool, args, ports[0], proxies, sessions, size, seconds, rate)
                    result["latency"].append(row)
                    say(args, row)
                for name in names:
                    row = {"proxy": name, "bytes_a_session": memory_a_session(name, folder, ports, 1000)}
                    result["memory"].append(row)
                    say(args, row)
            for proxy in proxies:
                proxy.end()
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(folder)
    verdicts(result, names)
    if args.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        for what, met in result["goals"].items():
            print(f"{'met  ' if met else 'UNMET'} {what}")


def verdicts(result, names):
    """The goals, and whether each is met by every row that it is about."""
    goals = {}
    if "haproxy" in names:
        rows = result["throughput"]
        goals["8 KB frames: at least HAProxy's bytes a processor second"] = all(
            row["of_haproxy"] >= 1 for row in rows if row["frame_bytes"] == 8192
        )
        goals["1 KB frames: at least 0.8 of HAProxy's"] = all(
            row["of_haproxy"] >= 0.8 for row in rows if row["frame_bytes"] == 1024
        )
        goals["p50 at most 1.2 of HAProxy's"] = all(row["p50_of_haproxy"] <= 1.2 for row in result["latency"])
    goals["aim: 400 000 frames of 1 KB a processor second"] = all(
        row["switch_kframes_per_cpu_s"] >= 400 for row in result["throughput"] if row["frame_bytes"] == 1024
    )
    result["goals"] = goals


def say(args, row):
    text = "  ".join(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


main()
