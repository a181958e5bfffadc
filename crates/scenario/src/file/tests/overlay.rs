//! The section `[overlay]`: its plan, and its mistakes.

use tollway_law::Time;
use tollway_law::overlay::{Benefit, CostConfig, PurseConfig};
use tollway_proto::overlay::ArrivalProcess;

use super::{parse, plan, show};
use crate::plan::{Data, LinkId, NodeId};

/// A star of six, s.1 to s.4 and r and d.
const STAR: &str = r#"
name = "test"
duration = "10 s"
[node.s]
count = 4
[node.r]
[node.d]
[node.alone]
[link.access]
from = "s"
to = "r"
rate = "10 Mbps"
delay = "1 ms"
[link.bottleneck]
from = "r"
to = "d"
rate = "2 Mbps"
delay = "10 ms"
[overlay.hop.all]
link = "*"
law = "newreno"
[overlay.group.d]
at = "d"
[overlay.sender.a]
at = "s"
group = "d"
"#;

/// The message on the star with `from` replaced by `to` and `more` appended, on one line; empty if
/// it is valid.
fn said(from: &str, to: &str, more: &str) -> String {
    assert!(STAR.contains(from), "{from}");
    let Err(error) = parse(&format!("{}{more}", STAR.replacen(from, to, 1)), &[]) else {
        return String::new();
    };
    let words: Vec<_> =
        show(&error).split_whitespace().filter(|&word| word != "│").map(str::to_owned).collect();
    words.join(" ")
}

#[test]
fn hops_are_flows_and_defaults_are_the_laws() {
    let plan = plan(STAR, &[]);
    let overlay = plan.overlay.as_ref().unwrap();
    assert_eq!((overlay.purse, overlay.announce), (PurseConfig::default(), Default::default()));
    assert_eq!(overlay.cost, CostConfig::default());
    assert_eq!(overlay.daemons, [0, 1, 2, 3, 4, 5].map(NodeId));
    let names: Vec<&str> = plan.flows.iter().map(|flow| &*flow.name).collect();
    assert_eq!(names, ["hop.s.1-r", "hop.s.2-r", "hop.s.3-r", "hop.s.4-r", "hop.r-d"]);
    for flow in &plan.flows {
        assert!(flow.data == Data::Messages && plan.transports[flow.transport.0 as usize].both_ways);
        assert_eq!((flow.path.route.len(), flow.path.back.len()), (1, 1));
    }
    let senders: Vec<&str> = overlay.senders.iter().map(|sender| &*sender.name).collect();
    assert_eq!(senders, ["a.1", "a.2", "a.3", "a.4"]);
    assert!(overlay.senders.iter().all(|sender| sender.demand == ArrivalProcess::Endless));
}

#[test]
fn a_hop_may_lead_over_routers_and_groups_may_be_many() {
    let more = r#"
[overlay.hop.far]
from = "s.1"
to = "d"
law = "cubic"
length = 7
[overlay.group.three]
at = "s"
width = 3
[overlay.sender.b]
at = "s"
group = "three"
arrivals = { poisson = 20 }
on = "1 s"
off = "2 s"
start = { first = "1 s", last = "4 s" }
stop = "9 s"
tenant = "t"
salary = 3
benefit = "concave"
"#;
    let plan = plan(&format!("{STAR}{more}"), &[]);
    let overlay = plan.overlay.as_ref().unwrap();
    let far = &plan.flows[overlay.hops[5].flow.0 as usize];
    assert_eq!((&*far.name, far.path.route.len(), overlay.hops[5].length), ("hop.s.1-d", 2, 7));
    let members: Vec<Vec<u32>> =
        overlay.groups[1..].iter().map(|group| group.members.iter().map(|node| node.0).collect()).collect();
    assert_eq!(members, [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]);
    let b = &overlay.senders[6];
    assert_eq!((&*b.name, b.at, b.group, &*overlay.groups[b.group].name), ("b.3", NodeId(2), 3, "three.3"));
    assert_eq!((b.start, b.stop), (Time::from_secs(3), Time::from_secs(9)));
    assert_eq!(b.demand, ArrivalProcess::Poisson { per_sec: 20.0 });
    assert_eq!(b.on_off, Some((Time::from_secs(1), Time::from_secs(2))));
    assert_eq!((b.tenant.as_deref(), b.salary, b.benefit), (Some("t"), 3.0, Benefit::Concave));
}

