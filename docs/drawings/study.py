"""Drawings of files, engines, results and verdicts, for the study of networks."""

from pen import Drawing


def scenario():
    d = Drawing("A scenario: one file, its variants, and what a run writes", 262)
    d.box(6, 14, 140, 196, "", dash=True)
    d.text(76, 34, "mine.toml", "b", "middle")
    for at, part in enumerate(["[node] [link]", "[flow] [workload]", "[[change]]", "[variant.cubic]", "[variant.xcp]"]):
        d.text(18, 60 + at * 32, part, "m", colour=["", "", "", "orange", "blue"][at] or None)
    for y, name, colour in [(40, "run: cubic", "orange"), (140, "run: xcp", "blue")]:
        d.arrow((146, y + 22), (186, y + 22), colour=colour)
        d.box(188, y, 104, 44, name, colour=colour)
        d.arrow((292, y + 22), (334, y + 22), colour=colour)
    for at, (name, says) in enumerate([("tables", "terminal"), ("page", "one HTML file"), ("CSV, Arrow", "six per run")]):
        d.box(336, 14 + at * 70, 136, 52, name, says)
    d.text(6, 232, "Both runs in parallel; the same seed gives the same bits.", "m")
    d.text(6, 252, "--set changes a key in every variant.", "m")
    return d


def groups():
    d = Drawing("Groups and spreads: count = 3 and delay from 1 to 21 ms", 216)
    for at, delay in enumerate(["1 ms", "11 ms", "21 ms"]):
        y = 16 + at * 56
        d.box(6, y, 70, 38, f"a.{at + 1}", style="")
        d.arrow((76, y + 19), (196, 91), colour="blue")
        d.text([140, 112, 100][at], [42, 72, 118][at], delay, "m", "middle")
    d.box(198, 72, 70, 38, "r", style="")
    d.box(400, 72, 70, 38, "b", style="")
    d.arrow((268, 84), (398, 84), colour="blue")
    d.arrow((400, 98), (270, 98), colour="orange")
    d.text(334, 76, "out", "b", "middle")
    d.text(334, 116, "out.reverse", "b", "middle")
    d.text(6, 206, "A link and a flow for each member: in.1, f.1, …", "m")
    return d


def engines():
    d = Drawing("A packet's life in both engines: the same laws, machines and port", 318)
    d.text(116, 24, "simulator", "b", "middle")
    d.text(364, 24, "real packets", "b", "middle")
    rows = [
        ("64-byte value in a slab", "datagram in its buffer"),
        ("arrives: an event", "arrives: a socket"),
        ("toll as the codec has it", "toll read, 24 bytes"),
    ]
    for at, (left, right) in enumerate(rows):
        y = 36 + at * 48
        d.box(10, y, 212, 34, left, style="m")
        d.box(258, y, 212, 34, right, style="m")
    d.box(10, 186, 460, 44, "queue and link law", "the same code, told the time", colour="green")
    for x in (116, 364):
        for y in (70, 118):
            d.arrow((x, y), (x, y + 12))
        d.arrow((x, 166), (x, 184))
        d.arrow((x, 230), (x, 250))
    d.box(10, 252, 212, 34, "index to the next event", style="m")
    d.box(258, 252, 212, 34, "toll written, datagram sent", style="m")
    d.text(10, 308, "virtual time, same bits", "m")
    d.text(258, 308, "the clock; reports lateness", "m")
    return d


def sweep():
    d = Drawing("A sweep: every value with every seed and variant", 210)
    for column, rate in enumerate(["5 Mb/s", "10 Mb/s"]):
        d.text(120 + column * 120, 24, rate, "b", "middle")
        for row, (variant, colour) in enumerate([("xcp", "blue"), ("fifo", "orange"), ("red", "red")]):
            y = 34 + row * 40
            if not column:
                d.text(10, y + 20, variant)
            for seed in range(10):
                d.bar(66 + column * 120 + seed * 10.6, y + 6, 9, 18, colour)
    d.text(66, 168, "10 seeds each: 60 runs", "m")
    d.arrow((302, 92), (344, 92))
    d.box(346, 34, 126, 50, "rates.csv", "a row a flow")
    d.box(346, 100, 126, 50, "journal", "resumes here")
    d.text(10, 200, "Processors, Slurm tasks or Dask workers share the runs.", "m")
    return d


def verdicts():
    d = Drawing("Verdicts: a claim at the base and at its neighbours", 204)
    for row, (name, held, word) in enumerate([("met", 6, "6 of 6"), ("fragile", 3, "3 of 6"), ("unmet", 0, "fails at the base")]):
        y = 40 + row * 46
        d.text(10, y + 19, name, "b")
        d.bar(92, y, 28, 28, "green" if held else "red")
        for at in range(6):
            d.bar(146 + at * 30, y + 4, 20, 20, "green" if at < held or row == 2 and at in (1, 4) else "red")
        d.text(340, y + 19, word, "m")
    d.text(106, 26, "base", "m", "middle")
    d.text(146, 26, "seeds, starts, settings", "m")
    d.text(10, 194, "A claim that holds only at one seed is no result.", "m")
    return d


def incast():
    d = Drawing("An incast: many hosts answer one over leaves and spines", 264)
    for at in range(4):
        d.box(56 + at * 100, 14, 68, 28, "spine", style="m")
        d.box(56 + at * 100, 96, 68, 28, "leaf", style="m")
        for to in range(4):
            d.line((90 + at * 100, 42), (90 + to * 100, 96), thin=True)
    for leaf in range(4):
        for at in range(3):
            x = 62 + leaf * 100 + at * 20
            asking = leaf == 0 and at == 0
            d.bar(x, 168, 14, 22, "red" if asking else "blue")
            d.line((x + 7, 168), (90 + leaf * 100, 124), colour=None, thin=True)
    d.line((90, 124), (69, 168), colour="red")
    d.text(10, 216, "red: the host that asks; all answers queue at its port", "m")
    d.text(10, 236, "ECMP: a route by hash of the flow; spray: by packet;", "m")
    d.text(10, 256, "flowlet: after a pause", "m")
    return d


def trace():
    d = Drawing("A trace: each opportunity carries 1500 bytes", 184)
    d.arrow((20, 92), (464, 92))
    for at, ms in enumerate([1, 2, 2.35, 5, 9, 9.35, 9.7, 13]):
        x = 30 + ms * 30
        d.line((x, 58), (x, 92), colour="orange" if at in (3,) else "blue")
    d.text(20, 34, "opportunities to send 1500 bytes", "b")
    d.text(180, 50, "none waits: lost", "m", "middle", colour="orange")
    d.text(422, 112, "ms", "m", "middle")
    d.text(60, 112, "1", "m", "middle")
    d.text(180, 112, "5", "m", "middle")
    d.text(300, 112, "9", "m", "middle")
    d.text(10, 146, "Several small packets share one; a large packet needs several.", "m")
    d.text(10, 168, "The last line's time is also the period.", "m")
    return d


DRAWINGS = {
    "scenario": scenario,
    "groups": groups,
    "engines": engines,
    "sweep": sweep,
    "verdicts": verdicts,
    "incast": incast,
    "trace": trace,
}
