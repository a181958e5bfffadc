//! Every key of the scenario file does something: a run with it set otherwise is another run.

use std::collections::BTreeSet;

use tollway_scenario::file::{Scenario, schema};
use tollway_scenario::run::{DigestMode, Finished, Options, run};
use tollway_scenario::tables::Outputs;

/// Two senders with different round trips, two routers, losses, cross-traffic, a workload: enough for every key to
/// matter to some packet.
const BASE: &str = r#"
name = "effects"
duration = "6 s"
seed = 3

[measure]
interval = "100 ms"
warmup = "1 s"

[node.s]
count = 2
[node.q]
[node.r]
[node.d]

[medium.air]
rate = "9 Mbps"

[link.access]
from = "s"
to = "q"
rate = "50 Mbps"
delay = { first = "2 ms", last = "20 ms" }

[link.mid]
from = "q"
to = "r"
rate = "8 Mbps"
delay = "10 ms"
limit = "30 packets"

[link.mid.reverse]
delay = "12 ms"

[link.last]
from = "r"
to = "d"
medium = "air"
delay = "3 ms"

[flow.f]
from = "s"
to = "d"
law = "newreno"

[workload.w]
from = "s"
to = "d"
law = "newreno"
arrivals = { poisson = 2 }
sizes = "30 kB"

[cbr.c]
from = "q"
to = "d"
rate = "1 Mbps"
packet-size = "700 B"

[[change]]
at = "3 s"
link = "mid"
rate = "5 Mbps"

[[loss]]
link = "mid"
probability = 0.005
"#;

/// What the run leaves behind: every packet-hop, every result.
fn digests(text: &str, sets: &[&str]) -> (u64, u64) {
    let scenario = match Scenario::parse("effects.toml", text, sets) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{sets:?}: {:?}", error.mistakes()),
    };
    let once = |digest| {
        let options = Options { outputs: Outputs::memory(), digest, ..Options::default() };
        let Finished { run, .. } = run(&scenario.variants()[0].plan, &options).expect("it runs");
        run.digest
    };
    (once(DigestMode::Packets), once(DigestMode::Results))
}

/// A key, what is set before to give it a meaning, and the value that has to make a difference.
struct Case {
    key: &'static str,
    more: &'static str,
    given: &'static [&'static str],
    set: &'static str,
}

macro_rules! cases {
    ($($key:literal: [$($given:literal),*] $(+ $more:expr;)? $set:literal,)*) => {
        &[$(Case { key: $key, given: &[$($given),*], more: concat!("", $($more)?), set: $set },)*]
    };
}

/// A network from a file, and a flow over it: towns some of which have no position, edges some of which have no rate.
macro_rules! topology {
    () => {
        "[topology]\nfile = \"tests/data/towns.graphml\"\nrate = \"2 Mbps\"\n[flow.t]\nfrom = \"Alpha\"\nto = \"Delta\"\nlaw = \"newreno\"\n"
    };
}

/// A generated network, and a flow over it between two of its nodes.
macro_rules! generated {
    ($generator:literal, $from:literal, $to:literal) => {
        concat!(
            "[topology.",
            $generator,
            "]\nrate = \"2 Mbps\"\n",
            "[flow.t]\nfrom = \"",
            $from,
            "\"\nto = \"",
            $to,
            "\"\nlaw = \"newreno\"\n"
        )
    };
}

/// Four hosts under two leaves, and flows between them.
macro_rules! matrix {
    ($more:literal) => {
        concat!(
            "[topology.leaf-spine]\nleaves = 2\nspines = 2\nhosts = 2\nrate = \"2 Mbps\"\n",
            "[flow.t]\nbetween = \"host\"\nlaw = \"newreno\"\n",
            "[workload.v]\nbetween = \"host\"\nlaw = \"newreno\"\narrivals = { poisson = 9 }\nsizes = \"9 kB\"\n",
            $more
        )
    };
}

/// A policy, slow enough to hold back what is under it.
macro_rules! aggregate {
    ($more:literal) => {
        concat!("[aggregate.a]\nrate = \"800 kbps\"\n", $more, "\n")
    };
}

/// An overlay beside the rest: four daemons, more than one way between them, hops that are full.
macro_rules! overlay {
    ($more:literal) => {
        concat!(
            "[node.oa]\n[node.ob]\n[node.oc]\n[node.od]\n",
            "[link.oab]\nfrom = \"oa\"\nto = \"ob\"\nrate = \"2 Mbps\"\ndelay = \"5 ms\"\nsymmetric = true\n",
            "[link.obc]\nfrom = \"ob\"\nto = \"oc\"\nrate = \"1 Mbps\"\ndelay = \"10 ms\"\nsymmetric = true\n",
            "[link.oac]\nfrom = \"oa\"\nto = \"oc\"\nrate = \"1 Mbps\"\ndelay = \"30 ms\"\nsymmetric = true\n",
            "[link.ocd]\nfrom = \"oc\"\nto = \"od\"\nrate = \"1 Mbps\"\ndelay = \"5 ms\"\nsymmetric = true\n",
            "[overlay.hop.h]\nlink = \"o??\"\nlaw = \"newreno\"\n",
            "[overlay.group.g]\nat = [\"ob\", \"oc\"]\n[overlay.group.k]\nat = [\"oc\"]\n",
            "[overlay.sender.x]\nat = \"oa\"\ngroup = \"g\"\ncount = 2\n",
            $more
        )
    };
}

/// Two sessions beside the rest, over a switch each.
macro_rules! switches {
    ($more:literal) => {
        concat!(
            "[node.sp]\n[node.sx]\n[node.sw]\n[node.sz]\n[node.sm]\ncount = 2\n[node.sn]\ncount = 2\n",
            "[link.spx]\nfrom = \"sp\"\nto = \"sx\"\nrate = \"4 Mbps\"\ndelay = \"2 ms\"\nlaw = \"xcp\"\nsymmetric = true\n",
            "[link.sxw]\nfrom = \"sx\"\nto = \"sw\"\nrate = \"6 Mbps\"\ndelay = \"2 ms\"\nlaw = \"xcp\"\nsymmetric = true\n",
            "[link.sxz]\nfrom = \"sx\"\nto = \"sz\"\nrate = \"6 Mbps\"\ndelay = \"2 ms\"\nlaw = \"xcp\"\nsymmetric = true\n",
            "[link.swm]\nfrom = \"sw\"\nto = \"sm\"\nrate = \"2 Mbps\"\ndelay = { first = \"2 ms\", last = \"20 ms\" }\nlaw = \"xcp\"\nsymmetric = true\n",
            "[link.szn]\nfrom = \"sz\"\nto = \"sn\"\nrate = \"2 Mbps\"\ndelay = \"3 ms\"\nlaw = \"xcp\"\nsymmetric = true\n",
            "[switch.front]\nnode = \"sw\"\n[switch.back]\nnode = \"sz\"\n",
            "[flow.ses]\nfrom = \"sp\"\nto = \"sm\"\nsession = \"front\"\nlaw = \"xcp\"\nframes = { size = \"1 kB\" }\n",
            "[flow.set]\nfrom = \"sp\"\nto = \"sn\"\nsession = \"back\"\nlaw = \"xcp\"\nframes = { size = \"1 kB\" }\n",
            $more
        )
    };
}

