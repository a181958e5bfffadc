import importlib.util
import math
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest
from conftest import ROOT

import tollway

#: Short queues and random loss: slow start, fast recovery, timeouts.
LOSSY = """
name = "lossy"
duration = "8 s"
[node.a]
[node.b]
[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "20 ms"
limit = "20 packets"
loss = 0.02
[flow.one]
from = "a"
to = "b"
law = "newreno"
[flow.two]
from = "a"
to = "b"
law = "newreno"
count = 2
start = "500 ms"
[workload.web]
from = "a"
to = "b"
law = "newreno"
arrivals = { interval = "500 ms" }
sizes = "40 kB"
"""
LAWS = ("flow.one", "flow.two", "workload.web")


class NewReno(tollway.SenderLaw):
    """The house's, line by line (RFC 5681, RFC 6582)."""

    def __init__(self, of):
        self.window = max(of.initial_window, 1.0)
        self.ssthresh = math.inf
        self.in_recovery = False
        self.reduced_until_ns = self.eased_until_ns = 0

    def halve(self, flight):
        self.ssthresh = max(min(self.window, float(flight.outstanding)) / 2.0, 2.0)
        self.reduced_until_ns = flight.now_ns + flight.srtt_ns

    def on_ack(self, flight, acked):
        if acked.marked and not self.in_recovery and flight.now_ns >= self.reduced_until_ns:
            self.halve(flight)
            self.window = self.ssthresh
            self.eased_until_ns = self.reduced_until_ns
        elif self.in_recovery or acked.cumulative == 0 or not flight.window_limited(self.window):
            pass
        elif self.window < self.ssthresh:
            self.window = min(self.window + (1 if acked.recovering else acked.segments), max(self.ssthresh, self.window))
        else:
            self.window += min(acked.segments / self.window, acked.segments)

    def on_loss(self, flight):
        if flight.now_ns >= self.eased_until_ns:
            self.halve(flight)
            self.window = self.ssthresh
        self.in_recovery = True

    def on_recovered(self, flight):
        self.in_recovery = False

    def on_timeout(self, flight, first):
        if first:
            self.halve(flight)
        self.window = 1.0
        self.in_recovery = False


class Still:
    """Four segments, without a base class and without what may be left out."""

    window = 4

    def __init__(self, of):
        pass

    def on_ack(self, flight, acked):
        pass

    def on_loss(self, flight):
        pass

    def on_timeout(self, flight, first):
        pass


class Paced(Still):
    window = 10_000
    pacing_bps = 2e6


class Step(tollway.LinkLaw):
    def on_arrival(self, packet):
        return tollway.Verdict.SIGNAL if packet.ect and packet.backlog_packets > 5 else tollway.Verdict.PASS


def scenario(**sets):
    return tollway.Scenario(LOSSY, file="lossy.toml").with_sets({key.replace("__", "."): value for key, value in sets.items()})


def law(**hooks):
    """A law with these methods and attributes."""
    return type("Law", (Still,), hooks)


@pytest.mark.parametrize("sets", [{}, {"flow.*.ecn": True, "link.wire.law": "red"}, {"flow.*.both-ways": True}])
def test_a_law_of_the_house_in_python_sends_the_same_packets(sets):
    lossy = tollway.Scenario(LOSSY, sets=sets)
    house, own = (lossy.run(digest="packets", laws=laws).run for laws in ({}, dict.fromkeys(LAWS, NewReno)))
    assert own.digest == house.digest
    timeouts = own.summary["timeouts"].to_pylist()
    assert sum(timeouts) > 0 and sum(own.summary["retransmissions"].to_pylist()) > 0, "it was tried"
    assert set(own.summary["law"].to_pylist()) == {"NewReno"} and set(house.summary["law"].to_pylist()) == {"newreno"}
    assert lossy.run(digest="packets", laws={"flow.*": Still}).run.digest != house.digest


