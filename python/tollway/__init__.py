"""Explicit rate control for ensembles of flows.

A :class:`Scenario` is checked when it is made. The engines of the command ``tollway run`` run it, with bit-identical results:

>>> import tollway
>>> scenario = tollway.Scenario.load("scenarios/quickstart.toml")
>>> results = scenario.with_sets({"link.bottleneck.rate": "20 Mbps"}).run()
>>> results["xcp"].flows.to_pandas()

Your own law, a :class:`SenderLaw` or :class:`LinkLaw`, can replace a law of the file:

>>> scenario.run(laws={"flow.f": MyLaw})

:func:`sweep` runs a scenario with many values and seeds, on threads, processes, Dask, or any other ``concurrent.futures``
executor. :func:`reproduce` runs the papers' experiments and judges their claims. :func:`compare` compares two results. Tables
are ``pyarrow.Table``. Their columns are those of the command's tables, with units in the names.

An :class:`Emulation` is a network for unmodified programs, for the tests of an application.
"""

from tollway._emulation import Emulation
from tollway._laws import LinkLaw, Route, SenderLaw
from tollway._native import (
    Acked,
    Candidate,
    Carrying,
    Delivery,
    EmulationError,
    Flight,
    Item,
    NotAllowedError,
    Passing,
    RunError,
    ScenarioError,
    Sending,
    Spreading,
    Verdict,
    __version__,
)
from tollway._papers import Comparison, Reproduced, compare, experiments, reproduce
from tollway._results import Figure, Results, Run
from tollway._scenario import Scenario
from tollway._sweep import Sweep, sweep

__all__ = [
    "Acked",
    "Candidate",
    "Carrying",
    "Comparison",
    "Delivery",
    "Emulation",
    "EmulationError",
    "Flight",
    "Item",
    "LinkLaw",
    "NotAllowedError",
    "Passing",
    "Reproduced",
    "Figure",
    "Results",
    "Route",
    "Run",
    "RunError",
    "Scenario",
    "ScenarioError",
    "SenderLaw",
    "Sending",
    "Spreading",
    "Sweep",
    "Verdict",
    "__version__",
    "compare",
    "experiments",
    "reproduce",
    "sweep",
]
