//! A sender law in a transport like QUIC's (RFC 9002): packet numbers grow, an acknowledgement
//! names one packet, and a packet is lost when three later ones are acknowledged.
//!
//!     cargo run -p tollway-law --example quic_loop
//!
//! The path has 20 Mb/s, a round trip of 40 ms and a queue of 60 packets. The transport owns the
//! packets, their numbers and the timer; the law only says how many may be in flight and how fast
//! they may leave. Prints a line for each law: goodput, lost packets, mean round trip.

use std::collections::{BTreeMap, VecDeque};

use tollway_law::sender::{Acked, AnySender, CubicConfig, Flight, NewRenoConfig, ScalableConfig, SenderLaw};
use tollway_law::{Rate, Time};

const SEGMENT: u32 = 1500;
const QUEUE: u64 = 60;
const THRESHOLD: u64 = 3;
const RUN: Time = Time::from_secs(20);

/// The state of a transport that a law needs.
#[derive(Default)]
struct Sender {
    /// Packets in flight, with the time each was sent.
    sent: BTreeMap<u64, Time>,
    next: u64,
    /// No more than one reduction for the packets sent before this one.
    recovery: u64,
    srtt: Time,
    least: Option<Time>,
    leaves: Time,
    acknowledged: u64,
    lost: u64,
    waits: f64,
}

impl Sender {
    fn flight(&self, now: Time) -> Flight {
        let in_flight = self.sent.len() as u32;
        Flight {
            srtt: self.srtt,
            min_rtt: self.least.unwrap_or(Time::NEVER),
            segment: SEGMENT,
            ..Flight::of(now, self.srtt, in_flight)
        }
    }

    /// Sends what the law allows. Returns the packets, with the times at which they leave.
    fn poll(&mut self, now: Time, law: &AnySender) -> Vec<(u64, Time)> {
        let mut packets = Vec::new();
        while (self.sent.len() as f64) < law.window().floor() {
            let at = self.leaves.max(now);
            if let Some(rate) = law.pacing_rate(&self.flight(now)) {
                if at > now + self.srtt {
                    break;
                }
                self.leaves = at + rate.time_for(u64::from(SEGMENT));
            }
            self.sent.insert(self.next, at);
            packets.push((self.next, at));
            self.next += 1;
        }
        packets
    }

    /// Handles the acknowledgement of one packet.
    fn on_ack(&mut self, now: Time, law: &mut AnySender, number: u64) {
        let Some(at) = self.sent.remove(&number) else { return };
        let rtt = now.saturating_sub(at);
        self.srtt = if self.srtt == Time::ZERO { rtt } else { Time((7 * self.srtt.0 + rtt.0) / 8) };
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.acknowledged += 1;
        self.waits += rtt.as_millis_f64();
        let lost: Vec<u64> =
            self.sent.range(..number.saturating_sub(THRESHOLD - 1)).map(|(&n, _)| n).collect();
        for gone in &lost {
            self.sent.remove(gone);
        }
        self.lost += lost.len() as u64;
        if lost.iter().any(|&gone| gone >= self.recovery) {
            self.recovery = self.next;
            law.on_loss(&self.flight(now));
        } else if number >= self.recovery && self.recovery > 0 {
            self.recovery = 0;
            law.on_recovered(&self.flight(now));
        }
        let acked = Acked { rtt: Some(rtt), recovering: self.recovery > 0, ..Acked::of(1) };
        law.on_ack(&self.flight(now), &acked);
    }
}

fn run(mut law: AnySender) -> Sender {
    let (rate, one_way) = (Rate::from_mbps(20.0), Time::from_millis(20));
    let (mut sender, mut now, mut free) = (Sender::default(), Time::ZERO, Time::ZERO);
    let mut acknowledgements = VecDeque::new();
    while now < RUN {
        for (number, at) in sender.poll(now, &law) {
            // A queue that drops what does not fit.
            let begins = free.max(at);
            if begins.saturating_sub(at) <= rate.time_for(QUEUE * u64::from(SEGMENT)) {
                free = begins + rate.time_for(u64::from(SEGMENT));
                acknowledgements.push_back((free + one_way * 2, number));
            }
        }
        let Some((at, number)) = acknowledgements.pop_front() else {
            // All are lost: the timer's turn.
            now += sender.srtt * 3 + Time::from_millis(100);
            sender.sent.clear();
            law.on_timeout(&sender.flight(now), true);
            continue;
        };
        now = at;
        sender.on_ack(now, &mut law, number);
    }
    sender
}

/// A line for each law.
fn lines() -> String {
    let laws: [(&str, AnySender); 3] = [
        ("newreno", NewRenoConfig::default().build().into()),
        ("cubic", CubicConfig::default().build().into()),
        ("scalable", AnySender::custom(ScalableConfig::default().build())),
    ];
    let line = |(name, law)| {
        let ran = run(law);
        let mbps = ran.acknowledged as f64 * f64::from(SEGMENT) * 8.0 / 1e6 / RUN.as_secs_f64();
        let rtt = ran.waits / ran.acknowledged as f64;
        format!("{name:8} {mbps:5.2} Mb/s, {} lost, round trip {rtt:.1} ms\n", ran.lost)
    };
    laws.map(line).concat()
}

fn main() {
    print!("{}", lines());
}

#[test]
fn the_chapter_shows_what_it_prints() {
    assert!(include_str!("../../../docs/src/embedding.md").contains(&lines()), "{}", lines());
}
