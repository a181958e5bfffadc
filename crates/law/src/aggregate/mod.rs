//! One token bucket for many connections, and the rule that shares its tokens (the aggregates
//! paper, § 4).
//!
//! | scheme | tokens |
//! |---|---|
//! | [`Scheme::Partitioned`] | a separate bucket ⟨r/n, b⟩ for each connection |
//! | [`Scheme::Common`] | one bucket, first come, first served |
//! | [`Scheme::Logical`] | a bucket each; overflow goes in equal parts to those not full |
//!
//! Each connection has a part b of the depth B, equal or in proportion to its round trip. With b ≥
//! r/n · rtt it loses no tokens while it waits for acknowledgements (§ 4.2.1).

use crate::Time;
use crate::bucket::{Bucket, Profile, Refusal, TOKENS_PER_BYTE, in_bytes};

/// The rule that shares the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Separate buckets, one per connection.
    Partitioned(Depths),
    /// One bucket for all connections.
    Common,
    /// One bucket with logical partitions.
    Logical(Depths),
}

/// The rule that divides the depth B over n connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depths {
    /// B/n each.
    Equal,
    /// B·rtt/Σrtt. A connection whose round trip is unknown counts with the mean of the known ones.
    ByRtt,
}

/// A connection's place in an [`Aggregate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat(u32);

/// One token bucket and the connections that share it.
///
/// A packet conforms if the bucket holds the tokens and, with partitions, if the partition of its
/// connection does, too. A partition holds at least two packets, since with less hardly any packet
/// would pass. Where B is too small for that, connections wait for the bucket instead.
///
/// Connections may join and leave, and their round trips may change. Neither creates tokens: in any
/// span t at most B + r·t passes.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The bucket that holds all tokens.
    bucket: Bucket,
    scheme: Scheme,
    /// One entry per seat.
    members: Vec<AggregateFlow>,
    free: Vec<u32>,
    /// Number of connections present.
    count: u64,
    /// Number of connections whose round trips are known, and the sum of those round trips.
    known: u64,
    sum: RoundTrips,
    /// The instant up to which arrivals have been divided.
    shared: Time,
    /// Arrivals too few to be divided.
    rest: u64,
    /// The next recomputation of depths.
    weigh_at: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct AggregateFlow {
    present: bool,
    /// The tokens in its partition.
    level: u64,
    depth: u64,
    rtt: RoundTrips,
    /// The largest packet offered so far, in tokens.
    packet: u64,
}

/// Round trips of a connection, or their sum over several, in nanoseconds; 0 while unknown.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrips {
    least: u64,
    smoothed: u64,
}

impl Aggregate {
    /// A full bucket without connections.
    pub fn new(now: Time, profile: Profile, scheme: Scheme) -> Aggregate {
        Aggregate {
            bucket: Bucket::new(now, profile),
            scheme,
            members: Vec::new(),
            free: Vec::new(),
            count: 0,
            known: 0,
            sum: RoundTrips::default(),
            shared: now,
            rest: 0,
            weigh_at: now,
        }
    }

    /// The profile given at construction.
    pub fn profile(&self) -> &Profile {
        self.bucket.profile()
    }

    /// True if all connections share one bucket without partitions.
    pub fn is_common(&self) -> bool {
        self.scheme == Scheme::Common
    }

    /// Number of connections that share it.
    pub fn members(&self) -> u64 {
        self.count
    }

    /// Adds a connection. It brings no tokens; it may receive tokens that are in no partition.
    pub fn join(&mut self, now: Time) -> Seat {
        self.advance(now);
        let seat = self.free.pop().unwrap_or_else(|| {
            self.members.push(AggregateFlow::default());
            self.members.len() as u32 - 1
        });
        self.members[seat as usize] = AggregateFlow { present: true, ..AggregateFlow::default() };
        self.count += 1;
        self.weigh(now);
        let spare = self.nobodys();
        let member = &mut self.members[seat as usize];
        member.level = spare.min(member.depth);
        Seat(seat)
    }

