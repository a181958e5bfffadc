//! The state that all parts of a session between sites have, and a part's work as the event loop
//! sees it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use mio::Registry;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_net::hop::{HopEvent, Hops};
use tollway_proto::transport::Config as Transport;
use tollway_proto::{Flags, Packet, SackRanges};

use super::HEADER;
use super::config::Sites;
use super::tcp::Ready;
use crate::status::Status;

/// The state that all parts have.
pub(super) struct Core {
    pub(super) config: Sites,
    pub(super) transport: Arc<Transport>,
    pub(super) registry: Registry,
    pub(super) hops: Hops,
    pub(super) clock: Clock,
    /// The time of the event that is being handled.
    pub(super) now: Time,
    pub(super) timers: BinaryHeap<Reverse<(Time, usize)>>,
    /// Sessions that have something to do at once.
    pub(super) again: Vec<usize>,
    pub(super) scratch: Vec<u8>,
    pub(super) counters: Counters,
    /// The end of the grace, once the process is to end.
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
    /// Frames that were not answered when their session broke.
    pub(super) abandoned: u64,
    /// Sessions that ended, by reason.
    pub(super) ends: BTreeMap<&'static str, u64>,
}

/// A part's own work. `key` names a session.
pub(super) trait Work: Sized {
    /// A packet has come from a neighbour; `payload` is that of data.
    fn on_packet(&mut self, core: &mut Core, from: usize, packet: Packet, sack: SackRanges, payload: &[u8]);
    /// A socket is ready.
    fn on_socket(&mut self, _core: &mut Core, _token: usize, _ready: Ready) {}
    /// The time has come that a session asked for.
    fn on_timer(&mut self, core: &mut Core, key: usize, at: Time);
    /// A session has something to do, or a while has passed.
    fn go_on(&mut self, _core: &mut Core, _key: usize) {}
    /// A neighbour came, went, or is another process.
    fn on_neighbour(&mut self, core: &mut Core, event: HopEvent);
    /// Looks at everything that takes time.
    fn sweep(&mut self, core: &mut Core);
    /// The process is to end.
    fn on_end(&mut self, _core: &mut Core) {}
    /// The process ends: sessions that are open are reset.
    fn on_close(&mut self, core: &mut Core);
    /// Sessions that are open.
    fn sessions(&self) -> usize;
    /// The status.
    fn snapshot(&self, core: &Core) -> Status;
}

impl Core {
    /// Has a session's [`on_timer`](Work::on_timer) called at `due`, if it will not be before;
    /// `armed` is what it was set to.
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

    /// Answers a packet of no connection, so that its sender does not wait for nothing.
    pub(super) fn refuse(&mut self, from: usize, packet: &Packet) {
        if packet.flags.has(Flags::RST) {
            return;
        }
        let uses = packet.flags.0 & (Flags::SYN.0 | Flags::FIN.0 | Flags::DATA.0) != 0;
        let reset = Packet {
            flow: packet.flow,
            seq: packet.ack,
            ack: packet.seq.wrapping_add(u32::from(uses)),
            size: HEADER,
            flags: Flags::RST.with(Flags::ACK),
            sent: tollway_proto::Stamp::at(self.now),
            ..Packet::default()
        };
        self.hops.send(self.now, from, &reset, &SackRanges::EMPTY, (&[], &[]));
    }
}

/// The first instant of the clock: spans before the start stay above zero.
pub(super) const FIRST_INSTANT: Time = Time::from_secs(60);
