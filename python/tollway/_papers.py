"""Papers' experiments with their claims, and results beside each other."""

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

#: A claim's outcome at a neighbour of its experiment.
AT_NEIGHBOUR = [("at", pa.string()), ("status", pa.string()), ("measured", pa.string()), ("value", pa.float64())]

#: A row a claim.
CLAIMS = pa.schema(
    [(name, pa.string()) for name in ("experiment", "id", "says", "status", "expected", "measured", "source")]
    + [("reading", pa.struct([(name, pa.float64()) for name in ("value", "of", "least", "most")]))]
    + [("neighbourhood", pa.uint64()), ("neighbours", pa.list_(pa.struct(AT_NEIGHBOUR)))]
)


@dataclass(frozen=True)
class Reproduced:
    """What became of experiments' claims."""

    #: A row a claim: ``experiment``, ``id``, what it ``says``, ``status`` (``met``, ``fragile`` where it holds at the base and
    #: in fewer than nine of ten neighbours, ``unmet``, or ``skipped`` where a program that it needs is not installed),
    #: ``expected`` and ``measured`` with their units, ``source``; ``reading``, the tightest value at
    #: the base as a number with the paper's number and what is allowed; ``neighbourhood``, how many neighbours the experiment has
    #: (null if its file doesn't say), and ``neighbours``: the outcome at each that was judged.
    claims: pa.Table
    #: Pages and pictures that were drawn.
    figures: list[str]

    @property
    def fragile(self) -> list[str]:
        """The ids of the claims that hold at the base and in too few neighbours."""
        return self._of("fragile")

    @property
    def unmet(self) -> list[str]:
        """The ids of the claims that don't hold at the base."""
        return self._of("unmet")

    def _of(self, status: str) -> list[str]:
        return [row["id"] for row in self.claims.select(["id", "status"]).to_pylist() if row["status"] == status]

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self._of(status))} {status}" for status in ("met", "fragile", "unmet", "skipped"))
        return f"<tollway.Reproduced: {counts}>"


def experiments(papers: Path | None = None) -> list[str]:
    """The names of all experiments beneath a folder, or of those built in: ``xcp/validation``.

    :raises ScenarioError: there are none.
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
    """Runs experiments in the simulator and holds them against their claims, as ``tollway reproduce`` does.

    :param names: experiments, ``xcp/validation``, or papers, ``xcp``; all there are, if none is named.
    :param papers: the folder that they are in, if not those built in.
    :param neighbours: how many neighbours of each are judged beside its base: all, or so many, drawn once and for all; with 0
        the base only, after which no claim is known to hold beside it.
    :param jobs: how many variants or neighbours run at once; 0 is as many as there are processors.
    :param out: a folder for figures, each as a page and a picture.
    :param progress: called with how many experiments are done, and of how many, as each ends.
    :raises ScenarioError: a name means nothing, or a file has mistakes; all are read before the first one runs.
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
    """Two results beside each other, made by :func:`compare`. Printed, they are the tables of ``tollway compare``."""

    def __init__(self, native: _native.Comparison) -> None:
        self._native = native
        #: The object that ``tollway compare --json`` prints.
        self.account: dict[str, Any] = json.loads(native.json())

    @cached_property
    def flows(self) -> pa.Table:
        """A row a variant, flow and ``quantity`` of :attr:`Run.summary`, with its value in ``a`` and in ``b``, null where there
        is none, and the ``difference``: the second less the first.
        """
        return self._table("flow")

    @cached_property
    def links(self) -> pa.Table:
        """The same of links, and the quantities of :attr:`Run.link_summary`."""
        return self._table("link")

    def draw(self, folder: Path) -> list[str]:
        """Draws the two over each other, as pages and pictures, and answers the files."""
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
    """Two results beside each other, variant by variant, flow by flow, link by link. A variant is laid beside that of the same
    name, and a single one beside a single one, whatever they are called.

    >>> print(tollway.compare(scenario.run(), faster.run(), names=("slow", "fast")))

    :param a: a result, a run of it, or a folder that ``tollway run --out`` has written.
    :param b: the same.
    :param names: what the two are called; folders have their own names if both are folders.
    :raises ScenarioError: they have no variant in common, or a folder has no tables.
    """
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"names are {names!r}; give two that differ")
    return Comparison(_native.Comparison((names[0], _side(a)), (names[1], _side(b))))


def _side(of: Results | Run | Path) -> str | Sequence[tuple[str, dict[str, bytes]]]:
    if isinstance(of, Results):
        return [run._tables() for run in of.values()]
    return [of._tables()] if isinstance(of, Run) else os.fspath(of)
