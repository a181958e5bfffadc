//! One sequence of acknowledgements through the kernel's program and through `law::sender`.

use tollway_host::{Law, Programs, Settings};
use tollway_law::sender::{Acked, FcpConfig, Flight, LossResponse, SenderLaw, XcpConfig};
use tollway_law::{Budget, Time, Toll};
use tollway_proto::encoding::Split;
use tollway_proto::encoding::tcp_option::{decode_preload, decode_price, encode_price};

use super::loaded;

/// `struct growth` of `bpf/feedback.h`, in 1/4096 packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Growth {
    window: i64,
    credit: i64,
    forged: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// An event of the program, as `struct event` has it.
fn event(growth: Growth, code: u16, acked: u32, kind: u8) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[0..8].copy_from_slice(&growth.window.to_ne_bytes());
    bytes[8..16].copy_from_slice(&growth.credit.to_ne_bytes());
    bytes[16..20].copy_from_slice(&growth.forged.to_ne_bytes());
    bytes[24..28].copy_from_slice(&acked.to_ne_bytes());
    bytes[28..30].copy_from_slice(&code.to_ne_bytes());
    bytes[30] = kind;
    bytes
}

/// An acknowledgement of `acked` packets with the feedback `code`, or a timeout. Returns the code
/// of the decoded feedback, too.
fn replay(programs: &mut Programs, growth: Growth, happened: Option<(u16, u32)>) -> (Growth, u16) {
    let (code, acked) = happened.unwrap_or_default();
    let mut bytes = event(growth, code, acked, happened.is_none().into());
    programs.replay(&mut bytes).unwrap();
    let window = long(&bytes, 0) as i64;
    let growth = Growth { window, credit: long(&bytes, 8) as i64, forged: word(&bytes, 16) };
    (growth, u16::from_ne_bytes([bytes[32], bytes[33]]))
}

const PACKET: f64 = 4096.0;

/// Draws numbers below `of` (a linear congruential generator, Knuth's MMIX constants).
fn draw(state: &mut u64, of: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % of
}

#[test]
fn the_window_is_the_law_s_within_a_4096th_of_a_packet() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let mut law =
        XcpConfig { initial_window: 10.0, on_loss: LossResponse::Keep, ..Default::default() }.build();
    let mut growth = Growth { window: 10 << 12, ..Growth::default() };
    let flight = Flight::of(Time::ZERO, Time::from_millis(100), 10);
    let mut state = 7;
    for step in 0..5_000 {
        let event = draw(&mut state, 200);
        if event == 0 {
            law.on_timeout(&flight, true);
            growth = replay(&mut programs, growth, None).0;
        } else if event < 5 {
            // The kernel's program does nothing at a loss: the study keeps the window.
            law.on_loss(&flight);
        } else {
            let acked = 1 + draw(&mut state, 3) as u32;
            // Up to a packet for each acknowledged, and down by as much.
            let units = draw(&mut state, 8096 * u64::from(acked)) as i64 - 4000 * i64::from(acked);
            let code = Split::from_units(units);
            let echo = (code.decode() * 1500.0 / 0.1) as f32;
            law.on_ack(&flight, &Acked { echo: Some(echo), ..Acked::of(acked) });
            growth = replay(&mut programs, growth, Some((code.0, acked))).0;
        }
        let window = growth.window as f64 / PACKET;
        assert!(
            (window - law.window()).abs() <= 1.0 / PACKET + law.window() * 1e-6,
            "{step}: {window} {}",
            law.window()
        );
    }
    assert_eq!(growth.forged, 0);
}

/// A packet requests its part of the room in the window, and never more than another packet: an
/// honest sender's window at most doubles in a round trip.
#[test]
fn requests_are_the_law_s_in_256ths_of_a_packet() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    for (window, limit) in
        [(4, 4), (4, 5), (10, 15), (10, 20), (10, 21), (10, 4000), (1000, 1001), (300, 900)]
    {
        let config = XcpConfig { initial_window: f64::from(window), doubling: true, ..Default::default() };
        let mut toll = Toll::default();
        let flight = Flight::of(Time::ZERO, Time::from_millis(100), window);
        config.build().write_toll(&Flight { limit, ..flight }, &mut toll);
        let theirs = toll.due * 0.1 / f64::from(flight.segment) * 256.0;
        let growth =
            Growth { window: i64::from(window) << 12, credit: i64::from(limit - window) << 12, forged: 0 };
        let mut bytes = event(growth, 0, 0, 2);
        programs.replay(&mut bytes).unwrap();
        let code = u16::from_ne_bytes([bytes[32], bytes[33]]);
        assert!(Split(code).is_request(), "{code:#06x}");
        assert_eq!(f64::from(code >> 3), (theirs + 1e-6).floor(), "{window} of {limit}: {theirs}");
    }
}