const CASES: &[Case] = cases! {
    "switch.node": [] + switches!(""); "switch.front.node=sx",
    "switch.policy": [] + switches!(""); "switch.front.policy=least-loaded",
    "switch.shares": [] + switches!(""); "switch.front.shares=[1, 3]",
    "switch.flow-control": ["flow.ses.receive-buffer=4 packets"] + switches!(""); "switch.front.flow-control=strict",
    "switch.transforms": [] + switches!(""); "switch.front.transforms=literal",
    "switch.ratio-window": ["switch.front.policy=least-loaded"] + switches!(""); "switch.front.ratio-window=4",
    "switch.patience": [] + switches!("[[change]]\nat = \"1 s\"\nlink = \"swm.1\"\nblackout = \"4 s\"\n"); "switch.front.patience=500ms",
    "flow.session": ["switch.back.node=sx"] + switches!(""); "flow.ses.session=back",
    "change.switch": [] + switches!("[[change]]\nat = \"2 s\"\nswitch = \"front\"\nshares = [1, 0]\n"); "change.1.switch=back",
    "change.shares": [] + switches!("[[change]]\nat = \"2 s\"\nswitch = \"front\"\nshares = [1, 0]\n"); "change.1.shares=[0, 1]",
    "change.member": [] + switches!("[[change]]\nat = \"2 s\"\nswitch = \"front\"\nmember = \"sm.1\"\n"); "change.1.member=sm.2",
    "overlay.message": [] + overlay!(""); "overlay.message=500B",
    "overlay.soft-limit": [] + overlay!(""); "overlay.soft-limit=100ms",
    "overlay.prohibitive": [] + overlay!(""); "overlay.prohibitive=10",
    "overlay.base": [] + overlay!(""); "overlay.base=20",
    "overlay.window": [] + overlay!(""); "overlay.window=3",
    "overlay.salary": [] + overlay!(""); "overlay.salary=5",
    "overlay.cap": [] + overlay!(""); "overlay.cap=12",
    "overlay.fee": [] + overlay!(""); "overlay.fee=2",
    "overlay.threshold": [] + overlay!(""); "overlay.threshold=6",
    "overlay.draw": [] + overlay!(""); "overlay.draw=false",
    "overlay.retry": [] + overlay!(""); "overlay.retry=20ms",
    "overlay.update.change": [] + overlay!(""); "overlay.update.change=0.01",
    "overlay.benefit": [] + overlay!(""); "overlay.benefit=concave",
    "overlay.update.least": [] + overlay!(""); "overlay.update.least=100ms",
    "overlay.update.most": [] + overlay!(""); "overlay.update.most=300ms",
    "overlay.period.initial": [] + overlay!(""); "overlay.period.initial=50ms",
    "overlay.period.least": [] + overlay!(""); "overlay.period.least=90ms",
    "overlay.period.most": [] + overlay!(""); "overlay.period.most=100ms",
    "overlay.period.jitter": [] + overlay!(""); "overlay.period.jitter=0.3",
    "overlay.patience": ["overlay.update.most=100ms"] + overlay!("[[change]]\nat = \"1 s\"\nlink = \"o?c\"\nblackout = \"4 s\"\n"); "overlay.patience=500ms",
    "overlay.hop.link": [] + overlay!(""); "overlay.hop.h.link=o?c",
    "overlay.hop.from": ["overlay.hop.h.link=o?c"] + overlay!("[overlay.hop.j]\nlaw = \"newreno\"\nfrom = \"oa\"\nto = \"od\"\n"); "overlay.hop.j.from=ob",
    "overlay.hop.to": ["overlay.hop.h.link=o?c"] + overlay!("[overlay.hop.j]\nlaw = \"newreno\"\nfrom = \"oa\"\nto = \"od\"\n"); "overlay.hop.j.to=ob",
    "overlay.hop.length": ["overlay.hop.h.link=o?c"] + overlay!("[overlay.hop.j]\nlaw = \"newreno\"\nfrom = \"oa\"\nto = \"ob\"\n"); "overlay.hop.j.length=9",
    "overlay.group.at": [] + overlay!(""); "overlay.group.g.at=['ob']",
    "overlay.group.width": [] + overlay!(""); "overlay.group.g.width=1",
    "overlay.group.ordered": [] + overlay!(""); "overlay.group.g.ordered=true",
    "overlay.sender.at": [] + overlay!(""); "overlay.sender.x.at=ob",
    "overlay.sender.group": [] + overlay!(""); "overlay.sender.x.group=k",
    "overlay.sender.count": [] + overlay!(""); "overlay.sender.x.count=3",
    "overlay.sender.start": [] + overlay!(""); "overlay.sender.x.start=1s",
    "overlay.sender.stop": [] + overlay!(""); "overlay.sender.x.stop=3s",
    "overlay.sender.arrivals": [] + overlay!(""); "overlay.sender.x.arrivals={poisson=10}",
    "overlay.sender.on": ["overlay.sender.x.on=1s", "overlay.sender.x.off=1s"] + overlay!(""); "overlay.sender.x.on=500ms",
    "overlay.sender.off": ["overlay.sender.x.on=1s", "overlay.sender.x.off=1s"] + overlay!(""); "overlay.sender.x.off=500ms",
    "overlay.sender.tenant": [] + overlay!(""); "overlay.sender.x.tenant=t",
    "overlay.sender.salary": [] + overlay!(""); "overlay.sender.x.salary=3",
    "overlay.sender.benefit": [] + overlay!(""); "overlay.sender.x.benefit=concave",
    "duration": [] "duration=5s",
    "seed": [] "seed=4",
    "node.count": [] "node.s.count=3",
    "medium.rate": [] "medium.air.rate=4Mbps",
    "link.from": [] "link.last.from=q",
    "link.to": [] "link.mid.to=d",
    "topology.file": [] + topology!(); "topology.file=tests/data/chain.graphml",
    "topology.fallback": ["topology.file=tests/data/none.graphml", "topology.fallback=tests/data/towns.graphml"] + topology!(); "topology.fallback=tests/data/chain.graphml",
    "topology.rate": [] + topology!(); "topology.rate=3Mbps",
    "topology.delay": [] + topology!(); "topology.delay=9ms",
    "topology.delay-per-km": [] + topology!(); "topology.delay-per-km=20us",
    "topology.delay-per-unit": [] + topology!(); "topology.delay-per-unit=100us",
    "topology.link": [] + topology!(); "topology.link.limit=5 packets",
    "topology.fat-tree.k": ["topology.fat-tree.k=4"] + generated!("fat-tree", "host.1", "host.16"); "topology.fat-tree.k=6",
    "topology.fat-tree.rate": ["topology.fat-tree.k=4"] + generated!("fat-tree", "host.1", "host.16"); "topology.fat-tree.rate=3 Mbps",
    "topology.fat-tree.delay": ["topology.fat-tree.k=4"] + generated!("fat-tree", "host.1", "host.16"); "topology.fat-tree.delay=1ms",
    "routing.equal-cost": ["topology.fat-tree.k=4"] + generated!("fat-tree", "host.1", "host.16"); "routing.equal-cost=spray",
    "routing.flowlet-gap": ["topology.fat-tree.k=4", "routing.equal-cost=flowlet"] + generated!("fat-tree", "host.1", "host.16"); "routing.flowlet-gap=100ms",
    "flow.via": ["topology.fat-tree.k=4"] + generated!("fat-tree", "host.1", "host.16"); "flow.t.via=core.4",
    "topology.leaf-spine.leaves": [] + matrix!(""); "topology.leaf-spine.leaves=3",
    "topology.leaf-spine.spines": [] + matrix!(""); "topology.leaf-spine.spines=3",
    "topology.leaf-spine.hosts": [] + matrix!(""); "topology.leaf-spine.hosts=3",
    "topology.leaf-spine.rate": [] + matrix!(""); "topology.leaf-spine.rate=3 Mbps",
    "topology.leaf-spine.uplink-rate": [] + matrix!(""); "topology.leaf-spine.uplink-rate=1 Mbps",
    "topology.leaf-spine.delay": [] + matrix!(""); "topology.leaf-spine.delay=1ms",
    "topology.ring.routers": ["topology.ring.routers=5"] + generated!("ring", "router.1", "router.3"); "topology.ring.routers=4",
    "topology.ring.rate": ["topology.ring.routers=5"] + generated!("ring", "router.1", "router.3"); "topology.ring.rate=3 Mbps",
    "topology.ring.delay": ["topology.ring.routers=5"] + generated!("ring", "router.1", "router.3"); "topology.ring.delay=9ms",
    "topology.grid.rows": ["topology.grid={ rows = 2, columns = 3 }"] + generated!("grid", "router.1", "router.6"); "topology.grid.rows=3",
    "topology.grid.columns": ["topology.grid={ rows = 2, columns = 3 }"] + generated!("grid", "router.1", "router.6"); "topology.grid.columns=4",
    "topology.grid.rate": ["topology.grid={ rows = 2, columns = 3 }"] + generated!("grid", "router.1", "router.6"); "topology.grid.rate=3 Mbps",
    "topology.grid.delay": ["topology.grid={ rows = 2, columns = 3 }"] + generated!("grid", "router.1", "router.6"); "topology.grid.delay=9ms",
    "topology.dumbbell.pairs": ["topology.dumbbell.pairs=2"] + generated!("dumbbell", "source", "sink"); "topology.dumbbell.pairs=3",
    "topology.dumbbell.rate": ["topology.dumbbell.pairs=2"] + generated!("dumbbell", "source", "sink"); "topology.dumbbell.rate=3 Mbps",
    "topology.dumbbell.delay": ["topology.dumbbell.pairs=2"] + generated!("dumbbell", "source", "sink"); "topology.dumbbell.delay=9ms",
    "topology.dumbbell.access-rate": ["topology.dumbbell.pairs=2"] + generated!("dumbbell", "source", "sink"); "topology.dumbbell.access-rate=3 Mbps",
    "topology.dumbbell.access-delay": ["topology.dumbbell.pairs=2"] + generated!("dumbbell", "source", "sink"); "topology.dumbbell.access-delay=9ms",
    "topology.parking-lot.hops": ["topology.parking-lot.hops=2"] + generated!("parking-lot", "entry", "exit"); "topology.parking-lot.hops=3",
    "topology.parking-lot.rate": ["topology.parking-lot.hops=2"] + generated!("parking-lot", "entry", "exit"); "topology.parking-lot.rate=3 Mbps",
    "topology.parking-lot.delay": ["topology.parking-lot.hops=2"] + generated!("parking-lot", "entry", "exit"); "topology.parking-lot.delay=9ms",
    "topology.parking-lot.access-rate": ["topology.parking-lot.hops=2"] + generated!("parking-lot", "entry", "exit"); "topology.parking-lot.access-rate=3 Mbps",
    "topology.parking-lot.access-delay": ["topology.parking-lot.hops=2"] + generated!("parking-lot", "entry", "exit"); "topology.parking-lot.access-delay=9ms",
    "flow.matrix": [] + matrix!(""); "flow.t.matrix=permutation",
    "flow.receivers": ["flow.t.matrix=incast"] + matrix!(""); "flow.t.receivers=2",
    "flow.senders": ["flow.t.matrix=incast"] + matrix!(""); "flow.t.senders=2",
    "flow.share": ["flow.t.matrix=hot-spots"] + matrix!(""); "flow.t.share=1",
    "workload.matrix": [] + matrix!(""); "workload.v.matrix=permutation",
    "workload.receivers": ["workload.v.matrix=incast"] + matrix!(""); "workload.v.receivers=2",
    "workload.senders": ["workload.v.matrix=incast"] + matrix!(""); "workload.v.senders=2",
    "workload.share": ["workload.v.matrix=hot-spots"] + matrix!(""); "workload.v.share=1",
    "flow.after": ["flow.t.size=90 kB"] + matrix!("[flow.u]\nfrom = \"host.1\"\nto = \"host.3\"\nlaw = \"newreno\"\n"); "flow.u.after=t",
    "link.rate": [] "link.mid.rate=7Mbps",
    "link.trace": [] + "[node.e]\n[link.radio]\nfrom = \"d\"\nto = \"e\"\ntrace = \"tests/data/some.trace\"\n[flow.g]\nfrom = \"s.1\"\nto = \"e\"\nlaw = \"newreno\"\n"; "link.radio.trace=tests/data/other.trace",
    "link.symmetric": ["link.mid.reverse.rate=100kbps"] "link.mid.symmetric=true",
    "link.reverse.trace": ["change.0.direction=forward"] "link.mid.reverse.trace=tests/data/other.trace",
    "link.xcp.capacity": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.capacity=measured",
    "link.delay": [] "link.mid.delay=11ms",
    "link.delay.first": ["link.access.delay=5 ms"] "link.access.delay={ first = \"1 ms\", last = \"9 ms\" }",
    "link.delay.last": ["link.access.delay={ first = \"1 ms\", last = \"9 ms\" }"] "link.access.delay.last=7ms",
    "link.reverse.delay.first": ["link.access.delay=5 ms"] "link.access.reverse.delay={ first = \"1 ms\", last = \"9 ms\" }",
    "link.reverse.delay.last": ["link.access.reverse.delay={ first = \"1 ms\", last = \"9 ms\" }"] "link.access.reverse.delay.last=7ms",
    "flow.start.first": ["flow.f.start={ first = \"0 s\", last = \"1 s\" }"] "flow.f.start.first=100ms",
    "flow.start.last": ["flow.f.start={ first = \"0 s\", last = \"1 s\" }"] "flow.f.start.last=500ms",
    "flow.start.random": ["flow.f.start={ random = \"1 s\", after = \"0 s\" }"] "flow.f.start.random=500ms",
    "flow.start.after": ["flow.f.start={ random = \"1 s\", after = \"0 s\" }"] "flow.f.start.after=200ms",
    "flow.stop.first": ["flow.f.stop={ first = \"4 s\", last = \"5 s\" }"] "flow.f.stop.first=3900ms",
    "flow.stop.last": ["flow.f.stop={ first = \"4 s\", last = \"5 s\" }"] "flow.f.stop.last=4500ms",
    "flow.stop.random": ["flow.f.stop={ random = \"1 s\", after = \"4 s\" }"] "flow.f.stop.random=500ms",
    "flow.stop.after": ["flow.f.stop={ random = \"1 s\", after = \"4 s\" }"] "flow.f.stop.after=4100ms",
    "cbr.start.first": ["cbr.c.from=s", "cbr.c.start={ first = \"0 s\", last = \"1 s\" }"] "cbr.c.start.first=100ms",
    "cbr.start.last": ["cbr.c.from=s", "cbr.c.start={ first = \"0 s\", last = \"1 s\" }"] "cbr.c.start.last=500ms",
    "cbr.start.random": ["cbr.c.from=s", "cbr.c.start={ random = \"1 s\", after = \"0 s\" }"] "cbr.c.start.random=500ms",
    "cbr.start.after": ["cbr.c.from=s", "cbr.c.start={ random = \"1 s\", after = \"0 s\" }"] "cbr.c.start.after=200ms",
    "cbr.stop.first": ["cbr.c.from=s", "cbr.c.stop={ first = \"4 s\", last = \"5 s\" }"] "cbr.c.stop.first=3900ms",
    "cbr.stop.last": ["cbr.c.from=s", "cbr.c.stop={ first = \"4 s\", last = \"5 s\" }"] "cbr.c.stop.last=4500ms",
    "cbr.stop.random": ["cbr.c.from=s", "cbr.c.stop={ random = \"1 s\", after = \"4 s\" }"] "cbr.c.stop.random=500ms",
    "cbr.stop.after": ["cbr.c.from=s", "cbr.c.stop={ random = \"1 s\", after = \"4 s\" }"] "cbr.c.stop.after=4100ms",
    "link.overhead": [] "link.mid.overhead=20 B",
    "link.law": [] "link.mid.law=red",
    "link.limit": [] "link.mid.limit=10 packets",
    "link.capacity": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.capacity=6Mbps",
    "link.medium": [] "link.mid.medium=air",
    "link.loss": [] "link.mid.loss=0.02",
    "link.jitter": [] "link.mid.jitter=3ms",
    "link.jitter-order": ["link.mid.jitter=9ms"] "link.mid.jitter-order=free",
    "link.reorder": [] "link.mid.reorder=0.1",
    "link.reorder-delay": ["link.mid.reorder=0.1"] "link.mid.reorder-delay=30ms",
    "link.duplicate": [] "link.mid.duplicate=0.1",
    "link.corrupt": [] "link.mid.corrupt=0.05",
    "link.bursts": [] "link.mid.bursts={ to-bad = 0.05, to-good = 0.5 }",
    "link.bursts.to-bad": ["link.mid.bursts={ to-bad = 0.05, to-good = 0.5 }"] "link.mid.bursts.to-bad=0.1",
    "link.bursts.to-good": ["link.mid.bursts={ to-bad = 0.05, to-good = 0.5 }"] "link.mid.bursts.to-good=0.2",
    "link.bursts.in-bad": ["link.mid.bursts={ to-bad = 0.05, to-good = 0.5 }"] "link.mid.bursts.in-bad=0.3",
    "link.bursts.in-good": ["link.mid.bursts={ to-bad = 0.05, to-good = 0.5 }"] "link.mid.bursts.in-good=0.1",
    "link.duplex": [] + "[link.home]\nfrom = \"d\"\nto = \"r\"\nrate = \"1 Mbps\"\ndelay = \"9 ms\"\n"; "link.last.duplex=false",
    "link.reverse": [] "link.mid.reverse.delay=5ms",
    "link.reverse.rate": [] "link.mid.reverse.rate=300kbps",
    "link.reverse.delay": [] "link.mid.reverse.delay=5ms",
    "link.reverse.overhead": [] "link.mid.reverse.overhead=20 B",
    "link.reverse.law": ["link.mid.reverse.rate=100kbps", "link.mid.reverse.limit=20 packets"] "link.mid.reverse.law=red",
    "link.reverse.limit": ["link.mid.reverse.rate=100kbps"] "link.mid.reverse.limit=3 packets",
    "link.reverse.capacity": ["flow.f.both-ways=true", "flow.f.law=xcp", "link.mid.law=xcp", "link.mid.reverse.law=xcp"] "link.mid.reverse.capacity=3Mbps",
    "link.reverse.loss": [] "link.mid.reverse.loss=0.1",
    "link.reverse.xcp": ["flow.f.both-ways=true", "flow.f.law=xcp", "link.mid.law=xcp", "link.mid.reverse.law=xcp"] "link.mid.reverse.xcp.alpha=0.2",
    "link.reverse.red": ["flow.f.both-ways=true", "link.mid.reverse.law=red", "link.mid.reverse.limit=20 packets"] "link.mid.reverse.red.min-threshold=2 packets",
    "link.xcp": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.alpha=0.2",
    "link.xcp.alpha": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.alpha=0.2",
    "link.xcp.beta": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.beta=0.1",
    "link.xcp.gamma": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.gamma=0.3",
    "link.xcp.max-interval": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.max-interval=20ms",
    "link.xcp.min-interval": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.min-interval=200ms",
    "link.xcp.form": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.form=window",
    "link.xcp.arithmetic": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.arithmetic=fixed32",
    "link.xcp.overhead": ["link.mid.law=xcp", "flow.f.law=xcp"] "link.mid.xcp.overhead=100 B",
    "link.meter": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }"] "link.access.meter={}",
    "link.meter.tolerance": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }", "link.access.meter={}"] "link.access.meter.tolerance=2",
    "link.meter.burst": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }", "link.access.meter={}"] "link.access.meter.burst=9",
    "link.meter.patience": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-rtt\" }", "link.access.meter={}"] "link.access.meter.patience=20",
    "link.meter.budget": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\", factor = 8 }"] "link.access.meter={ budget = 1 }",
    "link.meter.balance": ["link.mid.law=fcp", "flow.f.law=fcp", "link.access.meter={ budget = 4 }", "flow.f.fcp.cheat={ trick = \"understate-balance\", factor = 8 }"] "link.mid.meter={ balance = true }",
    "link.exchange": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] "link.access.exchange.rate=3",
    "link.exchange.rate": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "link.access.exchange.rate=3"] "link.access.exchange.rate=5",
    "link.exchange.weight": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "link.access.exchange.weight=3"] "link.access.exchange.weight=5",
    "link.meter.enforce": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }", "link.access.meter={}"] "link.access.meter.enforce=false",
    "link.red": ["link.mid.law=red"] "link.mid.red={ weight = 0.02 }",
    "link.red.in-profile": ["link.mid.law=red"] + aggregate!("action = \"mark\""); "link.mid.red.in-profile=20",
    "link.red.min-threshold": ["link.mid.law=red"] "link.mid.red.min-threshold=0.1",
    "link.red.max-threshold": ["link.mid.law=red"] "link.mid.red.max-threshold=0.5",
    "link.red.max-probability": ["link.mid.law=red"] "link.mid.red.max-probability=0.3",
    "link.red.weight": ["link.mid.law=red"] "link.mid.red.weight=0.02",
    "link.red.spacing": ["link.mid.law=red"] "link.mid.red.spacing=wait",
    "link.red.least-queue": ["link.mid.law=red", "link.mid.red.weight=0.02"] "link.mid.red.least-queue=40",
    "link.red.gentle": ["link.mid.law=red", "link.mid.red.weight=0.1", "link.mid.red.max-threshold=0.3"] "link.mid.red.gentle=true",
    "link.codel": ["link.mid.law=codel"] "link.mid.codel={ target = \"1 ms\" }",
    "link.codel.target": ["link.mid.law=codel"] "link.mid.codel.target=1ms",
    "link.codel.interval": ["link.mid.law=codel"] "link.mid.codel.interval=20ms",
    "link.fq-codel": ["link.mid.law=fq-codel"] "link.mid.fq-codel={ queues = 1 }",
    "link.fq-codel.queues": ["link.mid.law=fq-codel"] "link.mid.fq-codel.queues=1",
    "link.fq-codel.quantum": ["link.mid.law=fq-codel"] "link.mid.fq-codel.quantum=300 B",
    "link.avq": ["link.mid.law=avq"] "link.mid.avq={ gamma = 0.8 }",
    "link.avq.gamma": ["link.mid.law=avq"] "link.mid.avq.gamma=0.8",
    "link.avq.alpha": ["link.mid.law=avq", "link.mid.avq.gamma=0.8"] "link.mid.avq.alpha=1",
    "link.avq.buffer": ["link.mid.law=avq"] "link.mid.avq.buffer=0.2",
    "link.pie": ["link.mid.law=pie"] "link.mid.pie={ target = \"2 ms\" }",
    "link.pie.target": ["link.mid.law=pie"] "link.mid.pie.target=2ms",
    "link.pie.update": ["link.mid.law=pie", "link.mid.pie.target=2ms"] "link.mid.pie.update=5ms",
    "link.pie.burst": ["link.mid.law=pie", "link.mid.pie.target=2ms"] "link.mid.pie.burst=3s",
    "link.pie.alpha": ["link.mid.law=pie", "link.mid.pie.target=2ms"] "link.mid.pie.alpha=1",
    "link.pie.beta": ["link.mid.law=pie", "link.mid.pie.target=2ms"] "link.mid.pie.beta=10",
    "link.pie.mark-limit": ["link.mid.law=pie", "link.mid.pie.target=2ms", "flow.f.ecn=true"] "link.mid.pie.mark-limit=0",
    "link.dualpi2": ["link.mid.law=dualpi2"] "link.mid.dualpi2={ target = \"2 ms\" }",
    "link.dualpi2.target": ["link.mid.law=dualpi2"] "link.mid.dualpi2.target=2ms",
    "link.dualpi2.update": ["link.mid.law=dualpi2"] "link.mid.dualpi2.update=5ms",
    "link.dualpi2.alpha": ["link.mid.law=dualpi2"] "link.mid.dualpi2.alpha=1",
    "link.dualpi2.beta": ["link.mid.law=dualpi2"] "link.mid.dualpi2.beta=20",
    "link.dualpi2.coupling": ["link.mid.law=dualpi2", "flow.f.law=dctcp", "flow.f.l4s=true"] "link.mid.dualpi2.coupling=4",
    "link.dualpi2.step": ["link.mid.law=dualpi2", "flow.f.law=dctcp", "flow.f.l4s=true"] "link.mid.dualpi2.step=5ms",
    "link.dualpi2.classic-share": ["link.mid.law=dualpi2", "flow.f.law=dctcp", "flow.f.l4s=true"] "link.mid.dualpi2.classic-share=0.6",
    "link.sfq": ["link.mid.law=sfq"] "link.mid.sfq={ queues = 1 }",
    "link.sfq.queues": ["link.mid.law=sfq"] "link.mid.sfq.queues=1",
    "link.sfq.quantum": ["link.mid.law=sfq"] "link.mid.sfq.quantum=30 kB",
    "link.sfq.perturb": ["link.mid.law=sfq", "link.mid.sfq.queues=2"] "link.mid.sfq.perturb=100ms",
    "link.step": ["link.mid.law=step", "flow.f.law=dctcp"] "link.mid.step={ threshold = \"3 packets\" }",
    "link.step.threshold": ["link.mid.law=step", "flow.f.law=dctcp"] "link.mid.step.threshold=3 packets",
    "flow.from": [] "flow.f.from=q",
    "flow.to": [] "flow.f.to=r",
    "flow.count": [] "flow.f.count=2",
    "flow.start": [] "flow.f.start={ first = \"0 s\", last = \"1 s\" }",
    "flow.stop": [] "flow.f.stop=4s",
    "flow.size": [] "flow.f.size=300kB",
    "flow.frames": [] "flow.f.frames={ count = 100, size = 4000 }",
    "flow.frames.count": ["flow.f.frames={ count = 100, size = 4000 }"] "flow.f.frames.count=90",
    "flow.frames.size": ["flow.f.frames={ count = 100, size = 4000 }"] "flow.f.frames.size=3000",
    "flow.law": [] "flow.f.law=cubic",
    "flow.transport": [] "flow.f.transport=kernel",
    "flow.receive-buffer": [] "flow.f.receive-buffer=5 packets",
    "flow.flow-control": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.receive-buffer=9 packets"] "flow.f.flow-control=soft",
    "flow.reader": ["flow.f.receive-buffer=9 packets"] "flow.f.reader={ every = \"8 ms\" }",
    "flow.reader.every": ["flow.f.receive-buffer=9 packets", "flow.f.reader={ every = \"8 ms\" }"] "flow.f.reader.every=4ms",
    "flow.reader.then": ["flow.f.receive-buffer=9 packets", "flow.f.reader={ every = \"8 ms\", then = \"8 ms\", period = \"1 s\" }"] "flow.f.reader.then=4ms",
    "flow.reader.period": ["flow.f.receive-buffer=9 packets", "flow.f.reader={ every = \"8 ms\", then = \"1 ms\", period = \"1 s\" }"] "flow.f.reader.period=2s",
    "flow.send-buffer": [] "flow.f.send-buffer=5 packets",
    "flow.packet-size": [] "flow.f.packet-size=1000 B",
    "flow.header": ["flow.f.size=600 kB"] "flow.f.header=60 B",
    "flow.ack-size": [] "flow.f.ack-size=60 B",
    "flow.initial-window": [] "flow.f.initial-window=3",
    "flow.growth-per-ack": ["flow.f.delayed-ack=40 ms"] "flow.f.growth-per-ack=1",
    "flow.sack": [] "flow.f.sack=false",
    "flow.sack-blocks": ["link.mid.loss=0.05", "link.mid.reverse.loss=0.3"] "flow.f.sack-blocks=1",
    "flow.loss-detection": [] "flow.f.loss-detection=rack",
    "flow.delayed-ack": [] "flow.f.delayed-ack=40ms",
    "flow.handshake": [] "flow.f.handshake=false",
    "flow.encoding": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.encoding=tcp-option",
    "flow.feedback": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.encoding=tcp-option"] "flow.f.feedback=integer",
    "flow.both-ways": [] "flow.f.both-ways=true",
    "flow.ecn": ["link.mid.law=red"] "flow.f.ecn=true",
    "flow.l4s": ["link.mid.law=dualpi2", "flow.f.law=dctcp"] "flow.f.l4s=true",
    "flow.rto": ["link.mid.loss=0.1"] "flow.f.rto.min=1s",
    "flow.rto.initial": ["link.mid.loss=0.7"] "flow.f.rto.initial=500ms",
    "flow.rto.min": ["link.mid.loss=0.1", "flow.f.rto.granularity=1ms"] "flow.f.rto.min=1s",
    "flow.rto.max": ["link.mid.loss=0.4"] "flow.f.rto.max=300ms",
    "flow.rto.granularity": ["link.mid.loss=0.1"] "flow.f.rto.granularity=1ms",
    "flow.rto.backoff": ["link.mid.loss=0.4"] "flow.f.rto.backoff=false",
    "flow.rto.at-repair": ["link.mid.loss=0.1"] "flow.f.rto.at-repair=true",
    "flow.rto.impatient": ["link.mid.loss=0.1", "flow.f.sack=false"] "flow.f.rto.impatient=true",
    "flow.rto.fixed": ["link.mid.loss=0.1"] "flow.f.rto.fixed=300ms",
    "flow.receive-window": [] "flow.f.receive-window={ growth = \"per-packet\", initial = 2, step = 1 }",
    "flow.receive-window.growth": ["flow.f.receive-window={ growth = \"per-packet\", initial = 2 }"] "flow.f.receive-window.growth=whole",
    "flow.receive-window.initial": ["flow.f.receive-window={ growth = \"per-packet\", initial = 2 }"] "flow.f.receive-window.initial=4",
    "flow.receive-window.step": ["flow.f.receive-window={ growth = \"per-packet\", initial = 2 }"] "flow.f.receive-window.step=1",
    "flow.xcp": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.pacing=true",
    "flow.repair-copies": ["flow.f.loss-detection=rack", "flow.f.receive-buffer=30 packets"] "flow.f.repair-copies=1",
    "flow.xcp.on-loss": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.on-loss=keep",
    "flow.xcp.advertise-limit": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.receive-buffer=8 packets"] "flow.f.xcp.advertise-limit=false",
    "flow.xcp.pacing": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.pacing=true",
    "flow.xcp.request": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.request=1Mbps",
    "flow.xcp.whole-window": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.whole-window=true",
    "flow.xcp.gain-segment": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.gain-segment=1000",
    "flow.xcp.every": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.every=4",
    "flow.xcp.fallback": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.fallback=cubic",
    "flow.xcp.cheat": ["link.mid.law=xcp", "flow.f.law=xcp"] "flow.f.xcp.cheat={ trick = \"overstate-rtt\" }",
    "flow.xcp.cheat.trick": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }"] "flow.f.xcp.cheat.trick=overstate-rtt",
    "flow.xcp.cheat.factor": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }"] "flow.f.xcp.cheat.factor=3",
    "flow.xcp.cheat.from": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"understate-window\" }"] "flow.f.xcp.cheat.from=1s",
    "flow.xcp.aging": ["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.size=600 kB"] "flow.f.xcp.aging=0.5",
    "workload.from": [] "workload.w.from=q",
    "workload.to": [] "workload.w.to=r",
    "flow.between": [] + "[flow.any]\nbetween = \"*\"\nlaw = \"newreno\"\n"; "flow.any.between=[\"q\", \"r\"]",
    "flow.pairs": [] + "[flow.any]\nbetween = \"*\"\nlaw = \"newreno\"\n"; "flow.any.pairs=2",
    "workload.between": [] + "[workload.any]\nbetween = \"*\"\nlaw = \"newreno\"\narrivals = { poisson = 5 }\nsizes = \"20 kB\"\n"; "workload.any.between=[\"q\", \"r\"]",
    "workload.pairs": [] + "[workload.any]\nbetween = \"*\"\nlaw = \"newreno\"\narrivals = { poisson = 5 }\nsizes = \"20 kB\"\n"; "workload.any.pairs=2",
    "workload.arrivals": [] "workload.w.arrivals={ interval = \"400 ms\" }",
    "workload.sizes": [] "workload.w.sizes={ pareto = { mean = \"30 kB\", shape = 1.5 } }",
    "workload.start": [] "workload.w.start=1s",
    "workload.stop": [] "workload.w.stop=3s",
    "workload.max-flows": [] "workload.w.max-flows=3",
    "workload.law": ["workload.w.sizes=300 kB"] "workload.w.law=cubic",
    "workload.transport": [] "workload.w.transport=kernel",
    "workload.receive-buffer": [] "workload.w.receive-buffer=3 packets",
    "workload.flow-control": ["link.mid.law=xcp", "workload.w.law=xcp", "workload.w.receive-buffer=3 packets"] "workload.w.flow-control=soft",
    "workload.reader": ["workload.w.receive-buffer=3 packets"] "workload.w.reader={ every = \"8 ms\" }",
    "workload.send-buffer": [] "workload.w.send-buffer=3 packets",
    "workload.packet-size": [] "workload.w.packet-size=1000 B",
    "workload.header": [] "workload.w.header=60 B",
    "workload.ack-size": [] "workload.w.ack-size=60 B",
    "workload.initial-window": [] "workload.w.initial-window=3",
    "workload.growth-per-ack": ["workload.w.delayed-ack=40 ms"] "workload.w.growth-per-ack=1",
    "workload.sack": ["workload.w.sizes=300 kB"] "workload.w.sack=false",
    "workload.sack-blocks": ["workload.w.sizes=600 kB", "link.mid.loss=0.05", "link.mid.reverse.loss=0.3"] "workload.w.sack-blocks=1",
    "workload.repair-copies": ["workload.w.sizes=300 kB", "workload.w.loss-detection=rack", "workload.w.receive-buffer=8 packets", "link.mid.loss=0.05"] "workload.w.repair-copies=1",
    "workload.loss-detection": ["workload.w.sizes=300 kB"] "workload.w.loss-detection=rack",
    "workload.delayed-ack": [] "workload.w.delayed-ack=40ms",
    "workload.handshake": [] "workload.w.handshake=false",
    "workload.encoding": ["link.mid.law=xcp", "workload.w.law=xcp"] "workload.w.encoding=tcp-option",
    "workload.feedback": ["link.mid.law=xcp", "workload.w.law=xcp", "workload.w.encoding=tcp-option"] "workload.w.feedback=integer",
    "workload.both-ways": [] "workload.w.both-ways=true",
    "workload.ecn": ["link.mid.law=red"] "workload.w.ecn=true",
    "workload.l4s": ["link.mid.law=dualpi2", "workload.w.law=dctcp", "workload.w.sizes=300 kB"] "workload.w.l4s=true",
    "workload.rto": ["link.mid.loss=0.1"] "workload.w.rto.min=1s",
    "workload.receive-window": [] "workload.w.receive-window={ growth = \"per-packet\", initial = 2, step = 1 }",
    "workload.xcp": ["link.mid.law=xcp", "workload.w.law=xcp"] "workload.w.xcp.pacing=true",
    "cbr.from": [] "cbr.c.from=r",
    "cbr.to": [] "cbr.c.to=r",
    "cbr.rate": [] "cbr.c.rate=2Mbps",
    "cbr.packet-size": [] "cbr.c.packet-size=1400 B",
    "cbr.start": [] "cbr.c.start=1s",
    "cbr.stop": [] "cbr.c.stop=3s",
    "cbr.on": ["cbr.c.off=300ms", "cbr.c.on=100ms"] "cbr.c.on=200ms",
    "cbr.off": ["cbr.c.off=300ms", "cbr.c.on=100ms"] "cbr.c.off=200ms",
    "change.at": [] "change.0.at=2s",
    "change.link": [] "change.0.link=last",
    "change.direction": [] "change.0.direction=reverse",
    "change.rate": [] "change.0.rate=2Mbps",
    "change.delay": [] "change.0.delay=30ms",
    "change.loss": [] "change.0.loss=0.1",
    "change.blackout": [] "change.0.blackout=200ms",
    "change.capacity": ["link.mid.law=xcp", "flow.f.law=xcp"] "change.0.capacity=3Mbps",
    "change.limit": [] "change.0.limit=5 packets",
    "change.flow": [] + "[[change]]\nat = \"2 s\"\nflow = \"f\"\nreceive-buffer = \"4 packets\"\n"; "change.1.flow=f.2",
    "change.reader": ["flow.f.receive-buffer=20 packets"] + "[[change]]\nat = \"2 s\"\nflow = \"f\"\nreader = { every = \"2 ms\" }\n"; "change.1.reader.every=8 ms",
    "change.receive-buffer": ["flow.f.receive-buffer=20 packets"] + "[[change]]\nat = \"2 s\"\nflow = \"f\"\nreceive-buffer = \"4 packets\"\n"; "change.1.receive-buffer=8 packets",
    "link.fcp": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.alpha=1",
    "link.fcp.alpha": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.alpha=1",
    "link.fcp.window": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.window=4",
    "link.fcp.preload-span": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.preload-span=packet",
    "link.fcp.unpaid": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.unpaid=counts",
    "link.fcp.target": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.target=1ms",
    "link.fcp.bound": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.bound=false",
    "link.fcp.newton": ["link.mid.law=fcp", "flow.f.law=fcp"] "link.mid.fcp.newton=0.5",
    "link.rcp": ["link.mid.law=rcp", "flow.f.law=rcp"] "link.mid.rcp.alpha=0.1",
    "link.rcp.alpha": ["link.mid.law=rcp", "flow.f.law=rcp"] "link.mid.rcp.alpha=0.1",
    "link.rcp.beta": ["link.mid.law=rcp", "flow.f.law=rcp"] "link.mid.rcp.beta=1",
    "link.rcp.gamma": ["link.mid.law=rcp", "flow.f.law=rcp"] "link.mid.rcp.gamma=0.9",
    "link.rcp.max-interval": ["link.mid.law=rcp", "flow.f.law=rcp"] "link.mid.rcp.max-interval=5ms",
    "flow.scalable": ["flow.f.law=scalable"] "flow.f.scalable={ decrease = 0.5 }",
    "flow.scalable.increase": ["flow.f.law=scalable"] "flow.f.scalable.increase=0.5",
    "flow.scalable.decrease": ["flow.f.law=scalable"] "flow.f.scalable.decrease=0.5",
    "flow.fcp": ["link.mid.law=fcp", "flow.f.law=fcp"] "flow.f.fcp.budget=2",
    "flow.fcp.budget": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] "flow.f.fcp.budget=2",
    "flow.fcp.initial-packets": ["link.mid.law=fcp", "flow.f.law=fcp"] "flow.f.fcp.initial-packets=4",
    "flow.fcp.initial-always": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.size=6kB"] "flow.f.fcp.initial-always=true",
    "flow.fcp.short": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.size=200kB"] "flow.f.fcp.short=1GB",
    "flow.fcp.max-preload": ["link.mid.law=fcp", "flow.f.law=fcp"] "flow.f.fcp.max-preload=1",
    "flow.fcp.cheat": ["link.mid.law=fcp", "flow.f.law=fcp"] "flow.f.fcp.cheat={ trick = \"overspend\" }",
    "flow.fcp.cheat.trick": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\" }"] "flow.f.fcp.cheat.trick=false-leave",
    "flow.fcp.cheat.factor": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\" }"] "flow.f.fcp.cheat.factor=3",
    "flow.fcp.cheat.from": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\" }"] "flow.f.fcp.cheat.from=1s",
    "flow.fcp.cheat.on": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\", on = \"200 ms\", off = \"300 ms\" }"] "flow.f.fcp.cheat.on=100ms",
    "flow.fcp.cheat.off": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp", "flow.f.fcp.cheat={ trick = \"overspend\", on = \"200 ms\", off = \"300 ms\" }"] "flow.f.fcp.cheat.off=100ms",
    "flow.fcp.wants": ["link.mid.law=fcp", "flow.f.law=fcp"] + "[host.h]\nflows = \"f\"\nstrategy = \"stable\"\n[flow.f2]\nfrom = \"q\"\nto = \"d\"\nlaw = \"fcp\"\n"; "flow.f.fcp.wants=1Mbps",
    "flow.fcp.deadline": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\npricing = \"deadline\"\n[flow.f.fcp]\ndeadline = \"2 Mbps\"\n"; "flow.f.fcp.deadline=3Mbps",
    "flow.fcp.patience": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\npricing = \"priority\"\n"; "flow.f.fcp.patience=1ms",
    "flow.multicast": ["link.mid.law=fcp"] + "[node.t]\ncount = 2\n[link.t]\nfrom = \"r\"\nto = \"t\"\nrate = \"5 Mbps\"\n[flow.m]\nfrom = \"s.1\"\nto = \"t\"\nlaw = \"fcp\"\n"; "flow.m.multicast=true",
    "flow.class": ["link.mid.law=fcp", "flow.f.law=fcp"] + "[class.c]\npricing = \"priority\"\n"; "flow.f.class=c",
    "workload.class": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] + "[class.c]\npricing = \"priority\"\n"; "workload.w.class=c",
    "class": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\n"; "class.c.pricing=priority",
    "class.pricing": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\n"; "class.c.pricing=priority",
    "class.share": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\npricing = \"deadline\"\n[flow.f.fcp]\ndeadline = \"2 Mbps\"\n"; "class.c.share=0.01",
    "class.times": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\npricing = \"priority\"\n"; "class.c.times=3",
    "class.law": ["link.mid.law=by-class", "flow.f.class=c", "workload.w.class=c"] + "[class.c]\n"; "class.c.law=codel",
    "class.weight": ["link.mid.law=fcp", "flow.f.law=fcp", "flow.f.class=c"] + "[class.c]\npricing = \"group\"\n[flow.f2]\nfrom = \"q\"\nto = \"d\"\nlaw = \"fcp\"\n"; "class.c.weight=3",
    "workload.fcp": ["link.mid.law=fcp", "workload.w.law=fcp"] "workload.w.fcp.initial-packets=2",
    "host.budget": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] + "[host.h]\nflows = \"f\"\n"; "host.h.budget=3",
    "host.flows": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] + "[host.h]\nflows = \"f\"\n"; "host.h.flows=*",
    "host.strategy": ["link.mid.law=fcp", "flow.f.law=fcp"] + "[host.h]\nflows = \"f\"\n"; "host.h.strategy=background",
    "change.price-error": ["link.mid.law=fcp", "flow.f.law=fcp"] "change.0.price-error=0.3",
    "change.budget": ["link.mid.law=fcp", "flow.f.law=fcp"] + "[[change]]\nat = \"2 s\"\nflow = \"f.1\"\nbudget = 2\n"; "change.1.budget=3",
    "change.host": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] + "[host.h]\nflows = \"f\"\n[host.i]\nflows = \"w\"\n[[change]]\nat = \"2 s\"\nhost = \"h\"\nbudget = 2\n"; "change.1.host=i",
    "change.strategy": ["link.mid.law=fcp", "flow.f.law=fcp", "workload.w.law=fcp"] + "[host.h]\nflows = \"*\"\n[[change]]\nat = \"2 s\"\nhost = \"h\"\nbudget = 2\n"; "change.1.strategy=background",
    "aggregate.from": [] + aggregate!("from = \"s\""); "aggregate.a.from=s.1",
    "aggregate.to": [] + aggregate!("to = \"d\"\n[flow.z]\nfrom = \"s.1\"\nto = \"r\"\nlaw = \"newreno\""); "aggregate.a.to=*",
    "aggregate.flows": [] + aggregate!("flows = \"*\""); "aggregate.a.flows=f",
    "aggregate.rate": [] + aggregate!(""); "aggregate.a.rate=1200kbps",
    "aggregate.depth": [] + aggregate!(""); "aggregate.a.depth=9kB",
    "aggregate.peak": [] + aggregate!(""); "aggregate.a.peak=3Mbps",
    "aggregate.scheme": [] + aggregate!(""); "aggregate.a.scheme=common",
    "aggregate.depths": ["node.s.count=1", "aggregate.a.rate=4Mbps"] + aggregate!("scheme = \"partitioned\"\ndepth = \"10 kB\"\n[flow.z]\nfrom = \"s\"\nto = \"r\"\nlaw = \"newreno\""); "aggregate.a.depths=equal",
    "aggregate.order": ["flow.f.count=2"] + aggregate!("scheme = \"common\""); "aggregate.a.order=sequential",
    "aggregate.action": [] + aggregate!(""); "aggregate.a.action=drop",
    "aggregate.timer": [] + aggregate!(""); "aggregate.a.timer=40ms",
    "aggregate.flow-timers": [] + aggregate!(""); "aggregate.a.flow-timers=true",
    "aggregate.queue": ["cbr.c.on=1s", "cbr.c.off=1s"] + aggregate!("flows = \"c\"\nfrom = \"q\""); "aggregate.a.queue=3",
    "aggregate.window": ["node.s.count=1", "aggregate.a.rate=6Mbps"] + aggregate!("[flow.z]\nfrom = \"s\"\nto = \"r\"\nlaw = \"newreno\""); "aggregate.a.window=aggregate-fair",
    "aggregate.k": [] + aggregate!("window = \"increase-by-k\"\nlong-rtt = \"1 ms\""); "aggregate.a.k=9",
    "aggregate.long-rtt": [] + aggregate!("window = \"increase-by-k\"\nlong-rtt = \"1 ms\""); "aggregate.a.long-rtt=10s",
    "aggregate.install": [] + aggregate!(""); "aggregate.a.install=2s",
    "aggregate.remove": [] + aggregate!(""); "aggregate.a.remove=3s",
    "loss.link": [] "loss.0.link=last",
    "loss.direction": [] "loss.0.direction=reverse",
    "loss.probability": [] "loss.0.probability=0.02",
    "loss.place": [] "loss.0.place=before",
    "loss.from": [] "loss.0.from=3s",
    "loss.until": [] "loss.0.until=3s",
    "loss.only": ["flow.f.both-ways=true"] "loss.0.only=data",
};

