//! XCP's transforms (§ IV), in Tollway's toll: throughput changes of a packet, bytes/s.

use super::{Reading, ReceiveRatio, seconds, sends};
use crate::{Time, Toll};

/// One XCP flow split over members.
///
/// | | the paper | here |
/// |---|---|---|
/// | data | cwnd·β, fdbk·β, rtt | X/β, `due` and rtt unchanged: the same per packet |
/// | acknowledgements | min fdbk_k/β_k | D = min A_k/β_k, A_k: unused feedback of member k |
///
/// A_k is bounded by the grants of member k within a round trip, so that old unused room of other
/// members grants nothing now.
///
/// **Floor.** A member's link that sees less than a packet per control interval grants nothing. A
/// session with less than one segment per member would stay there. So the sender's window is kept
/// at one segment for each member in use; with one member it is unchanged.
///
/// **Silence.** Even so a member's link may see less than a packet per interval: the member has
/// less than an even share, round trips differ, or the member is a switch before other members.
/// Its echoes are zero then. After two round trips of that, its grant is not required, and the
/// window is raised by a segment per round trip, as long as it has less than sixteen packets in one.
#[derive(Clone, Debug)]
pub struct XcpSplit {
    reading: Reading,
    members: Vec<Receiver>,
    /// The sender's statements: round trip, s; window, segments; a packet, bytes.
    rtt: f64,
    window: f64,
    size: f64,
    /// End of the present round trip.
    until: Time,
    /// Reductions, and raises to the floor, sent to the sender in this round trip and the previous
    /// one, which its stated window may not show yet. Segments.
    cut: [f64; 2],
    lifted: [f64; 2],
}

/// The state of a member that receives: feedback in bytes/s.
#[derive(Clone, Copy, Debug, Default)]
struct Receiver {
    /// A_k, feedback not used yet.
    pending: f64,
    /// Positive feedback of this round trip.
    granted: f64,
    /// Carried by packets whose echo has not come.
    carried: f64,
    latest: f64,
    /// True if an echo of this round trip was not zero, and the number of round trips without one.
    heard: bool,
    silent: u8,
}

impl Receiver {
    /// True if nothing is known of its links, at `packets` per round trip.
    fn is_silent(&self, packets: f64) -> bool {
        self.silent >= SILENT && packets < SEEN
    }
}

impl XcpSplit {
    /// A transform over `members`.
    pub fn new(reading: Reading, members: usize) -> XcpSplit {
        XcpSplit {
            reading,
            members: vec![Receiver::default(); members],
            rtt: 0.0,
            window: 0.0,
            size: 0.0,
            until: Time::ZERO,
            cut: [0.0; 2],
            lifted: [0.0; 2],
        }
    }

    pub(super) fn on_data(&mut self, member: usize, size: u32, ratio: &ReceiveRatio, toll: &mut Toll) {
        let (Some(rtt), Some(offer)) = (seconds(toll.rtt), seconds(toll.offer)) else { return };
        (self.rtt, self.window, self.size) = (rtt, rtt / offer, f64::from(size.max(1)));
        toll.offer = (offer / ratio.of(member)) as f32;
    }

    pub(super) fn on_acked(&mut self, member: usize, due: f64) {
        self.members[member].carried += amount(due);
    }

    pub(super) fn on_echo(&mut self, member: usize, echo: f32) {
        let member = &mut self.members[member];
        let echo = f64::from(echo).min(std::mem::take(&mut member.carried));
        if !echo.is_finite() {
            return;
        }
        member.latest = echo;
        member.heard |= echo != 0.0;
        member.pending += echo;
        member.granted += echo.max(0.0);
    }

    pub(super) fn echo(&mut self, now: Time, ratio: &ReceiveRatio) -> f32 {
        let begins = self.end_round_trip(now);
        let literal = self.reading == Reading::Literal;
        let (several, window) = (ratio.active() > 1, self.window);
        let used = || self.members.iter().enumerate().map(|(k, m)| (m, ratio.of(k))).filter(|m| m.1 > 0.0);
        let part = |member: &Receiver| if literal { member.latest } else { member.pending };
        let unknown = |member: &Receiver, beta| !literal && several && member.is_silent(beta * window);
        let bounds = used().filter(|&(member, beta)| !unknown(member, beta) || part(member) < 0.0);
        let least = bounds.map(|(member, beta)| part(member) / beta).fold(f64::INFINITY, f64::min);
        let least = if least.is_finite() { least } else { 0.0 };
        if literal {
            return least as f32;
        }
        let raises = begins && least >= 0.0 && used().any(|(member, beta)| unknown(member, beta));
        for (k, member) in self.members.iter_mut().enumerate() {
            let beta = ratio.of(k);
            if !(several && member.is_silent(beta * window)) || least < 0.0 {
                member.pending -= least * beta;
            }
        }
        let change = if raises { least.max(self.size / self.rtt) } else { least };
        self.raise_to_floor(change, ratio.active()) as f32
    }

