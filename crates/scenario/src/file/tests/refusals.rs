//! Combinations that links, classes, hosts and trees refuse, and similar ones that they accept.

use tollway_law::Time;
use tollway_law::link::xcp::{Arithmetic, Beside, CapacityFrom, Form};
use tollway_law::link::{
    DualPi2Config, ExchangeRate, FcpConfig, PreloadSpan, Pricing, RcpConfig, Unpaid, XcpConfig,
};
use tollway_law::meter::Duty;
use tollway_proto::port::SfqConfig;

use super::{BASE, parse, plan, show};
use crate::plan::*;

/// The message on the base scenario with `more` appended, on one line; empty if it is valid.
fn said(more: &str, sets: &[&str]) -> String {
    let Err(error) = parse(&format!("{BASE}{more}"), sets) else { return String::new() };
    let words: Vec<_> =
        show(&error).split_whitespace().filter(|&word| word != "│").map(str::to_owned).collect();
    words.join(" ")
}

/// Checks that each list of settings gives its message, and is valid without its last setting.
fn one_too_many(more: &str, cases: &[(&[&str], &str)]) {
    for (sets, message) in cases {
        let said_of = |sets: &[&str]| said(more, sets);
        assert!(said_of(sets).contains(message), "{sets:?}: {}", said_of(sets));
        assert_eq!(said_of(&sets[..sets.len() - 1]), "", "{sets:?} but for the last");
    }
}

#[test]
fn what_a_timer_goes_by_is_no_shorter_than_a_run_can_bear() {
    for key in ["initial", "min", "fixed"] {
        let set = |time: &str| said("", &[&format!("flow.f.rto.{key}={time}")]);
        assert_eq!(set("1 us"), "");
        assert!(set("999 ns").contains("from 1 us to 100 years"), "{}", set("999 ns"));
    }
    let timer = |time: &str| {
        said(&format!("[aggregate.p]\nfrom = \"s\"\nrate = \"1 Mbps\"\ntimer = \"{time}\"\n"), &[])
    };
    assert_eq!(timer("1 us"), "");
    assert!(timer("999 ns").contains("from 1 us to 100 years"), "{}", timer("999 ns"));
}

const AIR: &str = "[medium.air]\nrate = \"10 Mbps\"\n";

/// No limit would hold back an XCP sender, also in a workload.
#[test]
fn a_workload_that_no_link_answers_is_refused() {
    let of = |sizes: &str, sets: &[&str]| {
        let ends = "from = \"s\"\nto = \"d\"\nlaw = \"xcp\"\narrivals = { poisson = 5 }";
        said(&format!("[workload.w]\n{ends}\nsizes = {sizes}\n"), sets)
    };
    let message = "`w` requests unlimited feedback, and no link on its path there has a law that answers";
    for sizes in ["\"2 GB\"", "{ pareto = { mean = \"2 GB\", shape = 1.2 } }"] {
        assert!(of(sizes, &[]).contains(message), "{}", of(sizes, &[]));
    }
    assert_eq!(of("\"1 GB\"", &[]), "");
    assert_eq!(of("\"2 GB\"", &["workload.w.receive-buffer=20 packets"]), "");
    assert_eq!(of("\"2 GB\"", &["link.bottleneck.law=xcp"]), "");
}

/// These texts appear on terminals, in tables and in file names.
#[test]
fn what_a_run_is_called_can_be_read_on_a_line() {
    for key in ["name", "title", "source"] {
        one_too_many(
            "",
            &[
                (&[&format!("{key}=\"\"")], &format!("`{key}` is empty")),
                (&[&format!("{key}=\"a\\u0007\"")], &format!("`{key}` contains a control character")),
            ],
        );
    }
}