#[test]
fn a_hop_over_a_link_takes_just_that_link() {
    let detour =
        "[link.slow]\nfrom = \"s.1\"\nto = \"d\"\nrate = \"1 Mbps\"\ndelay = \"1 s\"\n[overlay.hop.all]";
    let plan = plan(&STAR.replace("[overlay.hop.all]", detour), &[]);
    let slow = plan.flows.iter().find(|flow| &*flow.name == "hop.s.1-d").unwrap();
    let link = plan.links.iter().position(|link| link.name == "slow").unwrap() as u32;
    assert_eq!((&slow.path.route[..], &slow.path.back[..]), (&[LinkId(link)][..], &[LinkId(link + 1)][..]));
    assert_eq!(slow.path.base_rtt, Time::from_secs(2));
}

#[test]
fn what_cannot_be_is_answered_at_its_place() {
    let hops = "[overlay.hop.all]\nlink = \"*\"\nlaw = \"newreno\"\n";
    let cases = [
        (hops, "[overlay]\n", "", "an overlay needs hops"),
        ("link = \"*\"", "link = \"*\"\nto = \"d\"", "", "a hop has either `link` or `to`"),
        ("link = \"*\"", "from = \"s\"", "", "`[overlay.hop.all]` needs `to`"),
        ("link = \"*\"", "link = \"bottelneck\"", "", "there is no link `bottelneck`"),
        (
            "link = \"*\"",
            "link = \"*\"",
            "[overlay.hop.b]\nfrom = \"r\"\nto = \"d\"\nlaw = \"cubic\"",
            "there are two hops between `r` and `d`",
        ),
        (
            "delay = \"10 ms\"",
            "delay = \"10 ms\"\nduplex = false",
            "",
            "a hop has both directions, and `bottleneck` has no reverse direction",
        ),
        ("group = \"d\"", "group = \"dd\"", "", "there is no group `dd`"),
        ("at = \"d\"", "at = \"alone\"", "", "there is no daemon at `alone`: no hop ends there"),
        ("at = \"s\"", "at = \"alone\"", "", "there is no daemon at `alone`"),
        ("at = \"s\"", "at = \"d\"", "", "group `d` has receivers only at the sender's node"),
        ("link = \"*\"", "link = \"bottleneck\"", "", "there is no daemon at `s.1`"),
        (
            "link = \"*\"",
            "link = \"access\"",
            "[overlay.hop.b]\nfrom = \"d\"\nto = \"alone\"\nlaw = \"cubic\"\n[link.other]\nfrom = \"d\"\nto = \"alone\"\nrate = \"1 Mbps\"",
            "no hops lead from `s.1` to `d`",
        ),
        ("at = \"d\"", "at = \"d\"\nwidth = 2", "", "a group of 2 among 1 nodes"),
        (
            "at = \"d\"",
            "at = \"s\"\nwidth = 1",
            "[overlay.sender.b]\nat = \"r\"\ngroup = \"d\"",
            "1 senders and 4 groups cannot be paired",
        ),
        ("group = \"d\"", "group = \"d\"\non = \"1 s\"", "", "`on` needs `off`"),
        (
            "group = \"d\"",
            "group = \"d\"\narrivals = { poisson = 1e9 }",
            "",
            "a sender can have at most 1000000 messages per second",
        ),
        (
            "group = \"d\"",
            "group = \"d\"",
            "[flow.a]\nfrom = \"r\"\nto = \"d\"\nlaw = \"cubic\"",
            "`a` is already the name of a flow",
        ),
        (
            "[overlay.hop.all]",
            "[overlay.period]\nleast = \"1 s\"\n[overlay.hop.all]",
            "",
            "`least` is over `most`",
        ),
        (
            "[overlay.hop.all]",
            "[overlay.update]\nleast = \"10 s\"\n[overlay.hop.all]",
            "",
            "`least` is over `most`",
        ),
        (
            "[overlay.hop.all]",
            "[overlay]\nmesage = 1000\n[overlay.hop.all]",
            "",
            "there is no key `mesage` in `[overlay]`",
        ),
        ("link = \"*\"", "links = \"*\"", "", "there is no key `links` in `[overlay.hop.all]`"),
    ];
    for (from, to, more, message) in cases {
        let answer = said(from, to, more);
        assert!(answer.contains(message), "{to}{more}: {answer}");
    }
    assert_eq!(said("[node.r]", "[node.r]", ""), "");
}

#[test]
fn a_message_has_room_for_the_names_of_its_destinations() {
    let wide = "[overlay]\nmessage = 256\n[overlay.hop.all]";
    let many = STAR.replace("count = 4", "count = 60").replace("at = \"d\"", "at = [\"s\", \"d\"]");
    let error = parse(&many.replace("[overlay.hop.all]", wide), &[]).unwrap_err();
    assert!(show(&error).contains("a message to 61 daemons needs at least 262 B"), "{}", show(&error));
}