def test_a_links_law_of_the_house_in_python_marks_the_same_packets():
    ecn = scenario(**{"flow.*.ecn": True})
    house = ecn.with_sets({"link.wire.law": "step", "link.wire.step.threshold": "5 packets"}).run(digest="packets").run
    own = ecn.run(digest="packets", laws={"link.wire": Step}).run
    assert own.digest == house.digest != ecn.run(digest="packets").run.digest
    assert sum(own.link_summary["marks"].to_pylist()) > 0


def test_the_example_prints_what_the_rust_example_prints():
    spec = importlib.util.spec_from_file_location("own_laws", ROOT / "python/examples/own_laws.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    book = (ROOT / "docs/src/extending.md").read_text()
    printed = book[book.index("ten flows over") :].split("```")[0]
    # Without what Avq has in mind, which a run doesn't tell.
    assert example.table().splitlines() == [line.partition("  virtual capacity")[0] for line in printed.splitlines()]


def test_laws_know_what_they_are_made_for():
    made = []

    def factory(of):
        made.append((of.flow, of.section, of.backward, of.segment, of.initial_window, of.seed))
        return NewReno(of)

    scenario(**{"flow.one.initial-window": 4, "duration": "1 s"}).run(laws=dict.fromkeys(LAWS, factory))
    expected = [("one", "one", 4.0), ("two.1", "two", 10.0), ("two.2", "two", 10.0), ("web.1", "web", 10.0)]
    assert [(flow, section, window) for flow, section, _, _, window, _ in made][:4] == expected
    assert not any(row[2] for row in made) and {row[3] for row in made} == {1500}
    assert len({row[5] for row in made}) == len(made)


def test_a_rate_spaces_packets():
    run = scenario(link__wire__loss=0).run(laws={"flow.*": Paced, "workload.web": Still}).run
    rates = dict(zip(run.summary["flow"].to_pylist(), run.summary["rate_mbps"].to_pylist(), strict=True))
    assert all(abs(rates[flow] - 2.0) < 0.1 for flow in ("one", "two.1", "two.2")), rates


def test_a_law_sees_what_the_transport_knows():
    seen = []

    def on_delivery(self, flight, delivery):
        seen.append((flight, delivery))

    run = scenario().run(laws={"flow.one": law(on_delivery=on_delivery)}).run
    times = [flight.now_ns for flight, _ in seen]
    assert times == sorted(times) and times[-1] < 8_000_000_000
    for flight, delivery in seen:
        assert flight.now_s == flight.now_ns / 1e9 and flight.segment == 1500 and flight.in_flight <= 4
        assert flight.min_rtt_ns >= 40_000_000 and flight.min_rtt_s == flight.min_rtt_ns / 1e9
        assert delivery.newly_acked > 0 and delivery.segments_per_s < 10e6 / 8 / 1500 * 2
    assert any(delivery.newly_lost for _, delivery in seen) and any(delivery.rtt_s for _, delivery in seen)
    assert run.deviation is None or not run.deviation["aimed"]


def test_an_own_law_aims_at_what_it_says():
    rcp = """
name = "w"
duration = "4 s"
node = { a = {}, b = {} }
link.wire = { from = "a", to = "b", rate = "10 Mbps", delay = "20 ms", law = "rcp" }
flow.f = { from = "a", to = "b", law = "rcp" }
"""
    plain = tollway.Scenario(rcp)
    named = type("rcp", (NewReno,), {})
    assert plain.run().run.deviation["aimed"]
    own = plain.run(laws={"flow.f": named}).run
    assert (own.deviation["aim"], own.deviation["aimed"]) == ("max-min", False)
    assert own.summary["ideal_mbps"].to_pylist() == plain.run().run.summary["ideal_mbps"].to_pylist()
    aiming = type("Aiming", (NewReno,), {"aim": "max-min"})
    assert plain.run(laws={"flow.f": aiming}).run.deviation["aimed"]
    # It aims at what links of its own kind give out, and there is none.
    fair = type("Fair", (Step,), {"aim": "proportional"})
    assert not plain.run(laws={"flow.f": aiming, "link.wire": fair}).run.deviation["aimed"]


def boom(self, *_):
    raise ZeroDivisionError("boom")


@pytest.mark.parametrize("hook", ["__init__", "on_ack", "on_loss", "on_timeout", "on_recovered", "on_delivery"])
def test_what_a_law_raises_ends_the_run(hook):
    long = scenario(duration="100000 s", measure__interval="none")
    with pytest.raises(tollway.RunError) as caught:
        long.run(laws={"flow.two": law(**{hook: boom}), "flow.one": NewReno})
    what = "the making" if hook == "__init__" else hook
    assert re.fullmatch(f"the law `Law` failed: {what} of `two.[12]`: ZeroDivisionError: boom", str(caught.value))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize(
    ("attributes", "error", "why"),
    [
        ({"window": math.nan}, ValueError, "`window` is nan; it is segments, 0 or more"),
        ({"window": -1}, ValueError, "`window` is -1; it is segments, 0 or more"),
        ({"window": "10"}, TypeError, "`window` is '10', a str; it is a number: segments"),
        ({"window": None}, TypeError, "`window` is None, a NoneType; it is a number"),
        ({"pacing_bps": 0}, ValueError, "`pacing_bps` is 0; it is bit/s, more than 0, or None"),
        ({"pacing_bps": math.inf}, ValueError, "`pacing_bps` is inf"),
        ({"pacing_bps": "2 Mbps"}, TypeError, "`pacing_bps` is '2 Mbps', a str; it is a number: bit/s, or None"),
    ],
)
def test_answers_that_make_no_sense_are_told(attributes, error, why):
    def on_ack(self, flight, acked):
        for name, value in attributes.items():
            setattr(self, name, value)

    for mistaken, where in [(law(**attributes), "the making"), (law(on_ack=on_ack, pacing_bps=None), "on_ack")]:
        with pytest.raises(tollway.RunError) as caught:
            scenario().run(laws={"flow.one": mistaken})
        assert f"the law `Law` failed: {where} of `one`: {error.__name__}: {why}" in str(caught.value)
        assert isinstance(caught.value.__cause__, error)


def test_what_is_no_law_is_told():
    returns = law(on_ack=lambda self, flight, acked: 11.0)
    for given, why in [
        (returns, "it returned 11.0; a law answers by setting `window` and `pacing_bps`"),
        (lambda of: object(), "a law has a method `on_ack`; this object has none"),
        (type("Half", (tollway.SenderLaw,), {}), "abstract"),
    ]:
        with pytest.raises(tollway.RunError, match=why):
            scenario().run(laws={"flow.one": given})
    with pytest.raises(
        tollway.RunError, match="on_arrival of `wire`: TypeError: it returned 'drop'; a verdict is a `tollway.Verdict`"
    ):
        scenario().run(laws={"link.wire": type("Wrong", (Step,), {"on_arrival": lambda self, packet: "drop"})})
    with pytest.raises(TypeError, match=r"laws\['flow.one'\] is 'newreno'; give a class"):
        scenario().run(laws={"flow.one": "newreno"})
    with pytest.raises(ValueError, match="`aim` is 'fair'; it is one of \"xcp-equilibrium\", \"max-min\", \"proportional\""):
        scenario().run(laws={"flow.one": law(aim="fair")})
    with pytest.raises(tollway.ScenarioError, match="called `flow.thre` .* there are `flow.one`, `flow.two`, `workload.web`"):
        scenario().run(laws={"flow.thre": NewReno})
    with pytest.raises(tollway.ScenarioError, match="the kernel's TCP runs only its own laws(.|\n)*help: leave out"):
        scenario(**{"flow.one.transport": "kernel"}).run(laws={"flow.one": NewReno})


def test_what_is_no_mistake_stays_what_it_is():
    class Enough(BaseException):
        pass

    def on_ack(self, flight, acked):
        raise Enough

    with pytest.raises(Enough):
        scenario().run(laws={"flow.one": law(on_ack=on_ack)})


def test_a_law_answers_for_its_links_capacity_too():
    told = []
    changing = tollway.Scenario(LOSSY + '[[change]]\nat = "1 s"\nlink = "wire"\nrate = "5 Mbps"\n')
    noting = type("Noting", (Step,), {"on_capacity": lambda self, now_s, bps: told.append((now_s, bps))})
    changing.run(laws={"link.wire": noting})
    assert told == [(1.0, 5e6)]


def test_variants_seeds_and_jobs_have_laws_of_their_own():
    limits = "".join(f'[variant.v{n}]\nlink.wire.limit = "{n} packets"\n' for n in (10, 99))
    both = tollway.Scenario(LOSSY + limits)
    digests = [
        [run.digest for run in both.run(jobs=jobs, digest="packets", laws={"flow.*": NewReno}).values()] for jobs in (0, 1, 2)
    ]
    assert digests[0] == digests[1] == digests[2]
    drawn = scenario(link__wire__loss=0.01)
    assert drawn.run(seed=1, laws={"flow.one": NewReno}).run.digest != drawn.run(seed=2, laws={"flow.one": NewReno}).run.digest


def test_runs_in_threads_beside_each_other():
    expected = scenario().run(laws={"flow.*": NewReno}).run.digest
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(lambda _: scenario().run(laws={"flow.*": NewReno}).run.digest, range(8)))
    assert set(runs) == {expected}


