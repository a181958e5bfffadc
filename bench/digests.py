#!/usr/bin/env python3
"""Packet digests of every scenario and of the dumbbell under each law: what a change of structure must leave equal.

    python3 bench/digests.py             compare with docs/src/notes/digests.md
    python3 bench/digests.py --write     write that table anew
    python3 bench/digests.py --program PATH

Each row holds the digest over every packet-hop and the digest over all result rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "notes" / "digests.md"
# Beside a sender law, the link law that it needs or meets most often.
DUMBBELL = [
    ("newreno", "drop-tail"), ("newreno", "red"), ("newreno", "codel"), ("newreno", "fq-codel"),
    ("newreno", "pie"), ("cubic", "drop-tail"), ("cubic", "fq-codel"), ("dctcp", "step"),
    ("dctcp", "dualpi2"), ("bbr", "drop-tail"), ("scalable", "drop-tail"), ("xcp", "xcp"),
    ("fcp", "fcp"), ("rcp", "rcp"),
]
LONG = {
    "scenarios/fcp/cogent-100k.toml": ["duration=200 ms", "measure.warmup=0 s"],
    "scenarios/geant.toml": [
        "topology.file=abilene.graphml", "overlay.group.*.at=*", "overlay.sender.*.at=Denver",
        "overlay.sender.*.count=11",
    ],
}


def cases() -> list[tuple[str, str, list[str]]]:
    """The name, file and settings of each row."""
    files = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "scenarios").rglob("*.toml"))
    rows = [(file, file, LONG.get(file, [])) for file in files]
    for sender, link in DUMBBELL:
        settings = [f"flow.bulk.law={sender}", f"link.bottleneck.law={link}", "duration=10 s"]
        rows.append((f"dumbbell {sender} {link}", "bench/dumbbell.toml", settings))
    return rows


def digests(program: str, file: str, settings: list[str]) -> list[str]:
    """The packet and result digests of one run."""
    found = []
    for of in ("packets", "results"):
        command = [program, "run", str(ROOT / file), "--json", "--quiet", "--digest", of]
        for setting in settings:
            command += ["--set", setting]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise SystemExit(f"{file}: {run.stderr.strip()}")
        found.append(json.loads(run.stdout)["digest"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target" / "release" / "tollway"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = cases()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda row: digests(options.program, row[1], row[2]), rows))
    lines = [f"| {name} | `{packets}` | `{results}` |" for (name, _, _), (packets, results) in zip(rows, found)]
    if options.write:
        head = (
            "# Digests\n\n"
            "`python3 bench/digests.py` compares a build with this table; `--write` writes it anew. A change of\n"
            "structure leaves every row equal. A change of behaviour states in its commit which rows move, and why.\n"
            "The dumbbell is `bench/dumbbell.toml` for 10 s; `cogent-100k` runs for 200 ms.\n\n"
            "| run | packets | results |\n|---|---|---|\n"
        )
        TABLE.write_text(head + "\n".join(lines) + "\n")
        return 0
    known = TABLE.read_text().splitlines()
    differ = [line for line in lines if line not in known]
    for line in differ:
        print(line)
    print(f"{len(lines) - len(differ)} equal, {len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
