#!/usr/bin/env python3
"""How fast is Tollway's simulator beside ns-2 and ns-3? Packet-hops per CPU second, one workload, runs taken in turn.

    python3 bench/sim.py                  everything, some minutes
    python3 bench/sim.py --quick          N = 10, 100, 1000 beside ns-2, within a minute once built
    python3 bench/sim.py --quick --json   the same as one JSON object; progress goes to stderr
    python3 bench/sim.py --htsim DIR      htsim as well, from a checkout of it

A peer that isn't installed (Debian: `apt install ns2 libns3-dev`) leaves nulls; bench/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
SCENARIO = BENCH / "dumbbell.toml"
NS2_DRIVER = BENCH / "ns2_dumbbell.tcl"
NS3_SOURCE = BENCH / "ns3_dumbbell.cc"
NS3_PROGRAM = BENCH / "bin" / "ns3_dumbbell"
SHORT = BENCH / "short.toml"
TREE = BENCH / "tree.toml"
HTSIM_SOURCE = BENCH / "htsim.cc"
HTSIM_PROGRAM = BENCH / "bin" / "htsim"
NS3_MODULES = "core network internet point-to-point applications traffic-control bridge stats".split()

SIZES = (10, 100, 1000)
SIMULATED_S = 60.0
# What a run must reach, as a multiple of the peer on the same machine.
NS2_TARGETS = {10: 5.0, 100: 5.0, 1000: 12.0}
NS3_TARGET = 100.0
# FCP's rate over TCP's: each packet of the bottleneck makes a new price.
FCP_TARGET = 0.6
# ns-3 simulates a thousand flows at about the speed of a clock, so its runs are short; ours beside
# it are as short.
NS3_SIMULATED_S = {10: 10.0, 100: 10.0, 1000: 4.0}
HUGE_FLOWS = 100_000
HUGE_SIMULATED_S = 5.0
SHORT_FLOWS = 100_000
# Seconds simulated of a fat-tree, by k: 128 and 1024 hosts.
TREES = {8: 0.1, 16: 0.02}
ROUNDS = 3
# A run of ours takes a fraction of a second, so a round holds several, half of them before the
# peer's and half after.
OURS_PER_ROUND = 8
QUICK_BUDGET_S = 50.0
# When a program hangs. ns-2 with its own routing needs minutes of set-up on a slow machine.
TIMEOUT_S = 900.0

XCP = {"link.bottleneck.law": "xcp", "flow.bulk.law": "xcp"}
FCP = {"link.bottleneck.law": "fcp", "flow.bulk.law": "fcp"}
MEASURED = {"measure.interval": "100 ms"}
UNMEASURED = {"measure.interval": "none"}


class Failed(Exception):
    """A program didn't give a result; the message says which and why."""


