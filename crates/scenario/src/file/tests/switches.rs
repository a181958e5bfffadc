//! The section `[switch.NAME]` and the key `session`: their plan, and their mistakes.

use super::{parse, plan, show};
use crate::plan::switch::{Station, StretchEnd};
use crate::plan::{FlowId, NodeId, What};

/// A peer, two switches in a row, and three members: two behind the second.
const CASCADE: &str = r#"
name = "test"
duration = "10 s"
[node.peer]
[node.a]
[node.b]
[node.m]
count = 3
[node.x]
[link.peer]
from = "peer"
to = "a"
rate = "10 Mbps"
delay = "1 ms"
law = "xcp"
symmetric = true
[link.near]
from = "a"
to = "m.1"
rate = "10 Mbps"
delay = "1 ms"
law = "xcp"
symmetric = true
[link.joint]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "1 ms"
law = "xcp"
symmetric = true
[link.two]
from = "b"
to = "m.2"
rate = "10 Mbps"
delay = "1 ms"
law = "xcp"
symmetric = true
[link.three]
from = "b"
to = "m.3"
rate = "10 Mbps"
delay = "1 ms"
law = "xcp"
symmetric = true
[switch.near]
node = "a"
[switch.far]
node = "b"
policy = "sticky"
[flow.f]
from = "peer"
to = "m"
session = "*"
law = "xcp"
frames = { size = "1 kB" }
"#;

/// The message about the cascade with `from` replaced by `to` and `more` appended, on one line;
/// empty if it is valid.
fn said(from: &str, to: &str, more: &str) -> String {
    assert!(CASCADE.contains(from), "{from}");
    let Err(error) = parse(&format!("{}{more}", CASCADE.replacen(from, to, 1)), &[]) else {
        return String::new();
    };
    let words: Vec<_> =
        show(&error).split_whitespace().filter(|&word| word != "│").map(str::to_owned).collect();
    words.join(" ")
}

#[test]
fn a_session_is_taken_apart_at_its_switches() {
    let inbound = plan(CASCADE, &[]);
    let session = &inbound.sessions[0];
    let end = |flow| StretchEnd::End(FlowId(flow));
    let ends: Vec<_> = session.stretches.iter().map(|stretch| (stretch.from, stretch.to)).collect();
    let [near, far] = [StretchEnd::Station(0), StretchEnd::Station(1)];
    assert_eq!(ends, [(end(0), near), (near, end(0)), (near, far), (far, end(1)), (far, end(2))]);
    let station = |switch, peer, members: &[usize]| Station { switch, peer, members: members.into() };
    assert_eq!(session.stations, [station(0, 0, &[1, 2]), station(1, 2, &[3, 4])]);
    assert_eq!(
        [0, 1, 2].map(|flow| (inbound.sender_of(flow), inbound.receiver_of(flow))),
        [(0, 0), (0, 1), (0, 2)]
    );
    assert_eq!([0, 1, 2].map(|flow| session.share(&inbound, flow)), [None; 3]);
    // Acknowledgements take the same path back.
    assert_eq!(inbound.flows[2].path.base_rtt, tollway_law::Time::from_millis(6));

    let outbound = plan(CASCADE, &["flow.f.from=m", "flow.f.to=peer"]);
    let session = &outbound.sessions[0];
    assert_eq!(
        [0, 1, 2].map(|flow| (outbound.sender_of(flow), outbound.receiver_of(flow))),
        [(0, 0), (1, 0), (2, 0)]
    );
    // Each member counts at the switch where its frames are first merged.
    assert_eq!(
        [0, 1, 2].map(|flow| session.share(&outbound, flow)),
        [Some((0, 0)), Some((1, 0)), Some((1, 1))]
    );
    assert_eq!(session.stations[0].members.len(), 2);
}

#[test]
fn changes_of_switches_name_members_by_node() {
    let change = |keys: &str| format!("{CASCADE}[[change]]\nat = \"1 s\"\nswitch = \"*\"\n{keys}\n");
    let events = plan(&change("shares = [0, 3]"), &[]).events;
    let whats: Vec<_> = events.into_iter().map(|event| event.what).collect();
    assert_eq!(whats, [What::Shares(0, [0, 3].into()), What::Shares(1, [0, 3].into())]);
    let events = plan(&change("member = \"m.2\""), &[]).events;
    assert_eq!(events[0].what, What::Leave(1, NodeId(4)));
    // The second switch is the first one's member.
    let events = plan(&change("member = \"b\""), &[]).events;
    assert_eq!(events[0].what, What::Leave(0, NodeId(2)));
}

#[test]
fn what_is_no_session_is_refused_in_place() {
    let flow = "session = \"*\"";
    for (from, to, more, says) in [
        (flow, "session = \"nera\"", "", "there is no switch `nera`"),
        (flow, "session = \"*\"\ncount = 2", "", "only one flow between two nodes"),
        (flow, "session = \"*\"\nboth-ways = true", "", "send or receive"),
        (flow, "session = \"*\"\nsack = false", "", "needs SACK"),
        (flow, "session = \"*\"\npacket-size = \"500 B\"", "", "fit into one packet"),
        ("frames = { size = \"1 kB\" }", "", "", "a session needs `frames`"),
        ("law = \"xcp\"\nframes", "law = \"rcp\"\nframes", "", "does not support the tolls"),
        (flow, "session = \"far\"", "", "from `peer` to `m.1` passes no switch"),
        ("to = \"m.1\"\nrate", "to = \"m.1\"\nduplex = false\nrate", "", "no route from `m.1`"),
        ("node = \"b\"", "node = \"a\"", "", "`a` already has a switch"),
        ("policy = \"sticky\"", "flow-control = \"soft\"", "", "the ends of this session have credit"),
        (
            "policy = \"sticky\"",
            "shares = [1, 2, 3]",
            "",
            "`far` has 3 shares, and this session has 2 members",
        ),
        ("policy = \"sticky\"", "shares = [0, 0]", "", "all shares are zero"),
        ("policy = \"sticky\"", "shares = [1, -1]", "", "`-1` is not a share"),
        ("policy = \"sticky\"", "policy = \"sticky\"\nshares = [1, 1]", "", "either `shares` or a `policy`"),
        ("name", "name", "[[change]]\nat = \"1 s\"\nswitch = \"near\"\n", "changes nothing"),
        ("name", "name", "[[change]]\nat = \"1 s\"\nswitch = \"near\"\nshares = [1]\n", "has sessions of 2"),
        (
            "name",
            "name",
            "[[change]]\nat = \"1 s\"\nswitch = \"near\"\nmember = \"m.3\"\n",
            "not a member there",
        ),
        (
            "name",
            "name",
            "[[change]]\nat = \"1 s\"\nswitch = \"neer\"\nshares = [1, 1]\n",
            "no switch `neer`",
        ),
        (
            "name",
            "name",
            "[[change]]\nat = \"1 s\"\nlink = \"near\"\nrate = \"1 Mbps\"\nshares = [1, 1]\n",
            "is a change of a switch",
        ),
        (
            "name",
            "name",
            "[[change]]\nat = \"1 s\"\nlink = \"near\"\nswitch = \"near\"\nshares = [1, 1]\n",
            "write two changes",
        ),
    ] {
        let said = said(from, to, more);
        assert!(said.contains(says) && !said.is_empty(), "{to:?} {more:?}: {said:?} instead of {says:?}");
    }
}
