//! The status fields that all parts share.

use tollway_net::secure::Trouble;

use super::core::{Core, FIRST_INSTANT};
use crate::engine::snapshot::cpu;
use crate::status::{MemberStatus, NeighbourStatus, SitesStatus, Status};

/// The status of a part, without its sessions, members and clients.
pub(super) fn common(core: &Core, part: &'static str) -> Status {
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
    let neighbour = |at| NeighbourStatus {
        name: core.hops.name_of(at).to_owned(),
        address: core.hops.addr_of(at).to_string(),
        state: state(core, at),
    };
    SitesStatus {
        part,
        bind: core.hops.addr().to_string(),
        neighbours: core.hops.neighbours().into_iter().map(neighbour).collect(),
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

/// The status of a neighbour that stands for a member.
pub(super) fn member(core: &Core, at: usize) -> MemberStatus {
    let up = core.hops.is_up(at);
    MemberStatus {
        name: core.hops.name_of(at).to_owned(),
        address: core.hops.addr_of(at).to_string(),
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