@dataclass
class Runs:
    """All runs of one program on one workload."""

    samples: list[dict[str, float]] = field(default_factory=list)

    def median(self, key: str) -> float | None:
        return statistics.median(float(sample[key]) for sample in self.samples) if self.samples else None

    def hops_per_s(self) -> float | None:
        """Packet-hops per CPU second of the run phase, all runs together.

        A processor whose other half is busy is slower by a third or more, for tenths of a second or for minutes. Short runs are
        then fast or slow, and a median falls to either side; a sum doesn't.
        """
        spent = sum(sample["run_cpu_s"] for sample in self.samples)
        return sum(sample["packet_hops"] for sample in self.samples) / spent if spent > 0 else None

    def best_hops_per_s(self) -> float | None:
        """Packet-hops per CPU second of the fastest run: what others do to a processor only ever makes a run slower."""
        return max((sample["packet_hops"] / sample["run_cpu_s"] for sample in self.samples), default=None)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def result_of(command: list[str], timeout: float) -> dict[str, float]:
    """Run a program and read the JSON object that it prints."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{name} took longer than {timeout:.0f} s") from error
    except OSError as error:
        raise Failed(f"{name} can't be started: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "and said nothing"
        raise Failed(f"{' '.join(command)}\nended with code {done.returncode}: {said}")
    try:
        # A library may chat before the result; the result comes last.
        result = json.loads(done.stdout[done.stdout.index("{"):])
    except ValueError as error:
        raise Failed(f"{name} printed no JSON object: {done.stdout[:200]!r}") from error
    missing = {"packet_hops", "setup_s", "run_cpu_s", "peak_rss_bytes"} - result.keys()
    if missing:
        raise Failed(f"{name}'s result lacks {', '.join(sorted(missing))}")
    return result


@dataclass
class Programs:
    """Where the simulators are; None where one is missing."""

    tollway: Path
    ns2: str | None
    ns3: Path | None
    htsim: Path | None

    def run_file(self, scenario: Path, settings: dict[str, str]) -> dict[str, float]:
        command = [str(self.tollway), "run", str(scenario), "--json", "--quiet"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return result_of(command, TIMEOUT_S)

    def run_htsim(self, kind: str, number: int, simulated_s: float) -> dict[str, float]:
        assert self.htsim is not None
        return result_of([str(self.htsim), kind, str(number), f"{simulated_s:g}"], TIMEOUT_S)

    def run_tollway(self, flows: int, simulated_s: float, settings: dict[str, str]) -> dict[str, float]:
        every = {
            "node.src.count": str(flows),
            "node.dst.count": str(flows),
            "duration": f"{simulated_s:g} s",
            **UNMEASURED,
            **settings,
        }
        return self.run_file(SCENARIO, every)

    def run_ns2(
        self, flows: int, simulated_s: float, protocol: str = "sack", routes: str = "lean", timeout: float = TIMEOUT_S
    ) -> dict[str, float]:
        assert self.ns2 is not None
        arguments = [f"n={flows}", f"dur={simulated_s:g}", f"proto={protocol}", f"routes={routes}"]
        return result_of([self.ns2, str(NS2_DRIVER), *arguments], timeout)

    def run_ns3(self, flows: int, simulated_s: float) -> dict[str, float]:
        assert self.ns3 is not None
        return result_of([str(self.ns3), f"--n={flows}", f"--dur={simulated_s:g}"], TIMEOUT_S)


def build_tollway() -> Path:
    """Build the command and return its path."""
    if shutil.which("cargo") is None:
        raise Failed("`cargo` isn't installed: install Rust, or name a built command with --binary")
    say("building tollway (cargo build --release) …")
    command = ["cargo", "build", "--release", "--package", "tollway", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed("the build failed, see above")
    for line in reversed(done.stdout.splitlines()):
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "tollway":
            return Path(message["executable"])
    raise Failed("cargo built no command called tollway")


def build_ns3() -> Path | None:
    """Build the ns-3 driver; None, with a word why, where that can't be done."""
    if shutil.which("g++") is None:
        say("ns-3 is left out: g++ isn't installed")
        return None
    probe = subprocess.run(
        ["g++", "-std=c++17", "-E", "-x", "c++", "-"],
        input="#include <ns3/core-module.h>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        say("ns-3 is left out: its headers aren't installed (Debian: apt install libns3-dev)")
        return None
    if NS3_PROGRAM.exists() and NS3_PROGRAM.stat().st_mtime > NS3_SOURCE.stat().st_mtime:
        return NS3_PROGRAM
    say("building the ns-3 driver …")
    NS3_PROGRAM.parent.mkdir(exist_ok=True)
    command = ["g++", "-std=c++17", "-O3", "-march=native", "-DNDEBUG", str(NS3_SOURCE), "-o", str(NS3_PROGRAM)]
    command += [f"-lns3-{module}" for module in NS3_MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"ns-3 is left out: its driver doesn't build here:\n{done.stderr.strip()[-2000:]}")
        return None
    return NS3_PROGRAM


def build_htsim(checkout: Path) -> Path:
    """Build htsim's library in its checkout, and our driver against it."""
    sources = checkout / "sim" if (checkout / "sim").is_dir() else checkout
    HTSIM_PROGRAM.parent.mkdir(exist_ok=True)
    for command in (
        ["make", "-C", str(sources), "CFLAGS=-std=c++11 -O3 -fPIE", "libhtsim.a"],
        ["g++", "-std=c++17", "-O3", f"-I{sources}", str(HTSIM_SOURCE), str(sources / "libhtsim.a"), "-o", str(HTSIM_PROGRAM)],
    ):
        say(f"{' '.join(command)} …")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"htsim doesn't build here:\n{done.stderr.strip()[-2000:]}")
    return HTSIM_PROGRAM


