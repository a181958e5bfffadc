"""The results of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from tollway import _native


class Run:
    """The results of one variant's run.

    The tables are those of ``tollway run --out``; *Reading results* in the manual describes every column. A time is the end of
    its interval, and rates are in Mb/s at the link layer. A null means that the value does not exist.
    """

    def __init__(self, info: dict[str, Any], streams: dict[str, bytes]) -> None:
        self.info = info
        self._streams = streams

    @cached_property
    def flows(self) -> pa.Table:
        """One row per flow and interval (``measure.interval``)."""
        return read(self._streams["flows"])

    @cached_property
    def links(self) -> pa.Table:
        """One row per link direction and interval."""
        return read(self._streams["links"])

    @cached_property
    def control(self) -> pa.Table:
        """One row per control interval, for links whose law has control intervals."""
        return read(self._streams["control"])

    @cached_property
    def hops(self) -> pa.Table:
        """One row per direction of an overlay's hop and interval."""
        return read(self._streams["hops"])

    @cached_property
    def summary(self) -> pa.Table:
        """One row per flow, for the whole run."""
        return read(self._streams["summary"])

    @cached_property
    def link_summary(self) -> pa.Table:
        """One row per link direction, for the whole run."""
        return read(self._streams["link_summary"])

    @property
    def variant(self) -> str:
        """The variant's name; empty if the scenario has no variants."""
        return self.info["variant"]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.info["seed"]

    @property
    def digest(self) -> str | None:
        """A hash of the results, equal for identical runs on any machine; ``None`` for real packets."""
        return self.info["digest"]

    @property
    def packet_hops(self) -> int:
        """The number of packet transmissions, summed over links."""
        return self.info["packet_hops"]

    @property
    def deviation(self) -> dict[str, Any] | None:
        """The deviation of the steady state from the laws' aim; ``None`` if they have no aim."""
        return self.info["deviation"]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """Further tables, by name: queues by class, meters, policies, hosts and others."""
        return {name: pa.Table.from_pylist(rows) for name, rows in self.info["tables"].items()}

    def _tables(self) -> tuple[str, dict[str, bytes]]:
        """The variant's name and its tables, for the native module."""
        return self.variant, self._streams

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        return self.info, self._streams

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, bytes]]) -> None:
        self.info, self._streams = state

    def __repr__(self) -> str:
        name = f" {self.variant!r}" if self.variant else ""
        return f"<tollway.Run{name}, seed {self.seed}, {self.info['duration_s']:g} s, {self.packet_hops} packet-hops>"


class Results(Mapping[str, Run]):
    """A scenario's runs by the names of its variants, in the file's order. ``print`` shows the tables of ``tollway run``."""

    def __init__(self, account: dict[str, Any], text: str, streams: list[dict[str, bytes]]) -> None:
        #: The object that ``tollway run --json`` prints.
        self.account = account
        self._text = text
        self._runs = {info["variant"]: Run(info, tables) for info, tables in zip(account["runs"], streams, strict=True)}

    @property
    def run(self) -> Run:
        """The only run, of a scenario with at most one variant.

        :raises ValueError: the scenario has several variants.
        """
        if len(self._runs) > 1:
            raise ValueError(f"there are several runs; choose one by its name: {', '.join(self._runs)}")
        return next(iter(self._runs.values()))

    def table(self, name: str) -> pa.Table:
        """One table with the rows of all runs, and a first column ``variant`` if there are variants.

        :param name: ``"flows"``, ``"links"``, ``"control"``, ``"hops"``, ``"summary"`` or ``"link_summary"``.
        """
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        return stack([({"variant": run.variant} if run.variant else {}, getattr(run, name)) for run in self.values()])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The plots of ``tollway run --out``, which a notebook displays.

        :param path: a file to write as well. Its ending, PNG, SVG or PDF, selects the format.
        :raises RunError: the file cannot be written, or its ending is of no known format.
        """
        figure = Figure(self.account["title"], [run._tables() for run in self.values()])
        if path is not None:
            figure.save(path)
        return figure

    def __getitem__(self, variant: str) -> Run:
        try:
            return self._runs[variant]
        except KeyError:
            known = ", ".join(map(repr, self._runs))
            raise KeyError(f"there is no variant {variant!r}; there are {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tollway.Results of {self.account['scenario']!r}: {', '.join(map(repr, self.values()))}>"


class Figure:
    """Plots of a scenario's runs."""

    def __init__(self, title: str, runs: list[tuple[str, dict[str, bytes]]]) -> None:
        self._title = title
        self._runs = runs

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plots to a file. Its ending, PNG, SVG or PDF, selects the format."""
        _native.plot(self._title, self._runs, os.fspath(path))

    def _repr_svg_(self) -> str | None:
        return _native.plot(self._title, self._runs, None)

    def __repr__(self) -> str:
        return f"<tollway.Figure of {self._title!r}>"


#: The names of a run's tables.
TABLES = ("flows", "links", "control", "hops", "summary", "link_summary")


def read(stream: bytes) -> pa.Table:
    """Reads a table in Arrow's stream format, with dictionary columns as plain text."""
    table = pa.ipc.open_stream(stream).read_all()
    plain = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(plain))


def stack(parts: list[tuple[dict[str, Any], pa.Table]]) -> pa.Table:
    """Concatenates tables with the same columns, and adds constant columns at the front of each."""
    types = {key: pa.scalar(value).type for key, value in parts[0][0].items()} if parts else {}
    tables = []
    for front, table in parts:
        for at, (key, value) in enumerate(front.items()):
            table = table.add_column(at, pa.field(key, types[key], False), pa.repeat(pa.scalar(value, types[key]), len(table)))
        tables.append(table)
    return pa.concat_tables(tables)
