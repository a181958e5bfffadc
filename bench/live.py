#!/usr/bin/env python3
"""What the live engine costs, in processor time, since machines are shared.

    python3 bench/live.py                  everything, some minutes (builds quinn's driver, too)
    python3 bench/live.py --quick          shorter runs
    python3 bench/live.py --quick --json   the same as one JSON object; progress goes to stderr

Needs Linux, cargo and nothing else; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
QUINN = BENCH / "quinn" / "Cargo.toml"

ROUTER_TARGET_US = 0.7
QUINN_TARGET = 2.0


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


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--no-quinn", action="store_true", help="leave the peer out")
    options = parser.parse_args()

    rounds, seconds, gigabytes = (3, "2", "1") if options.quick else (7, "5", "4")
    say("building")
    if not build(["--package", "tollway-net", "--examples"]):
        return 1
    ours = ROOT / "target" / "release" / "examples"
    router = measure(ours / "router_cost", [seconds, "xcp"], rounds)
    fcp = measure(ours / "router_cost", [seconds, "fcp"], rounds)
    bulk = measure(ours / "acp_bulk", [gigabytes], rounds)
    quinn = None
    if not options.no_quinn and build(["--manifest-path", str(QUINN)]):
        quinn = measure(QUINN.parent / "target" / "release" / "quinn-bulk", [gigabytes], rounds)

    report = {
        "router_us_per_datagram": spread([run["us_per_datagram"] for run in router]),
        "router_us_per_data_datagram": spread([run["cpu_s"] * 1e6 / run["data_datagrams"] for run in router]),
        "fcp_router_us_per_datagram": spread([run["us_per_datagram"] for run in fcp]),
        "fcp_router_datagrams_per_send": spread([run["datagrams_per_send"] for run in fcp]),
        "router_kernel_drops": sum(run["kernel_drops"] for run in router + fcp),
        "router_target_us": ROUTER_TARGET_US,
        "acp_gbit_per_cpu_s": spread([run["gbit_per_cpu_s"] for run in bulk]),
        "quinn_tls_gbit_per_cpu_s": None,
        "quinn_plain_gbit_per_cpu_s": None,
        "acp_over_quinn_plain": None,
        "acp_over_quinn_target": QUINN_TARGET,
    }
    if quinn:
        plain = spread([run["plain_gbit_per_cpu_s"] for run in quinn])
        report["quinn_tls_gbit_per_cpu_s"] = spread([run["tls_gbit_per_cpu_s"] for run in quinn])
        report["quinn_plain_gbit_per_cpu_s"] = plain
        report["acp_over_quinn_plain"] = report["acp_gbit_per_cpu_s"]["median"] / plain["median"]
    routers = [report[name]["median"] for name in ("router_us_per_datagram", "fcp_router_us_per_datagram")]
    report["router_target_met"] = max(routers) <= ROUTER_TARGET_US
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