def over(above: float | None, below: float | None) -> float | None:
    """above / below, None where either is missing."""
    return above / below if above is not None and below else None


def quietly(run: Callable[[], dict[str, float]], into: Runs, peer: str) -> None:
    """Take one run of a peer; its failure costs its own figures only."""
    try:
        into.samples.append(run())
    except Failed as failure:
        say(f"{peer}: {failure}")


def beside_ns2(programs: Programs, rounds: int, budget_s: float | None) -> dict[str, dict[str, float | None]]:
    """Ours (TCP, XCP and FCP) and ns-2 at each size, in turn; with a budget, another round only if it fits."""
    began = time.monotonic()
    ours = {flows: Runs() for flows in SIZES}
    ours_xcp = {flows: Runs() for flows in SIZES}
    ours_fcp = {flows: Runs() for flows in SIZES}
    ns2 = {flows: Runs() for flows in SIZES}
    ns2_xcp = {flows: Runs() for flows in SIZES}
    longest = 0.0
    for number in range(rounds):
        round_began = time.monotonic()
        if budget_s is not None and number and round_began - began + longest > budget_s:
            break
        for flows in SIZES:
            say(f"round {number + 1}: N = {flows}")
            for turn in range(OURS_PER_ROUND):
                ours[flows].samples.append(programs.run_tollway(flows, SIMULATED_S, {}))
                ours_xcp[flows].samples.append(programs.run_tollway(flows, SIMULATED_S, XCP))
                ours_fcp[flows].samples.append(programs.run_tollway(flows, SIMULATED_S, FCP))
                if turn + 1 != OURS_PER_ROUND // 2 or programs.ns2 is None:
                    continue
                left = TIMEOUT_S if budget_s is None else max(1.0, budget_s - (time.monotonic() - began))
                quietly(lambda: programs.run_ns2(flows, SIMULATED_S, timeout=left), ns2[flows], "ns-2")
                if budget_s is None:
                    quietly(lambda: programs.run_ns2(flows, SIMULATED_S, "xcp"), ns2_xcp[flows], "ns-2 XCP")
        longest = max(longest, time.monotonic() - round_began)
    table = {}
    for flows in SIZES:
        mine = ours[flows].hops_per_s()
        theirs = ns2[flows].hops_per_s()
        row = {
            "tollway_hops_per_s": mine,
            "ns2_hops_per_s": theirs,
            "ratio": over(mine, theirs),
            "ratio_target": NS2_TARGETS[flows],
            "tollway_setup_s": ours[flows].median("setup_s"),
            "ns2_setup_s": ns2[flows].median("setup_s"),
            "tollway_peak_rss_bytes": ours[flows].median("peak_rss_bytes"),
            "ns2_peak_rss_bytes": ns2[flows].median("peak_rss_bytes"),
            "tollway_xcp_hops_per_s": ours_xcp[flows].hops_per_s(),
            "xcp_of_tcp": over(ours_xcp[flows].hops_per_s(), mine),
            "xcp_of_tcp_at_best": over(ours_xcp[flows].best_hops_per_s(), ours[flows].best_hops_per_s()),
            "tollway_fcp_hops_per_s": ours_fcp[flows].hops_per_s(),
            "fcp_of_tcp": over(ours_fcp[flows].hops_per_s(), mine),
            "fcp_of_tcp_at_best": over(ours_fcp[flows].best_hops_per_s(), ours[flows].best_hops_per_s()),
            "rounds": len(ours[flows].samples) // OURS_PER_ROUND,
        }
        if budget_s is None:
            row["ns2_xcp_hops_per_s"] = ns2_xcp[flows].hops_per_s()
            row["xcp_ratio"] = over(ours_xcp[flows].hops_per_s(), ns2_xcp[flows].hops_per_s())
        table[f"n{flows}"] = row
    return table


