//! A node where a multicast tree branches (the FCP report, § 4.2 "Multicast-aware congestion
//! control").

use std::collections::VecDeque;

use tollway_law::{Price, Time};

use super::{Gate, Middle, Passed};
use crate::{Flags, Packet, SackRanges};

/// Copies packets from above to each branch, and merges the acknowledgements that return.
///
/// Downwards, a copy's price starts from zero, and the price of the links above is remembered.
/// Upwards, an acknowledgement covers the segments that all branches have received. Its price is
/// that of the links above plus those of all branches, so each link of the tree counts once.
///
/// Gate 0 is above; gates from 1 on are the branches. An acknowledgement leaves when the slowest
/// branch advances, and for each of its duplicates: as many as one receiver would send. A segment
/// that one branch lost is sent again to all. SACK ranges end here, since branches may lack
/// different segments.
#[derive(Clone, Debug)]
pub struct Branch {
    branches: Vec<Heard>,
    /// The price of the links above, $/byte.
    above: f64,
    /// The last cumulative acknowledgement sent upwards.
    told: u32,
    out: VecDeque<(Gate, Packet)>,
}

/// The last feedback of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// True once the branch has sent feedback.
    from: bool,
    /// Its highest acknowledgement, and its own next sequence number; both measure its progress.
    ack: u32,
    next: u32,
    window: u32,
    /// Its last price, $/byte.
    price: f32,
    marked: bool,
}

impl Heard {
    /// A number that grows with each acknowledgement and each segment of its own, such as a FIN.
    fn progress(&self) -> u32 {
        self.ack.wrapping_add(self.next)
    }
}

impl Branch {
    /// A node with this number of branches.
    pub fn new(branches: u32) -> Branch {
        Branch {
            branches: vec![Heard::default(); branches.max(1) as usize],
            above: 0.0,
            told: 0,
            out: VecDeque::new(),
        }
    }

    /// Sends the packet itself down the first branch, copies of it down the others.
    fn on_copy(&mut self, packet: &mut Packet) -> Passed {
        if packet.flags.has(Flags::TOLLED) {
            self.above = packet.toll.due;
        }
        packet.toll.due = 0.0;
        let others = 2..=self.branches.len() as u32;
        self.out.extend(others.map(|gate| (Gate(gate), *packet)));
        Passed::By(Gate(1))
    }

    fn on_answer(&mut self, branch: usize, packet: &mut Packet) -> Passed {
        let Some(heard) = self.branches.get_mut(branch) else { return Passed::Absorbed };
        let uses = packet.flags.0 & (Flags::SYN.0 | Flags::FIN.0 | Flags::DATA.0) != 0;
        let next = packet.seq.wrapping_add(u32::from(uses));
        let first = !heard.from;
        if first || after(packet.ack, heard.ack) {
            heard.ack = packet.ack;
        }
        if first || after(next, heard.next) {
            heard.next = next;
        }
        heard.from = true;
        heard.window = packet.window;
        heard.marked |= packet.flags.has(Flags::ECE);
        if packet.flags.has(Flags::ECHO) {
            heard.price = packet.toll.echo;
        }
        let own = heard.progress();
        if self.branches.iter().any(|heard| !heard.from) {
            return Passed::Absorbed;
        }
        let last = |a: u32, b: u32| if after(a, b) { b } else { a };
        let slowest = self.branches.iter().map(Heard::progress).reduce(last).unwrap_or(own);
        // Of the others nothing is to be said before the slowest has come so far.
        if own != slowest && !after(slowest, self.told) {
            return Passed::Absorbed;
        }
        self.told = slowest;
        packet.flags.0 &= !Flags::ECE.0;
        if self.branches.iter().any(|heard| heard.marked) {
            packet.flags.set(Flags::ECE);
            self.branches.iter_mut().for_each(|heard| heard.marked = false);
        }
        packet.ack = self.branches.iter().map(|heard| heard.ack).reduce(last).unwrap_or(packet.ack);
        packet.window = self.branches.iter().map(|heard| heard.window).min().unwrap_or(packet.window);
        // The least price is a little more than itself once it has been a float, and would then
        // count in a sum.
        let least = Price::MIN.get() as f32;
        let price = |told: f32| if told > least { Price::per_byte(f64::from(told)) } else { Price::MIN };
        let prices = self.branches.iter().map(|heard| price(heard.price));
        packet.toll.echo = prices.fold(Price::per_byte(self.above), Price::plus).get() as f32;
        Passed::By(Gate(0))
    }
}

impl Middle for Branch {
    fn pass(&mut self, _: Time, gate: Gate, packet: &mut Packet, sack: &mut SackRanges) -> Passed {
        sack.clear();
        match gate {
            Gate(0) => self.on_copy(packet),
            Gate(branch) => self.on_answer(branch as usize - 1, packet),
        }
    }

