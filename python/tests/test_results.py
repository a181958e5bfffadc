import json
import pickle

import pyarrow as pa
import pytest
from conftest import ROOT, WIRE

import tollway

TIMES = {"setup_s", "run_cpu_s", "run_wall_s", "peak_rss_bytes", "runs"}


def timeless(account):
    runs = [{k: v for k, v in run.items() if k not in TIMES} for run in account["runs"]]
    return {k: v for k, v in account.items() if k not in TIMES} | {"runs": runs}


@pytest.fixture(scope="module")
def results():
    return tollway.Scenario(WIRE, file="wire.toml").run()


@pytest.mark.parametrize("file", ["quickstart", "fcp/tenants", "web"])
def test_they_are_the_commands(command, tmp_path, file):
    path = ROOT / f"scenarios/{file}.toml"
    account = json.loads(command("run", path, "--json", "--out", tmp_path, "--seed", 3))
    results = tollway.Scenario.load(path).run(seed=3)
    assert timeless(results.account) == timeless(account)
    for name, run in results.items():
        for table in ("flows", "links", "control", "hops", "summary", "link_summary"):
            with pa.OSFile(str(tmp_path / name / f"{table}.arrow")) as file:
                written = pa.ipc.open_file(file).read_all()
            ours = getattr(run, table)
            assert ours.column_names == written.column_names
            assert ours.to_pylist() == written.to_pylist(), (name, table)


def test_digests_do_not_depend_on_jobs():
    scenario = tollway.Scenario(WIRE)
    one, two = (scenario.run(jobs=jobs, digest="packets") for jobs in (1, 2))
    assert [run.digest for run in one.values()] == [run.digest for run in two.values()]
    assert one["short"].digest != scenario.run()["short"].digest
    assert one["short"].digest != scenario.run(seed=99, digest="packets")["short"].digest


def test_tables_are_arrow(results):
    flows = results["short"].flows
    assert isinstance(flows, pa.Table)
    assert flows.schema.field("flow").type == pa.string()
    assert sorted(set(flows["flow"].to_pylist())) == ["f", "g"]
    assert flows["time_s"].to_pylist()[-1] == 3.0
    frame = flows.to_pandas()
    assert frame.rate_mbps.sum() > 0
    assert results["short"].links.num_rows > 0


def test_all_runs_in_one_table(results):
    summary = results.table("summary")
    assert summary.column_names[:2] == ["variant", "flow"]
    assert summary["variant"].to_pylist() == ["short", "short", "long", "long"]
    with pytest.raises(ValueError, match="no table 'flow'; there are flows, links"):
        results.table("flow")
    lonely = tollway.Scenario(WIRE).only("long").run()
    assert lonely.run.variant == "long"


def test_they_are_plotted(results, tmp_path):
    for ending, start in [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")]:
        path = tmp_path / f"figure.{ending}"
        figure = results.plot(path)
        assert path.read_bytes().startswith(start)
    assert ">long<" in figure._repr_svg_()
    with pytest.raises(tollway.RunError, match="x.gif"):
        figure.save("x.gif")


def test_they_are_found_by_name(results):
    assert list(results) == ["short", "long"] and len(results) == 2
    with pytest.raises(KeyError, match="no variant 'xcp'; there are 'short', 'long'"):
        results["xcp"]
    with pytest.raises(ValueError, match="several runs"):
        _ = results.run
    assert "short" in str(results) and "Mb/s" in str(results)
    assert "wire" in repr(results)


def test_a_run_can_be_pickled(results):
    run = pickle.loads(pickle.dumps(results["long"]))
    assert run.flows.equals(results["long"].flows)
    assert run.info == results["long"].info


def test_real_packets():
    results = tollway.Scenario(WIRE, sets={"duration": "1 s"}).only("long").run(engine="live")
    assert results.run.digest is None
    assert results.account["engine"] == "live"
    assert sum(results.run.summary["delivered_bytes"].to_pylist()) > 0
