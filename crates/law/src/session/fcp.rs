//! FCP's transforms, so that one session has one budget (the Anypoint paper, § III-C).

use super::{ReceiveRatio, seconds, sends};
use crate::link::turn;
use crate::{Price, Time, Toll};

/// One FCP flow split over members.
///
/// The session's price is Σ β_k·P_k, the cost of a byte of its mixture. A packet to member k pays
/// P_k/Σβ·P of the sender's payment. So the links to each member get their price, and the sum is
/// the sender's spending.
#[derive(Clone, Debug)]
pub struct FcpSplit {
    members: Vec<Known>,
}

/// The price of a member's path, $/byte; 0 while it is unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    price: f64,
    /// The price up to the switch, of the last packet received.
    carried: f64,
}

impl FcpSplit {
    /// A transform over `members`.
    pub fn new(members: usize) -> FcpSplit {
        FcpSplit { members: vec![Known::default(); members] }
    }

    pub(super) fn on_data(&mut self, member: usize, ratio: &ReceiveRatio, toll: &mut Toll) {
        let own = self.members[member].price;
        let mean = self.mean(ratio);
        if own > 0.0 && mean > 0.0 {
            toll.stake = (f64::from(toll.stake) * (own / mean)) as f32;
        }
    }

    pub(super) fn on_acked(&mut self, member: usize, due: f64) {
        self.members[member].carried = sane(due);
    }

    pub(super) fn on_echo(&mut self, member: usize, echo: f32) {
        let known = &mut self.members[member];
        known.price = sane(f64::from(echo)).max(f64::from(known.carried as f32));
    }

    pub(super) fn echo(&mut self, ratio: &ReceiveRatio) -> f32 {
        self.mean(ratio) as f32
    }

    pub(super) fn add(&mut self) {
        self.members.push(Known::default());
    }

    pub(super) fn forget(&mut self, member: usize) {
        self.members[member] = Known::default();
    }

    /// ΣβP over the members whose price is known.
    fn mean(&self, ratio: &ReceiveRatio) -> f64 {
        let known = self.members.iter().enumerate().filter(|(_, known)| known.price > 0.0);
        let (sum, part) = known.fold((0.0, 0.0), |(sum, part), (k, known)| {
            let beta = ratio.of(k);
            (sum + beta * known.price, part + beta)
        });
        if part > 0.0 { sum / part } else { 0.0 }
    }
}

/// FCP flows of members merged into one.
///
/// Of N members that send, each one's dollar is worth 1/N beyond the switch, so that the session
/// spends one member's budget. N counts the members that have sent within two of their round trips.
#[derive(Clone, Debug)]
pub struct FcpMerge {
    members: Vec<Payer>,
    /// The receiver's latest echo, $/byte in the session's dollars.
    price: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Payer {
    rtt: f64,
    heard: Time,
    /// The price up to the switch, of the last packet received, in the member's dollars.
    carried: f64,
    /// True if an echo has arrived since the last one was passed on.
    pending: bool,
}

impl FcpMerge {
    /// A transform over `members`.
    pub fn new(members: usize) -> FcpMerge {
        FcpMerge { members: vec![Payer::default(); members], price: 0.0 }
    }

    pub(super) fn on_data(&mut self, now: Time, member: usize, toll: &mut Toll) {
        if let Some(rtt) = seconds(toll.rtt) {
            let payer = &mut self.members[member];
            (payer.rtt, payer.heard) = (rtt, now);
        }
        let worth = 1.0 / self.sending(now);
        toll.stake = (f64::from(toll.stake) * worth) as f32;
        toll.due = turn(toll.due, worth);
    }

    pub(super) fn on_acked(&mut self, member: usize, due: f64) {
        self.members[member].carried = sane(due);
    }

    pub(super) fn on_echo(&mut self, echo: f32) {
        self.price = sane(f64::from(echo));
        self.members.iter_mut().for_each(|payer| payer.pending = true);
    }

    pub(super) fn echo(&mut self, now: Time, member: usize) -> Option<f32> {
        let count = self.sending(now);
        let payer = &mut self.members[member];
        let own = turn(self.price, count).max(f64::from(payer.carried as f32));
        // Not beyond what a float holds: that would be no price.
        std::mem::take(&mut payer.pending).then_some(own.min(f64::from(f32::MAX)) as f32)
    }

    pub(super) fn add(&mut self) {
        self.members.push(Payer::default());
    }

    pub(super) fn forget(&mut self, member: usize) {
        self.members[member] = Payer::default();
    }

    /// Members that send, at least one.
    fn sending(&self, now: Time) -> f64 {
        let sending =
            self.members.iter().filter(|payer| payer.rtt > 0.0 && sends(now, payer.heard, payer.rtt));
        sending.count().max(1) as f64
    }
}

/// A stated price, or the least price if it is not valid.
fn sane(price: f64) -> f64 {
    Price::per_byte(price).get()
}
