//! Round trips of the TCP connections that cross an interface both ways, from their timestamps
//! (RFC 7323).
//!
//! A packet's timestamp comes back from the end that it goes to, which gives the round trip between
//! here and there. That of the connection is the sum over both ends, waiting times here included.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollway_law::Time;

use crate::sys::ip::{self, FiveTuple, Header};

/// The round trips of an interface, as one of its directions sees them.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    /// Recent connections and older ones, by their packets in the first direction.
    known: Arc<Mutex<[Known; 2]>>,
    /// True in the second direction.
    back: bool,
}

type Known = HashMap<FiveTuple, [Leg; 2]>;

/// The way from here to an end of a connection, and back.
#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    /// A timestamp under way, and the time at which it passed.
    asked: Option<(u32, Time)>,
    /// Its round trip; zero while unknown.
    rtt: Time,
}

impl Trips {
    /// The same connections, in the other direction.
    pub fn back(&self) -> Trips {
        Trips { back: !self.back, ..self.clone() }
    }

    /// Handles the IP packet in `bytes`, which arrives. Returns the round trip of its connection if
    /// the packet completes one.
    pub(super) fn on_arrival(&self, now: Time, bytes: &[u8], header: &Header) -> Option<Time> {
        let (value, echo) = ip::observed(bytes, header)?.1.timestamps?;
        let flow = if self.back { header.flow.back() } else { header.flow };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let [recent, older] = &mut *known;
        if recent.len() >= MOST_FLOWS {
            *older = std::mem::take(recent);
        }
        let legs = recent.entry(flow).or_insert_with(|| older.remove(&flow).unwrap_or_default());
        let (to, from) = (usize::from(self.back), usize::from(!self.back));
        legs[to].asked.get_or_insert((value, now));
        let (asked, at) = legs[from].asked?;
        if echo.wrapping_sub(asked) as i32 >= 0 {
            legs[from].asked = None;
            legs[from].learn(now.saturating_sub(at));
            return (legs[to].rtt > Time::ZERO).then(|| legs[to].rtt + legs[from].rtt);
        }
        None
    }
}

impl Leg {
    /// Follows a fall at once and a rise slowly: an end that has nothing to send answers late.
    fn learn(&mut self, rtt: Time) {
        let most = if self.rtt == Time::ZERO { LONGEST } else { Time(self.rtt.0 + self.rtt.0 / 16 + 1) };
        self.rtt = rtt.clamp(Time(1), most);
    }
}

/// Longest round trip that is believed before there is another.
const LONGEST: Time = Time::from_secs(1);
/// Connections remembered, at least; twice as many at most.
const MOST_FLOWS: usize = 1 << 15;
