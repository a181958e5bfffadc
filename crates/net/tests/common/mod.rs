//! What several tests need: strangers' datagrams, and a look at what we take of the machine.
#![allow(dead_code)]

use std::net::UdpSocket;

use tollway_net::cookie;
use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet, SackRanges};

/// Whether this machine lets us open sockets; says so loudly if it does not.
pub(crate) fn sockets() -> bool {
    match UdpSocket::bind("127.0.0.1:0") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: no UDP socket on loopback here: {error}");
            false
        }
    }
}

/// Mutated datagrams that come to each listening socket.
pub(crate) const MANY: u64 = 1_000_000;

/// The number that a variable of the environment has.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Bytes of memory that this process has; zero where the system does not tell.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Steele, Lea and Flood's generator ("SplitMix", OOPSLA 2014): a seed on failure is a constant here.
pub(crate) struct Mixer(pub(crate) u64);

impl Mixer {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers under `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// An opening, data or an acknowledgement, with some of its bytes changed, cut or grown.
pub(crate) fn mutated(mixer: &mut Mixer) -> Vec<u8> {
    let flags =
        [Flags::SYN, Flags::ACK, Flags::DATA.with(Flags::ACK), Flags::SYN.with(Flags::RST), Flags::RST];
    let tolled = if mixer.below(2) == 0 { Flags::TOLLED } else { Flags::NONE };
    let packet = Packet {
        flags: flags[mixer.below(flags.len() as u64) as usize].with(tolled),
        flow: mixer.below(4) as u32,
        seq: mixer.next() as u32,
        ack: mixer.next() as u32,
        ..Packet::default()
    };
    let mut bytes = vec![0; acp::LEN + cookie::LEN + mixer.below(200) as usize];
    acp::encode(&packet, &SackRanges::EMPTY, &mut bytes).unwrap();
    for _ in 0..mixer.below(4) {
        let at = mixer.below(bytes.len() as u64) as usize;
        bytes[at] = mixer.next() as u8;
    }
    if mixer.below(4) == 0 {
        let len = mixer.below(bytes.len() as u64) as usize;
        bytes.truncate(len);
    }
    bytes
}
