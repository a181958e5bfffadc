#!/usr/bin/env python3
"""TCP beside ns-2 on random dumbbells: utilisation, loss, queue, unfairness by round trip, and timeouts.

    python3 bench/ns2_tcp.py                   the ten fixed cases, each with drop-tail and with RED
    python3 bench/ns2_tcp.py --seed 1234       ten others
    python3 bench/ns2_tcp.py --defaults        Tollway's own timers and RED's rules of 1993 in place of ns-2's
    python3 bench/ns2_tcp.py --record          writes the fixed cases and ns-2's ranges to papers/tcp
    python3 bench/ns2_tcp.py --program PATH --ns PATH

papers/tcp/ns2.toml has the settings and the claims. Debian: `apt install ns2`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

BENCH = Path(__file__).resolve().parent
DRIVER = BENCH / "ns2_tcp.tcl"
PAPERS = BENCH.parent / "papers"
FIRST, LAST = "# The cases, written by bench/ns2_tcp.py.\n", "# The end of the cases.\n"
MEASURES = ("utilisation", "loss", "queue", "exponent", "timeouts")
FIXED, STARTS = 27, 10
SECONDS, WARM = 60, 20
# Round trips are whole milliseconds, so packets of many flows arrive at once: without it, in the order of the links.
JITTER = 'jitter = "1 us"'


@dataclass(frozen=True)
class Case:
    """A dumbbell: two to sixteen flows over 1 to 20 Mb/s."""

    mbps: float
    rtts: tuple[float, ...]
    limit: int
    sack: bool
    wait: bool

    def thresholds(self) -> tuple[float, float]:
        """RED's, in packets."""
        return max(2.0, self.limit / 6), max(6.0, self.limit / 2)


def draw(seed: int, cases: int = 10) -> list[Case]:
    """Cases of `seed`, every other one with SACK, every other pair with ns-2's default spacing of drops."""
    chance = random.Random(seed)
    drawn = []
    for i in range(cases):
        mbps = round(10 ** chance.uniform(0, 1.3), 1)
        rtts = tuple(round(10 ** chance.uniform(-1.5, -0.5), 3) for _ in range(chance.randint(2, 16)))
        bdp = mbps * 1e6 * statistics.mean(rtts) / 12000
        limit = max(10, round(bdp * 10 ** chance.uniform(-0.5, 0.3)))
        drawn.append(Case(mbps, rtts, limit, i % 2 == 0, i // 2 % 2 == 0))
    return drawn


def starts(case: Case, number: int) -> list[float]:
    """Start instants within the first second."""
    chance = random.Random(f"{case} {number}")
    return [round(chance.random(), 4) for _ in case.rtts]


def exponent(rtts: tuple[float, ...], rates: list[float]) -> float:
    """a in rate ∝ RTT^a, by least squares in the logarithm."""
    x = [math.log(rtt) for rtt in rtts]
    y = [math.log(max(rate, 1e-6)) for rate in rates]
    mean_x, mean_y = statistics.mean(x), statistics.mean(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / spread if spread else 0.0


def in_ns2(program: str, case: Case, queue: str, number: int) -> dict[str, float]:
    """One run of ns-2."""
    low, high = case.thresholds()
    arguments = {
        "proto": "sack" if case.sack else "newreno", "bw": case.mbps * 1e6, "limit": case.limit, "queue": queue,
        "rtts": ",".join(map(str, case.rtts)), "starts": ",".join(map(str, starts(case, number))),
        "wait": int(case.wait), "min": low, "max": high, "dur": SECONDS, "warm": WARM, "seed": number + 1,
    }
    command = [program, str(DRIVER), *(f"{key}={value}" for key, value in arguments.items())]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found | {"exponent": exponent(case.rtts, found.pop("rates"))}


def grid(cases: list[Case]) -> str:
    """The cases as points of the experiment's grid."""
    lines = []
    for number, case in enumerate(cases, 1):
        low, high = case.thresholds()
        lines += [
            f"\n[grid.case.{number}]", f'"link.bottleneck.rate" = "{case.mbps} Mbps"', f'"link.bottleneck.limit" = "{case.limit} packets"',
            f'"link.bottleneck.red" = {{ min-threshold = "{low:g} packets", max-threshold = "{high:g} packets", least-queue = 2, '
            f'spacing = "{"wait" if case.wait else "counted"}" }} # as ns-2',
            f'"node.s.count" = {len(case.rtts)}', f'"node.d.count" = {len(case.rtts)}', f'"flow.f.sack" = {str(case.sack).lower()}',
        ]
        for i, rtt in enumerate(case.rtts, 1):
            lines.append(f'"link.in{i}" = {{ from = "s.{i}", to = "left", rate = "1 Gbps", delay = "{rtt * 500 - 5:g} ms", limit = "unlimited", {JITTER} }}')
    return "\n".join(lines) + "\n\n"


def ranges(ns: str, cases: list[Case], queue: str) -> str:
    """The least and the largest value of each measure in ns-2, as a table."""
    text = "case,measure,least,most\n"
    with ThreadPoolExecutor(2) as pool:
        for number, case in enumerate(cases, 1):
            runs = list(pool.map(partial(in_ns2, ns, case, queue), range(STARTS)))
            for measure in MEASURES:
                known = [run[measure] for run in runs]
                # Bytes are counted as packets leave: one packet is what a use of the link can be off.
                off = 12e-3 / case.mbps / (SECONDS - WARM) if measure == "utilisation" else 0.0
                text += f"{number},{measure},{min(known) - off:.6g},{max(known) + off:.6g}\n"
    return text


def write(papers: Path, cases: list[Case], ns: str, defaults: bool) -> None:
    """Writes the experiment with these cases and ns-2's ranges to a folder of papers."""
    text = (PAPERS / "tcp" / "ns2.toml").read_text()
    before, after = text.split(FIRST)[0], text.split(LAST)[1]
    text = before + FIRST + grid(cases) + LAST + after
    if defaults:
        text = re.sub(r", least-queue[^}]*(?=})", "", text)
        text = re.sub(r"^[^#{\n]*# as ns-2.*\n", "", text, flags=re.M)
    folder = papers / "tcp" / "ns2"
    folder.mkdir(parents=True, exist_ok=True)
    (papers / "tcp" / "ns2.toml").write_text(text)
    for name, queue in (("drop-tail", "droptail"), ("red", "red")):
        what = f"# ns-2.35+dfsg-5 (Debian package ns2) with {name}: ranges over ten starts\n# made by: python3 bench/ns2_tcp.py --record\n"
        (folder / f"{name}.csv").write_text(what + ranges(ns, cases, queue))


def main() -> int:
    """Runs ns-2 on all cases, and judges the experiment with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--ns", default="ns")
    parser.add_argument("--program", default=str(BENCH.parent / "target" / "release" / "tollway"))
    options = parser.parse_args()
    if options.record and (options.defaults or options.seed is not None):
        parser.error("--record writes the fixed cases with ns-2's rules: leave out --seed and --defaults")
    cases = draw(FIXED if options.seed is None else options.seed)
    if options.record:
        write(PAPERS, cases, options.ns, defaults=False)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), cases, options.ns, options.defaults)
        command = [options.program, "reproduce", "--papers", folder, "--out", f"{folder}/out", "--quick"]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
