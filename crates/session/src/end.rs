//! An end of an ACP connection: frames of real bytes, in and out.

use std::collections::VecDeque;
use std::sync::Arc;

use tollway_law::Time;
use tollway_law::sender::AnySender;
use tollway_net::hop::Hops;
use tollway_proto::transport::stream::{Incoming, Outgoing};
use tollway_proto::transport::{Config as Transport, Connection, Event};
use tollway_proto::{Flags, Packet, SackRanges, Stamp};

use crate::{HEADER, PAYLOAD};

/// A connection to a neighbour, and its bytes.
#[derive(Debug)]
pub struct End {
    machine: Connection,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Lengths of received frames that were not taken.
    frames: VecDeque<u64>,
    neighbour: usize,
    /// The receive window last set, in segments.
    room: u32,
    /// True once the other side has answered the SYN.
    pub connected: bool,
    /// True if the other side sends no more frames.
    pub peer_finished: bool,
    /// True if both directions are over.
    pub closed: bool,
    /// True if the other side aborted it.
    pub reset: bool,
}

impl End {
    /// The side that opens.
    pub fn client(config: &Arc<Transport>, law: AnySender, neighbour: usize, flow: u32, now: Time) -> End {
        let mut end = End::around(Connection::client(config, law, flow), neighbour);
        end.machine.open(now);
        end
    }

    /// The side that a SYN opens.
    pub fn server(config: &Arc<Transport>, law: AnySender, neighbour: usize, syn: &Packet, now: Time) -> End {
        let mut end = End::around(Connection::server(config, law, syn.flow), neighbour);
        end.on_packet(now, syn, &SackRanges::EMPTY, &[], usize::MAX);
        end
    }

    fn around(machine: Connection, neighbour: usize) -> End {
        End {
            room: machine.config().receive_segments(),
            machine,
            outgoing: Outgoing::new(),
            incoming: Incoming::new(),
            frames: VecDeque::new(),
            neighbour,
            connected: false,
            peer_finished: false,
            closed: false,
            reset: false,
        }
    }

    /// Handles a packet. Its data are left for later if more than `most` bytes wait here.
    pub fn on_packet(&mut self, now: Time, packet: &Packet, sack: &SackRanges, payload: &[u8], most: usize) {
        let mut packet = *packet;
        if self.incoming.len() > most || payload.len() > PAYLOAD {
            packet.flags = Flags(packet.flags.0 & !DATA.0);
        }
        let (before, window) = (self.machine.expected(), self.machine.receive_window());
        let awaited = self.machine.awaits(&packet);
        self.machine.handle_packet(now, &packet, sack);
        let after = self.machine.expected();
        // A probe of a closed window is taken in as well.
        let taken = awaited || (packet.seq == before && after != before);
        let carrier = if taken { packet } else { Packet::default() };
        self.incoming.insert(&carrier, before, after, window.max(1), payload);
        self.outgoing.acknowledge(self.machine.una());
        self.note_events();
    }

    fn note_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Connected => self.connected = true,
                Event::FrameDelivered { bytes, .. } => self.frames.push_back(bytes),
                Event::PeerFinished => self.peer_finished = true,
                Event::Closed => self.closed = true,
                Event::Reset => self.reset = true,
                Event::Finished => {}
            }
        }
    }

    /// Queues a frame of two parts.
    pub fn write(&mut self, head: &[u8], body: &[u8]) {
        self.outgoing.write(head);
        self.outgoing.write(body);
        self.machine.write_frame((head.len() + body.len()) as u64);
    }

    /// Moves the next received frame into `out`. Returns false if no frame is left.
    pub fn take_frame(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(len) = self.frames.pop_front() else { return false };
        out.resize(len as usize, 0);
        self.incoming.read(out);
        true
    }

    /// Returns true if all received frames are taken.
    pub fn is_read(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes written and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.outgoing.len()
    }

    /// Bytes held in either direction.
    pub fn bytes(&self) -> usize {
        self.outgoing.len() + self.incoming.len()
    }

    /// Reduces the window by the bytes that wait here and `beyond`, out of `buffer`.
    pub fn offer(&mut self, beyond: usize, buffer: usize) {
        let free = buffer.saturating_sub(self.incoming.len() + beyond);
        // The window moves by quarters of the buffer: each change costs a packet.
        let quarter = (buffer / PAYLOAD / 4).max(1);
        let room = (free / PAYLOAD / quarter * quarter) as u32;
        if room != self.room {
            self.room = room;
            self.machine.set_receive_buffer(room);
        }
    }

    /// Closes this direction.
    pub fn finish(&mut self) {
        if !self.machine.is_closing() {
            self.machine.finish();
            self.note_events();
        }
    }

    /// Returns true if [`finish`](End::finish) was called.
    pub fn is_finishing(&self) -> bool {
        self.machine.is_closing()
    }

    /// Aborts the connection, and informs the other side.
    pub fn abort(&mut self, now: Time, hops: &mut Hops) {
        self.machine.abort();
        self.transmit(now, hops);
    }

    /// Handles the timer, and sends due packets. Returns the time of the next call.
    pub fn drive(&mut self, now: Time, hops: &mut Hops) -> Time {
        if self.machine.poll_timeout() <= now {
            self.machine.handle_timeout(now);
            self.note_events();
        }
        self.transmit(now, hops);
        self.machine.poll_timeout()
    }

    fn transmit(&mut self, now: Time, hops: &mut Hops) {
        let (mut packet, mut sack) = (Packet::default(), SackRanges::EMPTY);
        while self.machine.poll_transmit(now, &mut packet, &mut sack) {
            let payload = self.outgoing.payload(&packet, HEADER).unwrap_or_default();
            hops.send(now, self.neighbour, &packet, &sack, payload);
        }
    }
}

/// The answer to a packet without a connection, so that its sender does not wait; `None` to a
/// reset.
pub fn refusal(now: Time, packet: &Packet) -> Option<Packet> {
    let uses = packet.flags.0 & (Flags::SYN.0 | Flags::FIN.0 | Flags::DATA.0) != 0;
    (!packet.flags.has(Flags::RST)).then(|| Packet {
        flow: packet.flow,
        seq: packet.ack,
        ack: packet.seq.wrapping_add(u32::from(uses)),
        size: HEADER,
        flags: Flags::RST.with(Flags::ACK),
        sent: Stamp::at(now),
        ..Packet::default()
    })
}

/// The payload of a datagram's packet, whose end is at `end`.
pub fn payload<'d>(packet: &Packet, datagram: &'d [u8], end: usize) -> &'d [u8] {
    let data = packet.flags.has(Flags::DATA);
    let len = if data { usize::from(packet.size.saturating_sub(HEADER)) } else { 0 };
    &datagram[end - len.min(end)..end]
}

/// The flags of a segment that is a whole frame.
const DATA: Flags = Flags::DATA.with(Flags::FIRST).with(Flags::LAST);
