"""Draws docs/src/img/hero.svg from tables of `tollway exec --out`: hero.py FOLDER (`make plots`).

The folder has `xcp`, `cubic` and `bbr`, each with the tables of four downloads over one link.
"""

import csv
import sys
from pathlib import Path

from pen import Drawing

LAWS = [("cubic", "CUBIC", "red"), ("bbr", "BBR", "orange"), ("xcp", "XCP", "green")]
SECONDS = 9


def rows(folder, law, table):
    with open(Path(folder) / law / f"{table}.csv") as file:
        return [{key: value if key in ("flow", "link") else float(value) for key, value in row.items()}
                for row in csv.DictReader(file)]


def delays(d, folder):
    d.text(10, 22, "How long a packet waits, ms", "b")
    left, width, base, high, most = 44, 344, 190, 150, 600
    for ms in (0, 200, 400, 600):
        y = base - ms / most * high
        d.line((left, y), (left + width, y), thin=True)
        d.text(left - 6, y + 5, str(ms), "m", "end")
    for law, name, colour in LAWS:
        down = [row for row in rows(folder, law, "links") if row["link"] == "down" and row["time_s"] <= SECONDS]
        at = lambda row: (left + row["time_s"] / SECONDS * width, base - row["queue_mean_ms"] / most * high)
        d.line(*map(at, down), colour=colour)
        sent = sum(row["sent_packets"] for row in down)
        mean = sum(row["queue_mean_ms"] * row["sent_packets"] for row in down) / sent
        d.text(left + width + 6, base - mean / most * high + 5, f"{name} {mean:.0f}", "b", colour=colour)


def rates(d, folder):
    d.text(10, 222, "Rates of the four downloads, Mb/s", "b")
    base, high, most, width = 330, 80, 10, 130
    for panel, (law, name, colour) in enumerate(LAWS):
        left = 44 + panel * 148
        for mbps in (0, 5, 10):
            y = base - mbps / most * high
            d.line((left, y), (left + width, y), thin=True)
            if panel == 0:
                d.text(left - 6, y + 5, str(mbps), "m", "end")
        flows = {}
        for row in rows(folder, law, "flows"):
            flows.setdefault(row["flow"], []).append(row)
        # The control connection of iperf3 and acknowledgements have almost no bytes.
        for flow in sorted(flows.values(), key=lambda flow: -sum(row["rate_mbps"] for row in flow))[:4]:
            points = []
            for at in range(4, len(flow)):
                mean = sum(row["rate_mbps"] for row in flow[at - 4:at + 1]) / 5
                if flow[at]["time_s"] <= SECONDS:
                    points.append((left + flow[at]["time_s"] / SECONDS * width, base - min(mean, most) / most * high))
            d.line(*points, colour=colour)
        d.text(left + width / 2, base + 18, f"{name}, {SECONDS} s", "m", "middle")


if __name__ == "__main__":
    drawing = Drawing("Queueing delay and rates of the kernel's TCP under CUBIC, BBR and XCP", 360)
    delays(drawing, sys.argv[1])
    rates(drawing, sys.argv[1])
    image = Path(__file__).resolve().parent.parent / "src/img/hero.svg"
    image.write_text(drawing.svg())