/// Keys that are there for people, for theory or for `reproduce`, or whose parts are listed above.
const NO_EFFECT: &[&str] = &[
    "aggregate",
    // A packet that is larger is a mistake in the file.
    "aggregate.largest",
    "topology",
    "topology.fat-tree",
    "topology.leaf-spine",
    "topology.ring",
    "topology.grid",
    "topology.dumbbell",
    "topology.parking-lot",
    "routing",
    "name",
    "title",
    "source",
    "description",
    "measure",
    "node",
    "medium",
    "link",
    "flow",
    "workload",
    "host",
    "cbr",
    "change",
    "loss",
    "variant",
    "grid",
    "claim",
    "plot",
    "reference",
    "live",
    "random",
    "neighbourhood",
    "overlay",
    "switch",
    "overlay.update",
    "overlay.period",
    "overlay.hop",
    "overlay.group",
    "overlay.sender",
    // The module `machines` tries them on a network of their own.
    "machine",
    "machine.node",
    "machine.kind",
    "machine.flows",
    "machine.messages",
    "machine.size",
    // `measuring_changes_no_packet`.
    "measure.interval",
    "measure.warmup",
    // A second router that is only compared: `shadows_report_and_change_nothing`.
    "link.xcp.shadow",
    // Theory's: the ideal column of the tables.
    "flow.weight",
    "workload.weight",
];

