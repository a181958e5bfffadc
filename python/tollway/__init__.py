"""Explicit rate control for ensembles of flows.

A :class:`Scenario` is checked as it is made, and run by the same engines as the command ``tollway run``, to the same bits:

>>> import tollway
>>> scenario = tollway.Scenario.load("scenarios/quickstart.toml")
>>> results = scenario.with_sets({"link.bottleneck.rate": "20 Mbps"}).run()
>>> results["xcp"].flows.to_pandas()

A law of one's own, a :class:`SenderLaw` or :class:`LinkLaw`, takes the place of a file's:

>>> scenario.run(laws={"flow.f": MyLaw})

:func:`sweep` runs one many times, on threads, processes, Dask, or any other ``concurrent.futures`` executor. :func:`reproduce`
runs papers' experiments and judges their claims, :func:`compare` lays two results beside each other. Tables are
``pyarrow.Table``; their columns, with units in the names, are those of the command's.
"""

from tollway._laws import LinkLaw, Route, SenderLaw
from tollway._native import (
    Acked,
    Candidate,
    Carrying,
    Delivery,
    Flight,
    Item,
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
    "Flight",
    "Item",
    "LinkLaw",
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
