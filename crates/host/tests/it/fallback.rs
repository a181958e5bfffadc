//! Connections under the programs, over this machine's loopback interface: nothing rewrites the
//! option there.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};
use tollway_host::{Cause, Connection, Echoes, Group, Law, Laws, OptionKind, Programs, Settings};
use tollway_scenario::run::{KernelLaws, Program};

use super::{alone, loaded};

/// A connection whose client sends until `over`, and the congestion control and state of the client.
struct Sent {
    congestion: String,
    state: Option<Connection>,
    bytes: u64,
}

/// Sends from a client to `listener` until its connection has fallen back, or for 3 s.
fn send(programs: &Programs, listener: &TcpListener, beats: bool) -> Sent {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sink = thread::spawn(move || {
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = server.read(&mut buffer) {
            bytes += len as u64;
        }
        bytes
    });
    let own = client.local_addr().unwrap();
    let begun = Instant::now();
    let mut state = None;
    while begun.elapsed() < Duration::from_secs(3) {
        if beats {
            programs.beat();
        }
        client.write_all(&[7; 4096]).unwrap();
        state = programs.connections().unwrap().into_iter().find(|c| c.local == own);
        if state.as_ref().is_none_or(|state| !state.active) {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    let congestion = congestion(&client);
    // It is not stuck.
    client.write_all(&vec![7; 8 << 20]).unwrap();
    drop(client);
    Sent { congestion, state, bytes: sink.join().unwrap() }
}

/// The name of a socket's congestion control.
fn congestion(of: &TcpStream) -> String {
    let name = SockRef::from(of).tcp_congestion().unwrap();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

fn fallen(sent: &Sent) -> (Cause, Echoes) {
    let state = sent.state.as_ref().expect("the law was selected");
    (state.fallen.expect("it has fallen back"), state.echoes)
}

#[test]
fn each_cause_makes_a_connection_fall_back() {
    let _alone = alone();
    let before = TcpListener::bind("127.0.0.1:0").unwrap();
    for option in [OptionKind::Study, OptionKind::Experiment] {
        let settings = Settings { option, ordinary: "reno".into(), ..Settings::new(Law::Xcp) };
        let Some(mut programs) = loaded(&settings) else { return };
        let group = Group::enter(&format!("tollway-test-{}", std::process::id())).unwrap();
        programs.attach(group.path()).unwrap();
        let within = TcpListener::bind("127.0.0.1:0").unwrap();

        // The peer answers, but no router has rewritten anything.
        let path = send(&programs, &within, true);
        assert_eq!(fallen(&path), (Cause::Path, Echoes::Unrewritten), "{option:?}");
        // Accepted sockets belong to the listener's group: this one speaks no option.
        let peer = send(&programs, &before, true);
        assert_eq!(fallen(&peer), (Cause::Peer, Echoes::None), "{option:?}");
        for sent in [&path, &peer] {
            assert_eq!(sent.congestion, "reno");
            assert!(sent.bytes > 8 << 20);
        }
        let open = TcpStream::connect(within.local_addr().unwrap()).unwrap();
        let congestion = || SockRef::from(&open).tcp_congestion().unwrap();
        assert!(String::from_utf8_lossy(&congestion()).starts_with(programs.name()));
        drop(programs);
        // It keeps the law until its next acknowledgement.
        let (mut server, _) = within.accept().unwrap();
        (&open).write_all(&[7; 1 << 20]).unwrap();
        server.read_exact(&mut [0; 1 << 20]).unwrap();
        assert!(String::from_utf8_lossy(&congestion()).starts_with("reno"), "{option:?}");
    }
}

#[test]
fn connections_of_a_silent_agent_fall_back_after_the_lease() {
    let _alone = alone();
    let settings = Settings { lease: Duration::from_millis(50), ..Settings::new(Law::Xcp) };
    let Some(mut programs) = loaded(&settings) else { return };
    let group = Group::enter(&format!("tollway-silent-{}", std::process::id())).unwrap();
    programs.attach(group.path()).unwrap();
    programs.beat();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sent = send(&programs, &listener, false);
    assert_eq!(sent.state.map(|state| state.fallen), Some(Some(Cause::Agent)));
    // Without a heartbeat new connections are left alone.
    let open = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let congestion = SockRef::from(&open).tcp_congestion().unwrap();
    assert!(!String::from_utf8_lossy(&congestion).starts_with(programs.name()));
}

/// A scenario's key `fallback`, whatever the machine's own law is.
#[test]
fn a_flow_of_a_scenario_falls_back_to_the_law_that_it_names() {
    let _alone = alone();
    if loaded(&Settings::new(Law::Xcp)).is_none() {
        return;
    }
    for ordinary in ["reno", "cubic"] {
        let laws = Laws::default();
        let program = Program { law: "xcp".into(), initial_window: 10, fallback: Some(ordinary) };
        let name = laws.load(&program).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_tcp_congestion(name.as_bytes()).unwrap();
        client.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sink = thread::spawn(move || std::io::copy(&mut server, &mut std::io::sink()));
        let (begun, mut client) = (Instant::now(), TcpStream::from(client));
        while begun.elapsed() < Duration::from_secs(3) && congestion(&client) == name {
            client.write_all(&[7; 4096]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(congestion(&client), ordinary);
        drop(client);
        sink.join().unwrap().unwrap();
    }
}

/// Also of many connections, and with the bytes that they have sent under the ordinary law.
#[test]
fn connections_are_known_until_they_are_closed() {
    const COUNT: usize = 300;
    let _alone = alone();
    let Some(mut programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let group = Group::enter(&format!("tollway-known-{}", std::process::id())).unwrap();
    programs.attach(group.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut pairs: Vec<_> = (0..COUNT)
        .map(|_| (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0))
        .collect();
    let known = || programs.connections().unwrap();
    // Both ends are in the group.
    assert_eq!(known().len(), 2 * COUNT);
    let (client, server) = &mut pairs[0];
    SockRef::from(&*client).set_tcp_congestion(b"reno").unwrap();
    let mut left = vec![0; 4 << 20];
    let sent = thread::scope(|scope| {
        scope.spawn(|| client.write_all(&vec![7; 4 << 20]).unwrap());
        server.read_exact(&mut left).unwrap();
        left.len() as u64
    });
    let own = client.local_addr().unwrap();
    let state = known().into_iter().find(|c| c.local == own).unwrap();
    assert_eq!(state.fallen, Some(Cause::Program));
    assert!(state.acked > sent / 2, "{state:?}");
    pairs.truncate(COUNT / 3);
    let deadline = Instant::now() + Duration::from_secs(10);
    while known().len() > 2 * pairs.len() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(known().len(), 2 * pairs.len());
}
