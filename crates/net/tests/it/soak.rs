//! Random faults on real datagrams, and the invariants that must hold.
//!
//! Every packet is accounted for, data arrive as they were sent, every flow that can continue does,
//! and no state grows.
//!
//! `make soak` runs it for an hour. A failure prints its seed; `TOLLWAY_SOAK_SEED` repeats that
//! run.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::way::{Mischief, Way};
use crate::common::{Mixer, measures_memory, mutated, number, resident, sockets};
use tollway_law::link::{AnyLink, DropTail, FcpConfig, XcpConfig};
use tollway_law::sender::{AnySender, FcpConfig as FcpSender, NewRenoConfig, XcpConfig as XcpSender};
use tollway_law::{Rate, Time};
use tollway_net::secure::KeyFile;
use tollway_net::{FlowSpec, LinkSpec, Network};
use tollway_proto::Change;
use tollway_proto::Encoding;
use tollway_proto::faults::{Loss, LossPlace, Only};
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};

#[derive(Clone, Copy, Debug)]
enum Law {
    DropTail,
    Xcp,
    Fcp,
}

impl Law {
    fn port(self, rate: Rate) -> AnyLink {
        match self {
            Law::DropTail => AnyLink::DropTail(DropTail),
            Law::Xcp => XcpConfig::default().build(rate),
            Law::Fcp => AnyLink::Fcp(Box::new(FcpConfig::default().build(rate))),
        }
    }

    fn sender(self) -> AnySender {
        match self {
            Law::DropTail => NewRenoConfig::default().build().into(),
            Law::Xcp => XcpSender::default().build().into(),
            Law::Fcp => FcpSender::default().build().into(),
        }
    }
}

