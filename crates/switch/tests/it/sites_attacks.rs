//! Attacks on parts between sites: unknown senders, repeated or forged datagrams, hostile members.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::mesh::{Faults, Mesh, Plan, await_hops, keys, linked, site};
use crate::common::{Server, dial, eventually, framed, member, read_framed, status};
use tollway_law::{Time, Toll};
use tollway_net::Clock;
use tollway_net::hop::{Batch, Hops, Opened};
use tollway_net::secure::KeyFile;
use tollway_proto::{Flags, Packet, SackRanges, Stamp};

/// Asks for `count` answers, one after the other.
fn ask(client: &std::net::TcpStream, count: u32) {
    use std::io::Write;
    let (mut to, mut from) = (client, std::io::BufReader::new(client));
    for number in 0..count {
        to.write_all(&framed(&number.to_be_bytes())).unwrap();
        assert_eq!(read_framed(&mut from).unwrap(), number.to_be_bytes());
    }
}

#[test]
fn a_stranger_gets_nothing_whatever_it_sends() {
    let servers = [Server::start()];
    let mesh = Mesh::start("strangers", &servers, "u16", "any", &Faults::None);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let before: Vec<u64> = mesh.all().map(|part| status(part).memory).collect();
    let parts: Vec<_> = mesh.plan.bound.clone();
    for &part in &parts {
        for kind in 0xc0..=0xc3 {
            // As long as a hello, and as a sealed packet.
            for len in [1, 29, 130, 1400] {
                let mut datagram = vec![7; len];
                datagram[0] = kind;
                stranger.send_to(&datagram, part).unwrap();
            }
        }
        // Not sealed: a beat, and an ACP packet that opens a session.
        stranger.send_to(&[0x5b, 1, 0, 0, 0, 0], part).unwrap();
        let mut syn = [0; 84];
        let packet = Packet { flags: Flags::SYN, ..Packet::default() };
        tollway_proto::encoding::acp::encode(&packet, &SackRanges::EMPTY, &mut syn).unwrap();
        stranger.send_to(&syn, part).unwrap();
    }
    let answered = stranger.recv_from(&mut [0; 2000]);
    assert!(answered.is_err(), "{answered:?}");
    for (part, before) in mesh.all().zip(before) {
        let now = status(part);
        let sites = now.sites.as_ref().unwrap();
        assert_eq!((sites.strangers, now.sessions, now.memory), (18, 0, before));
    }
    ask(&dial(mesh.front.listen()[0]), 20);
}

/// A handshake from a neighbour's address by an attacker without its key.
#[test]
fn a_forged_neighbour_gets_a_cookie_shorter_than_its_hello_and_no_session() {
    let servers = [Server::start()];
    let (plan, _relays) = Plan::new(1, &Faults::None);
    let folder = keys("forged-neighbour", 1);
    let switch = site(&folder, &plan.switch("", ""));
    let back = site(&folder, &plan.back(0, &servers[0], "u16", "any", ""));
    // The attacker has the front's address, and has seen a hello of it.
    let attacker = UdpSocket::bind(plan.bound[0]).unwrap();
    attacker.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let (mut sent, mut received) = (0, 0);
    let mut buffer = [0; 2000];
    for round in 0..10u8 {
        let mut hello = [round; 130];
        hello[0] = 0xc0;
        sent += attacker.send_to(&hello, plan.bound[1]).unwrap();
        // The switch's own hellos come as well: they are no answers.
        while let Ok((len, _)) = attacker.recv_from(&mut buffer) {
            if buffer[0] != 0xc0 {
                received += len;
                // The cookie comes back, with a key that is not the front's.
                hello[1..25].copy_from_slice(&buffer[5..29]);
                sent += attacker.send_to(&hello, plan.bound[1]).unwrap();
                break;
            }
        }
    }
    assert!(received > 0 && received <= 3 * sent, "{received} bytes for {sent}");
    eventually("the handshakes are refused", || status(&switch).sites.unwrap().handshakes >= 10);
    assert_eq!(
        (status(&switch).sessions, status(&switch).sites.unwrap().neighbours[0].state),
        (0, "wrong key")
    );
    drop(attacker);
    // The true front is let in.
    let front = site(&folder, &plan.front("u16", "any", ""));
    await_hops([&front, &switch, &back]);
    ask(&dial(front.listen()[0]), 20);
}

