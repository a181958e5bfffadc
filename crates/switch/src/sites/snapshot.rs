//! How a part stands, at one instant.

use tollway_net::secure::Trouble;

use super::back::Back;
use super::config::Neighbour;
use super::engine::{Core, FIRST_INSTANT, Work as _};
use super::front::Front;
use super::middle::Middle;
use crate::engine::snapshot::cpu;
use crate::status::{ClientStatus, MemberStatus, NeighbourStatus, SitesStatus, Status};

/// The front: its peer in the place of a member.
pub(super) fn front(front: &Front, core: &Core) -> Status {
    let peer = MemberStatus {
        bytes: core.counters.bytes,
        answers: core.counters.answers,
        outstanding: front.outstanding(),
        unanswered: core.counters.abandoned,
        unrequested: core.counters.unrequested,
        ..member(core, 0, &core.config.peers[0])
    };
    let clients = front.clients().map(|(address, &sessions)| ClientStatus {
        name: address.to_string(),
        weight: 1.0,
        sessions,
        ..ClientStatus::default()
    });
    let mut clients: Vec<_> = clients.collect();
    clients.sort_by(|a, b| b.sessions.cmp(&a.sessions).then_with(|| a.name.cmp(&b.name)));
    Status {
        listen: front.addresses().iter().map(ToString::to_string).collect(),
        frames_are: front.framing.to_string(),
        sessions: front.sessions(),
        memory: front.memory() as u64,
        members: vec![peer],
        clients,
        ..common(core, "front")
    }
}

/// The switch: its peers in the place of clients.
pub(super) fn middle(middle: &Middle, core: &Core) -> Status {
    let (stats, counts) = middle.counts();
    let members = core.config.members().iter().zip(&counts).enumerate();
    let members = members.map(|(k, (spec, counts))| MemberStatus {
        connections: counts.sessions,
        bytes: counts.bytes,
        answers: counts.answers,
        outstanding: counts.outstanding,
        ..member(core, middle.first_member + k, spec)
    });
    let clients = core.config.peers.iter().enumerate().map(|(at, peer)| ClientStatus {
        name: peer.name.clone(),
        weight: 1.0,
        sessions: middle.sessions_of(at),
        ..ClientStatus::default()
    });
    let mut status = Status {
        frames_are: "acp".into(),
        policy: middle.policy.word(),
        sessions: middle.sessions(),
        members: members.collect(),
        clients: clients.collect(),
        ..common(core, "switch")
    };
    if let Some(sites) = &mut status.sites {
        sites.outstanding = middle.outstanding();
        sites.duplicates = stats.duplicates;
        sites.out_of_window = stats.refused;
        sites.forged_acks = stats.forged;
        sites.rerouted = stats.rerouted;
        sites.lost = stats.lost;
        sites.failures = stats.failures;
    }
    status
}

/// The back: its server as the member, its peers in the place of clients.
pub(super) fn back(back: &Back, core: &Core) -> Status {
    let server = MemberStatus {
        name: back.server.to_string(),
        address: back.server.to_string(),
        state: if back.counts.last_failure.is_none() || core.counters.answers > 0 { "up" } else { "down" },
        connections: back.sessions(),
        bytes: core.counters.bytes,
        answers: core.counters.answers,
        outstanding: back.outstanding(),
        failures: back.counts.failures,
        unanswered: back.counts.unanswered,
        unrequested: core.counters.unrequested,
        last_failure: back.counts.last_failure.clone(),
        ..MemberStatus::default()
    };
    let clients = core.config.peers.iter().enumerate().map(|(at, peer)| ClientStatus {
        name: peer.name.clone(),
        weight: 1.0,
        sessions: back.sessions_of(at),
        ..ClientStatus::default()
    });
    Status {
        frames_are: back.framing.to_string(),
        sessions: back.sessions(),
        memory: back.memory() as u64,
        members: vec![server],
        clients: clients.collect(),
        ..common(core, "back")
    }
}

fn common(core: &Core, part: &'static str) -> Status {
    let counters = &core.counters;
    Status {
        time_s: (core.now - FIRST_INSTANT).as_secs_f64(),
        version: core.config.version.clone(),
        listen: vec![core.hops.addr().to_string()],
        policy: "sticky",
        cpu_s: cpu(),
        accepted: counters.accepted,
        refused: counters.refused,
        frames: counters.frames,
        bytes: counters.bytes,
        answers: counters.answers,
        answer_bytes: counters.answer_bytes,
        torn: counters.torn,
        abandoned: counters.abandoned,
        ends: counters.ends.clone(),
        sites: Some(sites(core, part)),
        ..Status::default()
    }
}

fn sites(core: &Core, part: &'static str) -> SitesStatus {
    let (hops, refused) = (core.hops.stats(), core.hops.refused());
    let all = core.config.peers.iter().chain(core.config.members()).enumerate();
    let neighbour = |(at, spec): (usize, &Neighbour)| NeighbourStatus {
        name: spec.name.clone(),
        address: spec.address.to_string(),
        state: state(core, at),
    };
    SitesStatus {
        part,
        bind: core.hops.addr().to_string(),
        neighbours: all.map(neighbour).collect(),
        received: hops.received,
        sent: hops.sent,
        unsent: hops.unsent,
        dropped: hops.dropped,
        strangers: refused.strangers,
        handshakes: refused.handshakes,
        replayed: refused.replayed,
        forged: refused.forged,
        plain: refused.plain,
        unsealed: refused.unsealed,
        senseless: hops.senseless,
        ..SitesStatus::default()
    }
}

fn member(core: &Core, at: usize, spec: &Neighbour) -> MemberStatus {
    let up = core.hops.is_up(at);
    MemberStatus {
        name: spec.name.clone(),
        address: spec.address.to_string(),
        state: if up { "up" } else { "down" },
        last_failure: (!up).then(|| state(core, at).to_owned()),
        ..MemberStatus::default()
    }
}

fn state(core: &Core, at: usize) -> &'static str {
    match core.hops.trouble(at) {
        _ if core.hops.is_up(at) => "up",
        None => "silent",
        Some(Trouble::Silent) => "no keys",
        Some(Trouble::Mistaken) => "wrong key",
        Some(Trouble::Plain) => "not sealed",
    }
}
