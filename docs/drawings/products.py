"""Drawings of the products: one for each, and what their chapters need besides."""

from pen import Drawing


def which():
    d = Drawing("Which command?", 332)
    for row, (question, command, colour) in enumerate([
        ("Does my program work on a bad network?", "exec", "blue"),
        ("Who gets how much of my server's uplink?", "shape", "green"),
        ("… of what a gateway forwards?", "router", "green"),
        ("Programs that obey routers' answers?", "host", "green"),
        ("One connection is too much for one server?", "switch", "orange"),
        ("One slow site holds up all others?", "overlay", "orange"),
        ("Which law, queue or buffer is better?", "run", "red"),
        ("Is a paper's claim true?", "reproduce", "red"),
    ]):
        y = 10 + row * 40
        d.text(10, y + 22, question, "")
        d.arrow((344, y + 17), (366, y + 17))
        d.box(368, y, 102, 33, command, colour=colour)
    return d


def exec_():
    d = Drawing("tollway exec: a program in a namespace, emulated links, three kinds of other end", 318)
    d.box(10, 14, 150, 92, "", dash=True)
    d.text(85, 34, "network namespace", "m", "middle")
    d.box(26, 44, 118, 48, "your program", "unchanged")
    d.box(200, 14, 270, 92, "", dash=True)
    d.text(335, 34, "tollway: two emulated links", "m", "middle")
    d.queue(214, 44, 6, 10, "orange")
    d.text(358, 62, "down: delay", "m")
    d.queue(214, 74, 1, 10, "blue")
    d.text(358, 92, "up: loss", "m")
    d.arrow((160, 60), (198, 60), both=True)
    d.arrow((335, 106), (335, 140), both=True)
    d.box(130, 142, 340, 34, "the other end: node `server`")
    for y, name, says in [
        (206, "--serve COMMAND", "a server of the run"),
        (236, "open ports", "of this machine"),
        (266, "--outside", "the Internet"),
        (296, "--listen PORT=…", "a browser, a phone"),
    ]:
        d.line((146, 176), (146, y - 5), (158, y - 5), thin=True)
        d.text(164, y, name, "b")
        d.text(318, y, says, "m")
    return d


def ci():
    d = Drawing("The action: a program that must end in time on a bad network", 186)
    d.box(10, 20, 104, 56, "push", "or a request")
    d.arrow((114, 48), (140, 48))
    d.box(142, 20, 180, 56, "tollway exec", "lte, 30 s, seed 1", colour="blue")
    d.arrow((322, 36), (366, 36), colour="green")
    d.arrow((322, 62), (344, 62), (344, 118), (366, 118), colour="red")
    d.box(368, 14, 102, 44, "in time", "green", colour="green")
    d.box(368, 96, 102, 44, "too late", "status 124", colour="red")
    d.text(10, 122, "The same losses in every build:", "m")
    d.text(10, 142, "--seed draws them.", "m")
    d.text(10, 172, "`kept_up` is false if the machine was too busy.", "m")
    return d


def shape_tick():
    d = Drawing("One tick of tollway shape", 300)
    d.box(10, 16, 140, 62, "1 list", "TCP connections,", "windows, data")
    d.box(170, 16, 140, 62, "2 judge", "limited by share,", "program, receiver?")
    d.box(330, 16, 140, 62, "3 divide", "tenants, classes,", "connections")
    d.box(330, 124, 140, 62, "4 set", "the paces that", "have changed", colour="green")
    d.arrow((150, 47), (168, 47))
    d.arrow((310, 47), (328, 47))
    d.arrow((400, 78), (400, 122))
    d.arrow((330, 155), (80, 155), (80, 80), dash=True)
    d.text(190, 146, "every 15 ms", "m")
    d.box(10, 206, 460, 78, "", dash=True)
    d.text(20, 226, "kernel", "m")
    for at, (name, pace) in enumerate([("alice: pace", "15 Mb/s"), ("alice: pace", "15 Mb/s"), ("bob: pace", "1.25 Mb/s")]):
        d.box(76 + at * 134, 218, 116, 52, name, pace)
    d.arrow((400, 186), (400, 216))
    d.arrow((150, 218), (150, 190), (120, 190), (120, 80))
    return d


def shape_effect():
    d = Drawing("Four connections over 100 Mb/s with HTB and with tollway shape", 226)
    d.text(130, 22, "HTB", "b")
    d.text(310, 22, "tollway shape", "b")
    for row, (trip, htb, shape) in enumerate([("50 ms", 46, 25), ("300 ms", 23, 25), ("300 ms", 23, 25), ("600 ms", 8, 25)]):
        y = 34 + row * 40
        d.text(10, y + 20, trip, "")
        d.bar(90, y, htb * 3.6, 28, "orange", str(htb))
        d.bar(290, y, shape * 3.6, 28, "green", str(shape))
    d.text(10, 214, "Mb/s by round trip, CUBIC in Linux 6.18", "m")
    return d