    /// Removes a connection. Its tokens stay in the bucket, in no partition.
    pub fn leave(&mut self, now: Time, seat: Seat) {
        self.advance(now);
        let member = std::mem::take(&mut self.members[seat.0 as usize]);
        if !member.present {
            return;
        }
        self.free.push(seat.0);
        self.count -= 1;
        self.known -= u64::from(member.rtt.least > 0);
        self.sum.least -= member.rtt.least;
        self.sum.smoothed -= member.rtt.smoothed;
        self.weigh(now);
    }

    /// Sets the connection's `least` and `smoothed` round trips; zero means unknown.
    ///
    /// The least one sizes its partition, so that a queue of its own making brings it no tokens.
    /// The smoothed one sets its [`growth`](Aggregate::growth).
    pub fn set_rtt(&mut self, seat: Seat, least: Time, smoothed: Time) {
        // 73 minutes and more are no round trip, and their sum could overflow.
        let known = least > Time::ZERO && smoothed > Time::ZERO;
        let bound = |rtt: Time| if known { rtt.0.min(1 << 42) } else { 0 };
        let rtt = RoundTrips { least: bound(least), smoothed: bound(smoothed) };
        let old = std::mem::replace(&mut self.members[seat.0 as usize].rtt, rtt);
        self.known = self.known - u64::from(old.least > 0) + u64::from(known);
        self.sum.least = self.sum.least - old.least + rtt.least;
        self.sum.smoothed = self.sum.smoothed - old.smoothed + rtt.smoothed;
    }

    /// Segments per round trip by which the connection's window may grow, so that the aggregate is
    /// fair to other connections.
    ///
    /// g = rtt²/rtt_av² (§ 5), so that Σ g/rtt² = n/rtt_av². 1 while the round trip is unknown.
    pub fn growth(&self, seat: Seat) -> f64 {
        let rtt = self.members[seat.0 as usize].rtt.smoothed as f64;
        let ratio = rtt * self.known as f64 / self.sum.smoothed.max(1) as f64;
        if rtt > 0.0 { ratio * ratio } else { 1.0 }
    }

    /// Tokens in the bucket, bytes.
    pub fn tokens(&self) -> f64 {
        self.bucket.tokens()
    }

    /// Tokens in a connection's partition, bytes; all tokens where the bucket is common.
    pub fn tokens_of(&self, seat: Seat) -> f64 {
        match self.scheme {
            Scheme::Common => self.bucket.tokens(),
            _ => in_bytes(self.members[seat.0 as usize].level),
        }
    }

    /// Checks that a packet of `size` bytes of the connection conforms; takes no tokens.
    ///
    /// # Errors
    /// [`Refusal`] holds the latest instant at which it will conform, provided that no other packet
    /// passes and no connection joins before.
    pub fn conforms(&mut self, now: Time, seat: Seat, size: u32) -> Result<(), Refusal> {
        let need = u64::from(size) * TOKENS_PER_BYTE;
        let member = &mut self.members[seat.0 as usize];
        member.packet = member.packet.max(need);
        self.advance(now);
        let bucket = self.bucket.conforms(now, size);
        let lack = match self.scheme {
            Scheme::Common => 0,
            _ => need.saturating_sub(self.members[seat.0 as usize].level),
        };
        match bucket {
            Ok(()) if lack == 0 => Ok(()),
            Err(Refusal::TooLarge { .. }) => bucket,
            _ => {
                // Its own part of the arrivals brings it there; what runs over from others only
                // sooner.
                let (lack, n) = (u128::from(lack), u128::from(self.count));
                let span = if lack > 0 { (lack + 1) * n / u128::from(self.bucket.rate) + 1 } else { 0 };
                let own = self.bucket.when(now, u64::try_from(span).unwrap_or(u64::MAX));
                Err(Refusal::Until(match bucket {
                    Err(Refusal::Until(then)) => own.max(then),
                    _ => own,
                }))
            }
        }
    }

    /// Takes the tokens of a packet of `size` bytes of the connection.
    ///
    /// # Errors
    /// [`Refusal`]: the packet does not conform, and no tokens were taken.
    pub fn take(&mut self, now: Time, seat: Seat, size: u32) -> Result<(), Refusal> {
        self.conforms(now, seat, size)?;
        self.bucket.take(now, size)?;
        let member = &mut self.members[seat.0 as usize];
        member.level = member.level.saturating_sub(u64::from(size) * TOKENS_PER_BYTE);
        Ok(())
    }

