"""Drawings of the laws: what a link states, what a sender spends, how an owner divides."""

from pen import Drawing


def full_queue():
    d = Drawing("A queue that fills under TCP, and stays short under XCP", 216)
    for y, name, packets, colour, first, second in [
        (34, "TCP", 11, "red", "the queue fills until a packet is dropped:", "55 ms of waiting, 126 drops"),
        (138, "XCP", 1, "green", "the link states its rate first:", "1.3 ms of waiting, no drop"),
    ]:
        d.box(10, y, 88, 40, name, "senders")
        d.arrow((98, y + 20), (124, y + 20))
        d.queue(126, y + 7, packets, 12, colour)
        d.arrow((289, y + 20), (384, y + 20))
        d.text(336, y + 12, "10 Mb/s", "m", "middle")
        d.box(386, y, 84, 40, "receiver", style="")
        d.text(126, y + 52, first, "m")
        d.text(126, y + 69, second, "b", colour=colour)
    return d


def toll():
    d = Drawing("The way of a toll: forward in a packet, back in its acknowledgement", 296)
    for x, name, first, second in [
        (6, "sender", "asks for", "+8 Mb/s"),
        (133, "link A", "has room:", "leaves it"),
        (260, "link B", "is busy:", "lowers it"),
        (386, "receiver", "returns", "it"),
    ]:
        d.box(x, 50, 88, 66, name, first, second)
    for x, value in [(95, "+8"), (222, "+8"), (348, "+1")]:
        d.arrow((x, 90), (x + 37, 90))
        d.packet(x - 5, 18, value)
    d.arrow((430, 116), (430, 152), (50, 152), (50, 118), colour="blue")
    d.packet(200, 162, "+1", "blue")
    d.text(254, 178, "acknowledgement", "m")
    d.text(12, 178, "sends 1 Mb/s more", "b", colour="blue")
    d.line((10, 200), (470, 200), thin=True)
    for y, name, says in [
        (222, "XCP", "a change of rate; each link lowers it to its own answer"),
        (246, "FCP", "a price; each link adds its own"),
        (270, "RCP", "a rate; each link lowers it to its own"),
    ]:
        d.text(10, y, name, "b")
        d.text(56, y, says, "m")
    return d


def price_loop():
    d = Drawing("FCP's loop: budget, rate, load, price", 250)
    d.box(20, 20, 170, 62, "sender", "rate = budget / price", "2 $/s / 0.2 $/MB")
    d.box(290, 20, 170, 62, "link", "income: 4 $/s", "from two senders")
    d.box(290, 160, 170, 62, "price", "income / capacity", "0.2 $/MB at 20 MB/s")
    d.box(20, 160, 170, 62, "receiver", "returns the sum", "of the path's prices")
    d.arrow((190, 51), (288, 51))
    d.text(239, 42, "10 MB/s", "m", "middle")
    d.arrow((375, 82), (375, 158))
    d.arrow((290, 191), (192, 191), colour="orange")
    d.text(241, 182, "in packets", "m", "middle")
    d.arrow((105, 160), (105, 84), colour="orange")
    d.text(114, 124, "one round trip later", "m")
    return d


def strategies():
    d = Drawing("Four strategies of a budget over three flows whose paths cost 1, 2 and 4", 268)
    d.text(150, 22, "its spending", "b", "middle")
    d.text(366, 22, "rates that it buys", "b", "middle")
    colours = ["blue", "green", "orange"]
    for row, (name, parts) in enumerate([
        ("equal-budget", [1 / 3, 1 / 3, 1 / 3]),
        ("equal-throughput", [1 / 7, 2 / 7, 4 / 7]),
        ("max-throughput", [1, 0, 0]),
        ("stable: the last, 0.15", [0.2, 0.2, 0.6]),
    ]):
        y = 34 + row * 56
        d.text(10, y + 14, name, "m")
        x, r = 10, 262
        for part, price, colour in zip(parts, [1, 2, 4], colours):
            if part:
                d.bar(x, y + 20, part * 220 - 2, 18, colour)
                d.bar(r, y + 20, part / price * 200 - 2, 18, colour)
                x, r = x + part * 220, r + part / price * 200
    d.text(10, 260, "blue: the flow on the cheapest path; orange: on the dearest", "m")
    return d


