//! Machines with garbage in their tolls, beside honest ones on one XCP link. They may take more
//! than their share. But no number goes wild, every packet is counted, and the honest flow's data
//! arrive.

use std::sync::Arc;

use proptest::prelude::*;
use tollway_law::link::{LinkLaw, xcp};
use tollway_law::sender::XcpConfig;
use tollway_law::{Rate, Time};
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Encoding, Flags, Machine, Packet, SackRanges};
use tollway_sim::{FlowSpec, LinkSpec, Network, RouteEnd};

/// A connection that replaces its statements by given numbers.
struct Liar {
    inner: Connection,
    lies: Vec<f64>,
    told: usize,
}

impl Liar {
    fn lie(&mut self) -> f64 {
        self.told += 1;
        self.lies[self.told % self.lies.len()]
    }
}

impl Machine for Liar {
    fn open(&mut self, now: Time) {
        self.inner.open(now);
    }

    fn stop(&mut self, _: Time) {
        self.inner.stop();
    }

    fn handle_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges) {
        self.inner.handle_packet(now, packet, sack);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.inner.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Time {
        self.inner.poll_timeout()
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn poll_transmit(&mut self, now: Time, out: &mut Packet, sack: &mut SackRanges) -> bool {
        let some = self.inner.poll_transmit(now, out, sack);
        if some && !self.lies.is_empty() {
            if out.flags.has(Flags::TOLLED) {
                out.toll.due = self.lie();
                out.toll.rtt = self.lie() as f32;
                out.toll.offer = self.lie() as f32;
                out.toll.stake = self.lie() as f32;
            }
            if out.flags.has(Flags::ECHO) {
                out.toll.echo = self.lie() as f32;
            }
        }
        some
    }
}

fn lie() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(f64::MIN_POSITIVE),
        Just(-0.0),
        Just(1e-40),
        any::<f64>(),
        -1e9f64..1e9,
        0.0f64..1.0,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn lies_break_nothing(
        lies in proptest::collection::vec(lie(), 1..12),
        answers in proptest::collection::vec(lie(), 0..6),
        (arithmetic, shadow) in prop_oneof![
            Just((xcp::Arithmetic::Float, xcp::Beside::None)),
            Just((xcp::Arithmetic::Fixed32, xcp::Beside::None)),
            Just((xcp::Arithmetic::Fixed128, xcp::Beside::None)),
            Just((xcp::Arithmetic::Float, xcp::Beside::Fixed32)),
            Just((xcp::Arithmetic::Float, xcp::Beside::Fixed128)),
        ],
        window_form in any::<bool>(),
        encoded in any::<bool>(),
    ) {
        let rate = Rate::from_mbps(10.0);
        let form = if window_form { xcp::Form::Window } else { xcp::Form::Throughput };
        let law = xcp::XcpConfig { arithmetic, shadow, form, ..Default::default() }.build(rate);
        let limit = Limit { packets: 60, bytes: u64::MAX };
        let link = LinkSpec { rate, delay: Time::from_millis(10), overhead: 0, law, limit, queue: Default::default() };
        let mut network = Network::new(1);
        let (there, back) = (network.add_link(link.clone()), network.add_link(link));
        let forward = network.add_route(&[there], RouteEnd::Server);
        let reverse = network.add_route(&[back], RouteEnd::Client);
        // A bounded buffer, since false echoes can set any window.
        let config = Arc::new(Config { send_buffer: 200, ..Config::default() });
        let mut flow = |bytes: u64, lies: &[f64], answers: &[f64]| {
            let law = || XcpConfig::default().build().into();
            let mut client = Connection::client(&config, law(), 0);
            client.write_stream(bytes);
            client.finish();
            let server = Connection::server(&config, law(), 0);
            network.add_flow(FlowSpec {
                client: Liar { inner: client, lies: lies.to_vec(), told: 0 },
                server: Liar { inner: server, lies: answers.to_vec(), told: 0 },
                forward,
                back: reverse,
                start: Time::ZERO,
                stop: Time::NEVER,
                encoding: if encoded { Encoding::Draft20 { version: tollway_proto::encoding::draft20::Version::V3 } } else { Encoding::Acp },
                segment: 1500,
            })
        };
        let honest = flow(100_000, &[], &[]);
        let liars = [flow(3_000_000, &lies, &[]), flow(3_000_000, &[], &answers), flow(3_000_000, &lies, &answers)];
        for second in 1..=60 {
            network.run_until(Time::from_secs(second));
            for id in liars.iter().chain([&honest]) {
                prop_assert!(network.client(*id).inner.cwnd().is_finite());
                prop_assert!(network.client(*id).inner.cwnd() >= 1.0);
            }
            let state = network.with_link(there, |link, _| link.port.law.control().expect("an XCP router"));
            prop_assert!(state.feedback.is_finite() && state.avg_rtt.is_finite(), "{state:?}");
        }
        let census = network.census();
        prop_assert!(census.is_conserved(), "{census:?}");
        prop_assert_eq!(network.packets_alive(), census.queued + census.in_flight);
        prop_assert_eq!(network.server(honest).inner.stats().bytes_delivered, 100_000);
        for id in liars {
            prop_assert!(network.server(id).inner.stats().bytes_delivered <= 3_000_000);
        }
    }
}

/// The router alone, which must accept any input: no toll leaves it wild.
#[test]
fn a_toll_leaves_the_router_finite() {
    use tollway_law::link::Passing;
    use tollway_law::{Toll, toll::Kind};
    let mut law = xcp::XcpConfig::default().build(Rate::from_mbps(10.0));
    for (i, &wild) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 0.0]
        .iter()
        .cycle()
        .take(5000)
        .enumerate()
    {
        let now = Time::from_micros(i as u64 * 700);
        let passing = Passing::of(Kind::Tolled, 1500, 1, 1500);
        let mut toll = Toll { due: wild, rtt: wild as f32, offer: wild as f32, ..Toll::default() };
        law.on_arrival(now, passing, &toll);
        law.on_departure(now, passing, &mut toll);
        assert!(toll.due.is_finite(), "{toll:?}");
    }
}