/// One network and its faults, all drawn from a seed.
struct Round {
    mixer: Mixer,
    network: Network,
    /// Bytes of each flow.
    flows: Vec<u64>,
    now: Time,
    stranger: UdpSocket,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut mixer = Mixer(seed);
        let law = [Law::DropTail, Law::Xcp, Law::Fcp][mixer.below(3) as usize];
        let names = ["a", "r", "b"].map(String::from);
        let link = |from, to, mbps: f64, delay| LinkSpec {
            from,
            to,
            rate: Rate::from_mbps(mbps),
            trace: None,
            delay: Time::from_millis(delay),
            overhead: 0,
            law: law.port(Rate::from_mbps(mbps)),
            limit: Limit { packets: 40, bytes: u64::MAX },
            queue: Default::default(),
        };
        let links = [link(0, 1, 100.0, 0), link(1, 2, 20.0, 5), link(2, 1, 20.0, 5), link(1, 0, 100.0, 0)];
        let threads = 1 + mixer.below(2) as usize;
        let mut network = Network::new(&names, &links, seed, threads).unwrap();
        let config =
            Config { segment: 1200, header: 80, ack_size: 112, handshake: true, ..Config::default() };
        let config = Arc::new(config);
        let mut flows = Vec::new();
        for _ in 0..1 + mixer.below(3) {
            let bytes = 20_000 + mixer.below(300_000);
            let mut client = Connection::client(&config, law.sender(), 0);
            client.write_stream(bytes);
            client.finish();
            let server = Connection::server(&config, law.sender(), 0);
            let start = Time::from_millis(1 + mixer.below(200));
            let (forward, back) = (vec![0, 1], vec![2, 3]);
            let spec = FlowSpec {
                client,
                server,
                forward,
                back,
                start,
                stop: Time::NEVER,
                encoding: Encoding::Acp,
                fingerprint: 0,
            };
            network.add_flow(spec).unwrap();
            flows.push(bytes);
        }
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        Round { mixer, network, flows, now: Time::ZERO, stranger }
    }

    /// Runs for `ms` milliseconds, and checks the invariants.
    fn run(&mut self, ms: u64) {
        self.now += Time::from_millis(ms);
        self.network.run_until(self.now).unwrap();
        assert_eq!(self.network.held(), self.network.queued() + self.network.in_flight());
        for (flow, &bytes) in self.flows.iter().enumerate() {
            assert!(self.network.server(flow as u32).stats().bytes_delivered <= bytes);
        }
    }

    /// Changes a link, or sends a datagram from an unknown address.
    fn fault(&mut self) {
        let link = self.mixer.below(4) as u32;
        match self.mixer.below(7) {
            0 => {
                let only = [Only::All, Only::Data, Only::Ack][self.mixer.below(3) as usize];
                let place = if self.mixer.below(2) == 0 { LossPlace::Before } else { LossPlace::After };
                let probability = self.mixer.below(40) as f64 / 100.0;
                self.network.change(link, Change::Losses(vec![Loss { place, only, probability }]));
            }
            1 => self.network.change(link, Change::Blackout(self.mixer.below(2) == 0)),
            2 => {
                let rate = Rate::from_mbps(1.0 + self.mixer.below(60) as f64);
                self.network.change(link, Change::Rate(rate));
                self.network.change(link, Change::Capacity(rate));
            }
            3 => self.network.change(link, Change::Delay(Time::from_micros(self.mixer.below(40_000)))),
            4 => {
                let packets = 1 + self.mixer.below(60) as u32;
                self.network.change(link, Change::Limit(Limit { packets, bytes: u64::MAX }));
            }
            5 => {
                // An unplanned pause of the whole thread.
                std::thread::sleep(Duration::from_millis(self.mixer.below(30)));
            }
            _ => {
                let to = self.network.addr(self.mixer.below(3) as u32);
                for _ in 0..100 {
                    let _ = self.stranger.send_to(&mutated(&mut self.mixer), to);
                }
            }
        }
    }

    /// Causes faults for about a second, then none: all data arrive.
    fn all(mut self) {
        for _ in 0..10 + self.mixer.below(30) {
            let span = 10 + self.mixer.below(60);
            self.run(span);
            self.fault();
        }
        for link in 0..4 {
            self.network.change(link, Change::Losses(Vec::new()));
            self.network.change(link, Change::Blackout(false));
            self.network.change(link, Change::Rate(Rate::from_mbps(20.0)));
            self.network.change(link, Change::Capacity(Rate::from_mbps(20.0)));
            self.network.change(link, Change::Delay(Time::from_millis(2)));
            self.network.change(link, Change::Limit(Limit { packets: 100, bytes: u64::MAX }));
        }
        let mut steps = 0;
        while !(0..self.flows.len()).all(|flow| self.network.client(flow as u32).is_finished()) {
            // A timer after many doublings waits longest.
            assert!(steps < 700, "flows are not done 70 s after the last fault");
            steps += 1;
            self.run(100);
        }
        for (flow, &bytes) in self.flows.iter().enumerate() {
            assert_eq!(self.network.server(flow as u32).stats().bytes_delivered, bytes);
        }
        self.network.settle().unwrap();
        let counters = self.network.counters();
        let kernel = counters.sent - counters.received - counters.waiting;
        let went = counters.delivered
            + counters.absorbed
            + counters.senseless
            + counters.unsent
            + counters.waiting
            + kernel;
        assert_eq!(counters.created, went + self.network.drops() + self.network.held(), "{counters:?}");
        assert_eq!(counters.senseless, 0, "a stranger's datagram was taken for a node's");
    }
}

#[test]
fn whatever_befalls_it_a_network_keeps_its_books_and_its_flows() {
    if !sockets() {
        return;
    }
    if let Some(seed) = number("TOLLWAY_SOAK_SEED") {
        return Round::new(seed).all();
    }
    let _memory = measures_memory();
    let until = Instant::now() + Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(8));
    let (mut seed, mut first) = (1, None);
    while Instant::now() < until || seed <= 2 {
        let done = std::panic::catch_unwind(|| Round::new(seed).all());
        assert!(done.is_ok(), "to see it again: TOLLWAY_SOAK_SEED={seed}");
        // Every round needs the same memory as the first.
        let first = *first.get_or_insert_with(resident);
        assert!(resident() < first + (64 << 20), "memory has grown, by round {seed}");
        seed += 1;
    }
    eprintln!("{} rounds", seed - 1);
}