#[test]
fn what_a_link_can_not_be_is_said() {
    one_too_many(
        AIR,
        &[
            (&["link.bottleneck.medium=aire"], "there is no medium `aire`"),
            (
                &["link.access.meter.tolerance=0.3", "link.access.medium=air"],
                "a meter cannot measure waiting times",
            ),
            (
                &["link.access.meter.budget=1", "link.access.meter.balance=true"],
                "a meter checks either a `budget`, where packets enter, or the `balance`",
            ),
            (
                &["link.bottleneck.exchange.rate=2", "link.bottleneck.exchange.weight=1"],
                "a border has a `rate` or a `weight`, not both",
            ),
            (
                &["link.bottleneck.exchange.rate=2", "link.bottleneck.meter.tolerance=0.3"],
                "a link's end can have a meter or a border",
            ),
            (
                &[
                    "link.bottleneck.law=xcp",
                    "link.bottleneck.xcp.shadow=fixed32",
                    "link.bottleneck.xcp.arithmetic=fixed128",
                ],
                "`shadow` needs floating-point arithmetic",
            ),
            (
                &[
                    "link.bottleneck.reverse.law=xcp",
                    "link.bottleneck.reverse.xcp.shadow=fixed32",
                    "link.bottleneck.reverse.xcp.arithmetic=fixed32",
                ],
                "`shadow` needs floating-point arithmetic",
            ),
            (
                &["link.bottleneck.limit=0.00128 BDP", "link.bottleneck.limit=0.0012 BDP"],
                "its queue could hold no packet",
            ),
        ],
    );
    // Without a reverse direction, and with a key that needs one.
    for (table, message) in [
        ("reverse.rate=1 Mbps", "link `bottleneck` has no reverse direction"),
        ("meter.tolerance=0.3", "a meter needs the acknowledgements, and this link has no reverse direction"),
        (
            "exchange.rate=2",
            "a border also converts the returned prices, and this link has no reverse direction",
        ),
    ] {
        let table = format!("link.bottleneck.{table}");
        assert_eq!(said("", &[&table]), "");
        let found = said("", &[&table, "link.bottleneck.duplex=false"]);
        assert!(found.contains(message), "{found}");
    }
    assert!(said("[link.bottleneck.exchange]\n", &[]).contains("a border needs a `rate` or a `weight`"));
}

#[test]
fn ends_are_two_nodes_and_a_link_has_a_rate() {
    for (from, to, same) in
        [("s", "s", true), ("s", "s.1", true), ("s.4", "s", true), ("s.1", "s.2", false), ("r", "s", false)]
    {
        let found = said("", &[&format!("flow.f.from={from}"), &format!("flow.f.to={to}")]);
        assert_eq!(found.contains("`from` and `to` are the same node"), same, "{from} {to}: {found}");
        assert_eq!(found.is_empty(), !same, "{from} {to}: {found}");
    }
    let link = |more: &str| said(&format!("{AIR}[node.e]\n[link.l]\nfrom = \"d\"\nto = \"e\"\n{more}"), &[]);
    assert!(link("").contains("`[link.l]` needs `rate`"));
    assert_eq!((link("rate = \"1 Mbps\"\n"), link("medium = \"air\"\n")), (String::new(), String::new()));
    let found = said("", &["measure.warmup=10 s"]);
    assert!(found.contains("the warm-up ends after the run"), "{found}");
    assert_eq!(said("", &["measure.warmup=9.9 s"]), "");
}