def test_a_sweep_takes_them_to_threads_and_processes():
    short = scenario(duration="2 s")
    vary, laws = {"link.wire.rate": ["5 Mbps", "10 Mbps"]}, {"flow.one": NewReno, "link.wire": Step}
    swept = tollway.sweep(short, vary, seeds=2, laws=laws)
    assert set(swept.flows["law"].to_pylist()) == {"NewReno", "newreno"}
    assert swept.flows.num_rows == tollway.sweep(short, vary, seeds=2).flows.num_rows
    with ThreadPoolExecutor(3) as threads:
        assert tollway.sweep(short, vary, seeds=2, laws=laws, executor=threads).flows.equals(swept.flows)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        assert tollway.sweep(short, vary, seeds=2, laws=laws, executor=processes).flows.equals(swept.flows)
        aimless = {"flow.one": partial(NewReno)}
        assert set(tollway.sweep(short, laws=aimless, executor=processes).flows["law"].to_pylist()) == {"NewReno", "newreno"}
        with pytest.raises(TypeError, match=r"laws\['flow.one'\] can't go to another process(.|\n)*top level of a module"):
            tollway.sweep(short, laws={"flow.one": lambda of: NewReno(of)}, executor=processes)


def test_real_packets_obey_them():
    run = scenario(duration="1 s").run(engine="live", laws={"flow.one": NewReno}).run
    rows = {row["flow"]: row for row in run.summary.to_pylist()}
    assert rows["one"]["law"] == "NewReno" and rows["one"]["delivered_bytes"] > 0


def test_other_threads_go_on_meanwhile():
    beats, over = [], threading.Event()

    def beat():
        while not over.wait(0.001):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    def while_it_runs():
        begun = time.monotonic()
        scenario().run(laws={"flow.*": NewReno})
        ended = time.monotonic()
        return sum(begun < beat < ended for beat in beats)

    try:
        # On a busy machine a run may be over before the other thread has its turn.
        assert any(while_it_runs() > 1 for _ in range(20))
    finally:
        over.set()
        thread.join()


def test_ctrl_c_ends_a_run_with_laws():
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "python/tests")!r})
import tollway
from test_laws import LOSSY, NewReno
long = tollway.Scenario(LOSSY, sets={{"duration": "4000000 s", "measure.interval": "none", "workload.web.stop": "8 s"}})
try:
    long.run(laws={{"flow.*": NewReno}}, progress=lambda _: print("goes", flush=True))
except KeyboardInterrupt:
    print("ended")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "goes\n"
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read().splitlines()
    assert rest[-1] == "ended"
    assert child.returncode == 0
