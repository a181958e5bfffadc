//! Real datagrams between nodes on loopback. No test checks speed, since machines are shared.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use crate::common::{MANY, Mixer, measures_memory, mutated, resident, sockets};
use tollway_law::link::{AnyLink, DropTail, XcpConfig};
use tollway_law::sender::{NewRenoConfig, XcpConfig as XcpSender};
use tollway_law::{Rate, Time};
use tollway_net::{Fate, FlowSpec, LinkSpec, Network};
use tollway_proto::Change;
use tollway_proto::Encoding;
use tollway_proto::faults::{Loss, LossPlace, Only};
use tollway_proto::link::Link;
use tollway_proto::port::Limit;
use tollway_proto::transport::{Config, Connection};

fn config() -> Arc<Config> {
    Arc::new(Config { segment: 1200, header: 80, ack_size: 112, ..Config::default() })
}

/// `a → r → b` and back, 20 Mb/s and 5 ms between `r` and `b`.
fn path(xcp: bool, threads: usize) -> Network {
    let (names, links) = parts(xcp);
    Network::new(&names, &links, 1, threads).unwrap()
}

fn parts(xcp: bool) -> ([String; 3], [LinkSpec; 4]) {
    let names = ["a", "r", "b"].map(String::from);
    let link = |from, to, mbps: f64, delay| {
        let rate = Rate::from_mbps(mbps);
        LinkSpec {
            from,
            to,
            rate,
            trace: None,
            delay: Time::from_millis(delay),
            overhead: 0,
            law: if xcp { XcpConfig::default().build(rate) } else { AnyLink::DropTail(DropTail) },
            limit: Limit { packets: 60, bytes: u64::MAX },
            queue: Default::default(),
        }
    };
    let links = [link(0, 1, 100.0, 0), link(1, 2, 20.0, 5), link(2, 1, 20.0, 5), link(1, 0, 100.0, 0)];
    (names, links)
}

fn flow(network: &mut Network, xcp: bool, bytes: u64) -> u32 {
    let law = || {
        if xcp { XcpSender::default().build().into() } else { NewRenoConfig::default().build().into() }
    };
    let mut client = Connection::client(&config(), law(), 0);
    client.write_stream(bytes);
    client.finish();
    let server = Connection::server(&config(), law(), 0);
    let spec = FlowSpec {
        client,
        server,
        forward: vec![0, 1],
        back: vec![2, 3],
        start: Time::from_millis(1),
        stop: Time::NEVER,
        encoding: Encoding::Acp,
        fingerprint: 0,
    };
    network.add_flow(spec).unwrap()
}

/// Runs until the flow is done, at most 20 s.
fn run(network: &mut Network) {
    for step in 1..400 {
        network.run_until(Time::from_millis(50 * step)).unwrap();
        if !network.drain_done().is_empty() {
            return;
        }
    }
    panic!("not done in 20 s");
}

fn accounted(network: &mut Network) {
    network.settle().unwrap();
    let counters = network.counters();
    assert_eq!(network.held(), network.queued() + network.in_flight());
    let kernel = counters.sent - counters.received - counters.waiting;
    assert_eq!(
        counters.created,
        counters.delivered
            + counters.absorbed
            + counters.senseless
            + counters.unsent
            + counters.waiting
            + kernel
            + network.drops()
            + network.held(),
        "{counters:?}"
    );
}

#[test]
fn a_transfer_arrives_whole_over_real_sockets() {
    if !sockets() {
        return;
    }
    for (xcp, threads) in [(true, 1), (false, 2)] {
        let mut network = path(xcp, threads);
        let flow = flow(&mut network, xcp, 500_000);
        run(&mut network);
        assert_eq!(network.server(flow).stats().bytes_delivered, 500_000);
        assert!(network.client(flow).min_rtt() >= Time::from_millis(10));
        assert!(network.counters().sent > 800, "{:?}", network.counters());
        assert!(network.punctuality().departures.count() > 800);
        accounted(&mut network);
    }
}

#[test]
fn losses_are_repaired_and_counted() {
    if !sockets() {
        return;
    }
    let mut network = path(false, 1);
    let flow = flow(&mut network, false, 300_000);
    let loss = Loss { place: LossPlace::After, only: Only::Data, probability: 0.05 };
    network.change(1, Change::Losses(vec![loss]));
    run(&mut network);
    assert_eq!(network.server(flow).stats().bytes_delivered, 300_000);
    assert!(
        network.with_link(1, Link::read).drops.after > 0 && network.client(flow).stats().retransmissions > 0
    );
    accounted(&mut network);
}

