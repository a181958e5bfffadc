//! Delivery, measured for laws that want it.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tollway_law::sender::{Acked, AnySender, BbrConfig, Delivery, Flight, Lost, NewRenoConfig, SenderLaw};
use tollway_law::{Rate, Time};

use super::super::{Config, Detection};
use super::pair::{Faults, Pair};

/// A law that sends ten segments at a time, one per millisecond, and records its calls.
struct Recorder(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    deliveries: Vec<Delivery>,
    losses: Vec<Lost>,
    restarts: u32,
}

impl SenderLaw for Recorder {
    fn window(&self) -> f64 {
        10.0
    }
    fn pacing_rate(&self, flight: &Flight) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(f64::from(flight.segment) * 1e3))
    }
    fn samples_delivery(&self) -> bool {
        true
    }
    fn on_delivery(&mut self, _: &Flight, delivery: &Delivery) {
        self.0.lock().unwrap().deliveries.push(*delivery);
    }
    fn on_lost(&mut self, _: &Flight, lost: &Lost) {
        self.0.lock().unwrap().losses.push(*lost);
    }
    fn on_restart(&mut self, _: &Flight) {
        self.0.lock().unwrap().restarts += 1;
    }
    fn on_ack(&mut self, _: &Flight, _: &Acked) {}
    fn on_loss(&mut self, _: &Flight) {}
    fn on_timeout(&mut self, _: &Flight, _: bool) {}
}

fn recorded(config: &Config) -> (Pair, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let law = AnySender::custom(Recorder(Arc::clone(&told)));
    (Pair::with_laws(config, law, NewRenoConfig::default().build().into()), told)
}

#[test]
fn the_rate_is_that_of_what_arrives() {
    let (mut pair, told) = recorded(&Config::default());
    pair.open();
    pair.client().write_stream(1460 * 200);
    pair.client().finish();
    assert!(pair.drive(Time::from_secs(60)));
    let told = told.lock().unwrap();
    // Ten segments a round trip of 100 ms.
    let steady: Vec<&Delivery> = told.deliveries.iter().skip(30).filter(|d| !d.app_limited).collect();
    assert!(steady.len() > 100);
    assert!(steady.iter().all(|d| (d.rate / 100.0 - 1.0).abs() < 0.02), "{:?}", steady[0]);
    assert!(steady.iter().all(|d| d.tx_in_flight == 10 && d.over == 10 && d.lost == 0));
    // The FIN is a segment, too. The last of all had nothing behind them.
    assert_eq!(told.deliveries.iter().map(|d| d.newly_acked).sum::<u32>(), 201);
    assert!(told.deliveries.last().unwrap().delivered == 201 && told.losses.is_empty());
}

#[test]
fn what_the_application_limits_says_so() {
    let (mut pair, told) = recorded(&Config::default());
    pair.open();
    for _ in 0..3 {
        pair.client().write_stream(1460 * 3);
        pair.drive(pair.now + Time::from_secs(1));
    }
    let told = told.lock().unwrap();
    assert_eq!(told.restarts, 2, "the first burst restarts nothing");
    assert!(told.deliveries.iter().skip(3).all(|d| d.app_limited), "{:?}", told.deliveries);
}

#[test]
fn a_loss_is_told_once_with_what_was_in_flight() {
    for detection in [Detection::NewReno, Detection::Rfc6675, Detection::Rack { tail_probe: true }] {
        let (mut pair, told) = recorded(&Config { detection, ..Config::default() });
        let mut lost = false;
        pair.lose = Box::new(move |_, packet| {
            let hit = packet.seq == 60 && !lost;
            lost |= hit;
            hit
        });
        pair.open();
        pair.client().write_stream(1460 * 200);
        pair.client().finish();
        assert!(pair.drive(Time::from_secs(60)));
        let told = told.lock().unwrap();
        let losses: Vec<_> = told.losses.iter().map(|l| (l.tx_in_flight, l.lost)).collect();
        assert_eq!(losses, [(10, 1)], "{detection:?}");
        assert_eq!(told.deliveries.iter().map(|d| d.newly_acked).sum::<u32>(), 201, "{detection:?}");
        // Without ranges all comes at once with the repair, since which nothing was lost.
        let lost = u64::from(detection != Detection::NewReno);
        assert!(told.deliveries.iter().any(|d| d.lost == lost && d.recovering), "{detection:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Through any channel BBR gets everything across, and each segment counts as delivered once.
    #[test]
    fn nothing_counts_twice(
        seed in any::<u64>(), loss in 0f64..0.3, reorder in 0f64..0.3, duplicate in 0f64..0.3, rack in any::<bool>(),
    ) {
        let detection = if rack { Detection::Rack { tail_probe: true } } else { Detection::Rfc6675 };
        let config = Config { detection, ..Config::default() };
        for bbr in [false, true] {
            let (mut pair, told) = recorded(&config);
            if bbr {
                let law = BbrConfig { seed, ..Default::default() }.build().into();
                pair = Pair::with_laws(&config, law, NewRenoConfig::default().build().into());
            }
            pair.seed(seed);
            pair.faults = Faults { loss, reorder, duplicate };
            pair.open();
            pair.client().write_stream(1460 * 100);
            pair.client().finish();
            prop_assert!(pair.drive(Time::from_secs(6000)));
            if !bbr {
                let told = told.lock().unwrap();
                prop_assert_eq!(told.deliveries.iter().map(|d| d.newly_acked).sum::<u32>(), 101);
            }
        }
    }
}
