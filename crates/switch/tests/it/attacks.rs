//! Clients and members that mean harm.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;

/// True if the other end has ended the connection, without an answer.
fn is_cut_off(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 64]).map_or(true, |len| len == 0)
}

#[test]
fn a_frame_that_drips_is_cut_off_and_others_go_on() {
    let server = Server::start();
    let agent = switch("u16", "[limits]\nframe-time = \"300 ms\"", &[("a", server.address)]);
    let mut dripping = connect(&agent);
    let mut other = connect(&agent);
    let drip = std::thread::spawn(move || {
        for byte in framed(&[7; 5000]) {
            if dripping.write_all(&[byte]).is_err() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        is_cut_off(&mut dripping)
    });
    while !drip.is_finished() {
        other.write_all(&framed(b"well")).unwrap();
        assert_eq!(read_framed(&mut other).unwrap(), b"well");
    }
    assert!(drip.join().unwrap());
    assert_eq!(status(&agent).ends["dripped"], 1);
    assert!(server.frames().iter().all(|frame| frame == b"well"));
    agent.end().unwrap();
}

#[test]
fn lengths_of_gigabytes_cost_no_memory() {
    let server = Server::start();
    for (frames, bytes) in [
        ("u32", &[0xff, 0xff, 0xff, 0xff, 0][..]),
        ("octet-counting", b"4294967295 x"),
        ("resp", b"*2\r\n$4294967295\r\n"),
        ("resp", b"*4294967295\r\n"),
    ] {
        let agent = switch(frames, "", &[("a", server.address)]);
        let mut clients: Vec<TcpStream> = (0..50).map(|_| connect(&agent)).collect();
        for client in &mut clients {
            client.write_all(bytes).unwrap();
        }
        for client in &mut clients {
            assert!(is_cut_off(client), "{frames}");
        }
        eventually("all sessions have ended", || status(&agent).ends.get("malformed") == Some(&50));
        assert_eq!(status(&agent).memory, 0);
        agent.end().unwrap();
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_flood_of_sessions_meets_a_limit_and_leaves_room_for_others() {
    let server = Server::start();
    let limits = "[limits]\nsessions = 60\nsessions-per-client = 40";
    let agent = switch("u16", limits, &[("a", server.address)]);
    let mut flood: Vec<TcpStream> =
        (0..200).filter_map(|_| TcpStream::connect(agent.listen()[0]).ok()).collect();
    eventually("all have come", || status(&agent).accepted == 200);
    let now = status(&agent);
    assert_eq!((now.sessions, now.refused), (40, 160));
    // From another address there is room.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&agent.listen()[0].into()).unwrap();
    let mut other = TcpStream::from(socket);
    other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    other.write_all(&framed(b"hello")).unwrap();
    assert_eq!(read_framed(&mut other).unwrap(), b"hello");
    flood.truncate(10);
    eventually("places are free again", || status(&agent).sessions == 11);
    agent.end().unwrap();
}

#[test]
fn keys_that_were_chosen_to_meet_are_spread() {
    let servers: Vec<Server> = (0..4).map(|_| Server::start()).collect();
    let members: Vec<_> =
        ["a", "b", "c", "d"].into_iter().zip(servers.iter().map(|server| server.address)).collect();
    // A client that knows the algorithm and the members' names, and not the secret.
    use tollway_proto::route::{ByKey, Candidate, Hash, Item, Route};
    let guess = Hash::new([0; 16]);
    let seen: Vec<Candidate> = members
        .iter()
        .map(|(name, _)| Candidate { name: guess.of(name.as_bytes()), up: true, ..Candidate::default() })
        .collect();
    let agent = switch("u16", "policy = \"by-key\"\nkey = \"2..6\"", &members);
    let mut client = connect(&agent);
    let mut chosen = 0;
    for number in 0u32.. {
        let item = Item { key: guess.of(&number.to_be_bytes()), ..Item::default() };
        if ByKey.pick(&item, &seen) == Some(0) {
            client.write_all(&framed(&number.to_be_bytes())).unwrap();
            read_framed(&mut client).unwrap();
            chosen += 1;
            if chosen == 2000 {
                break;
            }
        }
    }
    let held: Vec<usize> = servers.iter().map(|server| server.frames().len()).collect();
    assert!(held.iter().all(|count| (400..600).contains(count)), "{held:?}");
    agent.end().unwrap();
}

#[test]
fn an_answer_that_was_not_asked_ends_the_connection_to_its_member() {
    let (good, bad) = (Server::start(), Server::start());
    bad.manners.chatters.store(true, Ordering::SeqCst);
    let agent = switch(
        "u16",
        "policy = \"round-robin\"\nretry = \"idempotent\"",
        &[("good", good.address), ("bad", bad.address)],
    );
    let mut client = connect(&agent);
    for number in 0..200u8 {
        client.write_all(&framed(&[number])).unwrap();
        // Never another client's answer, never the same twice.
        assert_eq!(read_framed(&mut client).unwrap(), [number]);
        std::thread::sleep(Duration::from_millis(1));
    }
    let now = status(&agent);
    assert!(member(&now, "bad").unrequested > 0);
    assert_eq!(member(&now, "good").unrequested, 0);
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(client.read(&mut [0; 8]).is_err(), "nothing more comes");
    agent.end().unwrap();
}

#[test]
fn five_hundred_sessions_of_one_client_have_one_share() {
    let server = Server::start();
    server.manners.work.store(200, Ordering::SeqCst);
    let limits = "[limits]\nmember-buffer = \"128 KiB\"\nframe = \"16 KiB\"\nsession-buffer = \"64 KiB\"";
    let agent = switch("u16", limits, &[("a", server.address)]);
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let at = agent.listen()[0];
    let mut threads = Vec::new();
    for (address, sessions) in [([127, 0, 0, 2], 500), ([127, 0, 0, 3], 1)] {
        let over = std::sync::Arc::clone(&over);
        threads.push(std::thread::spawn(move || {
            let all: Vec<TcpStream> = (0..sessions)
                .map(|_| {
                    let socket =
                        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                    // Unbounded, they take all the memory that the kernel has for TCP, and every
                    // connection stalls.
                    socket.set_send_buffer_size(64 << 10).unwrap();
                    socket.bind(&std::net::SocketAddr::from((address, 0)).into()).unwrap();
                    socket.connect(&at.into()).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    socket.into()
                })
                .collect();
            // As much as each takes, and all answers; bytes of the session that is under way wrap
            // around whole frames.
            let frame = framed(&[1; 1022]).repeat(64);
            let mut offsets = vec![0; all.len()];
            while !over.load(Ordering::SeqCst) {
                for (mut stream, offset) in all.iter().zip(&mut offsets) {
                    if let Ok(len) = stream.write(&frame[*offset..]) {
                        *offset = (*offset + len) % frame.len();
                    }
                    let _ = stream.read(&mut [0; 65_536]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
    }
    let outstanding = || {
        let now = status(&agent);
        let of =
            |name: &str| now.clients.iter().find(|client| client.name == name).map(|one| one.outstanding);
        (of("127.0.0.2").unwrap_or(0), of("127.0.0.3").unwrap_or(0), member(&now, "a").waiting)
    };
    eventually("many sessions wait", || outstanding().2 > 300);
    std::thread::sleep(Duration::from_secs(1));
    let (mut many, mut one) = (0, 0);
    for _ in 0..100 {
        let now = outstanding();
        many += now.0;
        one += now.1;
        std::thread::sleep(Duration::from_millis(10));
    }
    over.store(true, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Parts of a window are whole frames, and of the one session as much as it has sent.
    let part = one as f64 / (one + many) as f64;
    assert!((0.3..0.7).contains(&part), "the one session has {part} of the window");
    agent.end().unwrap();
}

#[test]
fn half_a_frame_reaches_no_member() {
    let server = Server::start();
    let agent = switch("u16", "", &[("a", server.address)]);
    let mut client = connect(&agent);
    client.write_all(&framed(b"whole")).unwrap();
    client.write_all(&framed(&[1; 500])[..300]).unwrap();
    assert_eq!(read_framed(&mut client).unwrap(), b"whole");
    drop(client);
    eventually("the session has ended", || status(&agent).sessions == 0);
    assert_eq!(status(&agent).torn, 1);
    assert_eq!(server.frames(), [b"whole"]);
    agent.end().unwrap();
}

#[test]
fn a_client_that_reads_nothing_holds_no_more_than_its_bound() {
    let server = Server::start();
    let limits = "[limits]\nframe = \"16 KiB\"\nsession-buffer = \"64 KiB\"";
    let agent = switch("u16", limits, &[("a", server.address)]);
    let mut deaf = connect(&agent);
    deaf.set_nonblocking(true).unwrap();
    let frame = framed(&[1; 10_000]);
    let (mut offset, mut still) = (0, 0);
    while still < 200 {
        match deaf.write(&frame[offset..]) {
            Ok(len) => (offset, still) = ((offset + len) % frame.len(), 0),
            Err(_) => {
                still += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let bound = (3 * (64 << 10) + 3 * (256 << 10) + 2 * (16 << 10)) as u64;
    let now = status(&agent);
    assert!(now.memory > 0 && now.memory <= bound, "{} bytes", now.memory);
    let mut other = connect(&agent);
    let mut seen = HashSet::new();
    for number in 0..100u8 {
        other.write_all(&framed(&[number])).unwrap();
        seen.insert(read_framed(&mut other).unwrap());
    }
    assert_eq!(seen.len(), 100);
    agent.end().unwrap();
}