#[test]
fn a_blackout_ends_and_the_flow_goes_on() {
    if !sockets() {
        return;
    }
    let mut network = path(true, 1);
    let flow = flow(&mut network, true, 400_000);
    network.run_until(Time::from_millis(60)).unwrap();
    network.change(1, Change::Blackout(true));
    network.run_until(Time::from_millis(200)).unwrap();
    network.change(1, Change::Blackout(false));
    for step in 5..60 {
        network.run_until(Time::from_millis(50 * step)).unwrap();
    }
    assert_eq!(network.server(flow).stats().bytes_delivered, 400_000);
    assert!(network.with_link(1, Link::read).drops.before > 0);
}

#[test]
fn strangers_are_counted_and_change_nothing() {
    if !sockets() {
        return;
    }
    let mut network = path(true, 1);
    let flow = flow(&mut network, true, 200_000);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = [0xa5_u8; 600];
    for i in 0..2_000u32 {
        bytes[i as usize % 600] = bytes[i as usize % 600].wrapping_mul(31).wrapping_add(i as u8);
        bytes[1] = 0x10;
        let _ = stranger.send_to(&bytes[..(i as usize * 7) % 600], network.addr(i % 3));
        if i % 100 == 0 {
            network.run_until(network.now() + Time::from_millis(1)).unwrap();
        }
    }
    let from = network.now();
    for step in 1..400 {
        network.run_until(from + Time::from_millis(50 * step)).unwrap();
        if network.server(flow).stats().bytes_delivered == 200_000 {
            break;
        }
    }
    assert_eq!(network.server(flow).stats().bytes_delivered, 200_000);
    // The kernel may have dropped some, but none may have passed the socket.
    assert!(network.counters().strangers > 0 && network.counters().senseless == 0);
    network.settle().unwrap();
}

#[test]
fn the_clock_leaves_out_what_the_only_thread_stood_still() {
    if !sockets() {
        return;
    }
    let left_out = |threads| {
        let mut network = path(false, threads);
        flow(&mut network, false, 10_000);
        network.run_until(Time::from_millis(20)).unwrap();
        // An unplanned pause: nothing runs meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(60));
        network.run_until(Time::from_millis(40)).unwrap();
        accounted(&mut network);
        network.punctuality().standstills.total()
    };
    assert!(left_out(1) >= Time::from_millis(50));
    // With another thread, the pause counts as lateness.
    assert_eq!(left_out(2), Time::ZERO);
}

#[test]
fn who_asks_for_times_that_are_over_hears_all_the_same() {
    if !sockets() {
        return;
    }
    let [a, b, stranger] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let addr = |socket: &UdpSocket| socket.local_addr().unwrap();
    let here = addr(&UdpSocket::bind("127.0.0.1:0").unwrap());
    let (names, links) = parts(true);
    let at = [addr(&a), here, addr(&b)];
    let mut node = Network::part(&names, &links, 1, 1, &at, Time::from_secs(1000)).unwrap();
    flow(&mut node, true, 1000);
    for _ in 0..20 {
        stranger.send_to(b"nobody knows me", here).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        node.run_until(node.now() + Time(1)).unwrap();
    }
    assert_eq!(node.counters().strangers, 20);
}

/// Nodes receive nonsense from neighbours and from unknown addresses: a router, and a flow's end.
#[test]
fn mutated_datagrams_of_neighbours_and_strangers_leave_no_trace() {
    if !sockets() {
        return;
    }
    let _memory = measures_memory();
    for (here, xcp) in [(1, true), (1, false), (2, true)] {
        let [a, b, stranger] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addr = |socket: &UdpSocket| socket.local_addr().unwrap();
        let free = addr(&UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut at: [SocketAddr; 3] = [addr(&a), addr(&b), addr(&b)];
        at[here] = free;
        let neighbour = if here == 1 { &a } else { &b };
        let (names, links) = parts(xcp);
        let mut node = Network::part(&names, &links, 1, here, &at, Time::from_secs(1000)).unwrap();
        flow(&mut node, xcp, 100_000);
        let mut mixer = Mixer(here as u64);
        let before = resident();
        for i in 0..MANY {
            let from = if i % 8 == 0 { &stranger } else { neighbour };
            let _ = from.send_to(&mutated(&mut mixer), free);
            if i % 64 == 0 {
                node.run_until(node.now() + Time::from_micros(200)).unwrap();
                // Packets are held only by links.
                assert!(node.held() <= 2000 && node.held() == node.queued() + node.in_flight());
            }
        }
        let counters = node.counters();
        assert!(resident() < before + (64 << 20), "memory has grown");
        // A busy machine's kernel drops some before they are read.
        let heard = counters.received;
        assert!(heard > MANY / 100, "{counters:?}");
        assert!(counters.strangers > 0 && counters.senseless > heard / 100, "{counters:?}");
        // An opening there has another fingerprint, and data before the opening are ignored.
        let fates = if here == 2 { vec![(0, false, Fate::Mistaken)] } else { Vec::new() };
        assert_eq!(node.fates(), fates);
        assert!(here == 2 || counters.sent > heard / 20, "what might be a packet goes on: {counters:?}");
    }
}