#[test]
fn words_of_laws_reach_the_plan() {
    let law = |sets: &[&str]| (*plan(BASE, sets).links[8].law).clone();
    let xcp = |more: &[&str]| {
        let law = law(&[&["link.bottleneck.law=xcp"][..], more].concat());
        let xcp = law.get::<XcpConfig>().unwrap();
        (xcp.form, xcp.arithmetic, xcp.capacity, xcp.shadow)
    };
    assert_eq!(xcp(&[]), (Form::Throughput, Arithmetic::Float, CapacityFrom::Configured, Beside::None));
    let other = [
        "link.bottleneck.xcp.form=window",
        "link.bottleneck.xcp.capacity=measured",
        "link.bottleneck.xcp.shadow=fixed128",
    ];
    assert_eq!(xcp(&other), (Form::Window, Arithmetic::Float, CapacityFrom::Measured, Beside::Fixed128));
    for (word, arithmetic) in [("fixed32", Arithmetic::Fixed32), ("fixed128", Arithmetic::Fixed128)] {
        assert_eq!(xcp(&[&format!("link.bottleneck.xcp.arithmetic={word}")]).1, arithmetic);
    }
    let fcp = |more: &[&str]| {
        let law = law(&[&["link.bottleneck.law=fcp"][..], more].concat());
        let fcp = law.get::<FcpConfig>().unwrap();
        (fcp.preload_span, fcp.unpaid)
    };
    for (word, span) in [("flow", PreloadSpan::Flow), ("packet", PreloadSpan::Packet)] {
        assert_eq!(fcp(&[&format!("link.bottleneck.fcp.preload-span={word}")]).0, span);
    }
    assert_eq!((fcp(&[]).1, fcp(&["link.bottleneck.fcp.unpaid=counts"]).1), (Unpaid::Queues, Unpaid::Counts));
    let rcp = law(&["link.bottleneck.law=rcp", "link.bottleneck.rcp.alpha=0.25"]);
    assert_eq!(rcp.get::<RcpConfig>().unwrap().alpha, 0.25);
    let queue = |more: &[&str]| law(more).queue.unwrap();
    let dual = queue(&["link.bottleneck.law=dualpi2", "link.bottleneck.dualpi2.coupling=3"]);
    assert_eq!(dual.get::<DualPi2Config>().unwrap().coupling, 3.0);
    let sfq = queue(&["link.bottleneck.law=sfq", "link.bottleneck.sfq.perturb=10s"]);
    assert_eq!(sfq.get::<SfqConfig>().unwrap().perturb, Time::from_secs(10));
}

#[test]
fn red_s_thresholds_are_in_order_and_in_one_unit() {
    let answer = |min: &str, max: &str| {
        let sets = [
            format!("link.bottleneck.red.min-threshold={min}"),
            format!("link.bottleneck.red.max-threshold={max}"),
        ];
        said("", &["link.bottleneck.law=red", &sets[0], &sets[1]])
    };
    for (min, max) in [("5 packets", "6 packets"), ("5 kB", "6 kB"), ("5 packets", "0.5")] {
        assert_eq!(answer(min, max), "");
    }
    assert!(answer("5 packets", "5 packets").contains("`min-threshold` must be under `max-threshold`"));
    assert!(answer("6 kB", "5 kB").contains("`min-threshold` must be under `max-threshold`"));
    assert!(answer("5 packets", "60 kB").contains("must be both in packets or both in bytes"));
}

#[test]
fn meters_and_borders_stand_at_the_far_end_of_the_way_there() {
    let sets = [
        "link.access.meter.budget=3",
        "link.access.meter.enforce=false",
        "link.bottleneck.exchange.weight=2",
    ];
    let p = plan(BASE, &sets);
    let meter = p.links[0].meter.as_ref().unwrap();
    assert!(matches!(meter.duty, Duty::Budget(budget) if budget.get() == 3.0) && !meter.enforce);
    assert_eq!(p.links[8].exchange.as_deref(), Some(&ExchangeRate::Weight(2.0)));
    assert!([1, 8, 9].iter().all(|&link| p.links[link].meter.is_none()) && p.links[9].exchange.is_none());
    for (set, duty) in [("balance=true", Duty::Balance), ("tolerance=0.5", Duty::Windows)] {
        let p = plan(BASE, &[&format!("link.access.meter.{set}")]);
        assert_eq!(p.links[6].meter.as_ref().unwrap().duty, duty);
    }
}

#[test]
fn a_symmetric_link_s_way_back_is_what_it_says_and_else_like_the_way_there() {
    let sets = [
        "link.bottleneck.law=xcp",
        "link.bottleneck.xcp.alpha=0.25",
        "link.bottleneck.limit=50 packets",
        "link.bottleneck.capacity=9 Mbps",
        "link.bottleneck.loss=0.01",
    ];
    let back = |more: &[&str]| {
        let sets: Vec<&str> = sets.iter().chain(more).copied().collect();
        let p = plan(BASE, &sets);
        let link = &p.links[9];
        let alpha = link.law.get::<XcpConfig>().map(|xcp| xcp.alpha);
        (
            alpha,
            link.law.limit.packets,
            link.capacity.mbps(),
            link.loss,
            link.rate.mbps(),
            link.delay.as_millis_f64(),
        )
    };
    assert_eq!(back(&[]), (None, u32::MAX, 10.0, 0.0, 10.0, 10.0));
    let symmetric = "link.bottleneck.symmetric=true";
    assert_eq!(back(&[symmetric]), (Some(0.25), 50, 9.0, 0.01, 10.0, 10.0));
    let own =
        ["rate=5 Mbps", "capacity=4 Mbps", "limit=7 packets", "loss=0.5", "delay=3 ms", "xcp.alpha=0.125"];
    let own: Vec<String> = own.iter().map(|key| format!("link.bottleneck.reverse.{key}")).collect();
    let all: Vec<&str> = std::iter::once(symmetric).chain(own.iter().map(String::as_str)).collect();
    assert_eq!(back(&all), (Some(0.125), 7, 4.0, 0.5, 5.0, 3.0));
}