def router():
    d = Drawing("tollway router: both directions of an interface, with shares for tenants", 276)
    d.box(6, 84, 92, 62, "kernel", "routing,", "NAT")
    d.box(382, 84, 92, 62, "line", "to the", "provider")
    for y, name, points in [(24, "up: 95 Mb/s", [(98, 100), (118, 100), (118, 60), (138, 60)]), (166, "down: 480 Mb/s", [(382, 130), (362, 130), (362, 192), (342, 192)])]:
        d.box(138, y, 204, 66, "", colour="green")
        d.text(240, y + 20, name, "b", "middle")
        d.queue(150, y + 31, 2, 6, "blue")
        d.queue(244, y + 31, 1, 6, "green")
        d.arrow(*points)
    d.arrow((342, 60), (362, 60), (362, 100), (380, 100))
    d.arrow((138, 192), (118, 192), (118, 130), (100, 130))
    d.text(240, 122, "a queue for each tenant,", "m", "middle")
    d.text(240, 140, "then any link law", "m", "middle")
    d.text(10, 262, "A little below the line's rate, the queue is here, and short.", "m")
    return d


def host():
    d = Drawing("tollway host: programs in the kernel read routers' answers for unchanged programs", 262)
    d.box(10, 14, 190, 150, "", dash=True)
    d.text(105, 34, "your machine", "m", "middle")
    d.box(26, 44, 158, 34, "nginx, curl, …", style="")
    d.box(26, 104, 158, 48, "kernel's TCP", "window, pace", colour="green")
    d.arrow((105, 78), (105, 102))
    d.box(250, 104, 90, 48, "router", "answers")
    d.box(390, 104, 80, 48, "peer", "returns")
    d.arrow((184, 120), (248, 120))
    d.arrow((340, 120), (388, 120))
    d.packet(194, 88, "+8")
    d.packet(342, 76, "+1")
    d.arrow((430, 152), (430, 186), (105, 186), (105, 154), colour="blue")
    d.packet(230, 196, "+1", "blue")
    d.text(286, 212, "in a TCP option", "m")
    d.text(10, 250, "No answer: it returns to the ordinary control, for good.", "m")
    return d


def ends():
    d = Drawing("Where a connection ends: a balancer, tollway switch, and between sites", 384)
    rows = [
        (14, "a balancer: one server for the whole connection", [("client", 60), ("proxy", 230)], ["server"], True),
        (124, "tollway switch: each message to a server", [("client", 60), ("switch", 230)], ["server", "server", "server"], True),
        (246, "front, switch, backs: not ended on the way", [("front", 60), ("switch", 230)], ["back", "back", "back"], False),
    ]
    for y, words, nodes, last, ended in rows:
        d.text(10, y + 10, words, "b")
        middle = y + 58
        for name, x in nodes:
            d.box(x - 44, middle - 18, 88, 36, name, style="")
        d.line((104, middle), (186, middle), colour=None if ended else "green")
        for at, name in enumerate(last):
            top = middle + (at - (len(last) - 1) / 2) * 32
            d.box(376, top - 13, 84, 26, name, style="")
            d.line((274, middle), (376, top), colour=None if ended else "green")
            d.dot(376, top, "red" if ended else "green")
        d.dot(104, middle, "red" if ended else "green")
        if ended:
            d.dot(186, middle)
            d.dot(274, middle)
    d.text(10, 374, "A dot is an end: who acknowledges and limits the rate.", "m")
    return d


def switch():
    d = Drawing("tollway switch: frames of one connection over three members, answers merged", 236)
    d.box(6, 70, 80, 48, "client", "1 … 6")
    d.box(178, 64, 92, 60, "switch", "cuts", "frames", colour="orange")
    d.arrow((86, 86), (176, 86))
    d.arrow((178, 106), (88, 106), colour="green")
    d.text(132, 78, "6 5 4 3 2 1", "m", "middle")
    d.text(132, 124, "in order", "m", "middle")
    for at, (frames, name) in enumerate([("1  4", "a"), ("2  5", "b"), ("3  6", "c")]):
        y = 20 + at * 66
        d.box(386, y, 84, 40, f"member {name}", style="")
        d.arrow((270, 80 + at * 10), (384, y + 20), both=True)
        d.text([316, 344, 316][at], y + [16, 34, 42][at], frames, "b", "middle", colour="orange")
    d.text(10, 206, "Clients share members' windows.", "m")
    d.text(10, 226, "round-robin here; also by load, by key, or one for a session", "m")
    return d


