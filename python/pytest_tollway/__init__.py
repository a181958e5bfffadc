"""The pytest fixture ``emulation``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tollway import Emulation

_REASON = "no emulated network: "


@cache
def _refusal() -> str:
    """The reason why this system allows no network; empty if it does."""
    import tollway

    try:
        tollway.Emulation().close()
    except tollway.NotAllowedError as why:
        return str(why)
    return ""


@pytest.fixture
def emulation() -> Iterator[Callable[..., Emulation]]:
    """Makes emulated networks: a call takes the arguments of ``tollway.Emulation``. They end with the test.

    Where the system does not allow networks, the test is skipped, and the end of pytest's output shows the reason.
    """
    import tollway

    if why := _refusal():
        pytest.skip(f"{_REASON}{why}")
    with ExitStack() as networks:

        def make(*args: Any, **options: Any) -> Emulation:
            return networks.enter_context(tollway.Emulation(*args, **options))

        yield make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    reasons = [str(report[2]) for report in reports if isinstance(report, tuple)]
    skipped = [reason.partition(_REASON)[2] for reason in reasons if _REASON in reason]
    if skipped:
        terminalreporter.section("SKIPPED: tests with emulated networks", red=True)
        for why in dict.fromkeys(skipped):
            terminalreporter.line(f"{skipped.count(why)} skipped: {why}")