#[test]
fn datagrams_that_are_repeated_or_carried_to_another_hop_do_nothing() {
    let servers = [Server::start(), Server::start()];
    let faults = Faults::alike(2, 0, 0, 0);
    let mesh = Mesh::start("replay", &servers, "u16", "any", &faults);
    // Everything comes again, twenty datagrams later.
    (0..3).for_each(|hop| faults.of(hop).replay.store(20, Ordering::SeqCst));
    ask(&dial(mesh.front.listen()[0]), 200);
    let all = mesh.relays[0].passed.lock().unwrap().clone();
    let replayed = |part| status(part).sites.unwrap().replayed;
    assert!(mesh.all().all(|part| replayed(part) > 10));
    (0..3).for_each(|hop| faults.of(hop).replay.store(0, Ordering::SeqCst));
    // Those of the first hop, to the switch once more, and to the backs.
    let before = status(&mesh.switch);
    for datagram in all.iter().filter(|datagram| datagram[0] == 0xc3) {
        mesh.relays[0].inject(datagram);
        mesh.relays[1].inject(datagram);
        let mut changed = datagram.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        mesh.relays[2].inject(&changed);
        std::thread::sleep(Duration::from_micros(200));
    }
    eventually("the backs have refused them", || {
        mesh.backs.iter().all(|back| status(back).sites.unwrap().forged > 50)
    });
    let refused = before.sites.unwrap().replayed + 50;
    eventually("the switch has refused them", || replayed(&mesh.switch) > refused);
    let after = status(&mesh.switch);
    assert_eq!((after.accepted, after.frames), (before.accepted, before.frames));
    let seen: usize = servers.iter().map(|server| server.frames().len()).sum();
    assert_eq!(seen, 200, "each frame once");
    ask(&dial(mesh.front.listen()[0]), 20);
}

/// A hostile neighbour of the switch, with a valid key.
struct Liar {
    hops: Hops,
    clock: Clock,
    batch: Batch,
}

impl Liar {
    /// The front, or a back: by its key and its place in the plan.
    fn start(folder: &std::path::Path, plan: &Plan, name: &str, at: usize) -> Liar {
        let file = KeyFile::load(&folder.join(format!("{name}.key"))).unwrap();
        let clock = Clock::starting_at(Time::from_secs(60));
        let neighbours = [("b".to_owned(), plan.bound[1])];
        let hops = Hops::open_at(plan.bound[at], &file, &neighbours, clock.now()).unwrap();
        Liar { hops, clock, batch: Batch::new() }
    }

