//! The senders of ns-2.35: `Agent/TCP/Sack1` with SACK, `Agent/TCP/Newreno` without, with its
//! default settings and `timestamps_`, `ts_resetRTO_`.
//!
//! Line numbers below are those of its folder `tcp`. Differences from RFC 5681, 6582 and 6675:
//!
//! | rule | ns-2.35 |
//! |---|---|
//! | reductions halve the window, not the flight, also below two segments | `tcp.cc` 1241 |
//! | the pipe counts a lost segment until a partial acknowledgement | `tcp-sack1.cc` 191–223 |
//! | a recovery repairs each hole before it sends new data | `scoreboard-rq.cc` 47 |
//! | new data acknowledged outside a recovery discard the reports | `tcp-sack1.cc` 138 |
//! | a timeout discards the reports and repeats all segments in order | `tcp.cc` 965 |
//! | the first two duplicates release a segment, after a timeout too | `tcp.cc` 1576 |
//! | a partial acknowledgement may reduce the window itself | `tcp-newreno.cc` 61 |
//! | partial acknowledgements give no sample of the round trip | `tcp.cc` 1352 |
//! | samples are in ticks of 10 ms, and begin anew at the fourth timeout in a row | `tcp.cc` 565 |

use tollway_law::Time;
use tollway_law::sender::{AnySender, NewReno, SenderLaw};
use tracing::debug;

use super::scoreboard::DUP_THRESH;
use super::{Force, Phase, Pick, Sender, round_trip, whole};
use crate::transport::config::Config;
use crate::transport::serial::{before, later};
use crate::transport::stats::Counters;
use crate::{Packet, SackRanges};

/// The state of ns-2's sender beside that of every sender.
#[derive(Clone, Debug, Default)]
pub(in crate::transport) struct Ns2 {
    /// `pipe_`: segments in the network, in a recovery with SACK.
    pipe: i64,
    /// `dupacks_`.
    duplicates: u32,
    /// `dupwnd_`: the inflation of the window in a recovery without SACK.
    inflation: u32,
    /// `t_seqno_`: the next segment to send after a timeout.
    cursor: u32,
    /// Every hole before it was repaired in this recovery.
    hole: u32,
    /// `timeout_`: no new data were acknowledged since a timeout.
    timed_out: bool,
    /// False if duplicates before the recovery point start no recovery.
    recovered: bool,
    /// `firstpartial_`.
    partial: bool,
    /// The packets that the last event allows.
    allowed: Allowed,
}

/// The packets that one event allows, in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// The first segment in flight, again.
    repair: bool,
    /// One segment, of the first duplicates (`send_one`).
    one: bool,
    /// All segments that the window releases (`send_much`).
    window: bool,
}

impl Ns2 {
    pub(in crate::transport) fn new() -> Ns2 {
        let allowed = Allowed { window: true, ..Allowed::default() };
        Ns2 { recovered: true, allowed, ..Ns2::default() }
    }
}

impl Sender {
    /// Handles an acknowledgement of `advance` segments.
    #[cold]
    pub(super) fn on_ack_ns2(
        &mut self,
        now: Time,
        packet: &Packet,
        sack: &SackRanges,
        advance: u32,
        config: &Config,
        stats: &mut Counters,
    ) {
        if advance == 0 && !self.is_duplicate(packet) {
            return;
        }
        let mut extra = std::mem::take(&mut self.extra);
        if let Some(ns2) = extra.ns2_mut() {
            ns2.allowed = Allowed::default();
            if self.board.clean() {
                self.board.refresh();
            }
            if advance > 0 {
                self.board.ack(advance, config.sack);
                ns2.cursor = later(self.cursor(ns2), self.board.una);
                self.judge_timeout(packet, stats);
                self.expiries = 0;
            }
            if config.sack && advance == 0 && self.phase != Phase::Recovery {
                // Until new data are acknowledged, duplicates after a timeout count for nothing.
                if !ns2.timed_out {
                    let news = self.board.sack(sack) > 0;
                    self.on_duplicate_ns2(now, packet.flow, news, ns2, config, stats);
                    ns2.allowed.window = ns2.duplicates == 0;
                }
            } else if config.sack {
                self.on_ack_sack1(now, packet, sack, advance, ns2, config);
            } else {
                self.on_ack_newreno(now, packet, advance, ns2, config, stats);
                self.board.sacked = ns2.duplicates.min(self.board.outstanding());
            }
        }
        self.extra = extra;
    }