#[test]
fn the_pace_is_the_law_s() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    for window in [1, 7, 8, 100, 10_000] {
        let law = XcpConfig { initial_window: f64::from(window), ..Default::default() }.build();
        let mut flight = Flight::of(Time::ZERO, Time::from_millis(100), window);
        flight.min_rtt = flight.srtt;
        let growth = Growth { window: i64::from(window) << 12, ..Growth::default() };
        let mut bytes = event(growth, 0, flight.segment, 3);
        programs.replay(&mut bytes).unwrap();
        let theirs = law.pacing_rate(&flight).map_or(u64::MAX, |rate| rate.bytes_per_sec() as u64);
        let ours = long(&bytes, 8);
        assert!(ours.abs_diff(theirs) <= theirs / 1000, "{window}: {ours} {theirs}");
        assert_eq!(ours == u64::MAX, window < 8);
    }
}

#[test]
fn codes_are_those_of_the_codec() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    for code in 0..=u16::MAX {
        let (_, answer) = replay(&mut programs, Growth::default(), Some((code, 0)));
        assert_eq!(answer, Split::from_units(Split(code).units()).0, "{code:#06x}");
    }
}

/// The most that a forged echo brings is a doubling per round trip.
#[test]
fn forged_feedback_at_most_doubles_a_window_in_a_round_trip() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let grown = |programs: &mut Programs, codes: [u16; 2], rounds: u32| {
        let mut growth = Growth { window: 10 << 12, ..Growth::default() };
        for _ in 0..rounds {
            let mut left = growth.window >> 12;
            let before = growth.window;
            while left > 0 {
                let acked = left.min(2);
                growth = replay(programs, growth, Some((codes[(left & 1) as usize], acked as u32))).0;
                left -= acked;
            }
            assert!(growth.window <= 2 * before + (16 << 12), "{} after {before}", growth.window);
        }
        growth
    };
    let (most, least) = (Split::MAX.0, Split::MIN.0);
    let maximum = grown(&mut programs, [most, most], 6);
    assert!(maximum.forged > 0 && maximum.window <= 640 << 12, "{maximum:?}");
    let negative = grown(&mut programs, [least, least], 6);
    assert_eq!((negative.window, negative.forged), (1 << 12, 0));
    assert!(grown(&mut programs, [most, least], 6).window <= 640 << 12);
}

/// An echo counts once for each packet that it acknowledges: a replayed one acknowledges none.
#[test]
fn replayed_feedback_grows_no_window() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let start = Growth { window: 10 << 12, ..Growth::default() };
    let (honest, _) = replay(&mut programs, start, Some((Split::from_units(2000).0, 1)));
    assert_eq!((honest.window, honest.forged), ((10 << 12) + 2000, 0));
    let mut growth = honest;
    for _ in 0..1000 {
        growth = replay(&mut programs, growth, Some((Split::MAX.0, 0))).0;
    }
    // The single packet allows that much.
    assert!(growth.window <= (11 << 12), "{growth:?}");
    assert!(growth.forged >= 999, "{growth:?}");
}

/// The kernel's program and routers' meters agree on each code that no router has rewritten.
#[test]
fn a_request_is_told_from_feedback_as_by_meters() {
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let mut requests = 0;
    for code in 0..=u16::MAX {
        let mut bytes = event(Growth::default(), code, 0, 0);
        programs.replay(&mut bytes).unwrap();
        let request = u16::from_ne_bytes([bytes[34], bytes[35]]) == 1;
        assert_eq!(request, Split(code).is_request(), "{code:#06x}");
        requests += usize::from(request);
    }
    assert_eq!(requests, 257);
}

const MSS: u32 = 1448;

/// Writes an event of FCP's program behind the state of its spending, at a round trip of 100 ms.
fn write_spending(bytes: &mut [u8; 96], now: u64, budget: f64, first: u32, price: u16, few: bool) {
    let bits = f64::to_bits(budget);
    bytes[48..56].copy_from_slice(&now.to_ne_bytes());
    bytes[56..60].copy_from_slice(&((bits >> 21 | 1 << 31) as u32).to_ne_bytes());
    bytes[60..64].copy_from_slice(&((bits >> 52) as i32 - 1054).to_ne_bytes());
    bytes[72..76].copy_from_slice(&100_000u32.to_ne_bytes());
    bytes[76..80].copy_from_slice(&first.to_ne_bytes());
    bytes[80..82].copy_from_slice(&price.to_ne_bytes());
    bytes[84..88].copy_from_slice(&MSS.to_ne_bytes());
    bytes[88..90].copy_from_slice(&u16::from(few).to_ne_bytes());
}

