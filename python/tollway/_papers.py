"""The papers' experiments with their claims, and the comparison of results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tollway import _native
from tollway._results import Results, Run

Path = str | os.PathLike[str]

#: The columns of a claim's outcome at one neighbour of its experiment.
AT_NEIGHBOUR = [("at", pa.string()), ("status", pa.string()), ("measured", pa.string()), ("value", pa.float64())]

#: The columns of :attr:`Reproduced.claims`, one row per claim.
CLAIMS = pa.schema(
    [(name, pa.string()) for name in ("experiment", "id", "says", "status", "expected", "measured", "source")]
    + [("reading", pa.struct([(name, pa.float64()) for name in ("value", "of", "least", "most")]))]
    + [("neighbourhood", pa.uint64()), ("neighbours", pa.list_(pa.struct(AT_NEIGHBOUR)))]
)


@dataclass(frozen=True)
class Reproduced:
    """The outcome of experiments, made by :func:`reproduce`."""

    #: One row per claim. ``experiment``, ``id``, ``says`` and ``source`` identify it. ``status`` is
    #: ``met``, ``fragile`` (it holds at the base, but in fewer than nine of ten neighbours),
    #: ``unmet``, or ``skipped`` (a program that it needs is not installed). ``expected`` and
    #: ``measured`` are texts with units. ``reading`` is the value with the smallest margin at the
    #: base, with the paper's number and the allowed range. ``neighbourhood`` is the number of the
    #: experiment's neighbours (null if its file has none), and ``neighbours`` the outcome at each
    #: neighbour that was judged.
    claims: pa.Table
    #: The paths of the pages and pictures.
    figures: list[str]

    @property
    def fragile(self) -> list[str]:
        """The ids of the claims that hold at the base, but in too few neighbours."""
        return self._of("fragile")

    @property
    def unmet(self) -> list[str]:
        """The ids of the claims that do not hold at the base."""
        return self._of("unmet")

    def _of(self, status: str) -> list[str]:
        return [row["id"] for row in self.claims.select(["id", "status"]).to_pylist() if row["status"] == status]

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self._of(status))} {status}" for status in ("met", "fragile", "unmet", "skipped"))
        return f"<tollway.Reproduced: {counts}>"


def experiments(papers: Path | None = None) -> list[str]:
    """The names of all experiments in a folder, or of the built-in ones, such as ``xcp/validation``.

    :raises ScenarioError: the folder has no experiments.
    """
    return _native.experiments(None if papers is None else os.fspath(papers))


def reproduce(
    *names: str,
    papers: Path | None = None,
    neighbours: int | None = None,
    jobs: int = 0,
    out: Path | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Reproduced:
    """Runs experiments in the simulator and judges their claims, as ``tollway reproduce`` does.

    :param names: experiments (``xcp/validation``) or papers (``xcp``). Default: all experiments.
    :param papers: the experiments' folder. Default: the built-in experiments.
    :param neighbours: the number of neighbours to judge for each experiment, besides its base. The choice is the same in each
        call. Default: all. With 0, only the base is judged, so that no claim is found fragile.
    :param jobs: the number of variants or neighbours that run in parallel; 0 is the number of processors.
    :param out: a folder for figures, each as a page and a picture.
    :param progress: called at the end of each experiment, with the number done and the total.
    :raises ScenarioError: a name is unknown, or a file has errors. All files are checked before the first run.
    :raises RunError: a run failed.
    """
    if neighbours is not None and neighbours < 0:
        raise ValueError(f"neighbours is {neighbours}; 0 judges the base only")
    if jobs < 0:
        raise ValueError(f"jobs is {jobs}; 0 is as many as there are processors")
    selected = _native.select(None if papers is None else os.fspath(papers), list(names))
    claims: list[dict[str, Any]] = []
    figures: list[str] = []
    for done, found in enumerate(selected, 1):
        judged = json.loads(_native.reproduce(found, neighbours, jobs, None if out is None else os.fspath(out)))
        claims += judged["claims"]
        figures += judged["figures"]
        if progress is not None:
            progress(done, len(selected))
    return Reproduced(pa.Table.from_pylist(claims, schema=CLAIMS), figures)


class Comparison:
    """The comparison of two results, made by :func:`compare`. ``print`` shows the tables of ``tollway compare``."""

    def __init__(self, native: _native.Comparison) -> None:
        self._native = native
        #: The object that ``tollway compare --json`` prints.
        self.account: dict[str, Any] = json.loads(native.json())

    @cached_property
    def flows(self) -> pa.Table:
        """One row per variant, flow and ``quantity`` of :attr:`Run.summary`. ``a`` and ``b`` are its values in the two results,
        or null, and ``difference`` is b − a.
        """
        return self._table("flow")

    @cached_property
    def links(self) -> pa.Table:
        """One row per variant, link and ``quantity`` of :attr:`Run.link_summary`, with the columns of :attr:`flows`."""
        return self._table("link")

    def draw(self, folder: Path) -> list[str]:
        """Draws both results in the same plots, as pages and pictures. Returns the files' paths."""
        return [os.fspath(path) for path in self._native.draw(os.fspath(folder))]

    def _table(self, kind: str) -> pa.Table:
        rows = []
        for pair in self.account["variants"]:
            for row in pair[f"{kind}s"]:
                a, b = row["a"] or {}, row["b"] or {}
                for quantity in sorted(a.keys() | b.keys()):
                    values = {"a": a.get(quantity), "b": b.get(quantity), "difference": row["difference"].get(quantity)}
                    rows.append({"variant": pair["variant"], kind: row[kind], "quantity": quantity, **values})
        texts = [(name, pa.string()) for name in ("variant", kind, "quantity")]
        numbers = [(name, pa.float64()) for name in ("a", "b", "difference")]
        return pa.Table.from_pylist(rows, schema=pa.schema(texts + numbers))

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        return f"<tollway.Comparison of {self.account['a']!r} and {self.account['b']!r}>"


def compare(a: Results | Run | Path, b: Results | Run | Path, *, names: tuple[str, str] = ("a", "b")) -> Comparison:
    """Compares two results by variant, flow and link. Variants of the same name are compared. If each result has only one
    variant, these are compared whatever their names.

    >>> print(tollway.compare(scenario.run(), faster.run(), names=("slow", "fast")))

    :param a: a result, one of its runs, or a folder that ``tollway run --out`` has written.
    :param b: the second result, likewise.
    :param names: the names of the two in tables and plots. If both are folders, they have the folders' names.
    :raises ScenarioError: the two have no common variant, or a folder has no tables.
    """
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names are {names!r}; give two that differ")
    return Comparison(_native.Comparison((names[0], _side(a)), (names[1], _side(b))))


def _side(of: Results | Run | Path) -> str | Sequence[tuple[str, dict[str, bytes]]]:
    if isinstance(of, Results):
        return [run._tables() for run in of.values()]
    return [of._tables()] if isinstance(of, Run) else os.fspath(of)