    /// `Sack1TcpAgent::recv` (`tcp-sack1.cc` 95), for acknowledgements of new data or in a
    /// recovery.
    fn on_ack_sack1(
        &mut self,
        now: Time,
        packet: &Packet,
        sack: &SackRanges,
        advance: u32,
        ns2: &mut Ns2,
        config: &Config,
    ) {
        let recovering = self.phase == Phase::Recovery;
        ns2.pipe -= i64::from(recovering);
        if recovering && before(self.board.una, self.recover) {
            self.board.sack(sack);
            if advance > 0 {
                ns2.pipe -= 1;
                self.rtt.progress();
                self.restart_ns2(now, config);
            }
            ns2.allowed.window = true;
        } else {
            ns2.recovered |= recovering;
            ns2.timed_out = false;
            self.on_new_ack(now, packet, ns2, config);
            self.board.forget_reports();
            if !recovering {
                self.adjust(NewReno::grow_ns2);
            }
        }
    }

    /// `NewRenoTcpAgent::recv` (`tcp-newreno.cc` 180).
    fn on_ack_newreno(
        &mut self,
        now: Time,
        packet: &Packet,
        advance: u32,
        ns2: &mut Ns2,
        config: &Config,
        stats: &mut Counters,
    ) {
        let recovering = self.phase == Phase::Recovery;
        if advance == 0 {
            self.on_duplicate_ns2(now, packet.flow, true, ns2, config, stats);
            ns2.inflation += u32::from(recovering);
        } else if recovering && before(self.board.una, self.recover) {
            if ns2.inflation > advance {
                ns2.inflation -= advance - 1;
            } else {
                let excess = advance - ns2.inflation;
                self.adjust(|law| law.deflate_ns2(excess));
                ns2.inflation = 1;
            }
            if !std::mem::replace(&mut ns2.partial, true) {
                self.restart_ns2(now, config);
            }
            ns2.allowed.repair = true;
        } else {
            ns2.inflation = 0;
            ns2.partial = false;
            self.on_new_ack(now, packet, ns2, config);
            self.adjust(NewReno::grow_ns2);
        }
        if ns2.duplicates >= DUP_THRESH {
            ns2.allowed.window = true;
        }
    }

    /// `TcpAgent::newack` (`tcp.cc` 1352).
    fn on_new_ack(&mut self, now: Time, packet: &Packet, ns2: &mut Ns2, config: &Config) {
        if let Some(rtt) = round_trip(now, packet) {
            self.rtt.sample_ticks(rtt, &config.rto);
        }
        self.rtt.progress();
        self.restart_ns2(now, config);
        ns2.duplicates = 0;
        ns2.allowed.window = true;
        if self.phase == Phase::Recovery || !before(self.board.una, self.recover) {
            self.phase = Phase::Open;
            self.timeout_stamp = None;
        }
    }

    /// Counts a duplicate, if it has `news`.
    fn on_duplicate_ns2(
        &mut self,
        now: Time,
        flow: u32,
        news: bool,
        ns2: &mut Ns2,
        config: &Config,
        stats: &mut Counters,
    ) {
        ns2.duplicates += u32::from(news);
        ns2.allowed.one = news && ns2.duplicates < DUP_THRESH;
        let blocked = !ns2.recovered && !before(self.recover, self.board.una);
        if !news || ns2.duplicates != DUP_THRESH || blocked {
            return;
        }
        let (una, outstanding) = (self.board.una, self.board.outstanding());
        debug!(target: "transport", %now, flow, una, outstanding, "recovery begins");
        ns2.recovered = false;
        ns2.pipe = i64::from(outstanding) - i64::from(DUP_THRESH);
        ns2.inflation = if config.sack { 0 } else { DUP_THRESH };
        ns2.hole = una.wrapping_add(1);
        ns2.allowed.repair = true;
        stats.rare().fast_recoveries += 1;
        self.phase = Phase::Recovery;
        self.recover = self.board.next;
        self.restart_ns2(now, config);
        self.adjust(NewReno::halve_ns2);
    }

