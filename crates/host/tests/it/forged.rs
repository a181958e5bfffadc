//! Acknowledgements with forged options, sent into a connection from outside.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tollway_host::{Connection, Echoes, Group, Law, OptionKind, Programs, Settings};

use super::{alone, loaded};

/// A raw socket that hears and sends TCP segments on loopback.
struct Forger(Socket);

impl Forger {
    fn new() -> Forger {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Forger(socket)
    }

    /// The last segment from port `from` to `to`: from its sequence number to its window, and its
    /// timestamps.
    fn heard(&self, from: u16, to: u16) -> [u8; 22] {
        let until = Instant::now() + Duration::from_secs(5);
        let mut last = None;
        while Instant::now() < until {
            let mut buffer = [0; 2048];
            let Ok(len) = (&self.0).read(&mut buffer) else { break };
            let bytes = &buffer[..len];
            let tcp = &bytes[usize::from(bytes[0] & 15) * 4..];
            if tcp.len() >= 32 && tcp[..4] == [from.to_be_bytes(), to.to_be_bytes()].concat()[..] {
                last = Some(tcp[..32].to_vec());
                self.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            }
        }
        let tcp = last.expect("the peer acknowledges");
        // NOP, NOP, timestamps: the first options of Linux.
        assert_eq!(tcp[20..24], [1, 1, 8, 10]);
        std::array::from_fn(|i| if i < 12 { tcp[4 + i] } else { tcp[10 + i] })
    }

    /// Sends an acknowledgement like one that was heard, with `options` behind the timestamps.
    fn send(&self, from: u16, to: u16, heard: &[u8; 22], options: &[u8]) {
        let mut tcp = [from.to_be_bytes(), to.to_be_bytes()].concat();
        tcp.extend(&heard[..12]);
        tcp[12] = (((32 + options.len()) / 4) << 4) as u8;
        tcp.extend([0, 0, 0, 0, 1, 1]);
        tcp.extend(&heard[12..]);
        tcp.extend(options);
        let mut sum = 2 * 0x7f00 + 2 + 6 + tcp.len() as u32;
        sum += tcp.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        self.0.send_to(&tcp, &SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    }
}

fn state(programs: &Programs, own: SocketAddr) -> Connection {
    programs.connections().unwrap().into_iter().find(|c| c.local == own).expect("it is under the law")
}

/// An open connection under a law, and a forger of its peer's acknowledgements.
fn forge(law: Law, option: OptionKind, options: &[&[u8]], check: impl Fn(&Connection, &Connection)) {
    let _alone = alone();
    let settings = Settings { option, ..Settings::new(law) };
    let Some(mut programs) = loaded(&settings) else { return };
    let group = Group::enter(&format!("tollway-forged-{}", std::process::id())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    programs.attach(group.path()).unwrap();
    let forger = Forger::new();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (own, peer) = (client.local_addr().unwrap(), server.local_addr().unwrap());
    client.write_all(&[7; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();
    let heard = forger.heard(peer.port(), own.port());
    let before = state(&programs, own);
    for option in options.iter().cycle().take(100) {
        forger.send(peer.port(), own.port(), &heard, option);
        programs.beat();
    }
    // The next acknowledgement applies what has arrived.
    client.write_all(&[7; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let after = state(&programs, own);
    check(&before, &after);
    // The connection works.
    client.write_all(&vec![7; 1 << 20]).unwrap();
    let mut left = vec![0; 1 << 20];
    server.read_exact(&mut left).unwrap();
    assert!(left.iter().all(|&byte| byte == 7));
}

#[test]
fn options_of_a_wrong_length_are_no_echo() {
    for options in [&[15, 8, 0x7f, 0xfe, 0, 0, 0, 0][..], &[15, 2, 1, 1], &[15, 3, 0x7f, 1]] {
        forge(Law::Xcp, OptionKind::Study, &[options], |_, after| {
            assert_ne!(after.echoes, Echoes::Feedback, "{options:?}");
            assert!(after.window <= 10.0, "{options:?}: {after:?}");
        });
    }
    for options in [&[253, 8, 0x46, 0x43, 0x80, 24, 1, 1][..], &[253, 4, 0x46, 0x43]] {
        forge(Law::Fcp, OptionKind::Study, &[options], |_, after| {
            assert_eq!(after.price, None, "{options:?}: {after:?}");
        });
    }
}

#[test]
fn forged_echoes_grow_a_window_by_no_more_than_acknowledgements() {
    let most: &[u8] = &[15, 4, 0x7f, 0xfe];
    let least: &[u8] = &[15, 4, 0x80, 0x07];
    forge(Law::Xcp, OptionKind::Study, &[most], |before, after| {
        assert!(after.window <= before.window + 4.0, "{before:?} {after:?}");
        assert!(after.forged > 0, "{after:?}");
    });
    // The window has a floor of one packet.
    forge(Law::Xcp, OptionKind::Study, &[least], |_, after| assert!(after.window >= 1.0, "{after:?}"));
    forge(Law::Xcp, OptionKind::Study, &[most, least], |before, after| {
        assert!((1.0..=before.window + 4.0).contains(&after.window), "{before:?} {after:?}");
    });
    // A price of nothing: in a round trip the window grows to sixteen times what was acknowledged.
    forge(Law::Fcp, OptionKind::Study, &[&[253, 6, 0x46, 0x43, 0x80, 0, 1, 1]], |_, after| {
        assert!(after.window <= 170.0, "{after:?}");
    });
}
