//! Shaped connections, which send only what their host's [shaper](tollway_proto::shaper) releases.

use tollway_proto::shaper::{ClassId, Senders, ShapedSenders, Shaper};

use super::*;

impl<M: Machine> Network<M> {
    /// Adds a host's shaper. Shapers must be added before the first
    /// [`run_until`](Network::run_until).
    pub fn add_shaper(&mut self, shaper: Shaper) -> MachineId {
        assert!(!self.sealed, "shapers are added before the first run");
        self.shapers += 1;
        MachineId(SHAPERS | self.shaped.add_shaper(shaper))
    }

    /// Makes `shaper` release the data of a flow's client, which must not have opened yet.
    pub fn shape_flow(&mut self, flow: FlowId, shaper: MachineId, class: ClassId) {
        self.endpoints[flow.0 as usize * 2].shaped = self.shaped.add_sender(shaper.0 - SHAPERS, class, 0);
    }

    /// Makes `shaper` release the packets of a source of cross-traffic. At most `room` packets
    /// wait.
    pub fn shape_source(&mut self, source: SourceId, shaper: MachineId, class: ClassId, room: u32) {
        self.sources[source.0 as usize].shaped = self.shaped.add_sender(shaper.0 - SHAPERS, class, room);
    }

    pub(super) fn shaper_entity(&self, at: usize) -> u32 {
        (self.links.len() + self.mediums.len() + self.sources.len() + at) as u32
    }

    /// Puts a shaped endpoint that opens under its policy.
    #[cold]
    pub(super) fn admit(&mut self, at: usize) {
        self.shaped.admit(self.now, self.endpoints[at].shaped, at as u32);
    }

    /// Removes a shaped endpoint that is done or gone.
    #[cold]
    pub(super) fn dismiss(&mut self, at: usize) {
        if self.is_hosted(at) {
            return;
        }
        let sender = std::mem::replace(&mut self.endpoints[at].shaped, UNSHAPED);
        self.with_shaped(|shaped, now, mut network| shaped.dismiss(now, sender, &mut network));
    }

    /// Sends the packets that a shaped endpoint may send.
    #[cold]
    pub(super) fn send_shaped(&mut self, at: usize) {
        let sender = self.endpoints[at].shaped;
        self.with_shaped(|shaped, now, mut network| shaped.send(now, sender, at as u32, &mut network));
    }

    /// Hands the next packet of a shaped source to its shaper.
    #[cold]
    pub(super) fn emit_shaped(&mut self, source: usize) {
        let sender = self.sources[source].shaped;
        self.with_shaped(|shaped, now, mut network| shaped.emit(now, sender, source as u32, &mut network));
    }

    /// Handles a shaper's timer.
    pub(super) fn tick_shaper(&mut self, shaper: usize) {
        self.with_shaped(|shaped, now, mut network| shaped.handle_timeout(now, shaper as u32, &mut network));
    }

    pub(super) fn with_shaped<R>(
        &mut self,
        work: impl FnOnce(&mut ShapedSenders, Time, Behind<'_, M>) -> R,
    ) -> R {
        let mut shaped = std::mem::take(&mut self.shaped);
        let answer = work(&mut shaped, self.now, Behind(self));
        self.shaped = shaped;
        answer
    }
}

/// The network behind the shaped senders, while they are taken out of it.
pub(super) struct Behind<'a, M>(&'a mut Network<M>);

impl<M: Machine> Senders for Behind<'_, M> {
    type Machine = M;

    fn machine(&mut self, endpoint: u32) -> &mut M {
        &mut self.0.endpoints[endpoint as usize].machine
    }

    fn send(&mut self, endpoint: u32, control: bool, leaves: impl FnOnce(&mut Packet) -> bool) -> bool {
        let (now, at) = (self.0.now, endpoint as usize);
        let machine = &mut self.0.endpoints[at].machine;
        let packet = self.0.slab.draft();
        let sent = match control {
            true => machine.poll_control(now, packet, &mut self.0.sack_scratch),
            false => machine.poll_transmit(now, packet, &mut self.0.sack_scratch),
        };
        if sent {
            match leaves(packet) {
                true => self.0.launch(at),
                false => self.0.sack_scratch.clear(),
            }
        }
        sent
    }

    fn rearm(&mut self, endpoint: u32) {
        let endpoint = endpoint as usize;
        let deadline = self.0.endpoints[endpoint].deadline();
        if deadline < self.0.endpoints[endpoint].armed {
            self.0.arm(endpoint, deadline);
        }
    }

    fn size(&self, source: u32) -> u16 {
        self.0.sources[source as usize].spec.size
    }

    fn send_plain(&mut self, source: u32, in_profile: bool) {
        self.0.launch_plain(source as usize, in_profile);
    }

    fn set_timer(&mut self, shaper: u32, at: Time) {
        let entity = self.0.shaper_entity(shaper as usize);
        self.0.scheduler.set(entity, at);
    }
}

/// Identifiers of shapers begin here.
pub(super) const SHAPERS: u32 = 1 << 31;
