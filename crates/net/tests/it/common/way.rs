//! A path between two UDP sockets that loses, reorders, repeats and corrupts datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Mixer;

/// A path that a thread runs until it is dropped.
pub(crate) struct Way {
    /// The addresses of the far node, as seen by the first and by the second node.
    pub(crate) faces: [SocketAddr; 2],
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Datagrams per thousand that are affected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mischief {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
    pub(crate) corrupted: u64,
    /// The first byte that may be corrupted.
    pub(crate) from: usize,
}

impl Way {
    /// Opens a path between the nodes at `ends`.
    pub(crate) fn open(ends: [SocketAddr; 2], seed: u64, mischief: Mischief) -> Way {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let faces = [0, 1].map(|i: usize| sockets[i].local_addr().unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let over = Arc::clone(&over);
            move || carry(&sockets, ends, Mixer(seed), mischief, &over)
        });
        Way { faces, over, thread: Some(thread) }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(
    sockets: &[UdpSocket; 2],
    ends: [SocketAddr; 2],
    mut mixer: Mixer,
    mischief: Mischief,
    over: &AtomicBool,
) {
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let mut held: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        let mut quiet = true;
        for from in [0, 1] {
            let Ok((len, sender)) = sockets[from].recv_from(&mut buffer) else { continue };
            quiet = false;
            if sender != ends[from] || mixer.below(1000) < mischief.lost {
                continue;
            }
            let copies = 1 + usize::from(mixer.below(1000) < mischief.repeated);
            for _ in 0..copies {
                let mut datagram = buffer[..len].to_vec();
                if mixer.below(1000) < mischief.corrupted && len > mischief.from {
                    let at = mischief.from + mixer.below((len - mischief.from) as u64) as usize;
                    datagram[at] ^= 1 << mixer.below(8);
                }
                let late = if mixer.below(1000) < mischief.late { mixer.below(8) } else { 0 };
                held.push((Instant::now() + Duration::from_millis(late), 1 - from, datagram));
            }
        }
        let now = Instant::now();
        for (_, to, datagram) in held.extract_if(.., |(due, ..)| *due <= now) {
            let _ = sockets[to].send_to(&datagram, ends[to]);
        }
        if quiet {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
