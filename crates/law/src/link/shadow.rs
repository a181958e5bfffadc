//! Two arithmetics on the same packets: the deviation of a router without floats from one with
//! floats.

use super::xcp::{Grant, Number, Xcp, XcpConfig};
use super::{Control, LinkLaw, Passing, Verdict};
use crate::{Rate, Time, Toll};

/// A float XCP router with a second one in `N` beside it. The float router writes the tolls. Both
/// see every packet as it arrived, and each keeps its own sums, pools and estimates.
///
/// The ends of intervals are shared. An interval is as long as the mean round-trip time, rounded to
/// a nanosecond. Two independent arithmetics would sometimes put a packet on different sides of an
/// end, and the comparison would be of two different traces. Apart from that the feedback is a
/// continuous function of its inputs: at the fair share and at the end of a pool both branches
/// agree.
#[derive(Clone, Debug)]
pub struct Shadow<N: Number> {
    float: Xcp<f64>,
    other: Xcp<N>,
    deviation: Deviation,
}

/// The deviation of one router's feedback from another's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// The maximum over packets of |f₂ − f₁| / max(positive part, negative part).
    ///
    /// The parts are the float router's nominal ones, Cp·X and Cn·s. Where both are zero, any
    /// difference counts as 1.
    pub worst: f64,
    /// Packets compared.
    pub packets: u64,
}

impl<N: Number> Shadow<N> {
    /// Both routers, with the same configuration.
    pub fn new(config: &XcpConfig, capacity: Rate) -> Shadow<N> {
        Shadow {
            float: Xcp::new(config, capacity),
            other: Xcp::new(config, capacity),
            deviation: Deviation::default(),
        }
    }

    /// The float router, whose feedback is in effect.
    pub fn float(&self) -> &Xcp<f64> {
        &self.float
    }

    /// The other router.
    pub fn other(&self) -> &Xcp<N> {
        &self.other
    }

    fn catch_up(&mut self, now: Time, backlog: u64) {
        while let Some(tick) = self.float.expire(now, backlog) {
            self.other.follow(tick, backlog);
        }
    }
}

impl Deviation {
    fn add(&mut self, first: f64, second: f64, larger_part: f64) {
        let difference = (second - first).abs();
        let relative = match larger_part > 0.0 {
            true => difference / larger_part,
            false if difference == 0.0 => 0.0,
            false => 1.0,
        };
        self.worst = self.worst.max(relative);
        self.packets += 1;
    }

    /// The larger of two deviations, over the packets of both.
    pub fn join(self, other: Deviation) -> Deviation {
        Deviation { worst: self.worst.max(other.worst), packets: self.packets + other.packets }
    }
}

impl<N: Number> LinkLaw for Shadow<N> {
    fn on_arrival(&mut self, now: Time, packet: Passing, toll: &Toll) -> Verdict {
        self.catch_up(now, packet.backlog_bytes);
        self.float.arrive(packet, toll);
        self.other.arrive(packet, toll);
        Verdict::Pass
    }

    fn on_departure(&mut self, now: Time, packet: Passing, toll: &mut Toll) -> Verdict {
        self.catch_up(now, packet.backlog_bytes);
        let (first, second) = (self.float.depart(packet, toll), self.other.depart(packet, toll));
        let mut copy = *toll;
        Grant::write(first, packet.kind, toll);
        Grant::write(second, packet.kind, &mut copy);
        if let Some(grant) = first {
            self.deviation.add(toll.due, copy.due, grant.larger_part);
        }
        Verdict::Pass
    }

    fn set_capacity(&mut self, now: Time, capacity: Rate) {
        self.catch_up(now, self.float.backlog());
        self.float.set_capacity(now, capacity);
        self.other.set_capacity(now, capacity);
    }

    fn control(&self) -> Option<Control> {
        self.float.control()
    }

    fn control_intervals(&self) -> u64 {
        self.float.control_intervals()
    }

    fn deviation(&self) -> Option<Deviation> {
        Some(self.deviation)
    }
}
