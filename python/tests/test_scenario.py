import pickle
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, WIRE

import tollway


def test_a_scenario_says_what_it_is():
    scenario = tollway.Scenario(WIRE, file="wire.toml")
    assert (scenario.name, scenario.file, scenario.duration_s, scenario.variants) == ("wire", "wire.toml", 3.0, ["short", "long"])
    assert scenario.with_sets({"seed": 7, "duration": "4 s"}).seed == 7
    assert scenario.seed != 7, "it never changes"
    assert scenario.only("long").variants == ["long"]
    assert repr(scenario) == "<tollway.Scenario 'wire', variants short, long>"


def test_mistakes_are_shown_in_place():
    with pytest.raises(tollway.ScenarioError) as caught:
        tollway.Scenario(WIRE.replace("rate = ", "rat = "), file="wire.toml")
    text = str(caught.value)
    assert "wire.toml:11:1" in text and "did you mean `rate`?" in text, text
    with pytest.raises(tollway.ScenarioError, match="link.wire.dealy=5 ms"):
        tollway.Scenario(WIRE, sets={"link.wire.dealy": "5 ms"})
    with pytest.raises(tollway.ScenarioError, match="no variant `shrot`; there are short, long"):
        tollway.Scenario(WIRE).only("shrot")
    assert issubclass(tollway.ScenarioError, ValueError)


def test_what_is_no_text_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        tollway.Scenario.load(tmp_path / "none.toml")
    wide = tmp_path / "wide.toml"
    wide.write_text(WIRE, encoding="utf-16")
    with pytest.raises(tollway.ScenarioError, match="save it as UTF-8"):
        tollway.Scenario.load(wide)
    wide.write_text(WIRE, encoding="utf-8-sig")
    assert tollway.Scenario.load(wide).name == "wire"


def test_files_are_looked_for_beside_the_scenario():
    scenario = tollway.Scenario.load(ROOT / "scenarios/cellular.toml")
    assert "cellular.down" in scenario.text


def test_values_are_what_set_takes():
    scenario = tollway.Scenario(WIRE)
    for sets in [
        {"flow.f.sack": False, "flow.*.initial-window": 4},
        {"flow.g.start": {"random": "2 s"}},
        {"measure.warmup": "1 s", "link.wire.rate": "20 Mbps"},
    ]:
        scenario.with_sets(sets)
    with pytest.raises(TypeError, match="flow.f.sack: no scenario holds None"):
        scenario.with_sets({"flow.f.sack": None})
    with pytest.raises(TypeError, match="nan"):
        scenario.with_sets({"flow.f.sack": float("nan")})
    # Of two, the later counts.
    twice = scenario.with_sets({"seed": 3}).with_sets({"seed": 4})
    assert twice.seed == 4


def test_a_scenario_of_tables():
    tables = {
        "name": "wire",
        "duration": "2 s",
        "node": {"a": {}, "b": {}},
        "link": {"wire": {"from": "a", "to": "b", "rate": "10 Mbps"}},
        "flow": {"f": {"from": "a", "to": "b", "law": "cubic", "initial-window": 2}},
    }
    scenario = tollway.Scenario.from_dict(tables)
    assert scenario.variants == [""]
    assert scenario.run().run.summary["flow"].to_pylist() == ["f"]
    with pytest.raises(tollway.ScenarioError, match="lwa"):
        tollway.Scenario.from_dict({**tables, "flow": {"f": {"from": "a", "to": "b", "lwa": "cubic"}}})
    with pytest.raises(tollway.ScenarioError, match="no TOML can say this"):
        tollway.Scenario.from_dict({**tables, "flow": {"f": {"size": None}}})


def test_it_can_be_pickled():
    scenario = tollway.Scenario(WIRE, file="wire.toml", sets={"seed": 5}).only("long")
    again = pickle.loads(pickle.dumps(scenario))
    assert again == scenario and hash(again) == hash(scenario)
    assert (again.seed, again.variants, again.file) == (5, ["long"], "wire.toml")
    assert again != scenario.with_sets({"seed": 6})


def test_theory_is_the_commands(command):
    import json

    theory = tollway.Scenario.load(ROOT / "scenarios/parking-lot.toml").theory()
    assert theory == json.loads(command("theory", "scenarios/parking-lot.toml", "--json"))


def test_progress_and_what_it_raises():
    long = tollway.Scenario(WIRE, sets={"duration": "40000 s", "measure.interval": "none"})
    told = []

    def progress(shares):
        told.append(shares)
        if len(told) == 3:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        long.run(progress=progress)
    assert all(len(shares) == 2 for shares in told)
    assert all(0 <= share < 1 for shares in told for share in shares)
    assert told[2] != told[0], "it gets on"


def test_ctrl_c_ends_a_run():
    code = f"""
import tollway
long = tollway.Scenario({WIRE!r}, sets={{"duration": "40000 s", "measure.interval": "none"}})
try:
    long.run(progress=lambda _: print("goes", flush=True))
except KeyboardInterrupt:
    print("ended")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "goes\n"
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read().splitlines()
    assert rest[-1] == "ended"
    assert child.returncode == 0


def test_choices_are_checked():
    scenario = tollway.Scenario(WIRE)
    with pytest.raises(ValueError, match='no engine "life"'):
        scenario.run(engine="life")
    with pytest.raises(ValueError, match='no digest "all"'):
        scenario.run(digest="all")
    with pytest.raises(ValueError, match="jobs is -1"):
        scenario.run(jobs=-1)
    with pytest.raises(tollway.ScenarioError, match="million rows"):
        scenario.with_sets({"duration": "100000 s", "measure.interval": "1 ms"}).run()
