//! Packets of machines, up to their first links.

use super::*;

impl<M: Machine> Network<M> {
    /// Sends a machine's pending packets.
    #[inline]
    pub(super) fn send_all(&mut self, at: usize) {
        if self.endpoints[at].shaped != UNSHAPED {
            return if self.is_hosted(at) { self.serve(at) } else { self.send_shaped(at) };
        }
        loop {
            let machine = &mut self.endpoints[at].machine;
            if !machine.poll_transmit(self.now, self.slab.draft(), &mut self.sack_scratch) {
                return;
            }
            self.launch(at);
        }
    }

    /// Sends the packet that a machine has built in the draft.
    #[inline]
    pub(super) fn launch(&mut self, at: usize) {
        let sacks = self.slab.draft().flags.has(Flags::SACK);
        let slot = self.slab.launch();
        if sacks {
            self.slab.attach(slot, self.sack_scratch);
            self.sack_scratch.clear();
        }
        self.endpoints[at].balance += 1;
        self.send_off(at, slot);
    }

    /// [`launch`](Network::launch) of a packet without SACK ranges.
    #[inline]
    pub(super) fn launch_bare(&mut self, at: usize) {
        let slot = self.slab.launch();
        self.endpoints[at].balance += 1;
        self.send_off(at, slot);
    }

    /// Puts the packet in `slot`, which a machine has built, on its route.
    #[inline]
    pub(super) fn send_off(&mut self, at: usize, slot: u32) {
        let (first, size) = self.address(at, slot);
        self.offer(first, slot, size);
    }

    /// [`send_off`](Network::send_off) of an answer that nothing else follows. Returns the link
    /// that it has [crossed](Network::carry).
    #[inline(never)]
    pub(super) fn send_and_carry(&mut self, at: usize, slot: u32) -> Option<u32> {
        let (first, size) = self.address(at, slot);
        self.carry(first, slot, size, self.bound).then_some(first)
    }

    /// Writes an endpoint's flow and route into the packet in `slot`. Returns the first link and
    /// the packet's size in bytes.
    #[inline(always)]
    fn address(&mut self, at: usize, slot: u32) -> (u32, u16) {
        let endpoint = &self.endpoints[at];
        let (mut route, mut first, heard_rtt) = (endpoint.route, endpoint.first, endpoint.heard_rtt);
        if first >= GATES {
            (route, first) = self.draw_route(at, first - GATES);
        }
        let packet = self.slab.get_mut(slot);
        packet.flow = (at / 2) as u32;
        packet.cursor = route;
        let size = packet.size;
        if let Some((encoding, segment)) = self.slab.encoding((at / 2) as u32) {
            quantise(encoding, segment, self.slab.get_mut(slot), heard_rtt);
        }
        (first, size)
    }

    /// The route of the next packet of an endpoint with several routes, and its first link.
    #[inline(never)]
    fn draw_route(&mut self, at: usize, spread: u32) -> (u32, u32) {
        let Spread { routes, gap } = &self.spreads[spread as usize];
        let mut route = None;
        if let Some(gap) = *gap {
            if self.flowlets.len() <= at {
                self.flowlets.resize(self.endpoints.len(), (Time::ZERO, u32::MAX));
            }
            let (latest, same) = self.flowlets[at];
            // A new flow in a reused place has other routes.
            route = Some(same).filter(|same| self.now <= latest.saturating_add(gap) && routes.contains(same));
        }
        let route = route.unwrap_or_else(|| {
            self.spread_packets += 1;
            routes[(mix(self.seed ^ mix(self.spread_packets)) % routes.len() as u64) as usize]
        });
        if gap.is_some() {
            self.flowlets[at] = (self.now, route);
        }
        (route, self.routes[route as usize])
    }
}

/// Rounds a packet's toll to the precision of its encoding in bytes.
#[cold]
fn quantise(encoding: Encoding, segment: u32, packet: &mut Packet, heard_rtt: f32) {
    let size = u32::from(packet.size);
    if packet.flags.has(Flags::TOLLED) {
        encoding.quantise_sender(&mut packet.toll, size);
    }
    if packet.flags.has(Flags::ECHO) {
        packet.toll.echo = encoding.quantise_echo(packet.toll.echo, heard_rtt, segment);
    }
}
