//! A network of which this process runs one node.

use std::cmp::Ordering;
use std::net::SocketAddr;

use tollway_law::Time;
use tollway_proto::transport::{Connection, State};

use super::{Network, Place};
use crate::driver::{Driver, Endpoint, Fate};
use crate::emulator::LinkSpec;
use crate::error::Error;
use crate::socket::Socket;

/// The state of a process with one node. The first driver has that node; the second, idle, has all
/// others.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) at: Vec<SocketAddr>,
    pub(super) patience: Time,
    pub(super) ends: Vec<Watched>,
    /// Links that lead here past a meter, and the meter's entry.
    pub(super) entries: Vec<(u32, u32)>,
    /// The last time at which an end changed its fate or received a packet.
    pub(super) over: Time,
    /// Packets that flows' ends here had received by then.
    heard: u64,
}

impl Network {
    /// Opens the node `here` of a network whose nodes are separate processes at the addresses `at`.
    ///
    /// The parts of other processes exist here, but stay idle: flows' other ends, and others'
    /// links. A flow's end without progress for `patience` is aborted.
    ///
    /// # Errors
    /// The system refuses a socket at this node's address.
    pub fn part(
        names: &[String],
        links: &[LinkSpec],
        seed: u64,
        here: usize,
        at: &[SocketAddr],
        patience: Time,
    ) -> Result<Network, Error> {
        let socket = Socket::on(at[here]).map_err(|source| Error::Socket {
            node: names[here].clone(),
            action: "open a UDP socket at its address",
            source,
        })?;
        let others = (0..names.len()).filter(|&node| node != here).map(|node| names[node].clone()).collect();
        let mut drivers =
            vec![Driver::new(vec![socket], vec![names[here].clone()]), Driver::new(Vec::new(), others)];
        let place = |node: usize| match node.cmp(&here) {
            Ordering::Less => Place { driver: 1, at: node as u32 },
            Ordering::Equal => Place { driver: 0, at: 0 },
            Ordering::Greater => Place { driver: 1, at: node as u32 - 1 },
        };
        drivers[0].apart = true;
        let mut network = Network::lay(drivers, (0..names.len()).map(place).collect(), at, links, seed);
        network.part = Some(Part {
            at: at.to_vec(),
            patience,
            ends: Vec::new(),
            entries: Vec::new(),
            over: Time::ZERO,
            heard: 0,
        });
        Ok(network)
    }

    /// Aborts ends that have waited too long for another process.
    pub(super) fn look_at_ends(&mut self) -> Result<(), Error> {
        let now = self.now;
        let Some(part) = &mut self.part else { return Ok(()) };
        let mut given_up = Vec::new();
        // Cross-traffic needs no answer.
        let crossed: u64 = self.drivers[0].sinks.iter().map(|sink| sink.packets).sum();
        let heard = self.drivers[0].counters.delivered - crossed;
        if std::mem::replace(&mut part.heard, heard) != heard {
            part.over = now;
        }
        for end in &mut part.ends {
            let place = self.flows[end.flow as usize][usize::from(!end.client)];
            let Endpoint { machine: Some(machine), fate, .. } = &mut self.drivers[0].ends[place.at as usize]
            else {
                continue;
            };
            let before = end.fate;
            // After a refusal the right peer may still have connected.
            end.fate = fate.or(before.filter(|&before| before != Fate::Mistaken));
            if end.look(now, machine, part.patience) {
                // The peer may be reachable again, and then receives the reset.
                machine.abort();
                given_up.push(place.at);
            }
            if end.fate != before {
                part.over = now;
            }
        }
        given_up.into_iter().try_for_each(|at| self.drivers[0].pump(at as usize, now))
    }

    /// The fates of flows' ends at this process's node: the flow, true for the client, the fate.
    pub fn fates(&self) -> Vec<(u32, bool, Fate)> {
        let ends = self.part.iter().flat_map(|part| &part.ends);
        ends.filter_map(|end| Some((end.flow, end.client, end.fate?))).collect()
    }

