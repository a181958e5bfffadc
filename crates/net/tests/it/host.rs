//! ACP between hosts, and attacks on a host, which must have no effect.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{MANY, Mixer, measures_memory, mutated, resident, sockets};
use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;
use tollway_net::cookie;
use tollway_net::host::{Host, HostConfig, HostEvent};
use tollway_proto::encoding::acp;
use tollway_proto::transport::{Config, Connection};
use tollway_proto::{Flags, Packet, SackRanges};

fn host(key: Option<[u8; 16]>) -> Host {
    let transport =
        Config { segment: 1400, header: 80, ack_size: 112, receive_buffer: 150_000, ..Config::default() };
    let config = HostConfig {
        transport: Arc::new(transport),
        law: Box::new(|| NewRenoConfig::default().build().into()),
        patience: Time::from_secs(3),
        most: 8,
        most_per_address: 4,
    };
    Host::new("127.0.0.1:0".parse().unwrap(), config, key).unwrap()
}

/// Runs a listener on a separate thread until `stop`. Returns it and its events.
fn serve(mut host: Host, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<(Host, Vec<HostEvent>)> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut events = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            events.extend(host.run(Time::from_millis(20)).unwrap());
        }
        (host, events)
    })
}

/// Sends `bytes` to `addr` and returns the final event, within 20 s.
fn transfer(addr: SocketAddr, bytes: u64) -> HostEvent {
    let mut client = host(None);
    client.connect(addr, bytes).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if let Some(event) = client.run(Time::from_millis(100)).unwrap() {
            return event;
        }
    }
    panic!("nothing happened in 20 s");
}

#[test]
fn a_transfer_finishes_on_both_sides() {
    if !sockets() {
        return;
    }
    let listener = host(Some([7; 16]));
    let (addr, stop) = (listener.addr(), Arc::new(AtomicBool::new(false)));
    let server = serve(listener, &stop);
    assert!(matches!(transfer(addr, 3_000_000), HostEvent::Finished(_)));
    std::thread::sleep(Duration::from_millis(100));
    stop.store(true, Ordering::Relaxed);
    let (host, events) = server.join().unwrap();
    assert!(matches!(events[..], [HostEvent::Finished(_)]), "{events:?}");
    assert!(host.stats().challenge_bytes > 0, "it was let in without a cookie");
}

#[test]
fn a_peer_that_vanishes_is_given_up() {
    if !sockets() {
        return;
    }
    // A peer that was never there.
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(matches!(transfer(nobody, 1000), HostEvent::TimedOut(_)));
    // A peer that leaves in mid-transfer.
    let listener = host(Some([8; 16]));
    let (addr, stop) = (listener.addr(), Arc::new(AtomicBool::new(false)));
    let server = serve(listener, &stop);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        stop.store(true, Ordering::Relaxed);
        drop(server.join().unwrap());
    });
    assert!(matches!(transfer(addr, 1 << 40), HostEvent::TimedOut(_)));
    killer.join().unwrap();
}

