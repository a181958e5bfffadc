//! The record of packets: digest, tap and one-way delays.

use tollway_proto::OneWay;

use super::*;

impl<M: Machine> Network<M> {
    /// Delays and losses of a source of cross-traffic, measured at its sink.
    pub fn one_way(&mut self, source: SourceId) -> &mut OneWay {
        &mut self.sources[source.0 as usize].one_way
    }

    /// Records a packet that has crossed link `id`.
    #[cold]
    pub(super) fn witness(&mut self, id: u32, slot: u32) {
        if let Some(digest) = &mut self.trace {
            *digest = fold(*digest, self.now, id, self.slab.get(slot));
        }
        self.sight(id, slot, Fate::Crossed);
    }

    /// Records a packet on a tapped link, which must be its position on the route.
    #[cold]
    pub(super) fn sight(&mut self, id: u32, slot: u32, fate: Fate) {
        let Some(tap) = &mut self.tap else { return };
        if !tap.watched[id as usize] {
            return;
        }
        let packet = *self.slab.get(slot);
        let flow = packet.flow;
        let (origin, first) = if packet.flags.has(PLAIN) {
            (Origin::Source(SourceId(flow)), self.sources[flow as usize].spec.route.0)
        } else {
            let [client, server] = [0, 1].map(|end| &self.endpoints[flow as usize * 2 + end]);
            // Its route is the one of the two that begins closest before its position.
            let begins = |end: &Endpoint<M>| (end.route <= packet.cursor).then_some(end.route);
            let (end, sender) =
                if begins(client) > begins(server) { (End::Client, client) } else { (End::Server, server) };
            let (encoding, segment) = self.slab.encoding(flow).unwrap_or_default();
            let heard_rtt = sender.heard_rtt;
            let route = match sender.first.checked_sub(GATES) {
                None => sender.route,
                Some(spread) => {
                    let routes = &self.spreads[spread as usize].routes;
                    routes[routes.partition_point(|&route| route <= packet.cursor).saturating_sub(1)]
                }
            };
            (Origin::Machine { flow: FlowId(flow), end, encoding, segment, heard_rtt }, route)
        };
        let goes_on = |entry: u32| entry < END && !self.openings[(entry - GATES) as usize].ends;
        let rest = self.routes[packet.cursor as usize..].iter().copied();
        let rest = rest.take_while(|&entry| entry < GATES || goes_on(entry)).filter(|&entry| entry < GATES);
        let last = rest.last().unwrap_or(id);
        tap.seen.push(Sighting {
            at: self.now,
            link: LinkId(id),
            fate,
            packet,
            sack: *self.slab.sack(&packet),
            origin,
            ends: (LinkId(self.routes[first as usize]), LinkId(last)),
        });
    }
}

/// One step of the trace digest: FNV-1a over words, mixed so that their order matters.
fn fold(digest: u64, now: Time, link: u32, packet: &Packet) -> u64 {
    let words = [
        now.0,
        u64::from(link) << 32 | u64::from(packet.flow),
        u64::from(packet.seq) << 32 | u64::from(packet.ack),
        packet.toll.due.to_bits(),
        u64::from(packet.flags.0) << 32 | u64::from(packet.size),
    ];
    words.iter().fold(digest, |d, &w| (d ^ w).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
}
