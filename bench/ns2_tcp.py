#!/usr/bin/env python3
"""TCP beside ns-2 on random dumbbells: utilisation, loss, queue, unfairness by round trip, and timeouts.

    python3 bench/ns2_tcp.py                   the ten fixed cases, each with drop-tail and with RED
    python3 bench/ns2_tcp.py --seed 1234       ten others
    python3 bench/ns2_tcp.py --defaults        Tollway's own timers and RED's rules of 1993 in place of ns-2's
    python3 bench/ns2_tcp.py --program PATH --ns PATH --json

A measure is inside if the median of Tollway's five starts is within ns-2's range over ten starts. Debian: `apt install ns2`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
DRIVER = BENCH / "ns2_tcp.tcl"
MEASURES = ("utilisation", "loss", "queue", "exponent", "timeouts")
NS_STARTS, OUR_STARTS = 10, 5
SECONDS, WARM = 60, 20
# 4 · RTTVAR in ns-2 falls to three ticks of 10 ms: its integers round down.
GRANULARITY = "30 ms"


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


def scenario(case: Case, queue: str, number: int, defaults: bool) -> str:
    """The same as a scenario file."""
    low, high = case.thresholds()
    lines = [
        f'name = "ns2-tcp"\nduration = "{SECONDS} s"\nseed = {number + 1}\nmeasure = {{ interval = "1 s", warmup = "{WARM} s" }}',
        "[node.left]\n[node.right]",
        f'[link.bottleneck]\nfrom = "left"\nto = "right"\nrate = "{case.mbps} Mbps"\ndelay = "5 ms"\nlimit = "{case.limit} packets"',
    ]
    if queue == "red":
        ns2 = "" if defaults else f'least-queue = 2\nspacing = "{"wait" if case.wait else "uniform"}"'
        lines.append(
            f'law = "red"\n[link.bottleneck.red]\nmin-threshold = "{low} packets"\nmax-threshold = "{high} packets"\n{ns2}'
        )
    for i, (rtt, start) in enumerate(zip(case.rtts, starts(case, number))):
        lines.append(
            f'[node.s{i}]\n[node.d{i}]\n[link.in{i}]\nfrom = "s{i}"\nto = "left"\nrate = "1 Gbps"\ndelay = "{rtt * 500 - 5:.3f} ms"\n'
            f'limit = "unlimited"\n[link.out{i}]\nfrom = "right"\nto = "d{i}"\nrate = "1 Gbps"\ndelay = "0 ms"\nlimit = "unlimited"\n'
            f'[flow.f{i}]\nfrom = "s{i}"\nto = "d{i}"\nlaw = "newreno"\nstart = "{start} s"\nsack = {str(case.sack).lower()}\n'
            "initial-window = 2\nhandshake = false"
        )
        if not defaults:
            lines.append(
                f'growth-per-ack = 1\n[flow.f{i}.rto]\ninitial = "3 s"\ngranularity = "{GRANULARITY}"\nat-repair = true\nimpatient = {str(not case.sack).lower()}'
            )
    return "\n".join(lines) + "\n"


def in_tollway(program: str, case: Case, queue: str, number: int, defaults: bool) -> dict[str, float]:
    """One run of Tollway."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(scenario(case, queue, number, defaults))
        run = subprocess.run([program, "run", str(file), "--json", "--quiet"], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise SystemExit(run.stderr)
    found = json.loads(run.stdout)
    link = next(link for link in found["links"] if link["link"] == "bottleneck")
    sent = sum(flow["sent_bytes"] for flow in found["flows"]) / 1500
    by_name = {flow["flow"]: flow for flow in found["flows"]}
    rates = [by_name[f"f{i}"]["rate_mbps"] for i in range(len(case.rtts))]
    return {
        "utilisation": link["utilisation"], "loss": link["drops"] / sent, "queue": link["queue_mean_packets"],
        "timeouts": sum(flow["timeouts"] for flow in found["flows"]), "exponent": exponent(case.rtts, rates),
    }


def main() -> int:
    """Runs all cases and prints one row for each measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ns", default="ns")
    parser.add_argument("--program", default=str(BENCH.parent / "target" / "release" / "tollway"))
    options = parser.parse_args()
    cases = draw(options.seed)
    rows, text = [], []
    with ThreadPoolExecutor(2) as pool:
        for queue in ("droptail", "red"):
            inside = dict.fromkeys(MEASURES, 0)
            for i, case in enumerate(cases):
                theirs = list(pool.map(lambda n: in_ns2(options.ns, case, queue, n), range(NS_STARTS)))
                ours = list(pool.map(lambda n: in_tollway(options.program, case, queue, n, options.defaults), range(OUR_STARTS)))
                for measure in MEASURES:
                    known = [run[measure] for run in theirs]
                    median = statistics.median(run[measure] for run in ours)
                    # Bytes are counted as packets leave: one packet is what a use of the link can be off.
                    off = 12e-3 / case.mbps / (SECONDS - WARM) if measure == "utilisation" else 0.0
                    holds = min(known) - off <= median <= max(known) + off
                    inside[measure] += holds
                    rows.append({"queue": queue, "case": i + 1, "sack": case.sack, "measure": measure, "ours": median,
                                 "least": min(known), "most": max(known), "inside": holds})
            text.append(f"{queue:9}" + "  ".join(f"{measure} {inside[measure]}/{len(cases)}" for measure in MEASURES))
    print(json.dumps(rows) if options.json else "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