    /// Receives for a while; returns the packets that came.
    fn receive(&mut self, span: Duration) -> Vec<Opened> {
        let (until, mut all) = (Instant::now() + span, Vec::new());
        while Instant::now() < until {
            let Liar { hops, clock, batch } = self;
            hops.receive(batch).unwrap();
            let now = clock.now();
            batch.for_each(|from, datagram| all.extend(hops.open(now, from, datagram)));
            hops.handle_timeout(now);
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }

    fn send(&mut self, packet: Packet, ranges: &[(u32, u32)], payload: &[u8]) {
        let now = self.clock.now();
        let mut sack = SackRanges::EMPTY;
        ranges.iter().for_each(|&(start, end)| assert!(sack.push(start, end)));
        let packet = Packet { sent: Stamp::at(now), size: 112 + payload.len() as u16, ..packet };
        self.hops.send(now, 0, &packet, &sack, (payload, &[]));
        self.hops.flush();
    }
}

#[test]
fn a_member_that_acknowledges_what_it_was_not_sent_harms_its_own_frames_alone() {
    let servers = [Server::start(), Server::start()];
    let (plan, _relays) = Plan::new(2, &Faults::None);
    let folder = keys("liar", 2);
    let front = site(&folder, &plan.front("u16", "any", ""));
    let switch = site(&folder, &plan.switch("policy = \"round-robin\"\n", ""));
    let back = site(&folder, &plan.back(0, &servers[0], "u16", "any", ""));
    let mut liar = Liar::start(&folder, &plan, "m1", 3);
    let up = |part: &_, at: usize| status(part).sites.unwrap().neighbours[at].state == "up";
    eventually("all are up", || {
        liar.receive(Duration::from_millis(20));
        (0..3).all(|at| up(&switch, at)) && up(&front, 0) && up(&back, 0)
    });
    let client = dial(front.listen()[0]);
    let opened = liar.receive(Duration::from_millis(500));
    let syn = opened.iter().find(|opened| opened.packet.flags.has(Flags::SYN)).expect("a SYN").packet;
    let flow = syn.flow;
    let first = syn.seq.wrapping_add(1);
    let of = |flags, seq, ack| Packet { flow, flags, seq, ack, window: 50, ..Packet::default() };
    liar.send(of(Flags::SYN.with(Flags::ACK), syn.seq, first), &[], &[]);
    let asked = std::thread::spawn(move || ask(&client, 6));
    // Its first frame comes with the second question.
    let came = liar.receive(Duration::from_millis(500));
    let data = came.iter().find(|came| came.packet.flags.has(Flags::DATA)).expect("a frame").packet;
    let forged = || status(&switch).sites.unwrap().forged_acks;
    let (before, next) = (forged(), data.seq.wrapping_add(1));
    for ack in [next.wrapping_add(1), next.wrapping_add(1000), next.wrapping_add(1 << 30)] {
        liar.send(of(Flags::ACK, 1, ack), &[], &[]);
    }
    // Ranges of segments never sent, answers under guessed labels, messages too short for one.
    liar.send(of(Flags::ACK, 1, first), &[(next + 5, next + 9)], &[]);
    let whole = Flags::ACK.with(Flags::DATA).with(Flags::FIRST).with(Flags::LAST);
    let forgeries =
        [(1, &b"\x00\x00\x00\x01gues\x03forged"[..]), (2, b"no"), (3, b"\x7f\xff\xff\xff1234\x03")];
    for (seq, payload) in forgeries {
        liar.send(of(whole, seq, first), &[], payload);
    }
    liar.receive(Duration::from_millis(300));
    assert_eq!(forged() - before, 3);
    eventually("the front has dropped what the member made up", || {
        member(&status(&front), "b").unrequested == 3
    });
    // Then it says no more, is left, and its frames go to the other.
    drop(liar);
    asked.join().unwrap();
    eventually("it is down", || member(&status(&switch), "m1").state == "down");
    assert_eq!(servers[0].frames().len(), 6, "every frame, once");
    assert_eq!(status(&front).answers, 6);
}

/// A packet from a list that has these flags.
#[track_caller]
fn with(all: &[Opened], flags: Flags) -> Packet {
    all.iter().find(|opened| opened.packet.flags.has(flags)).expect("such a packet").packet
}

#[test]
fn an_echo_is_worth_no_more_than_its_packets_carried() {
    let (plan, _relays) = Plan::new(1, &Faults::None);
    let folder = keys("echo", 1);
    let switch = site(&folder, &linked("\"xcp\"", &plan.switch("", ""), "8 Mbps"));
    let (mut front, mut back) = (Liar::start(&folder, &plan, "a", 0), Liar::start(&folder, &plan, "m0", 2));
    let brief = Duration::from_millis(100);
    eventually("both are up", || {
        front.receive(brief);
        back.receive(brief);
        status(&switch).sites.unwrap().neighbours.iter().all(|neighbour| neighbour.state == "up")
    });
    let whole = Flags::DATA.with(Flags::FIRST).with(Flags::LAST).with(Flags::ACK).with(Flags::TOLLED);
    let of = |flow, flags, seq, ack| Packet { flow, flags, seq, ack, window: 50, ..Packet::default() };
    front.send(of(5, Flags::SYN, 0, 0), &[], &[]);
    let syn = with(&back.receive(3 * brief), Flags::SYN);
    back.send(of(syn.flow, Flags::SYN.with(Flags::ACK), 0, 1), &[], &[]);
    assert_eq!(with(&front.receive(3 * brief), Flags::SYN).ack, 1);
    let toll = Toll { due: 100.0, rtt: 0.1, offer: 0.001, ..Toll::default() };
    for seq in 1..=60 {
        front.send(Packet { toll, ..of(5, whole, seq, 1) }, &[], b"12345678frame");
        back.receive(Duration::from_millis(if seq < 60 { 10 } else { 300 }));
    }
    let echo = Toll { echo: 1e9, ..Toll::default() };
    let flags = Flags::ACK.with(Flags::ECHO);
    back.send(Packet { toll: echo, ..of(syn.flow, flags, 1, 61) }, &[], &[]);
    let heard = with(&front.receive(3 * brief), Flags::ECHO);
    // As much as its sixty packets carried at the switch.
    assert_eq!((heard.ack, heard.toll.echo), (61, 6000.0));
}
