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
    """A checked scenario, as in a file for ``tollway run``. It is immutable.

    :param text: TOML, as in a scenario file.
    :param file: the file's name in messages. Files that the scenario names are relative to its folder.
    :param sets: keys to set in every variant, as with ``--set``: ``{"link.bottleneck.rate": "20 Mbps"}``. A string has the
        syntax of ``--set``. Numbers, booleans, lists and dicts are TOML values. ``*`` in a key matches every name.
    :raises ScenarioError: the scenario has errors. The message has each with its line, a caret and a suggestion.
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

        :raises OSError: the file does not exist or cannot be read.
        :raises ScenarioError: the file is not a valid scenario.
        """
        with open(path, "rb"):
            pass  # A file that cannot be opened raises Python's usual OSError.
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
        """Makes a scenario from dicts, one per TOML table: ``{"name": "wire", "node": {"a": {}, "b": {}}, …}``."""
        return cls(_native.toml_of(json.dumps(tables, allow_nan=False)), file=file, sets=sets)

    def with_sets(self, sets: Mapping[str, Any]) -> Scenario:
        """Returns a copy with further keys set. A later value of a key replaces an earlier one."""
        text, file, before, only = self._parts
        return Scenario.__new__(Scenario)._make(text, file, before + _sets(sets), only)

    def only(self, *variants: str) -> Scenario:
        """Returns a copy with these variants only."""
        text, file, sets, _ = self._parts
        return Scenario.__new__(Scenario)._make(text, file, sets, variants)

    @property
    def text(self) -> str:
        """The TOML text, without the keys that ``sets`` or :meth:`with_sets` changed."""
        return self._parts[0]

    @property
    def file(self) -> str:
        """The file's name in messages."""
        return self._parts[1]

    @property
    def name(self) -> str:
        """The key ``name`` of the file."""
        return self._native.name

    @property
    def title(self) -> str:
        """The title of tables and plots."""
        return self._native.title

    @property
    def seed(self) -> int:
        """The seed of all random numbers of a run."""
        return self._native.seed

    @property
    def duration_s(self) -> float:
        """The length of a run, simulated seconds."""
        return self._native.duration

    @property
    def variants(self) -> list[str]:
        """The variants' names in the file's order, or ``[""]`` if the file has no variants."""
        return self._native.variants

    @property
    def notes(self) -> list[str]:
        """Notes on values that were assumed or ignored when the file was read."""
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

        Simulations of the same scenario and seed give bit-identical results, on any machine and with any number of threads. The
        interpreter's lock is free during a run, so that several threads can run scenarios in parallel. Ctrl-C ends the run.

        :param seed: replaces the scenario's seed.
        :param engine: ``"sim"`` simulates; ``"live"`` sends real packets over loopback, in real time.
        :param jobs: the number of variants that run in parallel; 0 is the number of processors.
        :param digest: the content of digests: ``"results"`` for counters and rows of tables, ``"packets"`` for every packet on
            every link.
        :param progress: called about ten times per second with the completed fraction of each variant, 0 to 1. An exception in
            it ends the run.
        :param laws: your own laws, which replace the file's: a :class:`SenderLaw` for ``"flow.NAME"`` or ``"workload.NAME"``, a
            :class:`LinkLaw` for ``"link.NAME"`` or ``"link.NAME.reverse"``, a :class:`Route` for ``"switch.NAME"``. ``*`` matches
            every name. Each is a class, called once for each flow, link or session, in every variant. Only one law in Python
            runs at a time, so variants then run one after another unless ``jobs`` is set.
        :raises ScenarioError: the engine does not support the scenario, the interval tables would not fit into memory, or a
            law's key matches nothing.
        :raises RunError: the run failed. If a law raised an exception, it is the cause.
        """
        if jobs < 0:
            raise ValueError(f"jobs is {jobs}; 0 is as many as there are processors")
        chosen = self if seed is None else self.with_sets({"seed": seed})
        account, text, tables = chosen._native.run(engine, digest, jobs, progress, given(laws))
        return Results(json.loads(account), text, tables)

    def theory(self) -> dict[str, Any]:
        """The ideal rates of all flows, Mb/s, by the allocations that laws aim at: the object of ``tollway theory --json``.

        :raises ScenarioError: theory has no answer, for example with flows of a workload.
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
