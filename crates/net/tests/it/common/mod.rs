//! Helpers of several tests: mutated datagrams, and this process's memory.

pub(crate) mod way;

use std::net::UdpSocket;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollway_net::cookie;
use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet, SackRanges};

/// Returns true if this machine allows sockets. Otherwise prints a message.
pub(crate) fn sockets() -> bool {
    match UdpSocket::bind("127.0.0.1:0") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: no UDP socket on loopback here: {error}");
            false
        }
    }
}

/// Number of mutated datagrams sent to each listening socket.
pub(crate) const MANY: u64 = 1_000_000;

/// The number in an environment variable.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A lock for tests that measure this process's memory.
pub(crate) fn measures_memory() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of memory that this process uses; zero if the system does not state it.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Steele, Lea and Flood's generator ("SplitMix", OOPSLA 2014). Its seeds are constants, so
/// failures repeat.
pub(crate) struct Mixer(pub(crate) u64);

impl Mixer {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// An opening, data or an acknowledgement, with some bytes changed, cut off or appended.
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