    /// `TcpAgent::timeout` (`tcp.cc` 1854), where the timer is backed off and restarted already.
    #[cold]
    pub(super) fn on_timeout_ns2(&mut self) {
        self.phase = Phase::Loss;
        self.recover = self.board.next;
        self.timeout_stamp = None;
        self.board.forget_reports();
        self.rtt.begin_anew();
        self.adjust(NewReno::collapse_ns2);
        let una = self.board.una;
        if let Some(ns2) = self.extra.ns2_mut() {
            let allowed = Allowed { window: true, ..Allowed::default() };
            *ns2 = Ns2 { partial: ns2.partial, cursor: una, timed_out: true, allowed, ..Ns2::default() };
        }
    }

    /// The segment that may leave now.
    #[cold]
    pub(super) fn pick_ns2(&mut self, config: &Config) -> Pick {
        let mut extra = std::mem::take(&mut self.extra);
        let pick = match extra.ns2_mut() {
            Some(ns2) => self.choose(ns2, config),
            None => Pick::Nothing,
        };
        self.extra = extra;
        pick
    }

    fn choose(&mut self, ns2: &mut Ns2, config: &Config) -> Pick {
        if std::mem::replace(&mut self.force, Force::Nothing) == Force::Fresh && self.source.ready() {
            return Pick::Fresh;
        }
        if std::mem::take(&mut ns2.allowed.repair) {
            return Pick::Again(self.board.una);
        }
        let window = self.law.window();
        ns2.cursor = self.cursor(ns2);
        let ahead = ns2.cursor.wrapping_sub(self.board.una);
        if std::mem::take(&mut ns2.allowed.one) && f64::from(ahead + 1) <= window + f64::from(ns2.duplicates)
        {
            return self.next_ns2(ns2, config);
        }
        if !ns2.allowed.window {
            return Pick::Nothing;
        }
        if config.sack && self.phase == Phase::Recovery {
            if ns2.pipe >= window as i64 {
                return Pick::Nothing;
            }
            let pick = match self.board.hole(later(ns2.hole, self.board.una)) {
                Some(seq) => {
                    ns2.hole = seq.wrapping_add(1);
                    Pick::Again(seq)
                }
                None => self.next_ns2(ns2, config),
            };
            ns2.pipe += i64::from(!matches!(pick, Pick::Nothing));
            return pick;
        }
        if ahead >= (window as u32).saturating_add(ns2.inflation) {
            self.app_limited = false;
            return Pick::Nothing;
        }
        self.next_ns2(ns2, config)
    }

    /// The next segment in sequence: again up to the last one sent, then new data.
    fn next_ns2(&mut self, ns2: &mut Ns2, config: &Config) -> Pick {
        let seq = ns2.cursor;
        ns2.cursor = seq.wrapping_add(1);
        if before(seq, self.board.next) {
            return Pick::Again(seq);
        }
        self.app_limited = !self.source.ready();
        if !self.app_limited && (self.has_room(config) || self.source.control()) {
            return Pick::Fresh;
        }
        ns2.cursor = seq;
        Pick::Nothing
    }

    /// The next segment in sequence, which only a timeout sets back.
    fn cursor(&self, ns2: &Ns2) -> u32 {
        if self.phase == Phase::Loss { ns2.cursor } else { self.board.next }
    }

    fn restart_ns2(&mut self, now: Time, config: &Config) {
        let idle = self.board.outstanding() == 0;
        self.rto_at = if idle { Time::NEVER } else { now.saturating_add(self.rtt.rto(&config.rto)) };
    }

    /// Changes the law's window.
    fn adjust(&mut self, change: impl FnOnce(&mut NewReno)) {
        if let AnySender::NewReno(law) = &mut self.law {
            change(law);
            self.window = whole(law.window());
        }
    }
}
