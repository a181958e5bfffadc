//! A half-duplex medium: link directions that take turns.

use tollway_law::Time;

/// One transmitter for several link directions, the *stations*, of which one sends at a time.
///
/// They take turns packet by packet, round robin: the average result of contention among stations
/// with a constant backlog.
#[derive(Clone, Debug)]
pub struct Medium {
    stations: Vec<u32>,
    turn: usize,
    free_at: Time,
}

impl Medium {
    /// A medium for these stations, in the engine's numbering.
    pub fn new(stations: Vec<u32>) -> Medium {
        Medium { stations, turn: 0, free_at: Time::ZERO }
    }

    /// The end of the present transmission.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Sets the end of the present transmission.
    pub fn set_free_at(&mut self, then: Time) {
        self.free_at = then;
    }

    /// Polls the stations in turn, when the medium is free. `send` transmits a packet and returns
    /// the end of transmission, or `None` without a packet. Returns the station that sends.
    pub fn take_turn(&mut self, mut send: impl FnMut(u32) -> Option<Time>) -> Option<u32> {
        for _ in 0..self.stations.len() {
            let station = self.stations[self.turn];
            self.turn = (self.turn + 1) % self.stations.len();
            if let Some(free_at) = send(station) {
                self.free_at = free_at;
                return Some(station);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_that_have_something_take_turns() {
        let mut medium = Medium::new(vec![7, 8, 9]);
        let mut left = [3, 0, 1];
        let mut order = Vec::new();
        while let Some(station) = medium.take_turn(|station| {
            let left = &mut left[station as usize - 7];
            let has = *left > 0;
            *left -= i32::from(has);
            has.then_some(Time(u64::from(station)))
        }) {
            assert_eq!(medium.free_at(), Time(u64::from(station)));
            order.push(station);
        }
        assert_eq!(order, [7, 9, 7, 7]);
    }
}