    pub(super) fn add(&mut self) {
        self.members.push(Receiver::default());
    }

    pub(super) fn forget(&mut self, member: usize) {
        self.members[member] = Receiver::default();
    }

    /// Returns true if a round trip has ended.
    fn end_round_trip(&mut self, now: Time) -> bool {
        if now < self.until {
            return false;
        }
        self.until = now.saturating_add(Time::from_secs_f64(self.rtt));
        self.cut = [0.0, self.cut[0]];
        self.lifted = [0.0, self.lifted[0]];
        for member in &mut self.members {
            member.pending = member.pending.min(std::mem::take(&mut member.granted));
            let heard = std::mem::take(&mut member.heard);
            member.silent = if heard { 0 } else { member.silent.saturating_add(1) };
        }
        true
    }

    /// The change, less the part that would take the window below `floor` segments, or leave it
    /// there.
    fn raise_to_floor(&mut self, change: f64, floor: u32) -> f64 {
        if floor <= 1 || self.window <= 0.0 {
            return change;
        }
        let (segment, above) = (self.size / self.rtt, self.window - f64::from(floor));
        let cut = change.min(0.0).max((-self.cut[0] - self.cut[1] - above).min(0.0) * segment);
        self.cut[0] += cut / segment;
        let lift = (-self.lifted[0] - self.lifted[1] - above) * segment;
        if lift > change.max(cut) {
            self.lifted[0] += lift / segment;
            return lift;
        }
        change.max(cut)
    }
}

/// Round trips without feedback after which a member is silent.
const SILENT: u8 = 2;
/// Packets per round trip above which the links of a member see some in each interval.
const SEEN: f64 = 16.0;

/// XCP flows of members merged into one.
///
/// | | the paper | here, w_i = r_i/Σr |
/// |---|---|---|
/// | data | Σcwnd, Σfdbk, rtt = Σcwnd/Σ(cwnd/rtt) | X·w_i, Σw·`due`, Σw·rtt: same per packet |
/// | acknowledgements, + | fdbk/N·rtt_i/rtt, at most fdbk_src | D/N each, within their tolls |
/// | acknowledgements, − | fdbk·cwnd_i/cwnd | D·w_i each |
///
/// N counts the members that have sent within two of their round trips.
///
/// **Shuffle.** Routers shuffle traffic among sessions, and the net of a merged session is zero. So
/// per round trip a member of rate r gets γ/N of each difference r_j − r from the members above it,
/// as far as its toll allows, and these lose as much.
#[derive(Clone, Debug)]
pub struct XcpMerge {
    reading: Reading,
    members: Vec<Source>,
    /// The receiver's latest echo, bytes/s.
    latest: f64,
}

/// The state of a member that sends.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// r, bytes/s; zero before the member has stated it.
    rate: f64,
    /// Seconds.
    rtt: f64,
    heard: Time,
    /// The end of the time for which it has got shuffled traffic.
    shuffled: Time,
    /// The `due` of its last packet at the switch, bytes/s.
    due: f64,
    /// Credited and not paid, bytes/s.
    owed: f64,
    /// Carried by packets whose echo has not come, bytes/s.
    carried: f64,
    /// True if an echo has arrived since the last one was passed on.
    pending: bool,
}

impl Source {
    fn sends(&self, now: Time) -> bool {
        self.rate > 0.0 && sends(now, self.heard, self.rtt)
    }
}

impl XcpMerge {
    /// A transform over `members`.
    pub fn new(reading: Reading, members: usize) -> XcpMerge {
        XcpMerge { reading, members: vec![Source::default(); members], latest: 0.0 }
    }