    /// Returns true if this node has no more work.
    ///
    /// Its flows' ends are over, and no late packet has needed an answer for a second.
    pub fn is_over(&self) -> bool {
        self.part.as_ref().is_some_and(|part| {
            let over = !part.ends.is_empty() && part.ends.iter().all(|end| end.fate.is_some());
            over && self.now.saturating_sub(part.over) >= LINGER
        })
    }

    /// Time of the first packet from the other end, and of the last new data once the end is over.
    ///
    /// `None` if this process runs several nodes, or if no packet has arrived.
    pub fn heard(&self, flow: u32, client: bool) -> Option<(Time, Option<Time>)> {
        let part = self.part.as_ref()?;
        let over = part.ends.iter().find(|end| end.flow == flow && end.client == client)?.fate.is_some();
        let place = self.flows[flow as usize][usize::from(!client)];
        let (first, last) = self.drivers[0].ends[place.at as usize].heard?;
        Some((first, over.then_some(last)))
    }

    pub(super) fn is_here(&self, place: Place) -> bool {
        self.part.is_none() || place.driver == 0
    }

    /// Returns true if this process runs the port of a link.
    pub fn has_link(&self, link: u32) -> bool {
        self.is_here(self.links[link as usize])
    }

    /// Returns true if this process runs the client of a flow, or its server.
    pub fn has_end(&self, flow: u32, client: bool) -> bool {
        self.is_here(self.flows[flow as usize][usize::from(!client)])
    }
}

/// The progress of a flow's end at this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) flow: u32,
    pub(super) client: bool,
    /// Its last state, and the time since which it has not changed.
    seen: Option<(State, u32, u32)>,
    since: Time,
    pub(super) fate: Option<Fate>,
}

impl Watched {
    pub(super) fn new(flow: u32, client: bool) -> Watched {
        Watched { flow, client, seen: None, since: Time::ZERO, fate: None }
    }

    /// Checks the machine's progress. Returns true if it must be aborted.
    pub(super) fn look(&mut self, now: Time, machine: &mut Connection, patience: Time) -> bool {
        if self.fate.is_some() {
            return false;
        }
        if machine.state() == State::Reset {
            self.fate = Some(Fate::Reset);
        }
        let through = match self.client {
            true => machine.is_acknowledged(),
            false => machine.has_peer_finished() && machine.outstanding() == 0,
        };
        if through {
            self.fate.get_or_insert(Fate::Over);
        }
        let seen = (machine.state(), machine.una(), machine.expected());
        // An end that is not open yet may wait without limit.
        if self.seen != Some(seen) || seen.0 == State::Idle {
            (self.seen, self.since) = (Some(seen), now);
        }
        if self.fate.is_none() && now.saturating_sub(self.since) >= patience {
            // All data of this client have arrived, and only the peer's last packet is missing.
            self.fate = Some(if self.client && machine.is_finished() { Fate::Over } else { Fate::Silent });
            return true;
        }
        false
    }
}

