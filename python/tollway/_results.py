"""What runs leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from tollway import _native


class Run:
    """One variant's run: tables, and what it took.

    Tables are as in the command's files; *Reading results* in the manual has every column. A time is the end of its
    interval, rates are at the link layer in Mb/s, a null is a number that doesn't exist.
    """

    def __init__(self, info: dict[str, Any], streams: dict[str, bytes]) -> None:
        self.info = info
        self._streams = streams

    @cached_property
    def flows(self) -> pa.Table:
        """A row a flow an interval of ``measure.interval``."""
        return read(self._streams["flows"])

    @cached_property
    def links(self) -> pa.Table:
        """A row a link direction an interval."""
        return read(self._streams["links"])

    @cached_property
    def control(self) -> pa.Table:
        """A row a control interval of a link whose law keeps one."""
        return read(self._streams["control"])

    @cached_property
    def hops(self) -> pa.Table:
        """A row a direction of an overlay's hop an interval."""
        return read(self._streams["hops"])

    @cached_property
    def summary(self) -> pa.Table:
        """A row a flow, at the end."""
        return read(self._streams["summary"])

    @cached_property
    def link_summary(self) -> pa.Table:
        """A row a link direction, at the end."""
        return read(self._streams["link_summary"])

    @property
    def variant(self) -> str:
        """The variant's name; empty if the scenario has none."""
        return self.info["variant"]

    @property
    def seed(self) -> int:
        """What it ran with."""
        return self.info["seed"]

    @property
    def digest(self) -> str | None:
        """The same wherever the same ran; ``None`` for real packets."""
        return self.info["digest"]

    @property
    def packet_hops(self) -> int:
        """Transmissions over a link."""
        return self.info["packet_hops"]

    @property
    def deviation(self) -> dict[str, Any] | None:
        """How far it came to rest from what its laws aim at, if they aim at anything."""
        return self.info["deviation"]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables of the systems that ran, by name: queues by class, meters, policies, hosts and others."""
        return {name: pa.Table.from_pylist(rows) for name, rows in self.info["tables"].items()}

    def _tables(self) -> tuple[str, dict[str, bytes]]:
        """What the native module compares."""
        return self.variant, self._streams

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        return self.info, self._streams

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, bytes]]) -> None:
        self.info, self._streams = state

    def __repr__(self) -> str:
        name = f" {self.variant!r}" if self.variant else ""
        return f"<tollway.Run{name}, seed {self.seed}, {self.info['duration_s']:g} s, {self.packet_hops} packet-hops>"


class Results(Mapping[str, Run]):
    """A scenario's runs by the names of its variants, in the file's order. Printed, they are the tables that ``tollway run``
    prints.
    """

    def __init__(self, account: dict[str, Any], text: str, streams: list[dict[str, bytes]]) -> None:
        #: The object that ``tollway run --json`` prints.
        self.account = account
        self._text = text
        self._runs = {info["variant"]: Run(info, tables) for info, tables in zip(account["runs"], streams, strict=True)}

    @property
    def run(self) -> Run:
        """The run of a scenario that has one variant, or none.

        :raises ValueError: there are several.
        """
        if len(self._runs) > 1:
            raise ValueError(f"there are several runs; choose one by its name: {', '.join(self._runs)}")
        return next(iter(self._runs.values()))

    def table(self, name: str) -> pa.Table:
        """One table of all runs together, with a column ``variant`` at the front if there are variants.

        :param name: ``"flows"``, ``"links"``, ``"control"``, ``"hops"``, ``"summary"`` or ``"link_summary"``.
        """
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        return stack([({"variant": run.variant} if run.variant else {}, getattr(run, name)) for run in self.values()])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """The plots that ``tollway run --out`` draws. A notebook shows them.

        :param path: where they are also written, as PNG, SVG or PDF by its ending.
        :raises RunError: the file can't be written, or its ending is no picture's.
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
        """Writes them to a file, as PNG, SVG or PDF by its ending."""
        _native.plot(self._title, self._runs, os.fspath(path))

    def _repr_svg_(self) -> str | None:
        return _native.plot(self._title, self._runs, None)

    def __repr__(self) -> str:
        return f"<tollway.Figure of {self._title!r}>"


#: The tables of a run.
TABLES = ("flows", "links", "control", "hops", "summary", "link_summary")


def read(stream: bytes) -> pa.Table:
    """The table in Arrow's stream format, text as plain text."""
    table = pa.ipc.open_stream(stream).read_all()
    plain = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(plain))


def stack(parts: list[tuple[dict[str, Any], pa.Table]]) -> pa.Table:
    """Tables of the same columns over each other, each with columns in front that hold one value."""
    types = {key: pa.scalar(value).type for key, value in parts[0][0].items()} if parts else {}
    tables = []
    for front, table in parts:
        for at, (key, value) in enumerate(front.items()):
            table = table.add_column(at, pa.field(key, types[key], False), pa.repeat(pa.scalar(value, types[key]), len(table)))
        tables.append(table)
    return pa.concat_tables(tables)
