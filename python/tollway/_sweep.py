"""Sweeps: runs of one scenario with many values and seeds, on any executor."""

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
    """The results of a sweep, in the order of the given values, then seeds, then variants."""

    #: One row per run and flow. The columns are the varied keys (a name ends in the unit,
    #: ``link.wire.rate_mbps``), ``variant`` if the scenario has variants, ``seed``, and those of
    #: :attr:`Run.summary`.
    flows: pa.Table
    #: One row per run and link, with the columns of :attr:`Run.link_summary`.
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
    """Runs every combination of values with every seed and every variant.

    All points are checked before the first run. Runs have no interval tables.

    >>> tollway.sweep(scenario, {"link.bottleneck.rate": ["5 Mbps", "10 Mbps"]}, seeds=10)

    :param vary: keys as for :meth:`Scenario.with_sets`, each with a list of values. The sweep runs all combinations. A key's
        column has numbers if all its values are numbers, or quantities of one kind, and text otherwise.
    :param seeds: the number of seeds, counted up from the scenario's seed, or the seeds themselves.
    :param executor: the executor of the runs: a ``ThreadPoolExecutor``, a ``ProcessPoolExecutor``, ``dask.distributed``'s
        ``client.get_executor()``, or any other. Default: threads of this process, one per processor. The executor receives the
        scenario's text; files that it names must exist there.
    :param progress: called after each point, in order, with the number done and the total.
    :param laws: your own laws, as for :meth:`Scenario.run`. Only one law in Python runs at a time, so points run one after
        another unless ``executor`` is set. Processes run in parallel. They find laws by name, so define a law at the top level
        of a module.
    :raises ScenarioError: a point is not a valid scenario.
    :raises RunError: a run failed. Runs that have not started are then cancelled.
    """
    over = {key: list(values) for key, values in (vary or {}).items()}
    for key, values in over.items():
        if key.strip() == "seed":
            raise ValueError("seeds are varied with `seeds`")
        if not values:
            raise ValueError(f"{key} varies over no values")
        if any(value in values[:at] for at, value in enumerate(values)):
            raise ValueError(f"a value of {key} is given twice")
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
    """A varied key's column, as in ``tollway sweep``: its name, and its entry for each value."""
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
    """Runs a point's variants one after another, in an executor."""
    return list(scenario.run(jobs=1, laws=laws).values())
