"""A sender law and a link law that Tollway does not have: Scalable TCP over an adaptive virtual queue, beside NewReno and
drop-tail. They are those of `crates/sim/examples/own_laws.rs` ("A law of your own" in the manual), and print its table.
"""

import tollway

#: Ten senders with round trips from 40 to 58 ms, and the bottleneck that they share.
#: Acknowledgements have links of their own.
DUMBBELL = """
name = "dumbbell"
duration = "40 s"
[measure]
interval = "20 s"
[node]
s = { count = 10 }
r = {}
d = {}
[link.bottleneck]
from = "r"
to = "d"
duplex = false
rate = "100 Mbps"
delay = "20 ms"
limit = "400 packets"
[link.up]
from = "s"
to = "r"
duplex = false
rate = "1 Gbps"
delay = { first = "0 ms", last = "9 ms" }
limit = "400 packets"
[link.back]
from = "d"
to = "s"
duplex = false
rate = "1 Gbps"
delay = { first = "20 ms", last = "29 ms" }
limit = "400 packets"
[flow.f]
from = "s"
to = "d"
law = "newreno"
ecn = true
start = { first = "0 s", last = "900 ms" }
"""


class Scalable(tollway.SenderLaw):
    """Scalable TCP (Kelly 2003): a hundredth of a segment more for each acknowledged, an eighth of the window less for a loss."""

    def __init__(self, of):
        self.window = of.initial_window
        self.ssthresh = float("inf")
        self.in_recovery = False  # In fast recovery.
        self.reduced_until_ns = 0  # What tells of congestion until then tells of that which the window was reduced for.

    def reduce(self, flight):
        self.window = self.ssthresh = max(self.window * 0.875, 2.0)
        self.reduced_until_ns = flight.now_ns + flight.srtt_ns

    def on_ack(self, flight, acked):
        if acked.marked and not self.in_recovery and flight.now_ns >= self.reduced_until_ns:
            self.reduce(flight)
        elif not self.in_recovery and acked.cumulative > 0 and flight.window_limited(self.window):
            each = 1.0 if self.window < self.ssthresh else 1.0 / min(self.window, 100.0)
            self.window += each * (1 if acked.recovering else acked.segments)

    def on_loss(self, flight):
        if flight.now_ns >= self.reduced_until_ns:
            self.reduce(flight)
        self.in_recovery = True

    def on_recovered(self, flight):
        self.in_recovery = False

    def on_timeout(self, flight, first):
        if first:
            self.reduce(flight)
        self.window = 1.0
        self.in_recovery = False


class Avq(tollway.LinkLaw):
    """The adaptive virtual queue (Kunniyur and Srikant 2001): what arrives fills a queue in name only, whose capacity follows the
    load, and what would not fit it is marked.
    """

    ROOM, GAMMA, ALPHA = 100.0 * 1500.0, 0.95, 0.15

    def __init__(self, of):
        self.capacity = self.virtual_capacity = of.capacity_bps / 8.0
        self.queued = 0.0
        self.last_ns = 0

    def on_arrival(self, packet):
        elapsed = (packet.now_ns - self.last_ns) * 1e-9
        self.last_ns = packet.now_ns
        self.queued = max(self.queued - self.virtual_capacity * elapsed, 0.0)
        full = self.queued + packet.size > self.ROOM
        if not full:
            self.queued += packet.size
        grown = self.virtual_capacity + self.ALPHA * self.GAMMA * self.capacity * elapsed
        self.virtual_capacity = max(min(grown, self.capacity) - self.ALPHA * packet.size, 0.0)
        return tollway.Verdict.SIGNAL if full else None

    def on_capacity(self, now_s, capacity_bps):
        self.capacity = capacity_bps / 8.0


def table():
    scenario = tollway.Scenario(DUMBBELL, file="dumbbell.toml")
    text = "ten flows over 100 Mb/s, from 20 to 40 s\n"
    for link in (None, Avq):
        for sender in (None, Scalable):
            laws = {"flow.f": sender, "link.bottleneck": link}
            run = scenario.run(laws={key: law for key, law in laws.items() if law}).run
            row = next(row for row in run.links.to_pylist() if row["link"] == "bottleneck" and row["time_s"] == 40.0)
            names = f"{'scalable' if sender else 'newreno':8}  {'avq' if link else 'drop-tail':9}"
            text += f"{names}  {100 * row['utilisation']:5.1f} % used  {row['queue_mean_packets']:5.1f} queued"
            text += f"  {row['drops']:3} drops  {row['marks']:4} marks\n"
    return text


if __name__ == "__main__":
    print(table(), end="")