def redis():
    d = Drawing("Redis behind the switch: a key's hash names its server", 220)
    for at, (command, key, member) in enumerate([
        ("SET user:7 …", "user:7", 0), ("GET cart:12", "cart:12", 2), ("GET {user:7}.mail", "user:7", 0), ("MGET a b", "a, b", 1),
    ]):
        y = 16 + at * 44
        d.box(6, y, 150, 34, command, style="")
        d.arrow((156, y + 17), (176, y + 17))
        d.box(178, y, 86, 34, key, style="b", colour="orange")
        d.arrow((264, y + 17), (356, 41 + member * 60))
    d.arrow((264, 165), (356, 44))
    for at in range(3):
        d.box(358, 20 + at * 60, 112, 40, f"Redis {at + 1}", style="")
    d.text(6, 210, "Only the part in {…} is hashed. MGET is split and joined.", "m")
    return d


def sites():
    d = Drawing("Two sites: a front at the clients, a switch and backs at the servers", 250)
    d.box(6, 14, 130, 180, "", dash=True)
    d.box(226, 14, 248, 180, "", dash=True)
    d.text(71, 34, "site A", "m", "middle")
    d.text(350, 34, "site B", "m", "middle")
    d.box(22, 48, 98, 34, "TCP client", style="")
    d.box(22, 128, 98, 48, "front", "ACP begins", colour="green")
    d.arrow((71, 82), (71, 126))
    d.arrow((120, 152), (238, 152), colour="green")
    d.text(180, 144, "UDP, sealed", "m", "middle")
    d.box(240, 128, 78, 48, "switch", "forwards")
    for at in range(2):
        y = 48 + at * 80
        d.box(342, y, 56, 48, "back", "ends", colour="green")
        d.box(414, y, 54, 48, "TCP", "server")
        d.arrow((398, y + 24), (412, y + 24))
        d.arrow((318, 146), (340, y + 24), colour="green")
    d.text(6, 218, "An acknowledgement means: a back beside the server has it.", "m")
    d.text(6, 238, "Green is one connection; the switch keeps no payload.", "m")
    return d


def overlay():
    d = Drawing("Three sites and a slow receiver", 306)
    d.box(10, 40, 96, 54, "north", "publishes")
    d.box(192, 40, 96, 54, "south", "forwards")
    d.box(374, 40, 96, 54, "west", "delivers")
    d.arrow((106, 67), (190, 67))
    d.arrow((288, 67), (372, 67))
    d.text(148, 58, "20 Mb/s", "m", "middle")
    d.text(330, 58, "20 Mb/s", "m", "middle")
    d.box(342, 140, 60, 34, "fast", style="")
    d.box(412, 140, 60, 34, "slow", style="", colour="red")
    d.arrow((400, 94), (374, 138))
    d.arrow((440, 94), (442, 138), colour="red")
    d.text(10, 126, "its price rises back along the tree;", "m")
    d.text(10, 144, "only senders to its subject pay", "m")
    d.arrow((332, 116), (246, 116), colour="red", dash=True)
    d.line((10, 194), (470, 194), thin=True)
    for y, name, says in [
        (218, "drop the slow one", "NATS: it loses messages"),
        (246, "stop for the slow one", "all wait, on every subject"),
        (274, "tollway overlay", "nothing lost; its senders wait"),
    ]:
        d.text(10, y, name, "b" if y > 260 else "")
        d.text(200, y, says, "m", colour="green" if y > 260 else None)
    d.text(10, 298, "After `patience`, a receiver without progress is cut off.", "m")
    return d


def hops():
    d = Drawing("Keys by hop: each neighbour opens what it forwards", 186)
    for x, name in [(6, "a"), (192, "r"), (378, "b")]:
        d.box(x, 40, 96, 50, f"node {name}", f"{name}.key")
    for x, label, colour in [(102, "sealed a–r", "blue"), (288, "sealed r–b", "orange")]:
        d.arrow((x, 65), (x + 88, 65), colour=colour)
        d.text(x + 45, 56, label, "m", "middle")
    d.text(240, 112, "reads and rewrites the toll", "m", "middle")
    d.text(6, 146, "On the path: sees sizes and times, can drop and delay.", "m")
    d.text(6, 166, "Cannot read, change, forge or repeat.", "m")
    return d


DRAWINGS = {
    "which": which,
    "exec": exec_,
    "ci": ci,
    "shape-tick": shape_tick,
    "shape-effect": shape_effect,
    "router": router,
    "host": host,
    "ends": ends,
    "switch": switch,
    "redis": redis,
    "sites": sites,
    "overlay": overlay,
    "hops": hops,
}