#[test]
fn every_key_makes_a_difference() {
    let mut wrong = Vec::new();
    for case in CASES {
        let text = format!("{BASE}{}", case.more);
        let sets: Vec<&str> = case.given.iter().chain([&case.set]).copied().collect();
        let (before, after) = (digests(&text, case.given), digests(&text, &sets));
        if before == after {
            wrong.push(case.key);
        }
    }
    assert!(wrong.is_empty(), "these keys change nothing: {wrong:?}");
}

#[test]
fn every_key_is_tried() {
    let tried: BTreeSet<&str> = CASES.iter().map(|case| case.key).chain(NO_EFFECT.iter().copied()).collect();
    let mut missing = Vec::new();
    walk(&schema(), "", &mut |path| {
        // Sections that two tables share are tried in one of them.
        let shared = [
            "topology.link.",
            "workload.rto.",
            "workload.receive-window.",
            "workload.reader.",
            "change.reader.",
            "workload.xcp.",
            "link.reverse.bursts",
            "link.reverse.jitter",
            "link.reverse.reorder",
            "link.reverse.duplicate",
            "link.reverse.corrupt",
            "link.reverse.xcp.",
            "link.reverse.red.",
            "link.reverse.codel",
            "link.reverse.fq-codel",
            "link.reverse.pie",
            "link.reverse.dualpi2",
            "link.reverse.sfq",
            "link.reverse.step",
            "link.reverse.fcp",
            "link.reverse.rcp",
            "link.reverse.avq",
            "workload.fcp.",
            "workload.scalable",
            "overlay.sender.start.",
            "overlay.sender.stop.",
        ];
        // A hop has the keys of a flow's transport.
        let shared_by_hop = path
            .strip_prefix("overlay.hop.")
            .is_some_and(|key| !["link", "from", "to", "length"].contains(&key));
        if !tried.contains(path) && !shared_by_hop && !shared.iter().any(|prefix| path.starts_with(prefix)) {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "no case tries {missing:?}");
}

/// Every key of the schema by its path, names left out.
fn walk(schema: &serde_json::Value, path: &str, note: &mut impl FnMut(&str)) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        note(&path);
        for inner in [inner, &inner["items"], &inner["additionalProperties"]] {
            // Claims, plots and references are the report's.
            if inner.is_object() {
                walk(inner, &path, note);
            }
        }
    }
}

