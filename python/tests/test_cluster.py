import importlib.util

import pytest
import yaml
from conftest import ROOT

import tollway


@pytest.fixture(scope="module")
def client():
    from distributed import Client

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
def cluster():
    spec = importlib.util.spec_from_file_location("cluster", ROOT / "python/examples/cluster.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_sweep_has_ten_thousand_runs(client, cluster):
    vary = cluster.VARY
    assert len(vary["flow.f.law"]) * len(vary["link.bottleneck.limit"]) * 100 == 10_000
    few = {key: values[:2] for key, values in vary.items()}
    swept = cluster.sweep(client, few, 1)
    # 2 laws, 2 lengths, 4 flows; at a tenth of a product the link is not full, and at two products it is.
    assert swept.flows.num_rows == 16
    assert swept.flows.equals(tollway.sweep(tollway.Scenario(cluster.SCENARIO), few).flows)
    # Every law and length is known: all points are checked before the first runs.
    for law in vary["flow.f.law"]:
        tollway.Scenario(cluster.SCENARIO).with_sets({"flow.f.law": law, "link.bottleneck.limit": "2.0 BDP"})


def test_experiments_are_tasks(client, cluster):
    names = ["xcp/step", "xcp/validation"]
    found = cluster.reproduce(client, *names, neighbours=0)
    for name, outcome in zip(names, found):
        assert outcome.claims.equals(tollway.reproduce(name, neighbours=0).claims)


def test_the_manifests_policies_are_checked(command, tmp_path):
    policies, daemons = yaml.safe_load_all((ROOT / "share/kubernetes/shape.yaml").read_text())
    file = tmp_path / "policies.toml"
    file.write_text(policies["data"]["policies.toml"])
    said = command("shape", "check", file)
    assert all(tenant in said for tenant in ("guaranteed", "burstable", "best-effort")), said
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    # The version is the package's, and every argument exists.
    assert container["image"] == f"tollway:{tollway.__version__}"
    shape = command(container["args"][0], "--help")
    assert all(word in shape for word in container["args"] if word.startswith("--"))
