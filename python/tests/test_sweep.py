from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pytest
from conftest import WIRE

import tollway

VARY = {"link.wire.rate": ["5 Mbps", "10 Mbps"], "flow.*.initial-window": [2, 10]}


@pytest.fixture(scope="module")
def scenario():
    return tollway.Scenario(WIRE, file="wire.toml")


@pytest.fixture(scope="module")
def swept(scenario):
    return tollway.sweep(scenario, VARY, seeds=2)


def test_it_is_the_commands(command, tmp_path, swept):
    file = tmp_path / "wire.toml"
    file.write_text(WIRE)
    out = tmp_path / "swept.arrow"
    vary = ["link.wire.rate=5 Mbps,10 Mbps", "flow.*.initial-window=2,10"]
    command("sweep", file, "--vary", vary[0], "--vary", vary[1], "--seeds", 2, "--out", out)
    for ours, path in [(swept.flows, out), (swept.links, tmp_path / "swept.links.arrow")]:
        with pa.OSFile(str(path)) as opened:
            theirs = pa.ipc.open_file(opened).read_all()
        assert ours.column_names == theirs.column_names
        assert ours.to_pylist() == theirs.to_pylist()
        assert ours.column_names[0] == "link.wire.rate_mbps" and ours["link.wire.rate_mbps"][0].as_py() == 5.0


def test_it_is_the_same_on_any_executor(scenario, swept):
    with ThreadPoolExecutor(3) as threads:
        assert tollway.sweep(scenario, VARY, seeds=2, executor=threads).flows.equals(swept.flows)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        assert tollway.sweep(scenario, VARY, seeds=2, executor=processes).flows.equals(swept.flows)


def test_it_is_the_same_on_dask(scenario, swept):
    from distributed import Client

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as client:
        again = tollway.sweep(scenario, VARY, seeds=2, executor=client.get_executor())
    assert again.flows.equals(swept.flows) and again.links.equals(swept.links)


def test_seeds_may_be_named_and_progress_is_told(scenario):
    told = []
    swept = tollway.sweep(scenario.only("long"), seeds=[9, 3], progress=lambda done, of: told.append((done, of)))
    assert swept.flows["seed"].to_pylist() == [9, 9, 3, 3]
    assert swept.flows.column_names[:3] == ["variant", "seed", "flow"]
    assert told == [(1, 2), (2, 2)]


def test_every_point_is_checked_before_any_runs(scenario):
    class Never(ThreadPoolExecutor):
        def submit(self, *_, **__):
            raise AssertionError("something ran")

    with pytest.raises(tollway.ScenarioError, match="10 Mbqs"):
        tollway.sweep(scenario, {"link.wire.rate": ["5 Mbps", "10 Mbqs"]}, executor=Never())
    for vary, seeds, why in [
        ({"seed": [1, 2]}, 1, "seeds are varied"),
        ({"link.wire.rate": []}, 1, "varies over no values"),
        ({"link.wire.rate": ["5 Mbps", "5 Mbps"]}, 1, "is given twice"),
        ({}, 0, "no seeds"),
    ]:
        with pytest.raises(ValueError, match=why):
            tollway.sweep(scenario, vary, seeds=seeds, executor=Never())


def test_columns_hold_what_was_given(scenario):
    short = scenario.only("long").with_sets({"duration": "1100 ms"})
    columns = tollway.sweep(short, {"flow.f.start": [{"random": "1 s"}, "0 s"], "flow.g.size": [2**53, 2**53 + 1]}).flows
    assert set(columns["flow.f.start"].to_pylist()) == {'{"random" = "1 s"}', "0 s"}
    assert set(columns["flow.g.size"].to_pylist()) == {str(2**53), str(2**53 + 1)}
    assert tollway.sweep(short, {"flow.g.size": [2**53, 10**6]}).flows.schema.field("flow.g.size").type == "double"
