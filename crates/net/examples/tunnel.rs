//! XCP through an encrypted tunnel: two hosts with a tunnel end each, and a router between them.
//!
//! ```text
//! cargo run --release -p tollway-net --example tunnel [SECONDS]
//! ```
//!
//! The example uses three UDP sockets on loopback. The left host sends with XCP at the rate that
//! its window allows. Its datagrams are sealed, and their congestion header is copied in clear to
//! the front. The router has 10 Mb/s, 20 ms each way and room for 100 packets. It writes feedback
//! into the header that it can read. The right host takes this feedback out of the tunnel.
//!
//! The example runs twice: first so, then with a router that does not see the header. In the second
//! run the sender receives no signal that it sends too fast.
//!
//! The cipher is for this example only. It is not secure.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("tunnels are for Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::VecDeque;
    use std::hash::Hasher;
    use std::io;
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::Arc;
    use std::time::Duration;

    use siphasher::sip::SipHasher24;
    use tollway_law::link::{AnyLink, xcp};
    use tollway_law::sender::XcpConfig;
    use tollway_law::{Rate, Time};
    use tollway_net::Clock;
    use tollway_net::tunnel::{Cipher, Tunnel};
    use tollway_proto::encoding::acp;
    use tollway_proto::port::{Limit, Offered};
    use tollway_proto::transport::Config;
    use tollway_proto::{Connection, Flags, Packet, Pool, Port, SackRanges};

    pub(super) fn main() -> Result<(), Box<dyn std::error::Error>> {
        let seconds = std::env::args().nth(1).map_or(Ok(5.0), |text| text.parse())?;
        for shown in [true, false] {
            let (sent, arrived, router) = run(Time::from_secs_f64(seconds), shown)?;
            println!(
                "header {}: {:.2} Mb/s arrived, {} of {} packets; the router dropped {}, and had at most {} waiting",
                if shown { "copied out" } else { "hidden" },
                arrived as f64 * 8e-6 / seconds,
                arrived / SEGMENT,
                sent,
                router.dropped,
                router.longest,
            );
        }
        Ok(())
    }

    /// Runs once. Returns the data packets sent, the bytes of them that arrived, and the router.
    fn run(span: Time, shown: bool) -> Result<(u64, u64, Router), Box<dyn std::error::Error>> {
        let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0"));
        let [left, middle, right] = sockets;
        let (left, middle, right) = (left?, middle?, right?);
        [&left, &middle, &right].into_iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        let addrs = [left.local_addr()?, right.local_addr()?];

        let config = Arc::new(Config {
            segment: SEGMENT as u16,
            header: 80,
            ack_size: 112,
            // About three times the path's capacity: this bounds the loss when no feedback limits
            // the sender.
            receive_buffer: 300 * (SEGMENT - 80),
            ..Config::default()
        });
        let law = || XcpConfig { pacing: true, ..XcpConfig::default() }.build().into();
        let mut client = TunnelEnd::new(left, middle.local_addr()?, Connection::client(&config, law(), 1));
        let mut server = TunnelEnd::new(right, middle.local_addr()?, Connection::server(&config, law(), 1));
        let mut router = Router::new(middle, addrs, shown);
        let clock = Clock::starting_at(Time::ZERO);
        client.machine.open(Time::ZERO);
        client.machine.write_unlimited();
        loop {
            let now = clock.now();
            client.turn(now)?;
            server.turn(now)?;
            router.turn(now)?;
            if now >= span {
                let (sent, got) = (client.machine.stats(), server.machine.stats());
                return Ok((sent.segments_sent, got.bytes_received, router));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// A host with its end of the tunnel.
    struct TunnelEnd {
        socket: UdpSocket,
        router: SocketAddr,
        machine: Connection,
        tunnel: Tunnel<Sip>,
        inner: Vec<u8>,
        outer: Vec<u8>,
    }

    impl TunnelEnd {
        fn new(socket: UdpSocket, router: SocketAddr, machine: Connection) -> TunnelEnd {
            let tunnel = Tunnel::new(5, Sip::default());
            TunnelEnd { socket, router, machine, tunnel, inner: Vec::new(), outer: Vec::new() }
        }

        fn turn(&mut self, now: Time) -> Result<(), Box<dyn std::error::Error>> {
            let mut bytes = [0; 2048];
            while let Some((len, _)) = receive(&self.socket, &mut bytes)? {
                // A datagram that the other end did not seal is ignored.
                if self.tunnel.leave(&bytes[..len], &mut self.inner).is_ok() {
                    let decoded = acp::decode(&self.inner)?;
                    self.machine.handle_packet(now, &decoded.packet, &decoded.sack);
                }
            }
            if self.machine.poll_timeout() <= now {
                self.machine.handle_timeout(now);
            }
            let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
            while self.machine.poll_transmit(now, &mut packet, &mut sack) {
                self.inner.clear();
                self.inner.resize(usize::from(packet.size) - acp::OVERHEAD, 0);
                acp::encode(&packet, &sack, &mut self.inner)?;
                sack.clear();
                self.tunnel.enter(&self.inner, &mut self.outer)?;
                self.socket.send_to(&self.outer, self.router)?;
            }
            Ok(())
        }
    }

    /// 10 Mb/s from left to right under XCP's law, an unlimited rate back, and 20 ms each way.
    struct Router {
        socket: UdpSocket,
        hosts: [SocketAddr; 2],
        /// True if the router reads congestion headers.
        shown: bool,
        port: Port<AnyLink, u32>,
        store: Store,
        free_at: Time,
        /// Datagrams in flight, by direction.
        wires: [VecDeque<(Time, Vec<u8>)>; 2],
        dropped: u64,
        longest: u32,
    }

    /// Datagrams, each with the packet that the port sees.
    #[derive(Default)]
    struct Store {
        slots: Vec<(Packet, Vec<u8>)>,
        free: Vec<u32>,
    }

    impl Pool for Store {
        type Handle = u32;

        fn packet(&mut self, handle: u32) -> &mut Packet {
            &mut self.slots[handle as usize].0
        }
    }

    impl Router {
        fn new(socket: UdpSocket, hosts: [SocketAddr; 2], shown: bool) -> Router {
            let law = xcp::XcpConfig::default().build(Rate::from_mbps(MBPS));
            let port = Port::new(law, Limit { packets: 100, bytes: u64::MAX }, Default::default());
            let (store, wires) = (Store::default(), Default::default());
            Router { socket, hosts, shown, port, store, free_at: Time::ZERO, wires, dropped: 0, longest: 0 }
        }

        fn turn(&mut self, now: Time) -> Result<(), Box<dyn std::error::Error>> {
            let mut bytes = [0; 2048];
            while let Some((len, from)) = receive(&self.socket, &mut bytes)? {
                self.depart(now);
                if from == self.hosts[1] {
                    self.wires[0].push_back((now + DELAY, bytes[..len].to_vec()));
                    continue;
                }
                let mut packet = acp::load_packet(&bytes[..len])?;
                if !self.shown {
                    packet.flags = Flags::NONE;
                }
                let slot = (packet, bytes[..len].to_vec());
                let handle = self.store.free.pop().unwrap_or(self.store.slots.len() as u32);
                match self.store.slots.get_mut(handle as usize) {
                    Some(place) => *place = slot,
                    None => self.store.slots.push(slot),
                }
                // Only a queue per flow makes room by dropping other packets.
                let offered = self.port.enqueue(now, handle, &mut self.store, |_, _| {});
                if matches!(offered, Offered::Full | Offered::Dropped) {
                    self.dropped += 1;
                    self.store.free.push(handle);
                }
                self.longest = self.longest.max(self.port.packets());
            }
            self.depart(now);
            for (to, wire) in self.wires.iter_mut().enumerate() {
                while wire.front().is_some_and(|(at, _)| *at <= now)
                    && let Some((_, datagram)) = wire.pop_front()
                {
                    self.socket.send_to(&datagram, self.hosts[to])?;
                }
            }
            Ok(())
        }

        /// Sends the packets that left the port by `now`, each at its own instant.
        fn depart(&mut self, now: Time) {
            while self.free_at <= now && self.port.packets() > 0 {
                let start = self.free_at;
                let Some((handle, _)) = self.port.dequeue(start, &mut self.store, |_, _| {}) else { break };
                let (packet, datagram) = &mut self.store.slots[handle as usize];
                if self.shown {
                    // The toll was read from this header.
                    let _ = acp::store(datagram, &packet.toll);
                }
                self.free_at = start + Rate::from_mbps(MBPS).time_for(u64::from(packet.size));
                self.wires[1].push_back((self.free_at + DELAY, std::mem::take(datagram)));
                self.store.free.push(handle);
            }
            if self.port.packets() == 0 {
                self.free_at = self.free_at.max(now);
            }
        }
    }

    /// Receives the next datagram; `None` if none waits.
    fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match socket.recv_from(into) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Size of a data packet before it is sealed, in bytes.
    const SEGMENT: u64 = 1400;
    const MBPS: f64 = 10.0;
    const DELAY: Time = Time::from_millis(20);

    /// SipHash in counter mode, with a tag.
    #[derive(Default)]
    struct Sip {
        sealed: u64,
    }

    impl Sip {
        fn hash(key: u64, number: u64, bytes: &[u8]) -> [u8; 8] {
            let mut hasher = SipHasher24::new_with_keys(key, number);
            hasher.write(bytes);
            hasher.finish().to_be_bytes()
        }

        fn cross(nonce: u64, bytes: &mut [u8]) {
            for (i, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
                let word = Sip::hash(1, nonce, &i.to_be_bytes());
                chunk.iter_mut().zip(word).for_each(|(byte, key)| *byte ^= key);
            }
        }
    }

    impl Cipher for Sip {
        fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
            self.sealed += 1;
            out.extend_from_slice(&self.sealed.to_be_bytes());
            let tag = out.len();
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(plain);
            Sip::cross(self.sealed, &mut out[tag + 8..]);
            let sum = Sip::hash(2, self.sealed, &out[tag + 8..]);
            out[tag..tag + 8].copy_from_slice(&sum);
        }

        fn open(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> bool {
            let Some((nonce, rest)) = sealed.split_first_chunk::<8>() else { return false };
            let Some((tag, rest)) = rest.split_first_chunk::<8>() else { return false };
            let nonce = u64::from_be_bytes(*nonce);
            if Sip::hash(2, nonce, rest) != *tag {
                return false;
            }
            let start = out.len();
            out.extend_from_slice(rest);
            Sip::cross(nonce, &mut out[start..]);
            true
        }
    }
}
