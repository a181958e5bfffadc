//! One token bucket for many connections: who of them may use which of its tokens (the aggregates
//! paper, § 4).
//!
//! | scheme | tokens |
//! |---|---|
//! | [`Scheme::Partitioned`] | each connection has a bucket ⟨r/n, b⟩ of its own and nothing of the others' |
//! | [`Scheme::Common`] | whoever comes takes them |
//! | [`Scheme::Logical`] | each has a bucket of its own, and what runs over of a full one goes in equal parts to those not full |
//!
//! A connection's part b of the depth B is equal, or in proportion to its round trip: with b ≥
//! r/n · rtt it loses no tokens while it waits for acknowledgements (§ 4.2.1).

use crate::Time;
use crate::bucket::{Bucket, Profile, Refusal, TOKENS_PER_BYTE, in_bytes};

/// How tokens are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In buckets that share nothing.
    Partitioned(Depths),
    /// In one bucket for all.
    Common,
    /// In one bucket with logical partitions.
    Logical(Depths),
}

/// How the depth is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depths {
    /// B/n each.
    Equal,
    /// B·rtt/Σrtt; a connection whose round trip is unknown counts as the mean of those that are
    /// known.
    ByRtt,
}

/// A connection's place in an [`Aggregate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat(u32);

/// One token bucket and the connections that share it.
///
/// A packet conforms if the bucket has the tokens, and with partitions if its connection's part of
/// them does, too. A partition holds two packets at least, or few would ever pass: where B is less
/// than that for each connection, it is the bucket that they wait for. Connections come and go and
/// their round trips change; none of that makes a token, so that in any span t no more than B + r·t
/// passes.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// All tokens there are.
    bucket: Bucket,
    scheme: Scheme,
    /// By seat.
    members: Vec<AggregateFlow>,
    free: Vec<u32>,
    /// Connections there are.
    count: u64,
    /// Connections whose round trips are known, and these added up.
    known: u64,
    sum: RoundTrips,
    /// Until when members have had their parts.
    shared: Time,
    /// Arrivals too few to be divided.
    rest: u64,
    /// When depths next follow round trips.
    weigh_at: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct AggregateFlow {
    present: bool,
    /// Its part of the bucket's tokens.
    level: u64,
    depth: u64,
    rtt: RoundTrips,
    /// Largest packet asked for, in tokens.
    packet: u64,
}

/// Round trips of a connection, or of several together, nanoseconds; 0 while they are unknown.
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

    /// What it was made from.
    pub fn profile(&self) -> &Profile {
        self.bucket.profile()
    }

    /// Whether there is one bucket for all.
    pub fn is_common(&self) -> bool {
        self.scheme == Scheme::Common
    }

    /// Connections that share it.
    pub fn members(&self) -> u64 {
        self.count
    }

    /// A connection comes. It brings no tokens: what is nobody's may become its own.
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

    /// A connection goes. Its tokens are nobody's.
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

    /// The connection's `least` and `smoothed` round trips; zero is unknown. The one sizes its
    /// partition: what it waits in queues, maybe in its own, must not bring it tokens. By the other
    /// its window grows.
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

    /// Segments by which the connection's window may grow a round trip for the aggregate to be fair
    /// to other connections: g = rtt²/rtt_av² (§ 5), so that Σ g/rtt² = n/rtt_av². 1 while the
    /// round trip is unknown.
    pub fn growth(&self, seat: Seat) -> f64 {
        let rtt = self.members[seat.0 as usize].rtt.smoothed as f64;
        let ratio = rtt * self.known as f64 / self.sum.smoothed.max(1) as f64;
        if rtt > 0.0 { ratio * ratio } else { 1.0 }
    }

    /// Tokens in the bucket, bytes.
    pub fn tokens(&self) -> f64 {
        self.bucket.tokens()
    }

    /// Tokens in a connection's partition, bytes; of a common bucket all.
    pub fn tokens_of(&self, seat: Seat) -> f64 {
        match self.scheme {
            Scheme::Common => self.bucket.tokens(),
            _ => in_bytes(self.members[seat.0 as usize].level),
        }
    }

    /// Whether a packet of the connection, of `size` bytes, conforms.
    ///
    /// # Errors
    /// [`Refusal`] says when it will at the latest, if no other packet passes before and nobody
    /// comes.
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

    /// Lets a packet of the connection, of `size` bytes, pass.
    ///
    /// # Errors
    /// [`Refusal`]: it does not conform, and nothing was taken.
    pub fn take(&mut self, now: Time, seat: Seat, size: u32) -> Result<(), Refusal> {
        self.conforms(now, seat, size)?;
        self.bucket.take(now, size)?;
        let member = &mut self.members[seat.0 as usize];
        member.level = member.level.saturating_sub(u64::from(size) * TOKENS_PER_BYTE);
        Ok(())
    }

    /// Tokens of the bucket that are in no partition.
    fn nobodys(&self) -> u64 {
        let held: u64 = self.members.iter().map(|member| member.level).sum();
        self.bucket.level.saturating_sub(held)
    }

    /// Divides what came in until `now`.
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

    /// To each its part; what a full partition can't hold nobody may use.
    fn fill_each(&mut self, arrived: u128) {
        let arrived = arrived + u128::from(self.rest);
        self.rest = (arrived % u128::from(self.count)) as u64;
        let part = (arrived / u128::from(self.count)) as u64;
        for member in self.members.iter_mut().filter(|member| member.present) {
            member.level = (member.level + part).min(member.room());
        }
    }

    /// In equal parts to those that are not full, over and over until all is given or all are full
    /// (§ 4.2.3); what is nobody's with it.
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

    /// Works out depths anew. What a partition then has too much is nobody's.
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
    /// What its partition holds: two packets at least, so that tokens still come in while one waits
    /// for the host's timer.
    fn room(&self) -> u64 {
        if self.present { self.depth.max(2 * self.packet) } else { 0 }
    }
}

/// How often depths follow round trips: these change over round trips, and working out depths is
/// the dearest part.
const WEIGH_INTERVAL: Time = Time::from_millis(100);

#[cfg(test)]
mod tests;
