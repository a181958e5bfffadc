"""One scenario many times, wherever there are processors."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa

from tollway import _native
from tollway._laws import Laws, given
from tollway._results import Run, stack
from tollway._scenario import Scenario
from tollway._words import word


@dataclass(frozen=True)
class Sweep:
    """What came of a sweep, in the order of the values as given, then seeds, then variants."""

    #: A row a run and flow: a column for each varied key (its name ends in the unit, ``link.wire.rate_mbps``), ``variant`` if there are any, ``seed``, and the columns of
    #: :attr:`Run.summary`.
    flows: pa.Table
    #: A row a run and link, with the columns of :attr:`Run.link_summary`.
    links: pa.Table


def sweep(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: int | Iterable[int] = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], Any] | None = None,
    laws: Laws | None = None,
) -> Sweep:
    """Runs every combination of values with every seed, and every variant.

    Every point is checked before the first one runs. Interval tables are not made.

    >>> tollway.sweep(scenario, {"link.bottleneck.rate": ["5 Mbps", "10 Mbps"]}, seeds=10)

    :param vary: keys as for :meth:`Scenario.with_sets`, each with the values that it takes; each value runs with each of the
        others'. Their columns are numbers if all values are, or are quantities of one kind; else text.
    :param seeds: how many, from the scenario's own on, or which.
    :param executor: where points run: a ``ThreadPoolExecutor``, a ``ProcessPoolExecutor``, ``dask.distributed``'s
        ``client.get_executor()``, or any other. Threads of this process, one a processor, if none is given. A scenario goes
        there as its text; files that it names have to be there.
    :param progress: called with how many points are done, and of how many, as each in its turn ends.
    :param laws: laws of one's own, as for :meth:`Scenario.run`. Python asks one at a time: points run one after the other unless
        an ``executor`` is given. Processes run them beside each other, and get laws by name: those at the top level of a module.
    :raises ScenarioError: of a point that is no scenario.
    :raises RunError: of a run that failed; what hasn't begun by then is cancelled.
    """
    over = {key: list(values) for key, values in (vary or {}).items()}
    for key, values in over.items():
        if key.strip() == "seed":
            raise ValueError("seeds are varied with `seeds`")
        if not values:
            raise ValueError(f"{key} varies over no values")
        if any(value in values[:at] for at, value in enumerate(values)):
            raise ValueError(f"a value of {key} comes twice")
    chosen = range(scenario.seed, scenario.seed + seeds) if isinstance(seeds, int) else list(seeds)
    if not chosen:
        raise ValueError("there are no seeds")
    cells = [_cells(key, values) for key, values in over.items()]
    points = []
    for combination, chosen_cells in zip(product(*over.values()), product(*(cells for _, cells in cells)), strict=True):
        point = dict(zip(over, combination, strict=True))
        columns = dict(zip((name for name, _ in cells), chosen_cells, strict=True))
        for seed in chosen:
            points.append((columns, scenario.with_sets({**point, "seed": seed, "measure.interval": "none"})))
    given(laws)
    if executor is not None:
        if laws and isinstance(executor, ProcessPoolExecutor):
            _check_they_travel(laws)
        return _gather(points, executor, progress, laws)
    with ThreadPoolExecutor(1 if laws else min(os.cpu_count() or 1, len(points))) as threads:
        return _gather(points, threads, progress, laws)


def _check_they_travel(laws: Laws) -> None:
    for key, law in laws.items():
        try:
            pickle.dumps(law)
        except Exception as why:
            raise TypeError(
                f"laws[{key!r}] can't go to another process: {why}. Define it at the top level of a module, or use threads"
            ) from why


def _cells(key: str, values: list[Any]) -> tuple[str, list[float] | list[str]]:
    """A varied key's column, as the command has it: its name, and what it holds for each value."""
    words = [word(value, key) for value in values]
    name, numbers = _native.sweep_column(key, words)
    return name, words if numbers is None else numbers


def _gather(
    points: list[tuple[dict[str, Any], Scenario]],
    executor: Executor,
    progress: Callable[[int, int], Any] | None,
    laws: Laws | None,
) -> Sweep:
    futures = [executor.submit(run_point, scenario, laws) for _, scenario in points]
    flows, links = [], []
    try:
        for done, ((columns, _), future) in enumerate(zip(points, futures, strict=True), 1):
            for run in future.result():
                front = columns | ({"variant": run.variant} if run.variant else {}) | {"seed": run.seed}
                flows.append((front, run.summary))
                links.append((front, run.link_summary))
            if progress is not None:
                progress(done, len(points))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return Sweep(stack(flows), stack(links))


def run_point(scenario: Scenario, laws: Laws | None) -> list[Run]:
    """What an executor runs: a point's variants, one after the other."""
    return list(scenario.run(jobs=1, laws=laws).values())