/// The base scenario under FCP.
const FCP: [&str; 2] = ["link.*.law=fcp", "flow.f.law=fcp"];

fn with_fcp<'s>(more: &[&'s str]) -> Vec<&'s str> {
    FCP.iter().chain(more).copied().collect()
}

#[test]
fn classes_are_counted_from_one_and_groups_are_among_themselves() {
    let class = |name: &str, pricing: &str| format!("[class.{name}]\npricing = \"{pricing}\"\n");
    let two = class("a", "standard") + &class("b", "priority");
    let p = plan(&format!("{BASE}{two}"), &with_fcp(&["flow.f.class=b", "class.b.times=4"]));
    assert_eq!((p.classes[1].pricing, p.transports[0].class), (Pricing::Priority { times: 4.0 }, 2));
    assert_eq!(plan(&format!("{BASE}{two}"), &FCP).transports[0].class, 0);
    one_too_many(
        &two,
        &[
            (&["flow.f.class=a", "flow.f.class=c"], "there is no class `c`"),
            (&["class.b.times=2", "class.a.times=2"], "`times` needs the pricing `priority`"),
            (&["class.a.pricing=deadline", "class.b.share=0.5"], "`share` needs the pricing `deadline`"),
            (
                &["class.b.pricing=group", "class.a.pricing=stable"],
                "the pricing `group` uses several currencies",
            ),
        ],
    );
    // The number of classes of a port, less one for unclassified traffic.
    let many = |n: u32| said(&(1..=n).map(|i| class(&format!("c{i}"), "stable")).collect::<String>(), &[]);
    assert_eq!(many(7), "");
    assert!(many(8).contains("there are more than 7 classes of traffic"));
}

#[test]
fn a_flow_has_one_owner_and_spends_a_budget() {
    let host = |name: &str, flows: &str| format!("[host.{name}]\nflows = \"{flows}\"\n");
    for (hosts, message) in [
        (host("h", "g"), "there is no flow `g`"),
        (host("h", "f.[12]"), "there is no flow `f.[12]`"),
        (host("h", "f") + &host("i", "f.2"), "a flow of `f.2` already belongs to host `h`"),
        (host("h", "f.1") + &host("i", "f.*"), "a flow of `f.*` already belongs to host `h`"),
    ] {
        let found = said(&hosts, &FCP);
        assert!(found.contains(message), "{found}");
    }
    let found = said(&host("h", "f.3"), &[]);
    assert!(found.contains("`f.3` has no budget: its law is not `fcp`"), "{found}");
    let p = plan(&format!("{BASE}{}{}", host("h", "f.1"), host("i", "f.[!1]").replace("[!1]", "4")), &FCP);
    assert_eq!((&p.hosts[0].flows[..], &p.hosts[1].flows[..]), (&[FlowId(0)][..], &[FlowId(3)][..]));
    // The same for workloads.
    let workload = "[workload.w]\nfrom = \"s\"\nto = \"d\"\nlaw = \"fcp\"\narrivals = { poisson = 50 }\nsizes = { empirical = [[\"1 kB\", 1.0]] }\n";
    let p = plan(&format!("{BASE}{workload}{}{}", host("h", "w"), host("i", "f")), &FCP);
    assert_eq!(
        (&p.hosts[0].workloads[..], p.hosts[0].flows.len(), p.hosts[1].workloads.len()),
        (&[0][..], 0, 0)
    );
    let found = said(&(workload.to_owned() + &host("h", "w") + &host("i", "?")), &FCP);
    assert!(found.contains("a flow of `?` already belongs to host `h`"), "{found}");
    let found = said(&(workload.to_owned() + &host("h", "w")), &with_fcp(&["workload.w.law=cubic"]));
    assert!(found.contains("`w` has no budget: its law is not `fcp`"), "{found}");
    for (word, strategy) in [
        ("equal-budget", Strategy::EqualBudget),
        ("fixed", Strategy::Fixed),
        ("background", Strategy::Background),
        ("equal-throughput", Strategy::EqualThroughput),
        ("max-throughput", Strategy::MaxThroughput),
        ("stable", Strategy::Stable),
    ] {
        let p = plan(&format!("{BASE}{}", host("h", "f")), &with_fcp(&[&format!("host.h.strategy={word}")]));
        assert_eq!((p.hosts[0].strategy, p.hosts[0].flows.len()), (strategy, 4));
    }
}