def control_interval():
    d = Drawing("XCP's control interval", 288)
    d.arrow((20, 60), (464, 60))
    for x, words in [(60, "interval"), (210, "interval"), (360, "interval")]:
        d.line((x - 30, 52), (x - 30, 68))
        d.text(x + 45, 48, words, "m", "middle")
    d.text(20, 24, "a mean round trip each", "b")
    d.box(10, 90, 142, 62, "measure", "spare rate S,", "least queue Q")
    d.box(170, 90, 142, 62, "divide", "φ = 0.4 · S", "− 0.226 · Q / rtt")
    d.box(330, 90, 142, 62, "write", "a share into", "each packet")
    d.arrow((152, 121), (168, 121))
    d.arrow((312, 121), (328, 121))
    d.text(10, 184, "two pools, spent packet by packet:", "b")
    d.bar(10, 196, 150, 26, "green", "+ φ and a tenth")
    d.text(172, 214, "an equal change of rate for each flow", "m")
    d.bar(10, 232, 150, 26, "red", "− a tenth")
    d.text(172, 250, "in proportion to each flow's rate", "m")
    d.text(10, 278, "So rates become equal, and the queue empties.", "m")
    return d


def buckets():
    d = Drawing("Three schemes of an aggregate's token bucket", 274)
    for x, name, levels in [(12, "partitioned", [30, 8, 64]), (170, "common", [58]), (328, "logical", [30, 8, 64])]:
        d.text(x + 70, 22, name, "b", "middle")
        wide = 132 / len(levels) - 4
        for at, level in enumerate(levels):
            left = x + at * (wide + 4)
            d.bar(left + 1, 122 - level, wide - 2, level, "blue")
            d.line((left, 54), (left, 124), (left + wide, 124), (left + wide, 54))
        if name == "logical":
            d.arrow((x + 110, 54), (x + 110, 40), (x + 62, 40), (x + 62, 56), colour="blue")
            d.arrow((x + 62, 40), (x + 20, 40), (x + 20, 56), colour="blue")
    for x, lines in [
        (82, ["a bucket a", "connection;", "unused tokens", "are lost"]),
        (240, ["one for all:", "the first to", "send takes", "them"]),
        (398, ["one, in parts;", "a full part", "gives to the", "others"]),
    ]:
        for at, line in enumerate(lines):
            d.text(x, 150 + at * 18, line, "m", "middle")
    d.line((10, 218), (470, 218), thin=True)
    d.text(10, 240, "Tokens arrive at the rate r. A packet needs one for each byte.", "m")
    d.text(10, 260, "The depth B is the longest burst above r.", "m")
    return d


def purse():
    d = Drawing("A purse of the overlay: salary, price, waiting", 270)
    d.box(10, 16, 120, 48, "salary", "10 $ every T")
    d.arrow((130, 40), (176, 40))
    d.box(178, 16, 124, 48, "purse", "at most 20 $", colour="green")
    d.arrow((302, 40), (348, 40))
    d.box(350, 16, 120, 48, "message", "is bought")
    d.arrow((410, 64), (410, 98))
    d.text(400, 88, "pays each link of its tree once", "m", "end")
    for x, name, price, packets in [(40, "north – south", "1 $", 1), (260, "south – west", "9 $", 8)]:
        d.text(x, 122, name, "b")
        d.queue(x, 130, packets, 12, "green" if packets < 3 else "orange")
        d.text(x, 174, f"price {price} a lot", "m")
    d.line((10, 190), (470, 190), thin=True)
    d.text(10, 212, "Enough in the purse: the site reads the next message.", "m")
    d.text(10, 232, "Not enough: it stops reading; TCP holds the sender.", "m")
    d.text(10, 252, "Waited while links were cheap: T falls. Dear: T doubles.", "m")
    return d


def water():
    d = Drawing("Max–min fairness: demands, and the level that fills the link", 232)
    demands = [("app", 4), ("rsync", 30), ("web", 12), ("crawl", 30), ("ssh", 1)]
    base, unit = 178, 3.8
    level = 100 - 4 - 12 - 1
    level = level / 2
    d.text(10, 22, "100 Mb/s, five connections", "b")
    for at, (name, demand) in enumerate(demands):
        x = 40 + at * 70
        demand = demand * 2 if demand == 30 else demand
        got = min(demand, level)
        d.bar(x, base - got * unit * 0.72, 44, got * unit * 0.72, "blue")
        if demand > got:
            d.line((x, base - got * unit * 0.72), (x, 44), (x + 44, 44), (x + 44, base - got * unit * 0.72), dash=True)
        d.text(x + 22, base + 18, name, "m", "middle")
        d.text(x + 22, base - got * unit * 0.72 - 5, f"{got:g}", "b", "middle")
    d.line((34, base), (380, base))
    d.text(390, base - level * unit * 0.72 + 5, "level 41.5", "m")
    d.text(10, 222, "Small demands are met; the rest is divided equally.", "m")
    return d


DRAWINGS = {
    "full-queue": full_queue,
    "toll": toll,
    "price-loop": price_loop,
    "strategies": strategies,
    "control-interval": control_interval,
    "buckets": buckets,
    "purse": purse,
    "water": water,
}
