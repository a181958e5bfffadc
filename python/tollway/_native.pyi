from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, final

__version__: str

class ScenarioError(ValueError): ...
class RunError(RuntimeError): ...
class EmulationError(RuntimeError): ...
class NotAllowedError(EmulationError): ...

@final
class Scenario:
    def __new__(cls, text: str, file: str, sets: list[str], only: list[str]) -> Scenario: ...
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def duration(self) -> float: ...
    @property
    def variants(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...
    def theory(self) -> str: ...
    def run(
        self,
        engine: str,
        digest: str,
        jobs: int,
        progress: Callable[[list[float]], Any] | None,
        laws: list[tuple[str, str, Callable[[Any], Any]]],
    ) -> tuple[str, str, list[dict[str, bytes]]]: ...

Side = str | Sequence[tuple[str, dict[str, bytes]]]

@final
class Comparison:
    def __new__(cls, a: tuple[str, Side], b: tuple[str, Side]) -> Comparison: ...
    def text(self) -> str: ...
    def json(self) -> str: ...
    def draw(self, folder: str) -> list[PathLike[str]]: ...

@final
class Emulation:
    def __new__(cls, options: str, helper: list[str]) -> Emulation: ...
    @property
    def nodes(self) -> list[str]: ...
    def address(self, node: str) -> str: ...
    def join(self, node: str, server: bool) -> tuple[list[int], str]: ...
    def await_server(self, node: str, process: int) -> None: ...
    def socket(self, node: str, family: int, kind: int) -> int: ...
    def change(self, link: str, rate_mbps: float | None, delay_ms: float | None, loss: float | None) -> None: ...
    def report(self) -> str: ...
    def close(self) -> None: ...

def emulation_helper() -> None: ...
def experiments(papers: str | None) -> list[str]: ...
def select(papers: str | None, names: list[str]) -> list[tuple[str, PathLike[str]]]: ...
def reproduce(experiment: tuple[str, PathLike[str]], neighbours: int | None, jobs: int, out: str | None) -> str: ...
def read(path: str) -> str: ...
def plot(title: str, runs: list[tuple[str, dict[str, bytes]]], path: str | None) -> str | None: ...
def sweep_column(key: str, values: list[str]) -> tuple[str, list[float] | None]: ...
def toml_of(json: str) -> str: ...

@final
class Sending:
    """The sender that a law is made for."""

    @property
    def flow(self) -> str:
        """The flow's name in tables: ``f``, or ``f.3`` for the third flow of a section with several."""
    @property
    def section(self) -> str:
        """The name of the flow's section: ``f`` for ``[flow.f]``."""
    @property
    def backward(self) -> bool:
        """True for the sender at the flow's far end, if the flow has data in both directions."""
    @property
    def segment(self) -> int:
        """The size of a full packet on the wire, bytes, headers included."""
    @property
    def initial_window(self) -> float:
        """The initial window, segments."""
    @property
    def seed(self) -> int:
        """A seed for the law's random numbers, different for each sender and each seed of the run."""

@final
class Carrying:
    """The port that a law is made for."""

    @property
    def link(self) -> str:
        """The link's name in tables, with ``.reverse`` for its reverse direction."""
    @property
    def capacity_bps(self) -> float:
        """The capacity that the law assumes, bit/s: the link's ``capacity``, by default its rate."""
    @property
    def seed(self) -> int:
        """A seed for the law's random numbers, different for each port and each seed of the run."""

@final
class Spreading:
    """The session that a routing module is made for."""

    @property
    def switch(self) -> str:
        """The switch's name in tables."""
    @property
    def session(self) -> str:
        """The name of the section of the session's flows."""
    @property
    def members(self) -> list[str]:
        """The members' nodes, in the order of the argument ``members`` of :meth:`Route.pick`."""
    @property
    def seed(self) -> int:
        """A seed for the module's random numbers, different for each session, switch and seed of the run."""

@final
class Item:
    """A frame, as a routing module sees it."""

    @property
    def session(self) -> int:
        """The session's number at its switch."""
    @property
    def key(self) -> int:
        """A hash of the session and the frame's number."""
    @property
    def size(self) -> int:
        """The frame's size on the wire, bytes."""

@final
class Candidate:
    """A member of a cluster, as a routing module sees it."""

    @property
    def name(self) -> int:
        """A hash of the member's name and the run's seed."""
    @property
    def up(self) -> bool:
        """True if the member accepts frames."""
    @property
    def outstanding(self) -> int:
        """Bytes that the member has not acknowledged."""
    @property
    def window(self) -> int:
        """The maximum of :attr:`outstanding`, bytes."""

@final
class Flight:
    """The state of a sender's transport when it calls its law.

    Times are durations, or count from the run's start. ``_ns`` is exact, in whole nanoseconds. ``_s`` is the nearest number in
    seconds.
    """

    @property
    def now_s(self) -> float:
        """The current time."""
    @property
    def now_ns(self) -> int:
        """The current time."""
    @property
    def srtt_s(self) -> float:
        """The smoothed round-trip time (SRTT of RFC 6298), 0 before the first sample."""
    @property
    def srtt_ns(self) -> int:
        """The smoothed round-trip time (SRTT of RFC 6298), 0 before the first sample."""
    @property
    def min_rtt_s(self) -> float | None:
        """The least round-trip time measured, ``None`` before the first sample."""
    @property
    def min_rtt_ns(self) -> int | None:
        """The least round-trip time measured, ``None`` before the first sample."""
    @property
    def segment(self) -> int:
        """The size of a full segment on the wire, bytes."""
    @property
    def in_flight(self) -> int:
        """Segments sent that are neither acknowledged, cumulatively or selectively, nor considered lost."""
    @property
    def outstanding(self) -> int:
        """Segments sent and not yet acknowledged cumulatively: FlightSize of RFC 5681."""
    @property
    def limit(self) -> int:
        """The segments that the receive window and the send buffer allow in flight."""
    @property
    def app_limited(self) -> bool:
        """True if the application limits the sender, and not the law or ``limit``."""
    def window_limited(self, window: float) -> bool:
        """True if a window of this many segments limits the sender. An unused window must not grow (RFC 7661)."""

@final
class Acked:
    """One acknowledgement, possibly a duplicate."""

    @property
    def segments(self) -> int:
        """The segments that it newly covers, cumulatively or selectively."""
    @property
    def cumulative(self) -> int:
        """The segments that it newly covers cumulatively."""
    @property
    def rtt_s(self) -> float | None:
        """The round-trip sample, ``None`` if the acknowledgement has none."""
    @property
    def rtt_ns(self) -> int | None:
        """The round-trip sample, ``None`` if the acknowledgement has none."""
    @property
    def recovering(self) -> bool:
        """True during the repair of a loss."""
    @property
    def marked(self) -> bool:
        """True if it echoes an ECN mark."""

@final
class Delivery:
    """A delivery-rate sample (draft-ietf-ccwg-bbr, § 4.1). Its *reference segment* is the last sent of the segments that the
    acknowledgement newly covers.
    """

    @property
    def delivered(self) -> int:
        """Segments delivered since the start, including the newly covered ones."""
    @property
    def newly_acked(self) -> int:
        """The segments that the acknowledgement newly covers."""
    @property
    def newly_lost(self) -> int:
        """The segments newly considered lost."""
    @property
    def rtt_s(self) -> float | None:
        """The round-trip sample, ``None`` if the acknowledgement has none."""
    @property
    def rtt_ns(self) -> int | None:
        """The round-trip sample, ``None`` if the acknowledgement has none."""
    @property
    def segments_per_s(self) -> float:
        """The delivery rate, segments per second; 0 if the sample is not reliable."""
    @property
    def delivered_before(self) -> int:
        """Segments that had been delivered when the reference segment was sent."""
    @property
    def in_flight_then(self) -> int:
        """Segments in flight when the reference segment was sent, itself included."""
    @property
    def lost_since(self) -> int:
        """Segments considered lost since the reference segment was sent."""
    @property
    def app_limited(self) -> bool:
        """True if the application limited the rate when the reference segment was sent."""
    @property
    def recovering(self) -> bool:
        """True during the repair of losses."""

@final
class Passing:
    """A packet and its queue, as a link's law sees them. Times are as in :class:`Flight`."""

    @property
    def now_s(self) -> float:
        """The time of the packet's arrival or departure."""
    @property
    def now_ns(self) -> int:
        """The time of the packet's arrival or departure."""
    @property
    def size(self) -> int:
        """The packet's size on the wire, bytes, without the link's framing."""
    @property
    def traffic_class(self) -> int:
        """The packet's class of traffic, counted from 1; 0 if it has none."""
    @property
    def ect(self) -> bool:
        """True if the packet may be marked instead of dropped (RFC 3168)."""
    @property
    def l4s(self) -> bool:
        """True if the packet identifies its sender as scalable (RFC 9331)."""
    @property
    def backlog_packets(self) -> int:
        """Packets in the queue, excluding the one in transmission and an arriving one, including a departing one."""
    @property
    def backlog_bytes(self) -> int:
        """Bytes in the queue, counted like :attr:`backlog_packets`."""
    @property
    def waited_s(self) -> float:
        """The packet's time in the queue, 0 on arrival."""
    @property
    def waited_ns(self) -> int:
        """The packet's time in the queue, 0 on arrival."""

@final
class Verdict:
    """A link law's decision on a packet."""

    PASS: ClassVar[Verdict]
    """Forward the packet."""
    SIGNAL: ClassVar[Verdict]
    """Signal congestion: mark the packet if :attr:`Passing.ect`, else drop it."""
    DROP: ClassVar[Verdict]
    """Drop the packet."""
