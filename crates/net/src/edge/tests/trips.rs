use tollway_proto::encoding::tcp_option::Builder;

use super::meters::segment;
use super::*;
use crate::edge::{Trips, frame as frames};

#[test]
fn a_connection_s_round_trip_is_the_sum_of_those_to_both_its_ends() {
    let trips = Trips::default();
    let sides = [trips.clone(), trips.back()];
    let pass = |side: usize, flow: usize, millis: u64, stamps: (u32, u32)| {
        let mut options = Builder::new();
        options.timestamps(stamps.0, stamps.1).unwrap();
        let frame = segment(side == 0, flow, 16, 0, options.as_slice(), 100);
        let content = frames::read(&frame, true).unwrap();
        sides[side].on_arrival(Time::from_millis(millis), &frame[content.at..], &content.header.unwrap())
    };
    let millis = |time: Option<Time>| time.map(|time| time.0 as f64 * 1e-6);
    // 30 ms to the far end, 20 ms to the near one.
    assert_eq!(pass(0, 0, 1, (1, 0)), None);
    assert_eq!(pass(0, 0, 2, (1, 0)), None, "the same timestamp");
    assert_eq!(pass(1, 0, 31, (100, 1)), None, "one side is known");
    assert_eq!(pass(0, 1, 40, (9, 100)), None, "another connection");
    assert_eq!(millis(pass(0, 0, 51, (2, 100))), Some(50.0));
    assert_eq!(millis(pass(1, 0, 71, (200, 2))), Some(40.0), "a fall counts at once");
    // The near end has nothing to send for ten seconds.
    assert_eq!(millis(pass(0, 0, 10_071, (300, 200))).map(f64::round), Some(41.0));
}
