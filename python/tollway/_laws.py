"""Laws and routing modules written in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tollway._native import Acked, Candidate, Carrying, Delivery, Flight, Item, Passing, Sending, Spreading, Verdict

#: What :meth:`tollway.Scenario.run` takes: ``"flow.NAME"``, ``"workload.NAME"``, ``"link.NAME"``, ``"link.NAME.reverse"`` or
#: ``"switch.NAME"``, with ``*`` for every name, and for each a class, or whatever else answers a law when called with what it is made for.
Laws = Mapping[str, Callable[[Any], Any]]

Method = TypeVar("Method", bound=Callable[..., Any])


def _idle(method: Method) -> Method:
    """A method that does nothing is not called: it may be left out."""
    method._does_nothing = True  # type: ignore[attr-defined]
    return method


class SenderLaw(ABC):
    """How fast a sender may go. One is made for each flow, by calling the class with a :class:`Sending`.

    The transport finds and repairs losses; a law is told what happens, and answers by setting :attr:`window` and, if it spaces
    packets, :attr:`pacing_bps`. Both are read after each call, and after nothing else.

    A law needs not be of this class: whatever has these methods and attributes is one. Methods that are not abstract here may be
    left out, and so may :attr:`pacing_bps`.

    What is raised ends the run with a :class:`RunError` that has it as its cause.
    """

    #: Segments that may be in flight, fractions too: whole ones count, and one at least.
    window: float
    #: The rate at which packets may leave, headers included, bit/s; ``None`` leaves it to the acknowledgements' clock.
    #: :attr:`window` is then a bound. A change of less than 1/32 counts from the next packet's departure on.
    pacing_bps: float | None = None
    #: The allocation that runs are held against, where links aim at the same: ``"max-min"``, ``"proportional"``,
    #: ``"xcp-equilibrium"``, or ``None``. It is read of the class, not of a law.
    aim: str | None = None

    def __init__(self, of: Sending) -> None:
        self.window = of.initial_window

    @abstractmethod
    def on_ack(self, flight: Flight, acked: Acked) -> None:
        """An acknowledgement came, also while recovering, also a duplicate. A window that is not used must not grow: ask
        :meth:`Flight.window_limited`.
        """

    @abstractmethod
    def on_loss(self, flight: Flight) -> None:
        """A loss was detected by acknowledgements: once an episode, as fast recovery is entered."""

    @abstractmethod
    def on_timeout(self, flight: Flight, first: bool) -> None:
        """The retransmission timer expired; ``first`` unless it had expired already without progress since."""

    @_idle
    def on_recovered(self, flight: Flight) -> None:
        """Fast recovery is over."""

    @_idle
    def on_restart(self, flight: Flight) -> None:
        """A segment is about to leave with nothing in flight, because the application had nothing to send; only told to a law
        that has :meth:`on_delivery`.
        """

    @_idle
    def on_delivery(self, flight: Flight, delivery: Delivery) -> None:
        """An acknowledgement covered segments newly; :meth:`on_ack` follows. The transport measures delivery for laws that have
        this method.
        """


class LinkLaw(ABC):
    """What a link's port says to the packets that pass it. One is made for each link, by calling the class with a
    :class:`Carrying`. The queue, which is one, and its limit are the port's; tolls are for laws in Rust.

    A law needs not be of this class, and methods that are not abstract may be left out.
    """

    #: As :attr:`SenderLaw.aim`.
    aim: str | None = None

    def __init__(self, of: Carrying) -> None:
        pass

    @abstractmethod
    def on_arrival(self, packet: Passing) -> Verdict | None:
        """A packet comes to the port, also if the queue then has no room. ``None`` is :attr:`Verdict.PASS`."""

    @_idle
    def on_departure(self, packet: Passing) -> Verdict | None:
        """A packet leaves the queue for the transmitter."""

    @_idle
    def on_capacity(self, now_s: float, capacity_bps: float) -> None:
        """The capacity that the law is to believe in changes."""


class Route(ABC):
    """The member that each frame of a session goes to. One is made for each session of a switch, by calling the class with a
    :class:`Spreading`.

    A module needs not be of this class: whatever has this method is one. What is raised ends the run with a :class:`RunError`.
    """

    def __init__(self, of: Spreading) -> None:
        pass

    @abstractmethod
    def pick(self, item: Item, members: list[Candidate]) -> int | None:
        """Returns the place of the member that takes a frame, one that is ``up``; with ``None`` the frame is refused, and the peer
        sends it again.
        """


def given(laws: Laws | None) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """The laws as the native module takes them: what each is for, and its name in tables."""
    for key, law in (laws or {}).items():
        if not callable(law):
            raise TypeError(f"laws[{key!r}] is {law!r}; give a class, or a function that answers a law for each flow")
    return [(key, _name(law), law) for key, law in (laws or {}).items()]


def _name(law: Callable[[Any], Any]) -> str:
    while not hasattr(law, "__name__") and hasattr(law, "func"):
        law = law.func  # A functools.partial.
    return getattr(law, "__name__", type(law).__name__)
