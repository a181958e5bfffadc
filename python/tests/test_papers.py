import json
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from conftest import ROOT, WIRE

import tollway

CLAIM = (
    WIRE
    + """
[neighbourhood]
seeds = 1
settings = { "link.wire.limit" = ["2 BDP"] }
[[claim]]
id = "mine.used"
says = "the link is used"
source = "nobody"
variant = "*"
metric = "utilisation"
link = "wire"
at-least = 0.8
[[claim]]
id = "mine.impossible"
says = "and more than that"
variant = "long"
metric = "utilisation"
link = "wire"
at-least = 1.5
[[plot]]
title = "Rate (Mb/s)"
y = "rate_mbps"
"""
)


@pytest.fixture()
def papers(tmp_path):
    folder = tmp_path / "papers/mine"
    folder.mkdir(parents=True)
    (folder / "wire.toml").write_text(CLAIM.replace('name = "wire"', 'name = "mine/wire"'))
    return tmp_path / "papers"


def test_experiments_are_the_commands(command):
    names = tollway.experiments()
    assert names == [line.split()[0] for line in command("reproduce", "--list").splitlines()]
    assert names == tollway.experiments(ROOT / "papers")
    with pytest.raises(tollway.ScenarioError, match="there are no experiments in"):
        tollway.experiments(ROOT / "docs")


def test_claims_are_the_commands(command, papers, tmp_path):
    told = []
    out = tmp_path / "out"
    found = tollway.reproduce("mine", papers=papers, out=out, progress=lambda done, of: told.append((done, of)))
    binary = ROOT / "target/debug/tollway"
    words = ["reproduce", "mine", "--papers", papers, "--json", "--out", out]
    theirs = json.loads(subprocess.run([binary, *words], capture_output=True, text=True).stdout)["claims"]
    ours = found.claims.to_pylist()
    assert [{key: row[key] for key in theirs[0]} for row in ours] == theirs
    assert found.claims.column_names[:6] == ["experiment", "id", "says", "status", "expected", "measured"]
    assert {row["experiment"] for row in ours} == {"mine/wire"} and ours[0]["says"] == "the link is used"
    # Another seed leaves every number as it is, and so has no vote.
    assert [[at["at"] for at in row["neighbours"]] for row in ours] == [["link.wire.limit = 2 BDP"]] * 3
    assert found.unmet == ["mine.impossible"] and found.fragile == []
    assert repr(found) == "<tollway.Reproduced: 2 met, 0 fragile, 1 unmet, 0 skipped>"
    assert [path.rpartition(".")[2] for path in found.figures] == ["html", "png"] and told == [(1, 1)]
    quick = tollway.reproduce("mine/wire", papers=papers, neighbours=0)
    assert quick.claims["neighbours"].to_pylist() == [[]] * 3 and quick.claims["neighbourhood"].to_pylist() == [2, 2, 2]


def test_what_is_wrong_with_experiments_is_told(papers):
    with pytest.raises(tollway.ScenarioError, match="there is no experiment `mime`(.|\n)*did you mean `mine`"):
        tollway.reproduce("mime", papers=papers)
    (papers / "mine/worse.toml").write_text(WIRE.replace("rate =", "rat ="))
    with pytest.raises(tollway.ScenarioError, match="did you mean `rate`"):
        tollway.reproduce(papers=papers)
    with pytest.raises(ValueError, match="neighbours is -1"):
        tollway.reproduce("mine", papers=papers, neighbours=-1)


def test_ctrl_c_ends_an_experiment(papers):
    file = papers / "mine/wire.toml"
    file.write_text(file.read_text().replace('"3 s"', '"40000 s"').replace('"500 ms"', '"none"'))
    code = f"""
import threading, tollway
threading.Timer(0.5, lambda: print("goes", flush=True)).start()
try:
    tollway.reproduce("mine", papers={str(papers)!r})
except KeyboardInterrupt:
    print("ended")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "goes\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().splitlines() == ["ended"]


def test_two_results_are_compared_as_by_the_command(command, tmp_path):
    file = tmp_path / "wire.toml"
    file.write_text(WIRE)
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    command("run", file, "--out", slow)
    command("run", file, "--out", fast, "--set", "link.wire.rate=20 Mbps")
    theirs = json.loads(command("compare", slow, fast, "--json"))
    of_folders = tollway.compare(slow, fast)
    assert of_folders.account == theirs
    scenario = tollway.Scenario(WIRE)
    faster = scenario.with_sets({"link.wire.rate": "20 Mbps"})
    of_results = tollway.compare(scenario.run(), faster.run(), names=("slow", "fast"))
    assert [pair["variant"] for pair in of_results.account["variants"]] == ["short", "long"], "the file's order"
    mixed = tollway.compare(slow, faster.run(), names=("slow", "fast"))
    for ours in (of_results, mixed):
        pairs = sorted(ours.account["variants"], key=lambda pair: pair["variant"])
        assert ours.account | {"variants": pairs} == theirs
    assert str(mixed) == str(of_folders) and command("compare", slow, fast).startswith(str(of_folders))
    flows = of_results.flows
    assert flows.column_names == ["variant", "flow", "quantity", "a", "b", "difference"]
    assert flows.schema.field("difference").type == pa.float64()
    rates = [row for row in flows.to_pylist() if row["quantity"] == "rate_mbps" and row["variant"] == "long"]
    assert [row["flow"] for row in rates] == ["f", "g"]
    assert all(row["difference"] == row["b"] - row["a"] for row in rates) and sum(row["difference"] for row in rates) > 5
    assert {row["link"] for row in of_results.links.to_pylist()} == {"wire", "wire.reverse"}
    drawn = of_results.draw(tmp_path / "drawn")
    assert any(path.endswith(".png") for path in drawn)


def test_runs_are_compared_whatever_they_are_called():
    results = tollway.Scenario(WIRE).run()
    pair = tollway.compare(results["short"], results["long"])
    assert [one["variant"] for one in pair.account["variants"]] == ["short / long"]
    assert repr(pair) == "<tollway.Comparison of 'a' and 'b'>" and "Mb/s" in str(pair)
    more = tollway.Scenario(WIRE.replace("[variant.short]", "[variant.other]").replace("[variant.long]", "[variant.more]")).run()
    with pytest.raises(tollway.ScenarioError, match="no variant in common: a has short,long, b has other,more(.|\n)*choose one"):
        tollway.compare(results, more)
    with pytest.raises(tollway.ScenarioError, match="has no result tables"):
        tollway.compare("docs", results)
    with pytest.raises(ValueError, match="two that differ"):
        tollway.compare(results, results, names=("x", "x"))
