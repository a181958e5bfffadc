//! Messages of one connection over several servers, with nothing going wrong.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;
use tollway_switch::config::Config;

#[test]
fn frames_are_spread_and_answers_come_back() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let members: Vec<_> =
        ["a", "b", "c"].into_iter().zip(servers.iter().map(|server| server.address)).collect();
    for answers in ["any", "in-order"] {
        let agent = switch("u16", &format!("policy = \"round-robin\"\nanswers = \"{answers}\""), &members);
        let mut client = connect(&agent);
        let mut sent = Vec::new();
        for number in 0..3000u32 {
            let mut body = number.to_be_bytes().to_vec();
            body.resize(4 + number as usize % 700, number as u8);
            sent.push(body);
        }
        let all: Vec<u8> = sent.iter().flat_map(|body| framed(body)).collect();
        let mut writer = client.try_clone().unwrap();
        let write = std::thread::spawn(move || {
            for part in all.chunks(5000) {
                writer.write_all(part).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        while let Some(body) = read_framed(&mut client) {
            got.push(body);
        }
        write.join().unwrap();
        assert_eq!(got.len(), sent.len());
        if answers == "in-order" {
            assert_eq!(got, sent);
        } else {
            assert_eq!(got.iter().collect::<HashSet<_>>(), sent.iter().collect::<HashSet<_>>());
        }
        eventually("the session has ended", || status(&agent).sessions == 0);
        let status = status(&agent);
        assert_eq!((status.frames, status.answers, status.memory), (3000, 3000, 0));
        assert_eq!(status.ends["done"], 1);
        for member in &status.members {
            assert_eq!((member.answers, member.outstanding, member.connections), (1000, 0, 0));
        }
        agent.end().unwrap();
    }
    for server in &servers {
        for frames in server.seen.lock().unwrap().values() {
            assert!(frames.is_sorted(), "in order at each member");
        }
    }
}

#[test]
fn frames_longer_than_any_buffer_come_through_whole() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let agent = switch("u32", "[limits]\nframe = \"4 MiB\"", &[("a", address)]);
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..len]);
            stream.write_all(&buffer[..len]).unwrap();
        }
        all
    });
    let body: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    let frame = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
    let mut client = connect(&agent);
    let mut writer = client.try_clone().unwrap();
    let sent = frame.clone();
    let write = std::thread::spawn(move || {
        for _ in 0..3 {
            writer.write_all(&sent).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    write.join().unwrap();
    assert!(got == frame.repeat(3), "{} bytes came back of {}", got.len(), 3 * frame.len());
    assert!(echo.join().unwrap() == frame.repeat(3));
    agent.end().unwrap();
}

#[test]
fn one_way_lines_reach_collectors_once_each() {
    let collectors: Vec<_> = (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(collectors.iter().map(|collector| collector.local_addr().unwrap()))
        .collect();
    let agent = switch("lines", "policy = \"round-robin\"", &members);
    let collect: Vec<_> = collectors
        .into_iter()
        .map(|collector| {
            std::thread::spawn(move || {
                let mut text = String::new();
                collector.accept().unwrap().0.read_to_string(&mut text).unwrap();
                text.lines().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut client = connect(&agent);
    let lines: String = (0..90_000).map(|line| format!("{line:07}\n")).collect();
    client.write_all(lines.as_bytes()).unwrap();
    drop(client);
    let mut all = Vec::new();
    for collect in collect {
        let lines = collect.join().unwrap();
        assert!(lines.is_sorted());
        assert_eq!(lines.len(), 30_000);
        all.extend(lines);
    }
    all.sort_unstable();
    assert_eq!(all, (0..90_000).collect::<Vec<_>>());
    agent.end().unwrap();
}

#[test]
fn a_drained_member_gets_no_more_and_what_it_has_is_answered() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    servers.iter().for_each(|server| server.manners.work.store(2000, Ordering::SeqCst));
    let members = [("a", servers[0].address), ("b", servers[1].address)];
    let agent = switch("u16", "policy = \"round-robin\"", &members);
    let mut client = connect(&agent);
    for number in 0..40u8 {
        client.write_all(&framed(&[number])).unwrap();
    }
    eventually("all have come", || status(&agent).frames == 40);
    agent.teller().drain("a", true).unwrap();
    assert_eq!(agent.teller().drain("x", true).unwrap_err(), ["a", "b"]);
    for number in 40..60u8 {
        client.write_all(&framed(&[number])).unwrap();
    }
    let got: HashSet<u8> = (0..60).map(|_| read_framed(&mut client).unwrap()[0]).collect();
    assert_eq!(got.len(), 60);
    assert_eq!(servers[0].frames().len(), 20);
    eventually("its connections are closed", || member(&status(&agent), "a").connections == 0);
    assert_eq!(member(&status(&agent), "a").state, "draining");
    agent.teller().drain("a", false).unwrap();
    for number in 60..80u8 {
        client.write_all(&framed(&[number])).unwrap();
    }
    (0..20).for_each(|_| assert!(read_framed(&mut client).is_some()));
    assert_eq!(servers[0].frames().len(), 30);
    agent.end().unwrap();
}

#[test]
fn another_configuration_is_in_force_for_sessions_that_are_open() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start()).collect();
    let agent = switch("u16", "policy = \"round-robin\"", &[("a", servers[0].address)]);
    let mut client = connect(&agent);
    let mut ask = |count: usize| {
        for number in 0..count {
            client.write_all(&framed(&[number as u8])).unwrap();
            read_framed(&mut client).unwrap();
        }
    };
    ask(10);
    let config = |name: &str, server: &Server| {
        let listen = agent.listen()[0];
        let text = format!(
            "listen = \"{listen}\"\nframes = \"u32\"\npolicy = \"round-robin\"\nversion = \"two\"\n[member.{name}]\naddress = \"{}\"\n",
            server.address
        );
        Config::parse("test", &text, None).unwrap()
    };
    agent.install(config("b", &servers[1])).unwrap();
    ask(10);
    assert_eq!((servers[0].frames().len(), servers[1].frames().len()), (10, 10));
    let status = status(&agent);
    assert_eq!(status.version, "two");
    assert_eq!(status.frames_are, "u32", "of sessions that begin from now on");
    agent.end().unwrap();
}

#[test]
fn a_switch_that_ends_lets_what_is_under_way_be_answered() {
    let server = Server::start();
    server.manners.work.store(20_000, Ordering::SeqCst);
    let agent = switch("u16", "", &[("a", server.address)]);
    let mut client = connect(&agent);
    for number in 0..20u8 {
        client.write_all(&framed(&[number])).unwrap();
    }
    eventually("all have come", || status(&agent).frames == 20);
    let end = std::thread::spawn(move || agent.end().unwrap());
    let got: Vec<u8> = (0..20).map(|_| read_framed(&mut client).unwrap()[0]).collect();
    assert_eq!(got, (0..20).collect::<Vec<_>>());
    assert_eq!(read_framed(&mut client), None);
    end.join().unwrap();
}

#[test]
fn members_are_told_who_the_client_is() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let agent = switch("u16", "[upstream]\nproxy-protocol = true", &[("a", address)]);
    let mut client = connect(&agent);
    client.write_all(&framed(b"hello")).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = [0; 28 + 7];
    stream.read_exact(&mut bytes).unwrap();
    let header = ppp::v2::Header::try_from(&bytes[..28]).unwrap();
    let ppp::v2::Addresses::IPv4(told) = header.addresses else { panic!("{header:?}") };
    assert_eq!(
        (told.source_address.into(), told.source_port),
        (client.local_addr().unwrap().ip(), client.local_addr().unwrap().port())
    );
    assert_eq!(&bytes[28..], framed(b"hello"));
    agent.end().unwrap();
}

#[test]
fn frames_that_waited_while_answers_were_left_unread_go_on() {
    let server = Server::start();
    let limits = "[limits]\nmember-buffer = \"32 KiB\"\nframe = \"16 KiB\"\nsession-buffer = \"16 KiB\"";
    let agent = switch("u16", limits, &[("a", server.address)]);
    let mut client = connect(&agent);
    // The kernel's buffers hold less than the amount sent.
    socket2::SockRef::from(&client).set_recv_buffer_size(256 << 10).unwrap();
    let frame = framed(&[1; 1022]);
    let count = 20 << 10;
    let mut writer = client.try_clone().unwrap();
    let write = std::thread::spawn(move || {
        for _ in 0..count {
            writer.write_all(&frame).unwrap();
        }
    });
    // Stops until nothing moves, and goes on with all that there is, so that nothing waits for the
    // client then.
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut left = count << 10;
    for turn in 0.. {
        if turn < 8 {
            let mut answers = 0;
            eventually("answers are left unread", || {
                std::thread::sleep(Duration::from_millis(50));
                std::mem::replace(&mut answers, status(&agent).answers) == answers
            });
        }
        let mut took = 0;
        while left > 0 && (turn == 7 || took < 1 << 20) {
            let len = client.read(&mut [0; 65_536]).expect("more answers come");
            (left, took) = (left - len, took + len);
        }
        if left == 0 {
            break;
        }
    }
    write.join().unwrap();
    agent.end().unwrap();
}