/// Time for which a node answers late packets after its flows are over.
const LINGER: Time = Time::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use tollway_law::Rate;
    use tollway_law::link::{AnyLink, DropTail};
    use tollway_law::sender::NewRenoConfig;
    use tollway_proto::port::Limit;
    use tollway_proto::transport::Config;
    use tollway_proto::{Encoding, Flags, Packet, SackRanges, Stamp};

    use super::*;
    use crate::driver::Counters;
    use crate::network::FlowSpec;
    use crate::wire;

    const FINGERPRINT: u32 = 7;
    const DATA: Flags = Flags(Flags::DATA.0 | Flags::ACK.0);
    const REFUSAL: Flags = Flags(Flags::SYN.0 | Flags::RST.0 | Flags::ACK.0);

    fn parts() -> ([String; 2], [LinkSpec; 2]) {
        let link = |(from, to)| LinkSpec {
            from,
            to,
            rate: Rate::from_mbps(10.0),
            trace: None,
            delay: Time::from_millis(1),
            overhead: 0,
            law: AnyLink::DropTail(DropTail),
            limit: Limit { packets: 100, bytes: u64::MAX },
            queue: Default::default(),
        };
        (["a", "b"].map(String::from), [(0, 1), (1, 0)].map(link))
    }

    fn with_flow(mut network: Network) -> Network {
        let config = Config {
            segment: 1200,
            header: 80,
            ack_size: 112,
            receive_buffer: 10 * 1120,
            ..Config::default()
        };
        let config = Arc::new(config);
        let law = || NewRenoConfig::default().build().into();
        let flow = FlowSpec {
            client: Connection::client(&config, law(), 0),
            server: Connection::server(&config, law(), 0),
            forward: vec![0],
            back: vec![1],
            start: Time::from_secs(1),
            stop: Time::NEVER,
            encoding: Encoding::Acp,
            fingerprint: FINGERPRINT,
        };
        network.add_flow(flow).unwrap();
        network
    }

    /// The node `here` of two, with a flow from the first to the second; `None`, with a message, if
    /// it gets no socket.
    fn node(here: usize) -> Option<Network> {
        if UdpSocket::bind("127.0.0.1:0").is_err() {
            eprintln!("SKIPPED: no UDP socket on loopback here");
            return None;
        }
        let (names, links) = parts();
        let at = ["127.0.0.1:0".parse().unwrap(); 2];
        Some(with_flow(Network::part(&names, &links, 1, here, &at, Time::from_secs(1000)).unwrap()))
    }

    /// Hands the node a datagram from the other, with byte `wrong` of its payload corrupted.
    fn hear(node: &mut Network, packet: &Packet, wrong: Option<usize>) -> Result<(), Error> {
        let mut datagram = vec![0; usize::from(packet.size) - tollway_proto::encoding::acp::OVERHEAD];
        wire::compose(packet, &SackRanges::EMPTY, 80, &mut datagram).unwrap();
        let start = datagram.len() - wire::payload_len(packet, 80);
        wrong.into_iter().for_each(|at| datagram[start + at] ^= 1);
        node.drivers[0].accept(0, Time::from_secs(1), &mut datagram, None)
    }

    fn packet(flags: Flags, seq: u32, ack: u32) -> Packet {
        let size = if flags.has(Flags::DATA) { 1200 } else { 112 };
        Packet { flags, seq, ack, size, ..Packet::default() }
    }

    fn open(node: &mut Network) {
        hear(node, &packet(Flags::SYN, 0, FINGERPRINT), None).unwrap();
        hear(node, &packet(Flags::ACK, 1, 1), None).unwrap();
        hear(node, &packet(DATA, 1, 1), None).unwrap();
        assert_eq!((node.server(0).state(), node.server(0).expected()), (State::Established, 2));
    }

    #[test]
    fn what_no_receiver_would_take_in_changes_nothing_whatever_is_in_it() {
        let Some(mut node) = node(1) else { return };
        let senseless = |node: &mut Network, packet: Packet, wrong: Option<usize>| {
            let before = (format!("{:?}", node.server(0)), node.counters());
            hear(node, &packet, wrong).unwrap();
            let after = Counters { senseless: before.1.senseless + 1, ..before.1 };
            assert_eq!((format!("{:?}", node.server(0)), node.counters()), (before.0, after), "{packet:?}");
        };
        // The connection is not open.
        senseless(&mut node, packet(DATA, 1, 1), Some(3));
        senseless(&mut node, packet(DATA, 500, 1), None);
        open(&mut node);
        hear(&mut node, &packet(DATA, 4, 1), None).unwrap();
        // These segments have arrived before, or lie beyond its window.
        for seq in [1, 4, 12, 500, 1 << 31, u32::MAX] {
            senseless(&mut node, packet(DATA, seq, 1), Some(1119));
        }
        for seq in [12, 500, 1 << 31] {
            senseless(&mut node, packet(DATA, seq, 1), None);
        }
        // These acknowledge data never sent, exceed the segment size, or open again.
        senseless(&mut node, packet(DATA, 2, 9), Some(0));
        senseless(&mut node, Packet { size: 1201, ..packet(DATA, 2, 1) }, None);
        senseless(&mut node, packet(Flags::SYN, 0, 8), None);
        senseless(&mut node, packet(REFUSAL, 2, 1), None);
        // The connection continues.
        hear(&mut node, &packet(DATA, 2, 1), None).unwrap();
        hear(&mut node, &packet(DATA, 3, 1), None).unwrap();
        assert_eq!((node.server(0).expected(), node.fates()), (5, vec![]));
    }

    #[test]
    fn a_wrong_byte_is_dropped_and_the_segment_itself_taken() {
        let Some(mut node) = node(1) else { return };
        open(&mut node);
        let before = node.counters();
        hear(&mut node, &packet(DATA, 2, 1), Some(700)).unwrap();
        node.look_at_ends().unwrap();
        let counters = node.counters();
        assert_eq!((counters.senseless, counters.created), (before.senseless + 1, before.created));
        assert_eq!((node.fates(), node.server(0).expected()), (vec![], 2));
        hear(&mut node, &packet(DATA, 2, 1), None).unwrap();
        assert_eq!(node.server(0).expected(), 3);
        // A reset without the next expected number is forged, or late (RFC 5961).
        for seq in [0, 1, 2, 4, 100_000_000] {
            hear(&mut node, &packet(Flags::RST, seq, 0), None).unwrap();
            assert_eq!((node.server(0).state(), node.fates()), (State::Established, vec![]), "{seq}");
        }
        // Between nodes of one process it is a bug, and ends the run.
        let (names, links) = parts();
        let mut network = with_flow(Network::new(&names, &links, 1, 1).unwrap());
        let at = usize::from(network.drivers[0].names().next() != Some("b"));
        let mut datagram = vec![0; 1200 - 28];
        wire::compose(&packet(DATA, 500, 1), &SackRanges::EMPTY, 80, &mut datagram).unwrap();
        datagram[1000] ^= 1;
        let heard = network.drivers[0].accept(at, Time::from_secs(1), &mut datagram, None);
        assert!(matches!(heard, Err(Error::Corrupt { flow: 0, segment: 500, .. })), "{heard:?}");
    }

    #[test]
    fn who_means_another_flow_is_not_let_in_and_told_so() {
        let Some(mut server) = node(1) else { return };
        for other in [0, 8] {
            let before = server.counters().created;
            hear(&mut server, &packet(Flags::SYN, 0, other), None).unwrap();
            server.look_at_ends().unwrap();
            assert_eq!((server.server(0).state(), server.counters().created), (State::Idle, before + 1));
            assert_eq!(server.fates(), [(0, false, Fate::Mistaken)]);
        }
        // The right opening is still accepted.
        open(&mut server);
        server.look_at_ends().unwrap();
        assert_eq!(server.fates(), []);

        let Some(mut client) = node(0) else { return };
        client.with_flow(0, |client, _| client.open(Time::ZERO)).unwrap();
        let refusal = |of: u32| Packet { flow: 1, sent_echo: Stamp(of), ..packet(REFUSAL, 0, 1) };
        hear(&mut client, &refusal(8), None).unwrap();
        client.look_at_ends().unwrap();
        assert_eq!((client.client(0).state(), client.fates()), (State::SynSent, vec![]), "it was another's");
        hear(&mut client, &refusal(FINGERPRINT), None).unwrap();
        client.look_at_ends().unwrap();
        assert_eq!(
            (client.client(0).state(), client.fates()),
            (State::Reset, vec![(0, true, Fate::Mistaken)])
        );
    }
}