#[test]
fn a_tree_has_one_sender_and_a_way_back_from_every_receiver() {
    let tree = with_fcp(&["link.*.reverse.law=fcp", "flow.f.multicast=true", "flow.f.from=d", "flow.f.to=s"]);
    let p = plan(BASE, &tree);
    assert_eq!((p.trees[0].first, p.trees[0].count), (FlowId(0), 4));
    assert_eq!((p.transports[0].sack_blocks, p.transports[0].loss_detection), (0, Detection::NewReno));
    let but = |more: &[&str]| said("", &[&tree[..], more].concat());
    for (more, message) in [
        (
            &["flow.f.law=newreno"][..],
            "multicast needs the law `fcp`: only prices can be added up over a tree",
        ),
        (&["flow.f.from=s", "flow.f.to=d"], "a multicast flow has one sender"),
        (&["flow.f.to=s.1"], "a multicast flow has a receiver for each member of the group `to`"),
        (&["flow.f.count=2"], "a multicast flow has a receiver for each member of the group `to`"),
        (&["flow.f.both-ways=true"], "receivers of a multicast flow send nothing"),
        (&["flow.f.sack=true"], "multicast does not support SACK: its receivers lose different packets"),
        // Each link from here belongs to one receiver.
        (&["flow.f.from=r"], "its sender has several links to its receivers, and only routers make copies"),
    ] {
        let found = but(more);
        assert!(found.contains(message), "{more:?}: {found}");
    }
    assert_eq!(but(&["flow.f.sack=false"]), "");
    // A receiver on the path to the others; then paths that part and meet again.
    let chain =
        "[node.e]\ncount = 2\n[link.first]\nfrom = \"d\"\nto = \"e.1\"\nrate = \"1 Mbps\"\nlaw = \"fcp\"\n";
    let second = |from: &str| {
        format!("[link.second]\nfrom = \"{from}\"\nto = \"e.2\"\nrate = \"1 Mbps\"\nlaw = \"fcp\"\n")
    };
    let to_e = with_fcp(&["flow.f.multicast=true", "flow.f.from=r", "flow.f.to=e"]);
    assert_eq!(said(&(chain.to_owned() + &second("d")), &to_e), "");
    let found = said(&(chain.to_owned() + &second("e.1")), &to_e);
    assert!(found.contains("`e.1` is a receiver on the route to another receiver"), "{found}");
    // Over a link without a reverse direction, although another path leads back.
    let detour = "[link.detour]\nfrom = \"s\"\nto = \"r\"\nrate = \"1 Mbps\"\ndelay = \"50 ms\"\nduplex = false\nlaw = \"fcp\"\n";
    let one_way = with_fcp(&[
        "link.bottleneck.reverse.law=fcp",
        "link.access.from=r",
        "link.access.to=s",
        "link.access.duplex=false",
        "flow.f.multicast=true",
        "flow.f.from=d",
        "flow.f.to=s",
    ]);
    let found = said(detour, &one_way);
    assert!(
        found.contains("acknowledgements cannot return over `access.4`, which has no reverse direction"),
        "{found}"
    );
}
