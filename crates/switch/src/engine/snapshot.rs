//! The status of an engine at one instant.

use tollway_law::Time;

use super::Engine;
use super::core::Health;
use crate::status::{ClientStatus, MemberStatus, Status};

impl Engine {
    pub(super) fn snapshot(&self) -> Status {
        let core = &self.core;
        let members = core.members.iter().enumerate().filter(|(_, member)| member.listed || member.lanes > 0);
        let members = members.map(|(at, member)| {
            let window = core.cluster.window(at);
            let state = match member.health {
                _ if !member.listed => "removed",
                _ if member.drained || member.spec.drain => "draining",
                Health::Up => "up",
                Health::Down(_) => "down",
            };
            let counts = member.counts;
            MemberStatus {
                name: member.spec.name.clone(),
                address: member.spec.address.to_string(),
                state,
                connections: member.lanes,
                bytes: counts.bytes,
                answers: counts.answers,
                outstanding: window.outstanding(),
                window: window.window(),
                response_ms: (window.response() > Time::ZERO).then(|| window.response().as_millis_f64()),
                waiting: core.cluster.waiting(at),
                failures: counts.failures,
                retried: counts.retried,
                unanswered: counts.unanswered,
                perhaps_lost: counts.perhaps_lost,
                unrequested: counts.unrequested,
                last_failure: member.last_failure.clone(),
            }
        });
        let mut clients: Vec<ClientStatus> = core
            .clients
            .iter()
            .enumerate()
            .filter_map(|(at, client)| Some((at, client.as_ref()?)))
            .map(|(at, client)| ClientStatus {
                name: client.name.clone(),
                weight: client.weight,
                sessions: client.sessions,
                frames: client.frames,
                bytes: client.bytes,
                outstanding: (0..core.members.len())
                    .map(|member| core.cluster.outstanding(member, at as u32))
                    .sum(),
            })
            .collect();
        clients.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let counters = &core.counters;
        Status {
            time_s: core.now.as_secs_f64(),
            version: core.config.version.clone(),
            listen: self.addresses().iter().map(ToString::to_string).collect(),
            frames_are: core.config.framing.to_string(),
            policy: core.config.routing(),
            sessions: self.sessions.len(),
            memory: self.sessions.iter().map(|(_, session)| session.memory() as u64).sum(),
            cpu_s: cpu(),
            accepted: counters.accepted,
            refused: counters.refused,
            frames: counters.frames,
            bytes: counters.bytes,
            answers: counters.answers,
            answer_bytes: counters.answer_bytes,
            answered_here: counters.answered_here,
            torn: counters.torn,
            abandoned: counters.abandoned,
            ends: counters.ends.clone(),
            members: members.collect(),
            clients,
            source: String::new(),
            trouble: None,
            sites: None,
        }
    }
}

/// Processor time of this thread, seconds.
pub(crate) fn cpu() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}