/// One node of two, the only one in this process, with a flow of `bytes` each way.
fn node(here: usize, at: &[SocketAddr; 2], keys: Option<&KeyFile>, bytes: u64) -> Network {
    let names = ["a", "b"].map(String::from);
    let rate = Rate::from_mbps(20.0);
    let link = |from, to| LinkSpec {
        from,
        to,
        rate,
        trace: None,
        delay: Time::from_millis(2),
        overhead: 0,
        law: Law::Xcp.port(rate),
        limit: Limit { packets: 100, bytes: u64::MAX },
        queue: Default::default(),
    };
    let patience = Time::from_secs(30);
    let mut network = Network::part(&names, &[link(0, 1), link(1, 0)], 1, here, at, patience).unwrap();
    if let Some(keys) = keys {
        network.seal(here as u32, keys).unwrap();
    }
    let config = Config { segment: 1200, header: 80, ack_size: 112, handshake: true, ..Config::default() };
    let config = Arc::new(config);
    for back in [false, true] {
        let mut client = Connection::client(&config, Law::Xcp.sender(), 0);
        client.write_stream(bytes);
        client.finish();
        let server = Connection::server(&config, Law::Xcp.sender(), 0);
        let (forward, back) = if back { (vec![1], vec![0]) } else { (vec![0], vec![1]) };
        let (start, stop, encoding) = (Time::from_millis(1), Time::NEVER, Encoding::Acp);
        network
            .add_flow(FlowSpec { client, server, forward, back, start, stop, encoding, fingerprint: 0 })
            .unwrap();
    }
    network
}

/// Two nodes over a faulty path: each flow arrives whole and once.
fn mischief(seed: u64) {
    let mut mixer = Mixer(seed);
    let sealed = mixer.below(2) == 0;
    let bytes = 50_000 + mixer.below(300_000);
    let mut up_to = |most: u64| mixer.below(most);
    let mischief = Mischief {
        lost: up_to(50),
        repeated: up_to(100),
        late: up_to(300),
        corrupted: up_to(50),
        // Without a seal only the data are checked. Headers have UDP's checksum.
        from: if sealed { 0 } else { 80 },
    };
    let files = KeyFile::mesh(&["a", "b"].map(String::from)).unwrap();
    // No other socket of this machine takes these addresses meanwhile.
    let ends = ["127.0.77.1:0", "127.0.77.2:0"].map(|at| UdpSocket::bind(at).unwrap().local_addr().unwrap());
    let way = Way::open(ends, seed, mischief);
    // A node that has left acknowledges no FIN that its peer repeats.
    let over = [const { AtomicBool::new(false) }; 2];
    let run = |here: usize| {
        let mut at = ends;
        at[1 - here] = way.faces[here];
        let mut network = node(here, &at, sealed.then_some(&files[here]), bytes);
        let mut now = Time::ZERO;
        while !over.iter().all(|over| over.load(Ordering::SeqCst)) {
            assert!(now < Time::from_secs(60), "seed {seed}, {mischief:?}: the flows do not end");
            now += Time::from_millis(50);
            network.run_until(now).unwrap();
            assert!(network.server(1 - here as u32).stats().bytes_delivered <= bytes);
            over[here].fetch_or(network.is_over(), Ordering::SeqCst);
        }
        assert!(network.client(here as u32).is_finished(), "seed {seed}, {mischief:?}");
        assert_eq!(
            network.server(1 - here as u32).stats().bytes_delivered,
            bytes,
            "seed {seed}, {mischief:?}"
        );
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        run(0);
        other.join().unwrap();
    });
}

#[test]
fn a_way_that_reorders_repeats_and_corrupts_ends_no_flow() {
    if !sockets() {
        return;
    }
    if let Some(seed) = number("TOLLWAY_SOAK_SEED") {
        return mischief(seed);
    }
    let until = Instant::now() + Duration::from_secs(number("TOLLWAY_SOAK_SECONDS").unwrap_or(4));
    let mut seed = 1;
    while Instant::now() < until || seed <= 4 {
        let done = std::panic::catch_unwind(|| mischief(seed));
        assert!(done.is_ok(), "to see it again: TOLLWAY_SOAK_SEED={seed}");
        seed += 1;
    }
    eprintln!("{} rounds", seed - 1);
}
