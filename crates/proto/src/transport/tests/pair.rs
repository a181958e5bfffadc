//! Two connections and the channel between them.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::sender::{AnySender, NewRenoConfig};

use super::super::{Config, Connection, Event};
use crate::{Answer, Flags, Machine, Packet, SackRanges};

/// A channel's faults, each a share of the packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    /// Delayed by up to `Pair::disorder` more.
    pub(super) reorder: f64,
}

impl Faults {
    pub(super) const NONE: Faults = Faults { loss: 0.0, duplicate: 0.0, reorder: 0.0 };
}

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// Answers whether the channel loses this packet of that side.
type Loses = Box<dyn FnMut(usize, &Packet) -> bool>;

/// Two endpoints, the packets between them, and what each was told.
pub(super) struct Pair {
    pub(super) ends: [Connection; 2],
    pub(super) now: Time,
    /// One way.
    pub(super) latency: Time,
    pub(super) faults: Faults,
    /// Upper bound on the extra delay of a reordered packet.
    pub(super) disorder: Time,
    /// Asked for each packet sent.
    pub(super) lose: Loses,
    /// Checked after each step.
    pub(super) check: Box<dyn FnMut(&Pair)>,
    pub(super) events: [Vec<Event>; 2],
    /// All packets sent, with the time and side.
    pub(super) sent: Vec<(Time, usize, Packet)>,
    /// Packets are first shown to [`Machine::answer`], then to [`Machine::respond`], as the
    /// simulator does.
    pub(super) predicts: bool,
    /// Packets that were taken in or answered by the first.
    pub(super) predicted: u64,
    /// Packets that were built where [`Machine::take_turn`] is asked.
    pub(super) turns: u64,
    /// The `due` that the channel writes into tolls, varied by a fifth; none if zero.
    pub(super) due: f64,
    /// Packets after which the sides needed not be asked for more.
    pub(super) settled: [u64; 2],
    /// The sides that need not be asked, and are not, so that whatever such asking would have
    /// changed is missed.
    rests: [bool; 2],
    flying: Vec<(Time, u64, usize, Packet, SackRanges)>,
    order: u64,
    random: u64,
}

impl Pair {
    pub(super) fn new(config: &Config) -> Pair {
        let law = || NewRenoConfig::default().build().into();
        Pair::with_laws(config, law(), law())
    }

    pub(super) fn with_laws(config: &Config, client: AnySender, server: AnySender) -> Pair {
        let config = Arc::new(config.clone());
        Pair {
            ends: [Connection::client(&config, client, 7), Connection::server(&config, server, 7)],
            now: Time::from_secs(1),
            latency: Time::from_millis(50),
            faults: Faults::NONE,
            disorder: Time::from_millis(100),
            lose: Box::new(|_, _| false),
            check: Box::new(|_| {}),
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
            predicts: false,
            predicted: 0,
            turns: 0,
            due: 0.0,
            settled: [0; 2],
            rests: [false; 2],
            flying: Vec::new(),
            order: 0,
            random: 1,
        }
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    }