def beside_ns3(programs: Programs, rounds: int) -> dict[str, dict[str, float | None]]:
    """Ours and ns-3 for the same, shorter, simulated time."""
    ours = {flows: Runs() for flows in SIZES}
    ns3 = {flows: Runs() for flows in SIZES}
    for number in range(rounds if programs.ns3 is not None else 0):
        for flows in SIZES:
            say(f"ns-3, round {number + 1}: N = {flows}")
            for _ in range(OURS_PER_ROUND):
                ours[flows].samples.append(programs.run_tollway(flows, NS3_SIMULATED_S[flows], {}))
            quietly(lambda: programs.run_ns3(flows, NS3_SIMULATED_S[flows]), ns3[flows], "ns-3")
    return {
        f"n{flows}": {
            "simulated_s": NS3_SIMULATED_S[flows],
            "tollway_hops_per_s": ours[flows].hops_per_s(),
            "ns3_hops_per_s": ns3[flows].hops_per_s(),
            "ratio": over(ours[flows].hops_per_s(), ns3[flows].hops_per_s()),
            "ratio_target": NS3_TARGET,
            "ns3_setup_s": ns3[flows].median("setup_s"),
            "ns3_peak_rss_bytes": ns3[flows].median("peak_rss_bytes"),
        }
        for flows in SIZES
    }


def huge(programs: Programs) -> dict[str, float | None]:
    """A hundred thousand flows of ours: bottleneck and buffer a hundred times the usual."""
    say(f"N = {HUGE_FLOWS}")
    settings = {"link.bottleneck.rate": "10 Gbps", "link.bottleneck.limit": "50000 packets"}
    runs = Runs([programs.run_tollway(HUGE_FLOWS, HUGE_SIMULATED_S, settings)])
    return {
        "simulated_s": HUGE_SIMULATED_S,
        "tollway_hops_per_s": runs.hops_per_s(),
        "tollway_setup_s": runs.median("setup_s"),
        "tollway_peak_rss_bytes": runs.median("peak_rss_bytes"),
    }


def beside_htsim(programs: Programs, rounds: int, quick: bool) -> dict[str, dict[str, float | None]]:
    """Short flows, fat-trees and, where there is htsim, dumbbells: ours and htsim in turn."""
    workloads: dict[str, tuple[Callable[[], dict[str, float]], tuple[str, int, float]]] = {
        "short_flows": (partial(programs.run_file, SHORT, {}), ("short", SHORT_FLOWS, 101.0)),
    }
    for k, simulated_s in TREES.items():
        settings = {"topology.fat-tree.k": str(k), "duration": f"{simulated_s:g} s"}
        workloads[f"fat_tree_k{k}"] = (partial(programs.run_file, TREE, settings), ("tree", k, simulated_s))
    for flows in SIZES if programs.htsim is not None and not quick else ():
        run = partial(programs.run_tollway, flows, SIMULATED_S, {})
        workloads[f"htsim_n{flows}"] = (run, ("dumbbell", flows, SIMULATED_S))
    table = {}
    for name, (run, theirs) in workloads.items():
        ours, htsim = Runs(), Runs()
        for _ in range(1 if quick else rounds):
            say(name)
            ours.samples.append(run())
            if programs.htsim is not None:
                quietly(lambda: programs.run_htsim(*theirs), htsim, "htsim")
        table[name] = {
            "tollway_hops_per_s": ours.hops_per_s(),
            "htsim_hops_per_s": htsim.hops_per_s(),
            "ratio": over(ours.hops_per_s(), htsim.hops_per_s()),
            "tollway_run_cpu_s": ours.median("run_cpu_s"),
            "tollway_setup_s": ours.median("setup_s"),
            "tollway_peak_rss_bytes": ours.median("peak_rss_bytes"),
            "htsim_setup_s": htsim.median("setup_s"),
            "htsim_peak_rss_bytes": htsim.median("peak_rss_bytes"),
        }
    return table