    fn poll_transmit(&mut self, _: Time, out: &mut Packet, _: &mut SackRanges) -> Option<Gate> {
        let (gate, packet) = self.out.pop_front()?;
        *out = packet;
        Some(gate)
    }
}

/// True if `a` is after `b` in serial arithmetic (RFC 1982).
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(middle: &mut Branch, gate: u32, packet: &Packet) -> Vec<(u32, Packet)> {
        let (mut packet, mut sack) = (*packet, SackRanges::EMPTY);
        sack.push(1, 2);
        let passed = middle.pass(Time::ZERO, Gate(gate), &mut packet, &mut sack);
        assert!(sack.is_empty());
        let mut sent = match passed {
            Passed::By(gate) => vec![(gate.0, packet)],
            _ => Vec::new(),
        };
        let mut out = Packet::default();
        while let Some(gate) = middle.poll_transmit(Time::ZERO, &mut out, &mut sack) {
            sent.push((gate.0, out));
        }
        sent
    }

    fn ack(ack: u32, price: f32) -> Packet {
        let mut packet = Packet { ack, seq: 1, window: 100 + ack, ..Packet::default() };
        packet.flags = Flags::ACK.with(Flags::ECHO);
        packet.toll.echo = price;
        packet
    }

    #[test]
    fn a_copy_goes_down_each_branch_its_price_begun_anew() {
        let mut middle = Branch::new(2);
        let mut data = Packet { seq: 7, flags: Flags::DATA.with(Flags::TOLLED), ..Packet::default() };
        data.toll.due = 3e-8;
        data.toll.offer = 2.0;
        let copies = hear(&mut middle, 0, &data);
        assert_eq!(copies.iter().map(|copy| copy.0).collect::<Vec<_>>(), [1, 2]);
        for (_, copy) in copies {
            assert_eq!((copy.seq, copy.toll.due, copy.toll.offer), (7, 0.0, 2.0));
        }
    }

    #[test]
    fn one_acknowledgement_tells_of_all_and_the_price_of_each_link_once() {
        let mut middle = Branch::new(2);
        let mut data = Packet { flags: Flags::DATA.with(Flags::TOLLED), ..Packet::default() };
        data.toll.due = 1e-8;
        hear(&mut middle, 0, &data);
        assert!(hear(&mut middle, 1, &ack(1, 2e-8)).is_empty(), "one has said nothing yet");
        let told = hear(&mut middle, 2, &ack(1, 4e-8));
        let [(0, answer)] = told[..] else { panic!("{told:?}") };
        assert!((answer.toll.echo / 7e-8 - 1.0).abs() < 1e-6, "{}", answer.toll.echo);
        // The faster branch runs ahead; what counts is the slower one.
        assert!(hear(&mut middle, 1, &ack(2, 2e-8)).is_empty());
        assert!(hear(&mut middle, 1, &ack(3, 2e-8)).is_empty());
        let told = hear(&mut middle, 2, &ack(2, 4e-8));
        assert_eq!(told.iter().map(|t| (t.1.ack, t.1.window)).collect::<Vec<_>>(), [(2, 102)]);
        // It has lost something: its duplicates go up, so that the sender knows.
        assert_eq!(hear(&mut middle, 2, &ack(2, 4e-8)).len(), 1);
        assert!(hear(&mut middle, 1, &ack(3, 2e-8)).is_empty());
        assert_eq!(hear(&mut middle, 2, &ack(4, 4e-8))[0].1.ack, 3);
    }

    #[test]
    fn a_path_on_which_nothing_is_scarce_costs_nothing() {
        let mut middle = Branch::new(3);
        let told: Vec<_> = (1..=3).flat_map(|gate| hear(&mut middle, gate, &ack(1, 1e-18))).collect();
        assert!(told[0].1.toll.echo <= 1.0001e-18);
    }

    #[test]
    fn a_mark_goes_up_once() {
        let mut middle = Branch::new(2);
        let mut marked = ack(1, 1e-18);
        marked.flags.set(Flags::ECE);
        hear(&mut middle, 1, &marked);
        let mut told = Vec::new();
        for n in 1..4 {
            told.extend(hear(&mut middle, 1, &ack(n, 1e-18)));
            told.extend(hear(&mut middle, 2, &ack(n, 1e-18)));
        }
        let marks: Vec<bool> = told.iter().map(|up| up.1.flags.has(Flags::ECE)).collect();
        assert_eq!(marks.iter().filter(|&&mark| mark).count(), 1, "{marks:?}");
    }
}
