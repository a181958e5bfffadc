#!/usr/bin/env python3
"""Write ns-2.35's XCP series, the reference of the claim `xcp.ns2`.

    python3 bench/ns2_series.py            write papers/xcp/ns2/*.csv
    python3 bench/ns2_series.py --check    compare what is there with a fresh run, write nothing

Every set-up is run twice and the runs must agree to the byte: ns-2.35 draws its random numbers from a fixed seed.
Needs `ns` (Debian package ns2, version 2.35).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
DRIVER = BENCH / "ns2_xcp.tcl"
SERIES = BENCH.parent / "papers" / "xcp" / "ns2"
WIRE_BYTES = 1500


@dataclass(frozen=True)
class Setup:
    """One dumbbell: times in seconds, the bottleneck in bit/s; lists have an entry a flow."""

    says: str
    bottleneck: float
    rtts: list[float]
    starts: list[float]
    stops: list[float]
    duration: float

    def buffer_packets(self) -> int:
        """Two bandwidth-delay products of the longest round trip, in whole packets on the wire."""
        return int(2 * self.bottleneck * max(self.rtts) / 8 / WIRE_BYTES)

    def arguments(self) -> dict[str, str]:
        """The driver's arguments. ns-2's drop-tail holds one packet less than its limit."""
        return {
            "bw": f"{self.bottleneck:g}",
            "rtts": ",".join(f"{value:g}" for value in self.rtts),
            "starts": ",".join(f"{value:g}" for value in self.starts),
            "stops": ",".join(f"{value:g}" for value in self.stops),
            "dur": f"{self.duration:g}",
            "limit": str(self.buffer_packets() + 1),
        }


SETUPS = {
    "base": Setup("four flows at once", 10e6, [0.5] * 4, [0.0] * 4, [130.0] * 4, 130.0),
    "staggered": Setup(
        "four flows 30 s apart, each for 130 s",
        10e6,
        [0.5] * 4,
        [0.0, 30.0, 60.0, 90.0],
        [130.0, 160.0, 190.0, 220.0],
        220.0,
    ),
    "rtts": Setup(
        "four flows at once with round trips of 100, 200, 500 and 1000 ms",
        10e6,
        [0.1, 0.2, 0.5, 1.0],
        [0.0] * 4,
        [130.0] * 4,
        130.0,
    ),
    "mixed": Setup(
        "five flows 1 s apart with round trips of 25, 175, 325, 475 and 625 ms",
        100e6,
        [0.025, 0.175, 0.325, 0.475, 0.625],
        [0.0, 1.0, 2.0, 3.0, 4.0],
        [60.0] * 5,
        60.0,
    ),
}


def version() -> str:
    """ns-2's version: Debian's where the package manager knows it, else what the program itself says."""
    query = ["dpkg-query", "--show", "--showformat=${Version}", "ns2"]
    if shutil.which(query[0]):
        found = subprocess.run(query, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return f"ns-{found.stdout.strip()} (Debian package ns2)"
    with tempfile.NamedTemporaryFile("w", suffix=".tcl") as script:
        script.write("puts [ns-version]\n")
        script.flush()
        said = subprocess.run(["ns", script.name], capture_output=True, text=True, check=True)
    return f"ns-{said.stdout.strip()}"


def run(name: str, setup: Setup, scratch: Path) -> tuple[str, dict[str, float]]:
    """One run: the rows it wrote and its own account of drops and utilisation."""
    rows = scratch / f"{name}.csv"
    arguments = [f"{key}={value}" for key, value in {"out": str(rows), **setup.arguments()}.items()]
    done = subprocess.run(["ns", str(DRIVER), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ns2_series.py: ns failed on '{name}':\n{done.stderr or done.stdout}")
    return rows.read_text(), json.loads(done.stdout.splitlines()[-1])


def document(name: str, setup: Setup, made_with: str, rows: str, account: dict[str, float]) -> str:
    """The file: how it was made, then the rows."""
    arguments = " ".join(f"{key}={value}" for key, value in setup.arguments().items())
    head = [
        f"XCP in {made_with}: {setup.says}",
        f"made by: python3 bench/ns2_series.py   (ns bench/ns2_xcp.tcl {arguments})",
        f"buffer {setup.buffer_packets()} packets of {WIRE_BYTES} B; set-up: README.md beside this file",
        f"drops {account['drops']}, retransmissions {account['retransmitted']}, "
        f"window cuts {account['window_cuts']}, utilisation over the run {account['utilisation']}",
        "time_s is the end of a 100 ms bin; rates count all bytes on the wire that arrived at the receiver",
    ]
    return "".join(f"# {line}\n" for line in head) + rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the files with a fresh run, write nothing")
    parser.add_argument("--out", type=Path, default=SERIES, help="folder of the series (default: papers/xcp/ns2)")
    options = parser.parse_args()

    if shutil.which("ns") is None:
        print("ns2_series.py: `ns` isn't installed; on Debian and Ubuntu: apt install ns2", file=sys.stderr)
        return 2
    made_with = version()
    differs = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, setup in SETUPS.items():
            rows, account = run(name, setup, Path(scratch))
            again, _ = run(name, setup, Path(scratch))
            if rows != again:
                raise SystemExit(f"ns2_series.py: two runs of '{name}' differ; ns-2.35 ought to be deterministic")
            if account["drops"] or account["retransmitted"]:
                raise SystemExit(f"ns2_series.py: '{name}' lost packets: {account}")
            text = document(name, setup, made_with, rows, account)
            target = options.out / f"{name}.csv"
            if not options.check:
                options.out.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
                print(f"{name}: {account}")
                continue
            same = target.exists() and body(target.read_text()) == body(text)
            print(f"{name}: {'same' if same else 'DIFFERS'}")
            if not same:
                differs.append(name)
    return 1 if differs else 0


def body(text: str) -> list[str]:
    """The rows without the comments, which name a version."""
    return [line for line in text.splitlines() if not line.startswith("#")]


if __name__ == "__main__":
    sys.exit(main())
