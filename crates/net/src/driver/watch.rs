//! Meters and borders at the far ends of links.

use std::net::SocketAddr;

use tollway_law::Time;
use tollway_law::meter::Passage;
use tollway_proto::encoding::acp;
use tollway_proto::{Encoding, Watch};

use super::{CARRIED, Driver};
use crate::emulator::Pace;
use crate::error::Error;

/// A meter where datagrams come in, of a link that is another process's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) post: u32,
    pub(crate) pace: Pace,
}

impl Driver {
    /// The next packet that comes off the wire of a link by `now` and goes on from there, and when it was due.
    pub(super) fn arrive(&mut self, link: usize, now: Time) -> Option<(Time, u32)> {
        let Some(watch) = self.links[link].watch else {
            return self.links[link].link.arrive(now, &mut self.buffers);
        };
        loop {
            let hop = &mut self.links[link].link;
            let (at, handle) = hop.come_off(now, &mut self.buffers)?;
            let times = hop.times(self.buffers.get(handle).size);
            // The meter stands where the wire begins, and doesn't see what is lost on it.
            match watch {
                Watch::Exit(post) => self.consult(handle, |meters, packet| {
                    meters.on_exit(at, post, packet);
                    Passage::Untouched
                }),
                Watch::Entry(post) => {
                    self.meters.on_wire(at, post, times.0);
                    Passage::Untouched
                }
            };
            if self.links[link].link.is_lost(handle, &mut self.buffers) {
                continue;
            }
            let Watch::Entry(post) = watch else { return Some((at, handle)) };
            if !self.enter(handle, at, post, times) {
                self.links[link].link.note_metered();
                self.buffers.free(handle);
                continue;
            }
            return Some((at, handle));
        }
    }

    /// Datagrams from `peer` come to `node` past this meter; answers the entry's number.
    pub(crate) fn add_entry(&mut self, node: u32, peer: SocketAddr, entry: Entry) -> u32 {
        self.entries.push(entry);
        let at = self.entries.len() as u32 - 1;
        self.nodes[node as usize].entries.push((peer, at));
        at
    }

    /// A datagram has come past a meter.
    pub(super) fn accept_metered(
        &mut self,
        node: usize,
        now: Time,
        datagram: &mut [u8],
        place: Option<(u32, usize)>,
        entry: u32,
    ) -> Result<(), Error> {
        let Ok(packet) = acp::load_packet(datagram) else {
            self.counters.senseless += 1;
            return Ok(());
        };
        let Entry { post, pace } = self.entries[entry as usize];
        let times = pace.times(packet.size);
        self.meters.on_wire(now, post, times.0);
        // What routers don't look at may be wrong; then it is the receiver's to throw away.
        if let Ok(acp::Decoded { mut packet, .. }) = acp::decode(datagram) {
            let own = self.buffers.own(packet.flow);
            packet.flow = (own & !CARRIED) >> 1;
            match self.meters.on_entry(now, post, times, &mut packet) {
                Passage::Untouched => {}
                Passage::Rewritten => {
                    let size = u32::from(packet.size);
                    self.buffers.encoding_of(own).quantise_sender(&mut packet.toll, size);
                }
                Passage::Dropped => {
                    self.counters.metered += 1;
                    return Ok(());
                }
            }
            let _ = acp::store(datagram, &packet.toll);
        }
        self.accept(node, now, datagram, place)
    }

    /// A packet comes past a meter; answers whether it goes on.
    fn enter(&mut self, handle: u32, at: Time, post: u32, times: (Time, Time)) -> bool {
        match self.consult(handle, |meters, packet| meters.on_entry(at, post, times, packet)) {
            Passage::Untouched => true,
            Passage::Rewritten => {
                let encoding = self.buffers.encoding(handle);
                if encoding != Encoding::Acp {
                    let packet = self.buffers.packet_mut(handle);
                    encoding.quantise_sender(&mut packet.toll, u32::from(packet.size));
                }
                true
            }
            Passage::Dropped => false,
        }
    }

    /// Shows a packet to the meters as its ends would see it, with what links have said so far, and takes over what they make of its toll.
    fn consult(
        &mut self,
        handle: u32,
        ask: impl FnOnce(&mut tollway_proto::Meters, &mut tollway_proto::Packet) -> Passage,
    ) -> Passage {
        // What routers don't look at may be wrong; then it is the receiver's to throw away.
        let Ok(decoded) = acp::decode(self.datagram(handle)) else { return Passage::Untouched };
        let mut packet = decoded.packet;
        let own = self.buffers.own_label(handle);
        let known = self.buffers.packet_mut(handle);
        packet.flow = (own & !CARRIED) >> 1;
        (packet.toll, packet.flags) = (known.toll, known.flags);
        let passage = ask(&mut self.meters, &mut packet);
        self.buffers.packet_mut(handle).toll = packet.toll;
        passage
    }
}