#[test]
fn shadows_report_and_change_nothing() {
    let given = ["link.mid.law=xcp", "flow.f.law=xcp"];
    let with = ["link.mid.law=xcp", "flow.f.law=xcp", "link.mid.xcp.shadow=fixed128"];
    assert_eq!(digests(BASE, &given), digests(BASE, &with));
    let scenario = Scenario::parse("effects.toml", BASE, &with).unwrap();
    let options = Options { outputs: Outputs::memory(), ..Options::default() };
    let tables = run(&scenario.variants()[0].plan, &options).unwrap().result.systems;
    assert!(tables.get("shadows.mid.packets") > Some(1000.0), "{tables:?}");
    assert!(tables.get("shadows.mid.divergence").is_some_and(f64::is_finite));
}

/// What is measured differs, what happens does not.
#[test]
fn measuring_changes_no_packet() {
    let whole = |sets: &[&str]| {
        let scenario = Scenario::parse("effects.toml", BASE, sets).unwrap();
        let options =
            Options { outputs: Outputs::memory(), digest: DigestMode::Packets, ..Options::default() };
        run(&scenario.variants()[0].plan, &options).unwrap()
    };
    let rows = |table: &[arrow_array::RecordBatch]| table.iter().map(|batch| batch.num_rows()).sum::<usize>();
    let base = whole(&[]);
    for set in ["measure.interval=none", "measure.interval=7ms", "measure.warmup=2s", "measure.warmup=2050ms"]
    {
        let other = whole(&[set]);
        assert_eq!(base.run.digest, other.run.digest, "{set}");
        let same = match set.starts_with("measure.interval") {
            true => rows(&base.result.flows) == rows(&other.result.flows),
            false => base.result.summary == other.result.summary,
        };
        assert!(!same, "{set}");
        // A summary does not depend on the rows.
        if set.starts_with("measure.interval") {
            assert_eq!(base.result.summary, other.result.summary, "{set}");
            assert_eq!(base.result.link_summary, other.result.link_summary, "{set}");
        } else {
            assert_eq!(base.result.flows, other.result.flows, "{set}");
            assert_eq!(base.result.links, other.result.links, "{set}");
        }
    }
}

