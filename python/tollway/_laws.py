"""Laws and routing modules written in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tollway._native import Acked, Candidate, Carrying, Delivery, Flight, Item, Passing, Sending, Spreading, Verdict

#: The argument ``laws`` of :meth:`tollway.Scenario.run`. A key is ``"flow.NAME"``,
#: ``"workload.NAME"``, ``"link.NAME"``, ``"link.NAME.reverse"`` or ``"switch.NAME"``, with ``*``
#: for every name. A value is a class, or any callable that returns a law. Its argument describes
#: the flow, link or session.
Laws = Mapping[str, Callable[[Any], Any]]

Method = TypeVar("Method", bound=Callable[..., Any])


def _idle(method: Method) -> Method:
    """Marks a method that does nothing. It is never called, so a law may omit it."""
    method._does_nothing = True  # type: ignore[attr-defined]
    return method


class SenderLaw(ABC):
    """A sender's congestion control. The run creates one law for each flow, by calling the class with a :class:`Sending`.

    The transport detects and repairs losses. It calls the law's methods at events, and reads :attr:`window` and
    :attr:`pacing_bps` after each call, at no other time.

    A law need not inherit from this class: any object with these methods and attributes is a law. It may omit the methods that
    are not abstract here, and :attr:`pacing_bps`.

    An exception in a law ends the run with a :class:`RunError`, whose cause is that exception.
    """

    #: The congestion window, segments: the integer part counts, at least 1.
    window: float
    #: The pacing rate, bit/s, headers included. With ``None``, acknowledgements clock packets out,
    #: within :attr:`window`. A change of less than 1/32 takes effect after the next packet's
    #: departure.
    pacing_bps: float | None = None
    #: The allocation that runs are compared with, if the links have the same aim: ``"max-min"``,
    #: ``"proportional"``, ``"xcp-equilibrium"``, or ``None``. It must be an attribute of the class.
    aim: str | None = None

    def __init__(self, of: Sending) -> None:
        self.window = of.initial_window

    @abstractmethod
    def on_ack(self, flight: Flight, acked: Acked) -> None:
        """Called at each acknowledgement, also a duplicate one or during recovery. An unused window must not grow: see
        :meth:`Flight.window_limited`.
        """

    @abstractmethod
    def on_loss(self, flight: Flight) -> None:
        """Called when acknowledgements show a loss: once per loss episode, at the start of fast recovery."""

    @abstractmethod
    def on_timeout(self, flight: Flight, first: bool) -> None:
        """Called when the retransmission timer expires. ``first`` is false if it expires again without progress in between."""

    @_idle
    def on_recovered(self, flight: Flight) -> None:
        """Called at the end of fast recovery."""

    @_idle
    def on_restart(self, flight: Flight) -> None:
        """Called before a segment is sent with nothing in flight, after the application had nothing to send. Only for laws with
        :meth:`on_delivery`.
        """

    @_idle
    def on_delivery(self, flight: Flight, delivery: Delivery) -> None:
        """Called when an acknowledgement covers new segments, before :meth:`on_ack`. The transport measures the delivery rate
        only for laws with this method.
        """


class LinkLaw(ABC):
    """A link's law: it drops or marks packets at the port. The run creates one law for each link direction, by calling the
    class with a :class:`Carrying`. The port has one queue, with its own limit. Only laws in Rust can change tolls.

    A law need not inherit from this class, and may omit the methods that are not abstract.
    """

    #: The aim, as in :attr:`SenderLaw.aim`.
    aim: str | None = None

    def __init__(self, of: Carrying) -> None:
        pass

    @abstractmethod
    def on_arrival(self, packet: Passing) -> Verdict | None:
        """Called at each packet's arrival, also if the queue is full. ``None`` means :attr:`Verdict.PASS`."""

    @_idle
    def on_departure(self, packet: Passing) -> Verdict | None:
        """Called when a packet leaves the queue for the transmitter. ``None`` means :attr:`Verdict.PASS`."""

    @_idle
    def on_capacity(self, now_s: float, capacity_bps: float) -> None:
        """Called when the link's configured capacity changes, with the new capacity in bit/s."""


class Route(ABC):
    """A routing module: it chooses the member for each frame of a session. The run creates one module for each session of a
    switch, by calling the class with a :class:`Spreading`.

    A module need not inherit from this class: any object with this method is a module. An exception in it ends the run with a
    :class:`RunError`.
    """

    def __init__(self, of: Spreading) -> None:
        pass

    @abstractmethod
    def pick(self, item: Item, members: list[Candidate]) -> int | None:
        """Returns the index of the frame's member in ``members``. That member must be ``up``. With ``None``, the switch refuses
        the frame, and the peer retransmits it.
        """


def given(laws: Laws | None) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Converts laws for the native module: each law's key, its name in tables, and the callable."""
    for key, law in (laws or {}).items():
        if not callable(law):
            raise TypeError(f"laws[{key!r}] is {law!r}; give a class, or a function that answers a law for each flow")
    return [(key, _name(law), law) for key, law in (laws or {}).items()]


def _name(law: Callable[[Any], Any]) -> str:
    while not hasattr(law, "__name__") and hasattr(law, "func"):
        law = law.func  # A functools.partial.
    return getattr(law, "__name__", type(law).__name__)