    /// Uniform in [0, 1): splitmix64.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn client(&mut self) -> &mut Connection {
        &mut self.ends[CLIENT]
    }

    pub(super) fn server(&mut self) -> &mut Connection {
        &mut self.ends[SERVER]
    }

    pub(super) fn open(&mut self) {
        let now = self.now;
        self.client().open(now);
    }

    /// Whatever either end has to send goes into the channel.
    fn flush(&mut self) {
        [CLIENT, SERVER].into_iter().for_each(|side| self.flush_side(side));
    }

    fn flush_side(&mut self, side: usize) {
        let mut packet = Packet::default();
        let mut sack = SackRanges::EMPTY;
        let mut burst = 0;
        if !self.predicts {
            // The long way, and nothing else.
            self.ends[side].forget();
        }
        // Whose turn has come in this very instant sends, whatever woke the other.
        let rests = self.rests[side] && self.ends[side].poll_timeout() > self.now;
        while !rests && self.ends[side].poll_transmit(self.now, &mut packet, &mut sack) {
            burst += 1;
            assert!(burst < 100_000, "a connection that never stops sending");
            assert_eq!(packet.flags.has(Flags::SACK), !sack.is_empty());
            self.launch(side, packet, sack);
        }
        while let Some(event) = self.ends[side].poll_event() {
            self.events[side].push(event);
        }
    }

    fn launch(&mut self, side: usize, mut packet: Packet, sack: SackRanges) {
        if self.due > 0.0 && packet.flags.has(Flags::TOLLED) {
            packet.toll.due = self.due * (0.8 + 0.4 * self.chance());
        }
        self.sent.push((self.now, side, packet));
        if (self.lose)(side, &packet) || self.chance() < self.faults.loss {
            return;
        }
        let copies = if self.chance() < self.faults.duplicate { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = self.now + self.latency;
            if self.chance() < self.faults.reorder {
                at += Time((self.chance() * self.disorder.0 as f64) as u64);
            }
            self.order += 1;
            self.flying.push((at, self.order, 1 - side, packet, sack));
        }
    }

    /// The next thing happens: an arrival, or a timer. Answers whether there was one.
    pub(super) fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.flying.iter().enumerate().min_by_key(|(_, f)| (f.0, f.1)).map(|(i, f)| (f.0, i));
        let timer = self.ends[CLIENT].poll_timeout().min(self.ends[SERVER].poll_timeout());
        let next = arrival.map_or(Time::NEVER, |a| a.0).min(timer);
        if next == Time::NEVER {
            return false;
        }
        assert!(next >= self.now, "a timer in the past: {next} at {}", self.now);
        self.now = next;
        match arrival {
            Some((at, i)) if at <= timer => {
                let (_, _, side, packet, sack) = self.flying.swap_remove(i);
                self.arrive(side, packet, &sack);
                // Before the other's, whichever way it took: what is answered in place has left
                // already.
                self.flush_side(side);
            }
            _ => {
                for side in [CLIENT, SERVER] {
                    self.expire(side);
                    self.flush_side(side);
                }
            }
        }
        self.flush();
        for end in &self.ends {
            end.check_counts();
        }
        let mut check = std::mem::replace(&mut self.check, Box::new(|_| {}));
        check(self);
        self.check = check;
        true
    }

    fn arrive(&mut self, side: usize, mut packet: Packet, sack: &SackRanges) {
        let end = &mut self.ends[side];
        let (done, mut out) = (end.is_done(), SackRanges::EMPTY);
        self.rests[side] = false;
        if !self.predicts {
            return end.handle_packet(self.now, &packet, sack);
        }
        let due = end.poll_timeout();
        let mut answer = Answer::Unanswered;
        if sack.is_empty() {
            answer = end.answer(self.now, &mut packet);
        }
        if answer == Answer::Unanswered {
            answer = end.respond(self.now, &mut packet, sack, &mut out);
        } else {
            self.predicted += 1;
        }
        self.rests[side] = matches!(answer, Answer::Packet | Answer::Only | Answer::Nothing | Answer::Still);
        self.settled[side] += u64::from(self.rests[side]);
        assert!(!self.rests[side] || end.is_done() == done, "nobody would hear that it is done");
        let untold = matches!(answer, Answer::Only | Answer::Still);
        assert!(!untold || end.poll_timeout() >= due, "nobody would hear of the timer");
        match answer {
            Answer::Unanswered => panic!("respond left a packet unanswered"),
            Answer::Taken | Answer::Nothing | Answer::Still => {}
            Answer::Packet | Answer::Only | Answer::More => {
                assert_eq!(packet.flags.has(Flags::SACK), !out.is_empty());
                self.launch(side, packet, out);
            }
        }
    }

    /// The time of a side's timer may have come.
    fn expire(&mut self, side: usize) {
        let mut packet = Packet::default();
        let answer = match self.predicts {
            true => self.ends[side].take_turn(self.now, &mut packet),
            false => Answer::Unanswered,
        };
        self.turns += u64::from(answer != Answer::Unanswered);
        self.rests[side] = answer == Answer::Packet;
        match answer {
            Answer::Packet | Answer::More => self.launch(side, packet, SackRanges::EMPTY),
            _ => {
                assert_eq!(answer, Answer::Unanswered, "a turn is taken with a packet, or not");
                self.ends[side].handle_timeout(self.now);
            }
        }
    }

    /// Steps until nothing more happens or `limit` has passed; answers whether it came to rest.
    pub(super) fn drive(&mut self, limit: Time) -> bool {
        let end = self.now + limit;
        // The caller may have changed the state.
        self.rests = [false; 2];
        while self.now < end {
            if !self.step() {
                return true;
            }
        }
        false
    }

    /// The frames that a side has got, by size.
    pub(super) fn frames(&self, side: usize) -> Vec<u64> {
        let size = |event: &Event| match event {
            Event::FrameDelivered { bytes, .. } => Some(*bytes),
            _ => None,
        };
        self.events[side].iter().filter_map(size).collect()
    }
}