/// A connection that cannot pay for the least rate, and then meets a link that has forgotten its
/// price: it pays as the law does, and sends no more than the law at first.
#[test]
fn fcp_pays_its_budget_at_the_least_rate_and_treads_on_a_link_without_a_price() {
    let Some(mut programs) = loaded(&Settings::new(Law::Fcp)) else { return };
    let (budget, rtt, packets) = (1e-3, Time::from_millis(100), 10.0);
    let config = FcpConfig { budget: Budget::per_sec(budget), initial_always: true, ..Default::default() };
    let mut law = config.build();
    let mut flight = Flight::of(Time::ZERO, Time::ZERO, 10);
    law.write_toll(&flight, &mut Toll::default());
    flight.srtt = rtt;
    let mut bytes = [0; 96];
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 2.0 / 1000.0;
    let whole = packets * f64::from(flight.segment);
    for (seconds, price) in [(2, 1e-3), (4, 1e-3), (6, 1e-12)] {
        let code = encode_price(price);
        write_spending(&mut bytes, seconds * 1_000_000_000, budget, 10 * MSS, code, true);
        programs.replay(&mut bytes).unwrap();
        flight.now = Time::from_secs(seconds);
        law.on_ack(&flight, &Acked { echo: Some(decode_price(code) as f32), ..Acked::of(1) });
        if price < 1e-6 {
            let (ours, theirs) = (long(&bytes, 64) as f64, law.pacing_rate(&flight).unwrap().bytes_per_sec());
            assert!(near(ours / (packets * f64::from(MSS)), theirs / whole), "{ours} {theirs}");
            continue;
        }
        let mut toll = Toll::default();
        law.write_toll(&flight, &mut toll);
        let stake = decode_price(u16::from_ne_bytes([bytes[90], bytes[91]]));
        let theirs = f64::from(toll.stake) * f64::from(flight.segment);
        assert!(near(stake * f64::from(MSS), theirs), "{stake} {}", toll.stake);
        assert!(near(stake * f64::from(MSS) / 0.4, budget), "{stake}");
    }
}

/// A budget through the kernel's program and through the law: the same price, rate, announcement
/// and spending, with the error of the codes.
#[test]
fn fcp_buys_at_the_law_s_rate_and_announces_its_changes() {
    let Some(mut programs) = loaded(&Settings::new(Law::Fcp)) else { return };
    let rtt = Time::from_millis(100);
    let mut state = 11;
    let mut bytes = [0; 96];
    // The fifth buys less than a packet a round trip.
    let budgets = [1.0, 0.02, 5.0, 4.0, 1e-6, 1.0];
    let mut least = 0.0;
    let near = |a: f64, b: f64, error: f64| (a / b - 1.0).abs() <= error;
    for (turn, budget) in budgets.into_iter().enumerate() {
        let before = budgets[turn.saturating_sub(1)];
        // A change is announced for a round trip, a decrease for a quarter if that takes it back.
        let fall: f64 = (before - budget) / before;
        let span = if fall > 0.0 { fall.max(0.25) } else { 1.0 };
        for step in 0..40 {
            let now = turn as u64 * 4_000_000_000 + step * 10_000_000 + 1_000_000_000;
            let price = 1e-7 * (1.0 + draw(&mut state, 1000) as f64 / 1000.0);
            let code = encode_price(price);
            // Enough to spend the whole budget from the first price on.
            write_spending(&mut bytes, now, budget, 100_000_000, code, false);
            if step == 0 {
                least = decode_price(code) * f64::from(MSS) / rtt.as_secs_f64();
            }
            programs.replay(&mut bytes).unwrap();
            let answer = u16::from_ne_bytes([bytes[82], bytes[83]]);
            assert_eq!(answer, code, "the kernel reads {price} in another way");

            // The law, with the spending that is due by then.
            let part = match turn {
                0 => 1.0,
                _ => ((step as f64 - 10.0) / (10.0 * span)).clamp(0.0, 1.0),
            };
            let due = before + (budget - before) * part;
            let (budget, initial_packets, initial_always) = (Budget::per_sec(due), 1e6, true);
            let mut law = FcpConfig { budget, initial_packets, initial_always, ..Default::default() }.build();
            let mut flight = Flight::of(Time::ZERO, Time::ZERO, 10);
            law.write_toll(&flight, &mut Toll::default());
            flight.srtt = rtt;
            law.on_ack(&flight, &Acked { echo: Some(decode_price(code) as f32), ..Acked::of(1) });
            let (rate, bought) = (long(&bytes, 64) as f64, law.pacing_rate(&flight).unwrap().bytes_per_sec());
            assert!(near(decode_price(code), price, 1.0 / 1000.0));
            // The law's least rate, a packet in four round trips, is not in this part of the program.
            assert!(near(rate.max(1500.0 / 0.4), bought, 1e-5), "{turn} {step}: {rate} {bought}");
            let preload = decode_preload(u16::from_ne_bytes([bytes[36], bytes[37]]));
            let announced = if turn > 0 && (step as f64) < 10.0 * span {
                (budgets[turn] - before) / (before.max(least) * span)
            } else {
                0.0
            };
            assert!((preload - announced).abs() <= announced.abs() / 500.0, "{turn} {step}: {preload}");
        }
    }
}
