from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, final

__version__: str

class ScenarioError(ValueError): ...
class RunError(RuntimeError): ...

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
        """The flow, as tables call it: ``f``, or ``f.3`` for the third of a section that makes several."""
    @property
    def section(self) -> str:
        """The section it comes from: ``f`` for ``[flow.f]``."""
    @property
    def backward(self) -> bool:
        """Whether it is the flow's far end, which sends, too, where data go both ways."""
    @property
    def segment(self) -> int:
        """Size of a full packet on the wire, headers included, bytes."""
    @property
    def initial_window(self) -> float:
        """Window at the start, segments."""
    @property
    def seed(self) -> int:
        """For a generator of the law's own: another one for each sender and each seed of the run."""

@final
class Carrying:
    """The port that a law is made for."""

    @property
    def link(self) -> str:
        """The link, as tables call it, with ``.reverse`` for its way back."""
    @property
    def capacity_bps(self) -> float:
        """The capacity that the law is to believe in, bit/s."""
    @property
    def seed(self) -> int:
        """For a generator of the law's own: another one for each port and each seed of the run."""

@final
class Spreading:
    """The session that a routing module is made for."""

    @property
    def switch(self) -> str:
        """The switch, as tables call it."""
    @property
    def session(self) -> str:
        """The section of the session's flows."""
    @property
    def members(self) -> list[str]:
        """The nodes of the members, in the order of :meth:`Route.pick`'s."""
    @property
    def seed(self) -> int:
        """For a generator of the module's own: another one for each session, switch and seed of the run."""

@final
class Item:
    """What a routing module sees of a frame."""

    @property
    def session(self) -> int:
        """The session's number at its switch."""
    @property
    def key(self) -> int:
        """A hash of the session and the frame's number."""
    @property
    def size(self) -> int:
        """Bytes on the wire."""

@final
class Candidate:
    """What a routing module sees of a member."""

    @property
    def name(self) -> int:
        """A hash of the member's name and the run's seed."""
    @property
    def up(self) -> bool:
        """Whether it takes frames."""
    @property
    def outstanding(self) -> int:
        """Bytes that it has not acknowledged."""
    @property
    def window(self) -> int:
        """Bytes that may be."""

@final
class Flight:
    """What the transport knows when it tells a law something.

    A time is an instant since the run's start, or a span. As ``_ns`` it is exact, in whole nanoseconds; as ``_s`` it is the
    number nearest to that in seconds.
    """

    @property
    def now_s(self) -> float:
        """The present."""
    @property
    def now_ns(self) -> int:
        """The present."""
    @property
    def srtt_s(self) -> float:
        """Smoothed round-trip time (RFC 6298's SRTT), 0 before the first sample."""
    @property
    def srtt_ns(self) -> int:
        """Smoothed round-trip time, 0 before the first sample."""
    @property
    def min_rtt_s(self) -> float | None:
        """Least round-trip time seen, ``None`` before the first sample."""
    @property
    def min_rtt_ns(self) -> int | None:
        """Least round-trip time seen, ``None`` before the first sample."""
    @property
    def segment(self) -> int:
        """A full segment on the wire, bytes."""
    @property
    def in_flight(self) -> int:
        """Segments sent and neither acknowledged, selectively acknowledged nor taken for lost."""
    @property
    def outstanding(self) -> int:
        """Segments sent and not yet acknowledged cumulatively: RFC 5681's FlightSize."""
    @property
    def limit(self) -> int:
        """Segments that everything but the law allows in flight: receive window and send buffer."""
    @property
    def app_limited(self) -> bool:
        """Whether the application, not the law nor ``limit``, is what holds the sender back."""
    def window_limited(self, window: float) -> bool:
        """Whether a window of so many segments is what holds the sender back. One that is not used must not grow (RFC 7661)."""

@final
class Acked:
    """One acknowledgement, also a duplicate one."""

    @property
    def segments(self) -> int:
        """Segments that it newly covers, cumulatively or selectively."""
    @property
    def cumulative(self) -> int:
        """Of these, how many the cumulative acknowledgement covers newly."""
    @property
    def rtt_s(self) -> float | None:
        """A round-trip sample, if it gives one."""
    @property
    def rtt_ns(self) -> int | None:
        """A round-trip sample, if it gives one."""
    @property
    def recovering(self) -> bool:
        """Whether the transport is repairing a loss."""
    @property
    def marked(self) -> bool:
        """Whether an ECN mark was echoed."""

@final
class Delivery:
    """What an acknowledgement tells of how fast segments are delivered, by the segment of those covered that was sent last
    (draft-ietf-ccwg-bbr, § 4.1).
    """

    @property
    def delivered(self) -> int:
        """Segments delivered so far, these included."""
    @property
    def newly_acked(self) -> int:
        """Segments newly covered."""
    @property
    def newly_lost(self) -> int:
        """Segments newly taken for lost."""
    @property
    def rtt_s(self) -> float | None:
        """The round-trip sample, if there is one."""
    @property
    def rtt_ns(self) -> int | None:
        """The round-trip sample, if there is one."""
    @property
    def segments_per_s(self) -> float:
        """The delivery rate; 0 if this interval tells nothing reliable."""
    @property
    def delivered_before(self) -> int:
        """Segments that had been delivered when it was sent."""
    @property
    def in_flight_then(self) -> int:
        """Segments in flight when it was sent, itself included."""
    @property
    def lost_since(self) -> int:
        """Segments taken for lost since it was sent."""
    @property
    def app_limited(self) -> bool:
        """Whether the application was what limited the rate then."""
    @property
    def recovering(self) -> bool:
        """Whether the transport is repairing losses."""

@final
class Passing:
    """What a link's law sees of a packet and of the queue around it. Times are as in :class:`Flight`."""

    @property
    def now_s(self) -> float:
        """The packet's exact instant."""
    @property
    def now_ns(self) -> int:
        """The packet's exact instant."""
    @property
    def size(self) -> int:
        """Bytes on the wire without the link's framing."""
    @property
    def traffic_class(self) -> int:
        """The class of traffic it belongs to, counted from 1; 0 is none."""
    @property
    def ect(self) -> bool:
        """Whether it may be marked instead of dropped (RFC 3168)."""
    @property
    def l4s(self) -> bool:
        """Whether it is to be taken for one of a scalable sender (RFC 9331)."""
    @property
    def backlog_packets(self) -> int:
        """Packets in the queue: without the one in transmission, without an arriving one, with a departing one."""
    @property
    def backlog_bytes(self) -> int:
        """The same in bytes."""
    @property
    def waited_s(self) -> float:
        """How long it was queued, 0 on arrival."""
    @property
    def waited_ns(self) -> int:
        """How long it was queued, 0 on arrival."""

@final
class Verdict:
    """What a link's law wants done with a packet."""

    PASS: ClassVar[Verdict]
    """Let it pass."""
    SIGNAL: ClassVar[Verdict]
    """Tell its sender of congestion: marked if it may be, dropped if not."""
    DROP: ClassVar[Verdict]
    """Drop it."""
