//! Gated connections, which send only what their host's [shaper](tollway_proto::shaper) releases.

use tollway_proto::shaper::{ClassId, Gates, Senders, Shaper};

use super::*;

impl<M: Machine> Network<M> {
    /// Adds a host's shaper. Shapers must be added before the first
    /// [`run_until`](Network::run_until).
    pub fn add_shaper(&mut self, shaper: Shaper) -> MachineId {
        assert!(!self.sealed, "shapers are added before the first run");
        self.shapers += 1;
        MachineId(SHAPERS | self.gates.add_shaper(shaper))
    }

    /// Makes `shaper` release the data of a flow's client, which must not have opened yet.
    pub fn gate_flow(&mut self, flow: FlowId, shaper: MachineId, class: ClassId) {
        self.endpoints[flow.0 as usize * 2].gate = self.gates.add_gate(shaper.0 - SHAPERS, class, 0);
    }

    /// Makes `shaper` release the packets of a source of cross-traffic. At most `room` packets
    /// wait.
    pub fn gate_source(&mut self, source: SourceId, shaper: MachineId, class: ClassId, room: u32) {
        self.sources[source.0 as usize].gate = self.gates.add_gate(shaper.0 - SHAPERS, class, room);
    }

    pub(super) fn shaper_entity(&self, at: usize) -> u32 {
        (self.links.len() + self.mediums.len() + self.sources.len() + at) as u32
    }

    /// Puts a gated endpoint that opens under its policy.
    #[cold]
    pub(super) fn admit(&mut self, at: usize) {
        self.gates.admit(self.now, self.endpoints[at].gate, at as u32);
    }

    /// Removes a gated endpoint that is done or gone.
    #[cold]
    pub(super) fn dismiss(&mut self, at: usize) {
        if self.is_hosted(at) {
            return;
        }
        let gate = std::mem::replace(&mut self.endpoints[at].gate, OPEN);
        self.at_gates(|gates, now, mut network| gates.dismiss(now, gate, &mut network));
    }

    /// Sends the packets that a gated endpoint may send.
    #[cold]
    pub(super) fn send_gated(&mut self, at: usize) {
        let gate = self.endpoints[at].gate;
        self.at_gates(|gates, now, mut network| gates.send(now, gate, at as u32, &mut network));
    }

    /// Hands the next packet of a gated source to its gate.
    #[cold]
    pub(super) fn emit_gated(&mut self, source: usize) {
        let gate = self.sources[source].gate;
        self.at_gates(|gates, now, mut network| gates.emit(now, gate, source as u32, &mut network));
    }

    /// Handles a shaper's timer.
    pub(super) fn tick_shaper(&mut self, shaper: usize) {
        self.at_gates(|gates, now, mut network| gates.handle_timeout(now, shaper as u32, &mut network));
    }

    pub(super) fn at_gates<R>(&mut self, work: impl FnOnce(&mut Gates, Time, Behind<'_, M>) -> R) -> R {
        let mut gates = std::mem::take(&mut self.gates);
        let answer = work(&mut gates, self.now, Behind(self));
        self.gates = gates;
        answer
    }
}

/// The network behind the gates, while they are taken out of it.
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