/// Segments above the interface's limit end their connection. The host keeps its others.
#[test]
#[cfg(target_os = "linux")]
fn a_way_too_narrow_for_segments_ends_no_host() {
    const INSIDE: &str = "TOLLWAY_TEST_NARROW";
    if std::env::var_os(INSIDE).is_some() {
        let listener = host(Some([11; 16]));
        let (addr, stop) = (listener.addr(), Arc::new(AtomicBool::new(false)));
        let server = serve(listener, &stop);
        assert!(matches!(transfer(addr, 100_000), HostEvent::TimedOut(_)));
        assert!(matches!(transfer(addr, 100), HostEvent::Finished(_)));
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        return;
    }
    let script = "ip link set lo up mtu 1300 || exit 77; exec \"$0\" --exact host::a_way_too_narrow_for_segments_ends_no_host";
    let mut command = std::process::Command::new("unshare");
    command.args(["-rn", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
    match command.output() {
        Ok(output) if output.status.success() || output.status.code() == Some(101) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        _ => eprintln!("SKIPPED: no network of one's own here"),
    }
}

/// Limit of memory growth while datagrams arrive: 64 bytes of state for each of a million.
const GROWTH: u64 = 64 << 20;

#[test]
fn mutated_datagrams_leave_no_trace() {
    if !sockets() {
        return;
    }
    let _memory = measures_memory();
    let listener = host(Some([9; 16]));
    let (addr, stop) = (listener.addr(), Arc::new(AtomicBool::new(false)));
    let server = serve(listener, &stop);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut mixer = Mixer(1);
    let before = resident();
    for _ in 0..MANY {
        let _ = stranger.send_to(&mutated(&mut mixer), addr);
    }
    assert!(resident() < before + GROWTH);
    // It still serves a proper client.
    assert!(matches!(transfer(addr, 100_000), HostEvent::Finished(_)));
    std::thread::sleep(Duration::from_millis(1300));
    stop.store(true, Ordering::Relaxed);
    let (host, _) = server.join().unwrap();
    let stats = host.stats();
    assert_eq!(host.connections(), 0);
    assert!(stats.received > 1000 && stats.challenge_bytes > 0, "{stats:?}");
    assert!(stats.challenge_bytes <= 3 * stats.stranger_bytes, "{stats:?}");
}

/// The same without sockets between, so that every datagram arrives; from many addresses, and in a
/// connection.
#[test]
fn mutated_datagrams_handed_over_directly_break_nothing() {
    if !sockets() {
        return;
    }
    let _memory = measures_memory();
    let mut listener = host(Some([10; 16]));
    let mut mixer = Mixer(2);
    let before = resident();
    for i in 0..MANY {
        let addr = SocketAddr::from(([127, 0, 0, 1], 1 + mixer.below(64) as u16));
        listener.handle(Time(i * 1000), addr, &mutated(&mut mixer)).unwrap();
    }
    assert_eq!(listener.connections(), 0);
    let stats = *listener.stats();
    assert!(stats.challenge_bytes <= 3 * stats.stranger_bytes, "{stats:?}");
    // A client that has opened a connection, and receives nonsense as the answer.
    let mut client = host(None);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    client.connect(peer, 1000).unwrap();
    client.run(Time::ZERO).unwrap();
    for i in 0..MANY {
        // Only an answer to its opening would be accepted.
        client.handle(Time(i * 1000), peer, &mutated(&mut mixer)).unwrap();
    }
    assert!(client.connections() <= 1);
    assert!(resident() < before + GROWTH);
}

/// Opens a connection from a socket with the listener's cookie. Returns its client; `None` if
/// refused.
fn admit(listener: &mut Host, from: &UdpSocket, flow: u32, config: &Arc<Config>) -> Option<Connection> {
    let mut client = Connection::client(config, NewRenoConfig::default().build().into(), flow);
    client.write_stream(100_000);
    client.open(Time::ZERO);
    let addr = from.local_addr().unwrap();
    let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
    assert!(client.poll_transmit(Time::ZERO, &mut packet, &mut sack));
    let mut opening = vec![0; usize::from(packet.size) - acp::OVERHEAD];
    acp::encode(&packet, &sack, &mut opening).unwrap();
    let mut answer = [0; 2000];
    // Answers to earlier connections may come first.
    let mut ask = |opening: &[u8], wanted: &dyn Fn(&[u8], &Packet) -> bool| {
        listener.handle(Time::ZERO, addr, opening).unwrap();
        listener.run(Time::ZERO).unwrap();
        while let Ok(len) = from.recv(&mut answer) {
            let datagram = &answer[..len];
            let packet = acp::decode(datagram).unwrap().packet;
            if packet.flow == flow && wanted(datagram, &packet) {
                return Some(datagram.to_vec());
            }
        }
        None
    };
    let cookie = ask(&opening, &|datagram, _| datagram.len() == acp::LEN + cookie::LEN)?;
    opening[acp::LEN..acp::LEN + cookie::LEN].copy_from_slice(&cookie[acp::LEN..]);
    let welcome = ask(&opening, &|_, packet| packet.flags.has(Flags::SYN))?;
    let welcome = acp::decode(&welcome).unwrap();
    client.handle_packet(Time::ZERO, &welcome.packet, &welcome.sack);
    Some(client)
}

/// Attacks by a peer with a connection must not end the listener's other connections.
///
/// It sends data far ahead, data with a wrong byte, and resets with small numbers, since every
/// connection once began with such a number.
#[test]
fn an_admitted_peer_ends_nothing_but_its_own() {
    if !sockets() {
        return;
    }
    let mut listener = host(Some([12; 16]));
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let config = Arc::new(Config {
        segment: 1400,
        header: 80,
        ack_size: 112,
        initial_segment: 1 << 20,
        ..Config::default()
    });
    let mut client = admit(&mut listener, &peer, 7, &config).expect("it shows its cookie");
    let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
    let say = |listener: &mut Host, packet: &Packet| {
        let mut datagram = vec![0x5a; usize::from(packet.size) - acp::OVERHEAD];
        acp::encode(packet, &SackRanges::EMPTY, &mut datagram).unwrap();
        listener.handle(Time::ZERO, peer.local_addr().unwrap(), &datagram).unwrap();
    };
    let before = listener.stats().refused;
    assert!(client.poll_transmit(Time::ZERO, &mut packet, &mut sack) && packet.flags.has(Flags::DATA));
    for seq in [packet.seq, packet.seq.wrapping_add(100_000_000)] {
        say(&mut listener, &Packet { seq, ..packet });
    }
    for seq in [0, 1, 2] {
        say(&mut listener, &Packet { seq, flags: Flags::RST, size: 112, flow: 7, ..Packet::default() });
    }
    assert_eq!((listener.stats().refused, listener.connections()), (before + 2, 1));
    assert_eq!(listener.run(Time::ZERO).unwrap(), None, "nothing has ended");
    // Each address has a separate limit.
    for flow in 8..20 {
        admit(&mut listener, &peer, flow, &config);
    }
    assert_eq!(listener.connections(), 4);
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    other.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(admit(&mut listener, &other, 7, &config).is_some());
    assert_eq!(listener.connections(), 5);
}
