#!/usr/bin/env python3
"""Judges the overlay's claims over hops of TCP under settings of what the paper leaves open.

    cargo build --release
    bench/overlay_study.py [--neighbours 3] [--settings retry-2ms,window-1] [EXPERIMENT…]

Each setting is put into the experiments of `papers/ovl`, which `tollway reproduce` then judges: at the base and at
neighbours. The table has a row a setting and a column a claim: how often it holds, and the value at the base.
`docs/src/notes/overlay-parameters.md` keeps it.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ["two-bottlenecks", "shared", "shared-late", "chain", "randomised", "base"]
SETTINGS = {
    "default": "",
    "announce-all": "update = { change = 0 }",
    "announce-10": "update = { change = 0.1 }",
    "announce-100": "update = { change = 1 }",
    "window-1": "window = 1",
    "window-4": "window = 4",
    "least-1ms": 'period = { least = "1 ms" }',
    "least-10ms": 'period = { least = "10 ms" }',
    "most-100ms": 'period = { most = "100 ms" }',
    "most-500ms": 'period = { most = "500 ms" }',
    "most-2500ms": 'period = { most = "2500 ms" }',
    "retry-2ms": 'retry = "2 ms"',
    "retry-20ms": 'retry = "20 ms"',
    "no-jitter": "period = { jitter = 0 }",
}


def judge(tollway, setting, experiments, neighbours):
    """The claims of some experiments under a setting."""
    with tempfile.TemporaryDirectory() as folder:
        papers = Path(folder, "papers")
        (papers / "ovl").mkdir(parents=True)
        for name in experiments:
            text = (ROOT / "papers/ovl" / f"{name}.toml").read_text()
            assert "\n[overlay]\n" in text, name
            text = text.replace("\n[overlay]\n", f"\n[overlay]\n{setting}\n", 1)
            (papers / "ovl" / f"{name}.toml").write_text(text)
        command = [tollway, "reproduce", "--papers", papers, "--out", Path(folder, "out"), "--json", "-j", "1"]
        command += ["--quick"] if neighbours == 0 else ["--neighbours", str(neighbours)] if neighbours else []
        ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if ran.returncode > 1:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout)["claims"]


def cell(claim):
    """The value at the base, and how often the claim holds there and around it."""
    around = claim.get("neighbours") or []
    held = (claim["status"] != "unmet") + sum(one["status"] == "met" for one in around)
    return f"{claim['reading']['value']:.3f}, {held}/{1 + len(around)}"


def main():
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", default=EXPERIMENTS)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--neighbours", type=int, default=3, help="of each experiment; 0 judges the base only")
    parser.add_argument("--tollway", default=ROOT / "target/release/tollway")
    args = parser.parse_args()
    ids = None
    for name in args.settings.split(","):
        claims = judge(args.tollway, SETTINGS[name], args.experiments, args.neighbours)
        if ids is None:
            ids = [claim["id"] for claim in claims]
            print("| setting |", " | ".join(ids), "|")
            print("|---|" + "---|" * len(ids))
        cells = {claim["id"]: cell(claim) for claim in claims}
        print(f"| {name} |", " | ".join(cells[one] for one in ids), "|", flush=True)


if __name__ == "__main__":
    main()