def measurement(programs: Programs, rounds: int) -> dict[str, dict[str, float | None]]:
    """What measuring every 100 ms costs, as a share of the CPU time without."""
    table = {}
    for flows in SIZES:
        say(f"measurement on and off: N = {flows}")
        off = Runs()
        on = Runs()
        for _ in range(rounds * OURS_PER_ROUND):
            off.samples.append(programs.run_tollway(flows, SIMULATED_S, UNMEASURED))
            on.samples.append(programs.run_tollway(flows, SIMULATED_S, MEASURED))
        cost = over(on.median("run_cpu_s"), off.median("run_cpu_s"))
        table[f"n{flows}"] = {
            "off_hops_per_s": off.hops_per_s(),
            "on_hops_per_s": on.hops_per_s(),
            "cost": None if cost is None else cost - 1.0,
        }
    return table


def ns2_own_routing(programs: Programs) -> dict[str, float | None]:
    """Set-up and memory of ns-2 at the largest size when it computes its routes itself, as scripts let it."""
    runs = Runs()
    if programs.ns2 is not None:
        say(f"ns-2 with its own routing: N = {SIZES[-1]}")
        quietly(lambda: programs.run_ns2(SIZES[-1], SIMULATED_S, routes="computed"), runs, "ns-2")
    return {
        "flows": SIZES[-1],
        "setup_s": runs.median("setup_s"),
        "hops_per_s": runs.hops_per_s(),
        "peak_rss_bytes": runs.median("peak_rss_bytes"),
    }


def million(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:.3g}"


def times(value: float | None, target: float | None = None) -> str:
    if value is None:
        return "–"
    met = "" if target is None else " ok" if value >= target else " below"
    return f"{value:.3g} ×{met}"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g} s"


def megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:.3g} MB"


