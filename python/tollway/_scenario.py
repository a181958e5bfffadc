"""Scenarios as objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from tollway import _native
from tollway._laws import Laws, given
from tollway._results import Results
from tollway._words import word


class Scenario:
    """A checked scenario: what ``tollway run`` reads from a file. It never changes.

    :param text: TOML, as in a scenario file.
    :param file: what messages call it; files that it names are looked for beside it.
    :param sets: keys set otherwise in every variant, as ``--set`` does: ``{"link.bottleneck.rate": "20 Mbps"}``. A string is
        taken as ``--set`` takes it, numbers, booleans, lists and tables are what they are; ``*`` in a key stands for every name.
    :raises ScenarioError: with every mistake, its line, a caret and what was probably meant.
    """

    def __init__(
        self, text: str, *, file: str | os.PathLike[str] = "scenario.toml", sets: Mapping[str, Any] | None = None
    ) -> None:
        self._make(text, os.fspath(file), _sets(sets), ())

    def _make(self, text: str, file: str, sets: tuple[str, ...], only: tuple[str, ...]) -> Scenario:
        self._parts = (text, file, sets, only)
        self._native = _native.Scenario(text, file, list(sets), list(only))
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, sets: Mapping[str, Any] | None = None) -> Scenario:
        """Reads a scenario file.

        :raises OSError: there is no such file, or it cannot be read.
        :raises ScenarioError: it is no scenario.
        """
        with open(path, "rb"):
            pass  # What the system says is an OSError here as elsewhere in Python.
        text = _native.read(os.fspath(path))
        return cls(text, file=path, sets=sets)

    @classmethod
    def from_dict(
        cls,
        tables: Mapping[str, Any],
        *,
        file: str | os.PathLike[str] = "scenario.toml",
        sets: Mapping[str, Any] | None = None,
    ) -> Scenario:
        """A scenario put together in Python, table by table: ``{"name": "wire", "node": {"a": {}, "b": {}}, …}``."""
        return cls(_native.toml_of(json.dumps(tables, allow_nan=False)), file=file, sets=sets)

    def with_sets(self, sets: Mapping[str, Any]) -> Scenario:
        """The same with further keys set; of two that set the same, the later counts."""
        text, file, before, only = self._parts
        return Scenario.__new__(Scenario)._make(text, file, before + _sets(sets), only)

    def only(self, *variants: str) -> Scenario:
        """The same with these variants and no others."""
        text, file, sets, _ = self._parts
        return Scenario.__new__(Scenario)._make(text, file, sets, variants)

    @property
    def text(self) -> str:
        """The TOML that it was made of, without what was set since."""
        return self._parts[0]

    @property
    def file(self) -> str:
        """What messages call it."""
        return self._parts[1]

    @property
    def name(self) -> str:
        """The name that the file gives itself."""
        return self._native.name

    @property
    def title(self) -> str:
        """What is written over tables and plots."""
        return self._native.title

    @property
    def seed(self) -> int:
        """Where its randomness begins."""
        return self._native.seed

    @property
    def duration_s(self) -> float:
        """Simulated time in seconds."""
        return self._native.duration

    @property
    def variants(self) -> list[str]:
        """The variants' names in the file's order; ``[""]`` for a file that has none."""
        return self._native.variants

    @property
    def notes(self) -> list[str]:
        """What was made of the file, as far as a reader should know."""
        return self._native.notes

    def run(
        self,
        *,
        seed: int | None = None,
        engine: Literal["sim", "live"] = "sim",
        jobs: int = 0,
        digest: Literal["results", "packets"] = "results",
        progress: Callable[[list[float]], Any] | None = None,
        laws: Laws | None = None,
    ) -> Results:
        """Runs every variant.

        The same scenario and seed give the same results to the bit, on any machine and for any number of threads. The
        interpreter is free meanwhile, so that threads run scenarios beside each other; Ctrl-C ends the run.

        :param seed: in place of the scenario's.
        :param engine: ``"sim"`` simulates; ``"live"`` sends real packets over loopback, in real time.
        :param jobs: how many variants run at once; 0 is as many as there are processors.
        :param digest: what digests cover: counters and rows of tables, or every packet on every link (``--digest packets``).
        :param progress: called about ten times a second with the share of each variant that is over, 0 to 1. What it raises
            ends the run.
        :param laws: laws of one's own, in place of the file's: under ``"flow.NAME"`` or ``"workload.NAME"`` a :class:`SenderLaw`,
            under ``"link.NAME"`` or ``"link.NAME.reverse"`` a :class:`LinkLaw`, under ``"switch.NAME"`` a :class:`Route`; ``*``
            stands for every name. Each is a class, called once for each flow, link or session, in every variant. Variants then run one after the other unless ``jobs`` says
            otherwise: Python asks one law at a time.
        :raises ScenarioError: the engine cannot run this, the interval tables would not fit into memory, or there is nothing
            that a law was given for.
        :raises RunError: the run failed; what a law raised is its cause.
        """
        if jobs < 0:
            raise ValueError(f"jobs is {jobs}; 0 is as many as there are processors")
        chosen = self if seed is None else self.with_sets({"seed": seed})
        account, text, tables = chosen._native.run(engine, digest, jobs, progress, given(laws))
        return Results(json.loads(account), text, tables)

    def theory(self) -> dict[str, Any]:
        """What flows should get by the allocations that laws aim at, in Mb/s: what ``tollway theory --json`` prints.

        :raises ScenarioError: no allocation follows, as for flows of a workload.
        """
        return json.loads(self._native.theory())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_again, self._parts)

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, Scenario) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        variants = [name for name in self.variants if name]
        return f"<tollway.Scenario {self.name!r}" + (f", variants {', '.join(variants)}>" if variants else ">")


def _again(text: str, file: str, sets: tuple[str, ...], only: tuple[str, ...]) -> Scenario:
    return Scenario.__new__(Scenario)._make(text, file, sets, only)


def _sets(sets: Mapping[str, Any] | None) -> tuple[str, ...]:
    return tuple(f"{key}={word(value, key)}" for key, value in (sets or {}).items())
