#!/usr/bin/env python3
"""Measures the processor time of `tollway host`'s connections beside the kernel's CUBIC.

  python3 bench/host.py            20 pairs of runs for each law
  python3 bench/host.py --quick    5 pairs
  python3 bench/host.py --json     one JSON object on standard output

Two network namespaces with a veth pair and no emulator: the processor is the bottleneck. `iperf3` runs one connection at a time, in
turn under the law and under CUBIC, and a program at both ends of the pair (`bench/host.bpf.c`) answers each option as a router without
a limit would. Processor time is that of the control group of both ends (softirqs run there), and of the agent; it is stated for a
gigabyte. Needs root, a release build, `iperf3`, `ip`, `tc` and `clang`.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 1.5


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def hierarchy():
    for line in open("/proc/self/mountinfo"):
        head, tail = line.split(" - ")
        if tail.startswith("cgroup2 "):
            return head.split()[4]
    sys.exit("no cgroup2 is mounted: `mount -t cgroup2 none /sys/fs/cgroup`")


class Pair:
    """Two namespaces with a veth pair, and a control group for the programs in them."""

    def __init__(self, folder):
        self.tag = f"twbench{os.getpid()}"
        self.ends = [f"{self.tag}{end}" for end in "ab"]
        self.group = os.path.join(hierarchy(), self.tag)
        program = os.path.join(folder, "host.bpf.o")
        include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        sh("clang", "-target", "bpf", "-O2", "-g", include, "-c", os.path.join(HERE, "host.bpf.c"), "-o", program)
        os.mkdir(self.group)
        for end in self.ends:
            sh("ip", "netns", "add", end)
        sh("ip", "link", "add", "v0", "netns", self.ends[0], "type", "veth", "peer", "v0", "netns", self.ends[1])
        for number, end in enumerate(self.ends):
            inside = ("ip", "netns", "exec", end)
            sh(*inside, "ip", "addr", "add", f"10.9.0.{number + 1}/24", "dev", "v0")
            sh(*inside, "ip", "link", "set", "v0", "up")
            sh(*inside, "tc", "qdisc", "add", "dev", "v0", "clsact")
            sh(*inside, "tc", "filter", "add", "dev", "v0", "egress", "bpf", "da", "obj", program, "sec", "tc")

    def close(self):
        for end in self.ends:
            subprocess.run(["ip", "netns", "del", end], check=False)
        for _ in range(50):
            try:
                return os.rmdir(self.group)
            except OSError:
                time.sleep(0.1)

    def within(self, end, *words):
        """A command in a namespace and in the control group."""
        join = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
        return ["sh", "-c", join, self.group, "ip", "netns", "exec", self.ends[end], *words]

    def used(self):
        """Processor time of the group's programs, in seconds."""
        for line in open(os.path.join(self.group, "cpu.stat")):
            key, value = line.split()
            if key == "usage_usec":
                return int(value) * 1e-6

    def measure(self, seconds, law, agent):
        """A connection, under CUBIC unless an agent runs."""
        server = subprocess.Popen(self.within(1, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL)
        control = [] if agent else ["-C", "cubic"]
        before, agents = self.used(), of_agent(agent)
        for _ in range(100):
            client = self.within(0, "iperf3", "-c", "10.9.0.2", "-t", str(seconds), "--json", *control)
            said = subprocess.run(client, capture_output=True, text=True).stdout
            report = json.loads(said)
            if "error" not in report:
                break
            time.sleep(0.1)
        server.wait()
        sent = report["end"]["sum_received"]
        cost = self.used() - before + of_agent(agent) - agents
        congestion = report["end"].get("sender_tcp_congestion", "")
        if agent and not congestion.startswith("tollway_"):
            sys.exit(f"the connection was under `{congestion}` at its end, not under {law}")
        gigabytes = sent["bytes"] * 1e-9
        return {"law": law, "s_per_gb": cost / gigabytes, "gbps": sent["bits_per_second"] * 1e-9}


def of_agent(agent):
    """Processor time of the agent, in seconds."""
    if agent is None:
        return 0.0
    fields = open(f"/proc/{agent.pid}/stat").read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(tollway, law, pair, folder):
    socket = os.path.join(folder, "control.sock")
    words = [tollway, "host", "--law", law, "--cgroup", pair.group, "--socket", socket]
    agent = subprocess.Popen(words, stderr=open(os.path.join(folder, "log"), "w"))
    while subprocess.run([tollway, "host", "status", "--socket", socket], capture_output=True).returncode:
        if agent.poll() is not None:
            sys.exit(open(os.path.join(folder, "log")).read())
        time.sleep(0.05)
    return agent


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    arguments.add_argument("--json", action="store_true", help="one JSON object on standard output")
    arguments.add_argument("--tollway", default=os.path.join(HERE, "..", "target", "release", "tollway"))
    options = arguments.parse_args()
    missing = [name for name in ("iperf3", "ip", "tc", "clang") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit("needs root, and " + ", ".join(missing or ["nothing else"]))
    pairs, seconds = (5, 2) if options.quick else (20, 5)
    results, folder = {}, tempfile.mkdtemp()
    pair = Pair(folder)
    try:
        for law in ("xcp", "fcp"):
            runs = []
            for _ in range(pairs):
                # Side by side in time: this machine may have other work.
                cubic = pair.measure(seconds, "cubic", None)
                agent = start(options.tollway, law, pair, folder)
                try:
                    runs.append((pair.measure(seconds, law, agent), cubic))
                finally:
                    agent.terminate()
                    agent.wait()
            ratios = [ours["s_per_gb"] / cubic["s_per_gb"] for ours, cubic in runs]
            median = lambda of: statistics.median(of)
            results[law] = {
                "pairs": pairs,
                "ratio": round(median(ratios), 3),
                "ratio_least": round(min(ratios), 3),
                "ratio_most": round(max(ratios), 3),
                "s_per_gb": round(median(ours["s_per_gb"] for ours, _ in runs), 3),
                "cubic_s_per_gb": round(median(cubic["s_per_gb"] for _, cubic in runs), 3),
                "gbps": round(median(ours["gbps"] for ours, _ in runs), 2),
                "cubic_gbps": round(median(cubic["gbps"] for _, cubic in runs), 2),
                "met": median(ratios) <= MOST,
            }
    finally:
        pair.close()
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(results))
    else:
        for law, result in results.items():
            print(
                f"{law}: {result['s_per_gb']} s of processor time a GB, CUBIC {result['cubic_s_per_gb']}: "
                f"{result['ratio']} times ({result['ratio_least']} to {result['ratio_most']}), at most {MOST}"
            )
    sys.exit(not all(result["met"] for result in results.values()))


if __name__ == "__main__":
    main()