    pub(super) fn on_data(&mut self, now: Time, member: usize, size: u32, toll: &mut Toll) {
        let source = &mut self.members[member];
        source.due = amount(toll.due);
        let (Some(rtt), Some(offer)) = (seconds(toll.rtt), seconds(toll.offer)) else { return };
        if !source.sends(now) {
            // The credit was for a rate that it no longer has.
            source.owed = source.owed.min(0.0);
            source.shuffled = now;
        }
        (source.rate, source.rtt, source.heard) = (f64::from(size.max(1)) / offer, rtt, now);
        let own = source.rate;
        let sending = || self.members.iter().filter(|source| source.sends(now));
        let rate: f64 = sending().map(|source| source.rate).sum();
        let mean = |of: fn(&Source) -> f64| sending().map(|s| s.rate / rate * of(s)).sum::<f64>();
        toll.rtt = mean(|source| source.rtt) as f32;
        toll.offer = (offer * (own / rate)) as f32;
        toll.due = match self.reading {
            Reading::Totals => mean(|source| source.due),
            Reading::Literal => sending().map(|source| source.due).sum(),
        };
    }

    pub(super) fn on_acked(&mut self, member: usize, due: f64) {
        self.members[member].carried += amount(due);
    }

    pub(super) fn on_echo(&mut self, now: Time, echo: f32) {
        let echo = f64::from(echo);
        if !echo.is_finite() {
            return;
        }
        self.latest = echo;
        let (count, rate, all) = self.sending(now);
        for source in &mut self.members {
            source.pending = true;
            if source.sends(now) || all && source.rate > 0.0 {
                source.owed += share(echo, source.rate, count, rate);
            }
        }
    }

    /// The number of sending members, the sum of their rates, and whether all members are silent,
    /// in which case all that ever sent count.
    fn sending(&self, now: Time) -> (u32, f64, bool) {
        let sum = |all: bool| {
            let known = self.members.iter().filter(|source| source.sends(now) || all && source.rate > 0.0);
            known.fold((0, 0.0), |(count, sum), source| (count + 1, sum + source.rate))
        };
        match sum(false) {
            (0, _) => (sum(true).0, sum(true).1, true),
            (count, rate) => (count, rate, false),
        }
    }

    pub(super) fn echo(&mut self, now: Time, member: usize) -> Option<f32> {
        let (count, rate, _) = self.sending(now);
        let latest = self.latest;
        let source = &mut self.members[member];
        if !std::mem::take(&mut source.pending) {
            return None;
        }
        let owed = std::mem::take(&mut source.owed);
        let carried = std::mem::take(&mut source.carried);
        Some(match self.reading {
            Reading::Totals => {
                (owed.min(carried) + self.shuffle(now, member, count, carried - owed)).min(carried)
            }
            Reading::Literal => share(latest, source.rate, count, rate).min(source.due),
        } as f32)
    }

    /// Moves traffic to `member` from faster ones, `room` at most. Returns its rate, bytes/s.
    fn shuffle(&mut self, now: Time, member: usize, count: u32, room: f64) -> f64 {
        let Source { rate, rtt, shuffled, .. } = self.members[member];
        if !self.members[member].sends(now) {
            return 0.0;
        }
        self.members[member].shuffled = now;
        let above = |source: &Source| if source.sends(now) { (source.rate - rate).max(0.0) } else { 0.0 };
        let sum: f64 = self.members.iter().map(above).sum();
        let rounds = (now.saturating_sub(shuffled).as_secs_f64() / rtt).min(1.0);
        let moved = (GAMMA * rounds * sum / f64::from(count)).min(room);
        if moved <= 0.0 {
            return 0.0;
        }
        for source in &mut self.members {
            source.owed -= moved * (above(source) / sum);
        }
        moved
    }

    pub(super) fn add(&mut self) {
        self.members.push(Source::default());
    }

    pub(super) fn forget(&mut self, member: usize) {
        self.members[member] = Source::default();
    }
}

/// γ, the fraction of a session's traffic that is shuffled per round trip: half that of XCP's
/// routers, whose equilibrium over sessions stays within 5 %.
const GAMMA: f64 = 0.05;

/// The part of a change that goes to a member of `count` with `rate` of their rates' sum `all`.
fn share(change: f64, rate: f64, count: u32, all: f64) -> f64 {
    if change > 0.0 { change / f64::from(count.max(1)) } else { change * (rate / all) }
}

/// A stated change, bytes/s; 0 if it is not a number.
fn amount(due: f64) -> f64 {
    if due.is_nan() { 0.0 } else { due.clamp(-MOST, MOST) }
}

/// Upper bound on a change, above any link, whose sums fit a float.
const MOST: f64 = 1e30;
