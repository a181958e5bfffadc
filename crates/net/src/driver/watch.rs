//! Meters and borders at the far ends of links.

use tollway_law::Time;
use tollway_law::meter::Passage;
use tollway_proto::encoding::acp;
use tollway_proto::{Encoding, Watch};

use super::{CARRIED, Driver};

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
            let passage = self.consult(handle, |meters, packet| meters.on_entry(at, post, times, packet));
            match passage {
                Passage::Untouched => {}
                Passage::Rewritten => {
                    let packet = *self.buffers.get(handle);
                    let encoding = self.buffers.encoding(handle);
                    if encoding != Encoding::Acp {
                        let toll = &mut self.buffers.packet_mut(handle).toll;
                        encoding.quantise_sender(toll, u32::from(packet.size));
                    }
                }
                Passage::Dropped => {
                    self.links[link].link.note_metered();
                    self.buffers.free(handle);
                    continue;
                }
            }
            return Some((at, handle));
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