    /// Takes the tokens that ran over until `now`: those for which the bucket had no room.
    pub fn overflow(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.bucket.fill(now);
        std::mem::take(&mut self.bucket.overflow)
    }

    /// Adds tokens that ran over from another aggregate. Returns those for which there is no room.
    pub fn pour(&mut self, tokens: u64) -> u64 {
        let rest = self.bucket.pour(tokens);
        match self.scheme {
            Scheme::Partitioned(_) if self.count > 0 => self.fill_each(u128::from(tokens - rest)),
            Scheme::Logical(_) => self.fill_all(tokens - rest),
            Scheme::Partitioned(_) | Scheme::Common => {}
        }
        rest
    }

    /// Tokens of the bucket that are in no partition.
    fn nobodys(&self) -> u64 {
        let held: u64 = self.members.iter().map(|member| member.level).sum();
        self.bucket.level.saturating_sub(held)
    }

    /// Divides the arrivals up to `now`.
    fn advance(&mut self, now: Time) {
        if now <= self.shared || self.scheme == Scheme::Common {
            return;
        }
        let span = now.saturating_sub(self.shared);
        self.shared = now;
        self.bucket.fill(now);
        if self.count == 0 {
            return;
        }
        if now >= self.weigh_at {
            self.weigh(now);
        }
        // No more than the bucket holds comes in for a partition.
        let arrived = u128::from(self.bucket.rate) * u128::from(span.0);
        let most = u128::from(self.bucket.depth) * u128::from(self.count);
        match self.scheme {
            Scheme::Partitioned(_) => self.fill_each(arrived.min(most)),
            _ => self.fill_all(arrived.min(u128::from(self.bucket.depth)) as u64),
        }
    }

    /// Gives each partition its part; the overflow of a full one is lost.
    fn fill_each(&mut self, arrived: u128) {
        let arrived = arrived + u128::from(self.rest);
        self.rest = (arrived % u128::from(self.count)) as u64;
        let part = (arrived / u128::from(self.count)) as u64;
        for member in self.members.iter_mut().filter(|member| member.present) {
            member.level = (member.level + part).min(member.room());
        }
    }

    /// Gives arrivals and tokens in no partition to the partitions that are not full, in equal
    /// parts, until all is given or all are full (§ 4.2.3).
    fn fill_all(&mut self, arrived: u64) {
        let mut spare = self.nobodys().max(arrived);
        loop {
            let open = self.members.iter().filter(|member| member.level < member.room()).count() as u64;
            let part = spare.checked_div(open).unwrap_or(0);
            if part == 0 {
                break;
            }
            for member in self.members.iter_mut().filter(|member| member.level < member.room()) {
                let given = part.min(member.room() - member.level);
                member.level += given;
                spare -= given;
            }
        }
    }

    /// Recomputes depths. Tokens above a partition's new depth belong to no partition.
    fn weigh(&mut self, now: Time) {
        self.weigh_at = now.saturating_add(WEIGH_INTERVAL);
        let depths = match self.scheme {
            Scheme::Partitioned(depths) | Scheme::Logical(depths) => depths,
            Scheme::Common => return,
        };
        let (b, n) = (u128::from(self.bucket.depth), u128::from(self.count.max(1)));
        let (sum, known) = (u128::from(self.sum.least.max(1)), u128::from(self.known));
        for member in self.members.iter_mut().filter(|member| member.present) {
            member.depth = match depths {
                Depths::ByRtt if member.rtt.least > 0 => {
                    (b * u128::from(member.rtt.least) * known / (sum * n)) as u64
                }
                _ => (b / n) as u64,
            };
            member.level = member.level.min(member.room());
        }
    }
}

impl AggregateFlow {
    /// Capacity of its partition: at least two packets, so that tokens still arrive while a packet
    /// waits for the host's timer.
    fn room(&self) -> u64 {
        if self.present { self.depth.max(2 * self.packet) } else { 0 }
    }
}

/// Interval between recomputations of depths. Depths change over round trips, and computing them is
/// the most expensive part.
const WEIGH_INTERVAL: Time = Time::from_millis(100);

#[cfg(test)]
mod tests;
