//! The state that all parts of a session between sites share, and the interface of a part to the
//! event loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use mio::Registry;
use tollway_agent::events::Events;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_net::hop::{HopEvent, Hops};
use tollway_proto::transport::Config as Transport;
use tollway_proto::{Packet, SackRanges};
use tollway_session::end::refusal;

use super::config::Sites;
use super::tcp::Ready;
use crate::status::Status;

/// The state that all parts share.
pub(super) struct Core {
    pub(super) config: Arc<Sites>,
    pub(super) transport: Arc<Transport>,
    pub(super) registry: Registry,
    pub(super) hops: Hops,
    pub(super) clock: Clock,
    /// The time of the event that is being handled.
    pub(super) now: Time,
    pub(super) timers: BinaryHeap<Reverse<(Time, usize)>>,
    /// Sessions with immediate work.
    pub(super) again: Vec<usize>,
    pub(super) scratch: Vec<u8>,
    pub(super) counters: Counters,
    pub(super) events: Events,
    /// The end of the grace, after the command to end.
    pub(super) ending: Option<Time>,
}

/// The counters of a part.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) answers: u64,
    pub(super) answer_bytes: u64,
    pub(super) unrequested: u64,
    pub(super) torn: u64,
    /// Unanswered frames of sessions that broke.
    pub(super) abandoned: u64,
    /// Sessions that ended, by reason.
    pub(super) ends: BTreeMap<&'static str, u64>,
}

/// The work of a part. `key` names a session.
pub(super) trait Work: Sized {
    /// Handles a packet of a neighbour; `payload` belongs to data.
    fn on_packet(&mut self, core: &mut Core, from: usize, packet: Packet, sack: SackRanges, payload: &[u8]);
    /// Handles a socket that is ready.
    fn on_socket(&mut self, _core: &mut Core, _token: usize, _ready: Ready) {}
    /// Handles a session's timer.
    fn on_timer(&mut self, core: &mut Core, key: usize, at: Time);
    /// Continues a session that has work, or is polled.
    fn go_on(&mut self, _core: &mut Core, _key: usize) {}
    /// Handles a neighbour that appeared, disappeared, or was replaced by another process.
    fn on_neighbour(&mut self, core: &mut Core, event: HopEvent);
    /// Checks time limits.
    fn sweep(&mut self, core: &mut Core);
    /// Puts another configuration in force.
    fn install(&mut self, _core: &mut Core, _config: &Sites) -> Result<(), String> {
        Ok(())
    }
    /// Drains a member, or ends its drain; an unknown name is answered with the known ones.
    fn drain(&mut self, _core: &mut Core, _member: &str, _drain: bool) -> Result<(), Vec<String>> {
        Err(vec!["none: ask the switch between its sites".to_owned()])
    }
    /// Handles the command to end.
    fn on_end(&mut self, _core: &mut Core) {}
    /// Ends the process: open sessions are reset.
    fn on_close(&mut self, core: &mut Core);
    /// Number of open sessions.
    fn sessions(&self) -> usize;
    /// The status.
    fn snapshot(&self, core: &Core) -> Status;
}

impl Core {
    /// Schedules a session's [`on_timer`](Work::on_timer) at `due`, unless it is due earlier;
    /// `armed` is the present setting.
    pub(super) fn arm(&mut self, armed: &mut Time, key: usize, due: Time) {
        if due < *armed {
            *armed = due;
            self.timers.push(Reverse((due, key)));
        }
    }

    /// Counts the end of a session.
    pub(super) fn count_end(&mut self, word: &'static str) {
        *self.counters.ends.entry(word).or_default() += 1;
    }

    /// Answers a packet without a connection, so that its sender does not wait.
    pub(super) fn refuse(&mut self, from: usize, packet: &Packet) {
        if let Some(reset) = refusal(self.now, packet) {
            self.hops.send(self.now, from, &reset, &SackRanges::EMPTY, (&[], &[]));
        }
    }
}

/// The first instant of the clock: spans before the start stay above zero.
pub(super) const FIRST_INSTANT: Time = Time::from_secs(60);
