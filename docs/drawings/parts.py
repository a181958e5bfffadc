"""Drawings for contributors: crates, machines, numbers of a session."""

from pen import Drawing


def crates():
    d = Drawing("The crates: each stands only on those below it", 342)
    for y, names in [
        (10, [("cli", 232), ("python", 232)]),
        (58, [(name, 73) for name in ("exec", "host", "router", "shape", "switch", "overlay")]),
        (106, [("agent", 226), ("scenario's tables", 0)]),
    ]:
        x = 6
        for name, wide in names:
            if wide:
                d.box(x, y, wide - 4, 38, name, colour="blue" if y == 58 else None)
                x += wide + 4
    d.box(240, 106, 114, 38, "report")
    d.box(362, 106, 110, 38, "theory")
    d.box(6, 154, 466, 46, "scenario", "the file, its checks, measurement, tables")
    d.box(6, 210, 229, 46, "sim", "virtual time")
    d.box(243, 210, 229, 46, "net", "sockets and clocks")
    d.box(6, 266, 466, 30, "proto: machines without I/O")
    d.box(6, 304, 466, 30, "law: arithmetic on explicit time", colour="green")
    return d


def session():
    d = Drawing("A session: the switch renumbers each packet for its member", 226)
    d.text(10, 22, "the peer's numbers", "b")
    colours = ["blue", "orange", "green"]
    for at in range(9):
        d.bar(10 + at * 50, 32, 46, 28, colours[at % 3], str(at + 1))
    for member in range(3):
        y = 78 + member * 36
        d.text(10, y + 19, f"member {'abc'[member]}", "m")
        for at in range(3):
            d.bar(100 + at * 124, y, 112, 28, colours[member], f"{at + 1}, was {at * 3 + member + 1}")
    d.text(10, 202, "The members' acknowledgements together make the peer's.", "m")
    d.text(10, 220, "A failed member's packets go to others.", "m")
    return d


def machines():
    d = Drawing("Three kinds of machine at a node, in both engines", 244)
    d.box(6, 60, 110, 60, "endpoint", "begins or ends", "a route")
    d.box(186, 60, 110, 60, "middle", "passes, ends", "or makes")
    d.box(362, 60, 110, 60, "endpoint", "answers", "")
    d.box(362, 14, 110, 30, "app", style="b", colour="green")
    d.arrow((417, 60), (417, 46), both=True)
    d.arrow((116, 90), (184, 90))
    d.arrow((296, 90), (360, 90))
    d.text(240, 44, "a switch, a meter", "m", "middle")
    for at, (call, says) in enumerate([
        ("handle_packet", "a packet has arrived"), ("handle_timeout", "its time has come"),
        ("poll_transmit", "a packet to send, or none"), ("poll_timeout", "the next time to call"),
    ]):
        d.text(10, 152 + at * 22, call, "b")
        d.text(150, 152 + at * 22, says, "m")
    return d


DRAWINGS = {
    "crates": crates,
    "session": session,
    "machines": machines,
}