/// A default that is spelled out is the same run.
#[test]
fn defaults_are_what_they_say() {
    let xcp: &[&str] = &["link.mid.law=xcp", "flow.f.law=xcp"];
    let fcp: &[&str] = &["link.mid.law=fcp", "flow.f.law=fcp"];
    let red: &[&str] = &["link.mid.law=red"];
    let cases: &[(&[&str], &str)] = &[
        (&[], "measure.interval=100ms"),
        (&[], "link.last.delay=3 ms"),
        (&[], "link.mid.overhead=0 B"),
        (&[], "link.last.limit=1000 packets"),
        (&[], "link.mid.reverse.limit=unlimited"),
        (&[], "link.mid.reverse.law=drop-tail"),
        (&[], "link.mid.reverse.rate=8Mbps"),
        (&[], "link.mid.loss=0"),
        (&[], "link.mid.duplex=true"),
        (xcp, "link.mid.capacity=8Mbps"),
        (
            xcp,
            "link.mid.xcp={ alpha = 0.4, beta = 0.226, gamma = 0.1, max-interval = \"1 s\", min-interval = \"1 ms\", form = \"throughput\", arithmetic = \"float\", overhead = 0, shadow = \"none\" }",
        ),
        (
            red,
            "link.mid.red={ min-threshold = 0.25, max-threshold = 0.75, max-probability = 0.1, weight = 0.002, gentle = false, spacing = \"uniform\", least-queue = 0 }",
        ),
        (
            &[],
            "flow.f={ start = \"0 s\", receive-buffer = \"unlimited\", send-buffer = \"unlimited\", packet-size = 1500, header = 40, ack-size = 40, initial-window = 10, sack = true, sack-blocks = 3, loss-detection = \"rfc6675\", delayed-ack = \"none\", handshake = true, encoding = \"acp\", both-ways = false, ecn = false, weight = 1 }",
        ),
        (&["flow.f.sack=false"], "flow.f.loss-detection=newreno"),
        (
            &[
                "link.mid.law=xcp",
                "flow.f.law=xcp",
                "flow.f.xcp.cheat={ trick = \"understate-window\" }",
                "link.access.meter={}",
            ],
            "link.access.meter={ tolerance = 0.2, burst = 2, patience = 4, enforce = true }",
        ),
        (
            &["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.xcp.cheat={ trick = \"overstate-rtt\" }"],
            "flow.f.xcp.cheat={ trick = \"overstate-rtt\", factor = 2, from = \"0 s\" }",
        ),
        (xcp, "flow.f.initial-window=2"),
        (
            &["link.mid.law=xcp", "flow.f.law=xcp", "flow.f.encoding=tcp-option"],
            "flow.f={ sack-blocks = 2, feedback = \"split\" }",
        ),
        (
            &[],
            "flow.f.rto={ initial = \"1 s\", min = \"200 ms\", max = \"60 s\", granularity = \"200 ms\", backoff = true, at-repair = false, impatient = false }",
        ),
        (&[], "flow.f.receive-window={ growth = \"whole\", initial = 10 }"),
        (&["flow.f.receive-window.growth=per-packet"], "flow.f.receive-window={ initial = 10, step = 2 }"),
        (
            xcp,
            "flow.f.xcp={ on-loss = \"halve\", advertise-limit = true, pacing = false, request = \"all\", whole-window = false, gain-segment = 1500 }",
        ),
        (
            fcp,
            "link.mid.fcp={ alpha = 2, window = 2, preload-span = \"flow\", unpaid = \"queues\", target = \"0 s\", newton = 0, bound = true }",
        ),
        (fcp, "flow.f.fcp={ budget = 1, initial-packets = 10 }"),
        (
            &["link.mid.law=rcp", "flow.f.law=rcp"],
            "link.mid.rcp={ alpha = 0.4, beta = 0.4, gamma = 1, max-interval = \"10 ms\" }",
        ),
        (&[], "workload.w.start=0 s"),
        (&[], "change.0.direction=both"),
        (&[], "loss.0={ direction = \"forward\", place = \"after\", from = \"0 s\", only = \"all\" }"),
    ];
    for (given, set) in cases {
        let sets: Vec<&str> = given.iter().chain([set]).copied().collect();
        // A list's members are set key by key.
        let sets: Vec<String> = match set.strip_prefix("loss.0={ ") {
            None => sets.iter().map(|s| (*s).to_owned()).collect(),
            Some(keys) => keys
                .trim_end_matches(" }")
                .split(", ")
                .map(|pair| format!("loss.0.{}", pair.replace(" = ", "=")))
                .collect(),
        };
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert_eq!(digests(BASE, given), digests(BASE, &sets), "{set}");
    }
}
