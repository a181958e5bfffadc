#!/usr/bin/env python3
"""The least queue that any law has as a flow starts, on the networks of papers/fcp/start-random.toml.

    python3 bench/fcp_start.py [--networks 300] [--seed 1] [--program PATH]     needs a release build

A flow i starts at a link whose other flows j have their share x_j. Its first packet passes the link at 0. No packet that j sends
with knowledge of it can pass the link before R_j, the round trip of j. Let i have nine tenths of its share x_i from k of its own round
trips r on (fcp.convergence: k = 4), and j 97 % of x_j until it knows (fcp.num). Even if i sends nothing before, and j nothing from
then on, the queue at T is at least

    0.9 x_i (T − k r) + Σ_j 0.97 x_j min(T, R_j) − C T

Only starts count that have no other start or stop within a second before or half a second after. Printed for each k: in how many
networks that is more than the product of a link's rate and the mean round trip over it, and the worst.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUND_TRIPS = (2, 3, 4, 5, 10, 20)
NEW, OLD = 0.9, 0.97
SETTLED_S, ALONE_S = 1.0, 0.5


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) / {"s": 1, "ms": 1e3}[unit]


class Network:
    """A network that `tollway verify --starts --keep` wrote: its links lead towards one root."""

    def __init__(self, program: str, file: Path) -> None:
        self.program, self.file = program, file
        text = file.read_text()
        self.blocks = re.split(r"\n(?=\[)", text)
        scenario = tomllib.loads(text)
        self.links, self.flows = scenario["link"], scenario["flow"]
        self.times = {
            name: (seconds(flow.get("start", "0 s")), seconds(flow.get("stop", "1e9 s")))
            for name, flow in self.flows.items()
        }
        self.paths = {name: self.path(flow) for name, flow in self.flows.items()}

    def path(self, flow: dict[str, str]) -> tuple[list[str], float]:
        """The links of a flow, and its round trip without queues in seconds."""
        onward = {link["from"]: name for name, link in self.links.items()}
        links, node = [], flow["from"]
        while node != flow["to"]:
            links.append(onward[node])
            node = self.links[links[-1]]["to"]
        return links, 2 * sum(seconds(self.links[name]["delay"]) for name in links)

    def shares(self, present: list[str], folder: Path) -> dict[str, float]:
        """The share of each flow if these are present throughout, Mb/s."""
        kept = []
        for block in self.blocks:
            flow = re.match(r"\[flow\.(\w+)\]", block)
            if not flow or flow[1] in present:
                kept.append(re.sub(r"^(start|stop) = .*$", "", block, flags=re.M) if flow else block)
        file = folder / f"{self.file.stem}-present.toml"
        file.write_text("\n".join(kept))
        theory = json.loads(subprocess.check_output([self.program, "theory", str(file), "--json"]))
        return {flow["flow"]: flow["aimed_mbps"] for flow in theory["variants"][0]["flows"]}

    def least(self, folder: Path) -> dict[int, float]:
        """For each number of round trips: the longest of the least queues, in products."""
        worst = dict.fromkeys(ROUND_TRIPS, 0.0)
        changes = [time for times in self.times.values() for time in times]
        for new, (start, _) in self.times.items():
            near = sum(start - SETTLED_S < time < start + ALONE_S for time in changes)
            others = [name for name, (begins, ends) in self.times.items() if begins < start < ends]
            if near > 1 or not others:
                continue
            before, after = self.shares(others, folder), self.shares([*others, new], folder)
            links, rtt = self.paths[new]
            for link in links[1:]:
                rate = float(self.links[link]["rate"].split()[0])
                product = int(self.links[link]["limit"].split()[0]) / 2 * 8e-6
                there = [(before[name], self.paths[name][1]) for name in others if link in self.paths[name][0]]
                for k in ROUND_TRIPS:
                    for end in [own for _, own in there]:
                        sent = OLD * sum(share * min(end, own) for share, own in there)
                        queue = NEW * after[new] * max(0.0, end - k * rtt) + sent - rate * end
                        worst[k] = max(worst[k], queue / product)
        return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default=str(ROOT / "target" / "release" / "tollway"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = ["verify", "--starts", "--law", "fcp", "--random", options.networks, "--seed", options.seed]
        # Its status says whether networks are outside of the claims.
        subprocess.run([options.program, *map(str, draw), "--keep", name], stdout=subprocess.DEVNULL, check=False)
        seeds = range(options.seed, options.seed + options.networks)
        networks = [Network(options.program, folder / f"{seed}.toml") for seed in seeds]
        with ThreadPoolExecutor() as pool:
            least = list(pool.map(lambda network: network.least(folder), networks))
    for k in ROUND_TRIPS:
        over = sorted(((queue[k], seed) for queue, seed in zip(least, seeds) if queue[k] > 1), reverse=True)
        worst = ", ".join(f"{seed}: {queue:.2f}" for queue, seed in over)
        print(f"share after {k:2} round trips: more than a product in {len(over)} of {len(least)} networks ({worst})")


if __name__ == "__main__":
    main()
