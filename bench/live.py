#!/usr/bin/env python3
"""Measures the cost of the live engine in processor time, because machines are shared.

    python3 bench/live.py                  everything, some minutes (builds quinn's driver, too)
    python3 bench/live.py --quick          shorter runs
    python3 bench/live.py --quick --json   the same as one JSON object; progress goes to stderr

Needs Linux, cargo and nothing else; as root, with `ip` and `cc`, also the router between network namespaces, and a bare forwarder there.
bench/README.md says what is measured.
"""

from __future__ import annotations

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
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
QUINN = BENCH / "quinn" / "Cargo.toml"

ROUTER_TARGET_US = 0.7
QUINN_TARGET = 2.0
SWITCH_TARGET = 2.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build(arguments: list[str]) -> bool:
    done = subprocess.run(["cargo", "build", "--release", *arguments], cwd=ROOT, stdout=sys.stderr, check=False)
    return done.returncode == 0


def measure(program: Path, arguments: list[str], rounds: int) -> list[dict]:
    results = []
    for i in range(rounds):
        say(f"{program.name} {' '.join(arguments)}, {i + 1} of {rounds}")
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=300)
        results.append(json.loads(done.stdout))
    return results


def blast(seconds: float) -> None:
    """Sends datagrams of the router's length to the far end, which need not exist."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("10.78.0.2", 9))
    payload, end = bytes(1472), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(64):
            try:
                sender.send(payload)
            except OSError:
                pass  # Nobody listens there, or there is no room.


def forward(seconds: str) -> dict:
    """The cost of `forwarder.c` per packet, from one veth pair to another, without batches."""
    with tempfile.TemporaryDirectory() as folder:
        forwarder = Path(folder) / "forwarder"
        subprocess.run(["cc", "-O2", "-o", forwarder, BENCH / "forwarder.c"], check=True)
        names = [f"tollway-bench-{os.getpid()}-{side}" for side in "abm"]
        running = None
        inside = lambda name, *words: ["ip", "netns", "exec", name, *words]
        try:
            for name in names:
                subprocess.run(["ip", "netns", "add", name], check=True)
            for i, name in enumerate(names[:2]):
                for words in (
                    ["ip", "link", "add", f"fw{i}", "type", "veth", "peer", "name", "eth0", "netns", name],
                    ["ip", "link", "set", f"fw{i}", "up"],
                ):
                    subprocess.run(inside(names[2], *words), check=True)
                for words in (
                    ["ip", "link", "set", "eth0", "address", "02:00:00:00:00:01", "arp", "off"],
                    ["ip", "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0"],
                    ["ip", "link", "set", "eth0", "up"],
                ):
                    subprocess.run(inside(name, *words), check=True)
            running = subprocess.Popen(inside(names[2], forwarder, "fw0", "fw1"), stdout=subprocess.PIPE, text=True)
            running.stdout.readline()
            subprocess.run(inside(names[0], sys.executable, __file__, "--blast", seconds), check=True)
            counter = ["cat", "/sys/class/net/fw1/statistics/tx_packets"]
            packets = int(subprocess.run(inside(names[2], *counter), check=True, capture_output=True).stdout)
            with open(f"/proc/{running.pid}/stat", encoding="ascii") as stat:
                ticks = sum(int(field) for field in stat.read().rsplit(")", 1)[1].split()[11:13])
            return {"us_per_datagram": ticks / os.sysconf("SC_CLK_TCK") * 1e6 / packets}
        finally:
            if running:
                running.kill()
                running.wait()
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False)


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--no-quinn", action="store_true", help="leave the peer out")
    parser.add_argument("--blast", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.blast:
        blast(options.blast)
        return 0

    rounds, seconds, gigabytes = (3, "2", "1") if options.quick else (7, "5", "4")
    say("building")
    if not build(["--package", "tollway-net", "--examples"]):
        return 1
    ours = ROOT / "target" / "release" / "examples"
    router, switch, keys = [], [], []
    for _ in range(rounds):  # In pairs: what slows the machine slows both.
        router += measure(ours / "router_cost", [seconds, "xcp"], 1)
        switch += measure(ours / "router_cost", [seconds, "xcp", "switch"], 1)
        keys += measure(ours / "router_cost", [seconds, "xcp", "keys"], 1)
    fcp = measure(ours / "router_cost", [seconds, "fcp"], rounds)
    namespaces = {"xcp": [], "fcp": []}
    forwarder = []
    if os.geteuid() == 0:
        namespaces = {law: measure(ours / "router_cost", [seconds, law, "namespaces"], rounds) for law in namespaces}
        if shutil.which("ip") and shutil.which("cc"):
            forwarder = [forward(seconds) for _ in range(rounds)]
    bulk = measure(ours / "acp_bulk", [gigabytes], rounds)
    quinn = None
    if not options.no_quinn and build(["--manifest-path", str(QUINN)]):
        quinn = measure(QUINN.parent / "target" / "release" / "quinn-bulk", [gigabytes], rounds)

    report = {
        "router_us_per_datagram": spread([run["us_per_datagram"] for run in router]),
        "router_us_per_data_datagram": spread([run["cpu_s"] * 1e6 / run["data_datagrams"] for run in router]),
        "keys_router_us_per_datagram": spread([run["us_per_datagram"] for run in keys]),
        "switch_us_per_datagram": spread([run["us_per_datagram"] for run in switch]),
        "switch_over_router": spread([b["us_per_datagram"] / a["us_per_datagram"] for a, b in zip(router, switch)]),
        "fcp_router_us_per_datagram": spread([run["us_per_datagram"] for run in fcp]),
        "fcp_router_datagrams_per_send": spread([run["datagrams_per_send"] for run in fcp]),
        "namespace_router_us_per_datagram": None,
        "namespace_fcp_router_us_per_datagram": None,
        "forwarder_us_per_datagram": None,
        "router_kernel_drops": sum(run["kernel_drops"] for run in router + switch + fcp),
        "router_target_us": ROUTER_TARGET_US,
        "acp_gbit_per_cpu_s": spread([run["gbit_per_cpu_s"] for run in bulk]),
        "quinn_tls_gbit_per_cpu_s": None,
        "quinn_plain_gbit_per_cpu_s": None,
        "acp_over_quinn_plain": None,
        "acp_over_quinn_target": QUINN_TARGET,
    }
    for name, runs in (
        ("namespace_router", namespaces["xcp"]),
        ("namespace_fcp_router", namespaces["fcp"]),
        ("forwarder", forwarder),
    ):
        if runs:
            report[f"{name}_us_per_datagram"] = spread([run["us_per_datagram"] for run in runs])
    if quinn:
        plain = spread([run["plain_gbit_per_cpu_s"] for run in quinn])
        report["quinn_tls_gbit_per_cpu_s"] = spread([run["tls_gbit_per_cpu_s"] for run in quinn])
        report["quinn_plain_gbit_per_cpu_s"] = plain
        report["acp_over_quinn_plain"] = report["acp_gbit_per_cpu_s"]["median"] / plain["median"]
    routers = [report[name]["median"] for name in ("router_us_per_datagram", "fcp_router_us_per_datagram")]
    report["router_target_met"] = max(routers) <= ROUTER_TARGET_US
    path = [[run["path_cpu_s"] / run["data_datagrams"] for run in runs] for runs in (keys, router)]
    report["keys_over_plain"] = spread([a / b for a, b in zip(*path)])
    report["keys_router_over_plain"] = spread([a["us_per_datagram"] / b["us_per_datagram"] for a, b in zip(keys, router)])
    report["switch_target_met"] = report["switch_over_router"]["median"] <= SWITCH_TARGET
    ratio = report["acp_over_quinn_plain"]
    report["quinn_target_met"] = None if ratio is None else ratio >= QUINN_TARGET

    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for name, value in report.items():
            if isinstance(value, dict):
                value = f"{value['median']:.3g}  ({value['min']:.3g} … {value['max']:.3g})"
            print(f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