def show(heading: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print one table, columns aligned to the right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    print(f"\n{heading}")
    for row in [columns, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def show_all(report: dict[str, dict]) -> None:
    rows = [(key[1:], report[key]) for key in (f"n{flows}" for flows in SIZES)]
    show(
        "M packet-hops per CPU second of the run phase: TCP NewReno + SACK, 60 s",
        ["N", "tollway", "ns-2", "ratio", "target", "XCP", "XCP/TCP", "at best", "FCP", "FCP/TCP", "at best"],
        [
            [
                n,
                million(row["tollway_hops_per_s"]),
                million(row["ns2_hops_per_s"]),
                times(row["ratio"], row["ratio_target"]),
                times(row["ratio_target"]),
                million(row["tollway_xcp_hops_per_s"]),
                times(row["xcp_of_tcp"]),
                times(row["xcp_of_tcp_at_best"]),
                million(row["tollway_fcp_hops_per_s"]),
                times(row["fcp_of_tcp"], FCP_TARGET),
                times(row["fcp_of_tcp_at_best"]),
            ]
            for n, row in rows
        ],
    )
    show(
        "Set-up (CPU) and peak memory",
        ["N", "tollway", "ns-2", "tollway", "ns-2"],
        [
            [
                n,
                seconds(row["tollway_setup_s"]),
                seconds(row["ns2_setup_s"]),
                megabytes(row["tollway_peak_rss_bytes"]),
                megabytes(row["ns2_peak_rss_bytes"]),
            ]
            for n, row in rows
        ],
    )
    show(
        "Short flows, fat-trees and htsim",
        ["", "tollway", "htsim", "ratio", "set-up", "memory", "of htsim"],
        [
            [
                name,
                million(row["tollway_hops_per_s"]),
                million(row["htsim_hops_per_s"]),
                times(row["ratio"]),
                seconds(row["tollway_setup_s"]),
                megabytes(row["tollway_peak_rss_bytes"]),
                megabytes(row["htsim_peak_rss_bytes"]),
            ]
            for name, row in report["workloads"].items()
        ],
    )
    if "ns3" in report:
        show(
            "Beside ns-3, shorter runs",
            ["N", "simulated", "tollway", "ns-3", "ratio", "target", "ns-3 set-up", "ns-3 memory"],
            [
                [
                    key[1:],
                    seconds(row["simulated_s"]),
                    million(row["tollway_hops_per_s"]),
                    million(row["ns3_hops_per_s"]),
                    times(row["ratio"], row["ratio_target"]),
                    times(row["ratio_target"]),
                    seconds(row["ns3_setup_s"]),
                    megabytes(row["ns3_peak_rss_bytes"]),
                ]
                for key, row in report["ns3"].items()
            ],
        )
        show(
            "XCP beside ns-2's XCP",
            ["N", "tollway", "ns-2", "ratio"],
            [
                [
                    n,
                    million(row["tollway_xcp_hops_per_s"]),
                    million(row["ns2_xcp_hops_per_s"]),
                    times(row["xcp_ratio"]),
                ]
                for n, row in rows
            ],
        )
        show(
            "Measuring every 100 ms",
            ["N", "off", "on", "cost in CPU time"],
            [
                [
                    key[1:],
                    million(row["off_hops_per_s"]),
                    million(row["on_hops_per_s"]),
                    "–" if row["cost"] is None else f"{100 * row['cost']:.1f} %",
                ]
                for key, row in report["measurement"].items()
            ],
        )
        row = report[f"n{HUGE_FLOWS}"]
        print(
            f"\nN = {HUGE_FLOWS} at 10 Gb/s: {million(row['tollway_hops_per_s'])} M packet-hops/s, "
            f"set-up {seconds(row['tollway_setup_s'])}, {megabytes(row['tollway_peak_rss_bytes'])}"
        )
        row = report["ns2_own_routing"]
        print(
            f"ns-2 that computes its own routes, N = {row['flows']}: {million(row['hops_per_s'])} M packet-hops/s, "
            f"set-up {seconds(row['setup_s'])}, {megabytes(row['peak_rss_bytes'])}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only N = 10, 100, 1000 beside ns-2, within a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--binary", type=Path, help="a built tollway command, instead of building one")
    parser.add_argument("--htsim", type=Path, metavar="DIR", help="a checkout of htsim, which is built there")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds to take together (default {ROUNDS})")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")

    try:
        tollway = options.binary.resolve() if options.binary else build_tollway()
        if not tollway.is_file():
            raise Failed(f"there is no file {tollway}")
        htsim = build_htsim(options.htsim.resolve()) if options.htsim else None
        programs = Programs(tollway, shutil.which("ns"), None if options.quick else build_ns3(), htsim)
        if programs.ns2 is None:
            say("ns-2 is left out: `ns` isn't installed (Debian: apt install ns2)")
        report: dict[str, dict] = dict(
            beside_ns2(programs, options.rounds, QUICK_BUDGET_S if options.quick else None)
        )
        report["workloads"] = beside_htsim(programs, options.rounds, options.quick)
        if not options.quick:
            report["ns3"] = beside_ns3(programs, options.rounds)
            report["measurement"] = measurement(programs, options.rounds)
            report[f"n{HUGE_FLOWS}"] = huge(programs)
            report["ns2_own_routing"] = ns2_own_routing(programs)
    except Failed as failure:
        say(f"sim.py: {failure}")
        return 1
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show_all(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
