//! The event loop, with each step of a packet along its route.

use tollway_proto::Stamp;
use tollway_proto::link::Store as _;

use super::*;
use crate::pages::load_early;

impl<M: Machine> Network<M> {
    /// Runs every event before `end`, and sets the present to `end`.
    pub fn run_until(&mut self, end: Time) {
        self.seal();
        let many = self.scheduler.arrange();
        let links = self.links.len() as u32;
        let media = links + self.mediums.len() as u32;
        let sources = media + self.sources.len() as u32;
        let shapers = sources + self.shapers as u32;
        let machines = shapers + self.machines.len() as u32;
        let bound = self.scheduler.bound(end);
        self.bound = if self.watched { TimeBound::default() } else { bound };
        while let Some((at, id)) = self.scheduler.next(many, bound) {
            self.foresee(many);
            self.now = at;
            self.events += 1;
            if id < links {
                self.arrive(id);
            } else if id >= machines {
                self.wake((id - machines) as usize);
            } else if id < media {
                self.take_turn((id - links) as usize);
            } else if id < sources {
                self.emit((id - media) as usize);
            } else if id < shapers {
                self.tick_shaper((id - sources) as usize);
            } else {
                self.tick_machine((id - shapers) as usize);
            }
        }
        self.now = end;
    }

    /// Numbers the entities and sets their first events. The second call has no effect.
    #[inline]
    pub(super) fn seal(&mut self) {
        if !self.sealed {
            self.sealed = true;
            self.number_entities();
        }
    }

    #[cold]
    fn number_entities(&mut self) {
        let fixed = self.endpoint_entity(0) as usize;
        self.scheduler = Scheduler::new(self.links.len(), fixed + self.endpoints.len());
        for (i, source) in self.sources.iter().enumerate() {
            self.scheduler.set((self.links.len() + self.mediums.len() + i) as u32, source.first());
        }
        (0..self.machines.len()).for_each(|at| self.arm_machine(MachineId(at as u32)));
        for at in 0..self.endpoints.len() {
            let deadline = self.endpoints[at].deadline();
            self.arm(at, deadline);
        }
    }

    pub(super) fn endpoint_entity(&self, at: usize) -> u32 {
        self.machine_entity(self.machines.len() + at)
    }

    /// Sets an endpoint's pending event.
    pub(super) fn arm(&mut self, at: usize, deadline: Time) {
        self.endpoints[at].armed = deadline;
        let entity = self.endpoint_entity(at);
        self.scheduler.set_timer(entity, deadline);
    }

    /// Handles the arrival of a packet at the far end of link `id`.
    #[inline]
    fn arrive(&mut self, id: u32) {
        let now = self.now;
        let link = &mut self.links[id as usize];
        let Some(slot) = link.arrive(now, &mut self.slab) else {
            let due = link.next_arrival();
            self.scheduler.set(id, due);
            return;
        };
        self.scheduler.advance_busy(id, link.next_arrival());
        self.hops += 1;
        if (self.watched || !link.is_simple() && link.is_faulty()) && self.ends_here(id, slot) {
            return self.lose(slot);
        }
        let onward = self.onward[id as usize];
        self.foresee_next();
        let (next, size) = self.step(onward, slot);
        if onward == VARIES {
            self.foresee_wire(id);
        }
        if let Some(crossed) = self.hand(next, slot, size) {
            self.go_on(crossed, slot);
        }
    }

    /// Handles the arrival of a packet that has [crossed](Network::carry) link `id`.
    #[inline(never)]
    fn go_on(&mut self, id: u32, slot: u32) {
        let mut crossed = Some(id);
        while let Some(id) = crossed {
            self.hops += 1;
            let (next, size) = self.step(self.onward[id as usize], slot);
            crossed = self.hand(next, slot, size);
        }
    }

    /// Moves a packet one step along its route, after a link that `onward` follows. Returns the
    /// next entry and the packet's size in bytes.
    #[inline(always)]
    pub(super) fn step(&mut self, onward: u32, slot: u32) -> (u32, u16) {
        let packet = self.slab.get_mut(slot);
        packet.cursor += 1;
        let next = if onward == VARIES { self.routes[packet.cursor as usize] } else { onward };
        (next, packet.size)
    }

    /// Hands a packet of `size` bytes to entry `next` of its route. Returns a link if the packet,
    /// or the answer in its slot, has meanwhile [crossed](Network::carry) that.
    #[inline(always)]
    pub(super) fn hand(&mut self, next: u32, slot: u32, size: u16) -> Option<u32> {
        if next < GATES {
            self.carry(next, slot, size, self.bound).then_some(next)
        } else {
            self.deliver(next, slot)
        }
    }

    /// Records a packet that crosses link `id`. Returns true if the packet ends on the wire.
    #[inline(never)]
    fn ends_here(&mut self, id: u32, slot: u32) -> bool {
        if self.watched {
            self.witness(id, slot);
        }
        let ends = self.links[id as usize].is_faulty() && self.ends_on_wire(id, slot);
        if ends
            && let Some(seen) = self.tap.as_mut().and_then(|tap| tap.seen.last_mut())
            && seen.link.0 == id
            && seen.at == self.now
        {
            seen.fate = Fate::Lost;
        }
        ends
    }

    /// Offers a packet of `size` bytes to link `id`.
    #[inline(always)]
    pub(super) fn offer(&mut self, id: u32, slot: u32, size: u16) {
        self.carry(id, slot, size, TimeBound::default());
    }

    /// [`offer`](Network::offer), but if the packet's arrival at the far end is the next event of
    /// all, within `bound`, it becomes the present at once, and the result is true.
    #[inline(always)]
    pub(super) fn carry(&mut self, id: u32, slot: u32, size: u16, bound: TimeBound) -> bool {
        let link = &mut self.links[id as usize];
        if !link.is_free(self.now) {
            if link.is_gentle() {
                self.offer_gently(id, slot, size);
            } else {
                self.offer_busy(id, slot, size);
            }
            return false;
        }
        let was_idle = link.is_idle();
        let at = link.serialise(self.now, slot, size, &mut self.slab);
        if was_idle && self.scheduler.begin_unless_next(id, at, bound) {
            self.now = at;
            self.events += 1;
            return true;
        }
        link.launch(at, slot);
        false
    }

    /// [`offer`](Network::offer) for a link where packets may wait.
    #[inline(never)]
    fn offer_busy(&mut self, id: u32, slot: u32, size: u16) {
        let link = &self.links[id as usize];
        if link.is_plain() {
            self.offer_simply::<false>(id, slot, size);
        } else {
            self.offer_lawful(id, slot);
        }
    }

    /// [`offer`](Network::offer) for a link whose law only writes tolls.
    #[inline(never)]
    fn offer_gently(&mut self, id: u32, slot: u32, size: u16) {
        self.offer_simply::<true>(id, slot, size);
    }

    /// [`offer`](Network::offer) for a link with a queue and, with `LAW`, a law that writes tolls.
    #[inline(always)]
    fn offer_simply<const LAW: bool>(&mut self, id: u32, slot: u32, size: u16) {
        let link = &mut self.links[id as usize];
        let was_idle = link.is_idle();
        if !link.offer_simply::<LAW>(self.now, slot, size, &mut self.slab) {
            if self.watched {
                self.sight(id, slot, Fate::Dropped);
            }
            self.lose(slot);
        } else if was_idle {
            self.scheduler.begin_busy(id, link.next_arrival());
        }
    }

    /// [`offer`](Network::offer) for a link with a full law, faults or a medium.
    #[inline(never)]
    fn offer_lawful(&mut self, id: u32, slot: u32) {
        let medium = self.links[id as usize].medium();
        if medium != NO_MEDIUM && self.mediums[medium as usize].free_at() <= self.now {
            // Departures precede arrivals, whatever the ids.
            self.take_turn(medium as usize);
        }
        let link = &mut self.links[id as usize];
        let was_idle = link.is_idle();
        if link.offer(self.now, slot, &mut self.slab) == PacketFate::Lost {
            self.sight(id, slot, Fate::Dropped);
            return self.lose(slot);
        }
        if medium != NO_MEDIUM {
            if self.mediums[medium as usize].free_at() <= self.now {
                self.take_turn(medium as usize);
            }
            self.links[id as usize].note_waiting();
        } else {
            let (at, shaken) = (link.next_arrival(), link.is_shaken());
            if shaken {
                self.scheduler.set(id, at);
            } else if was_idle {
                self.scheduler.begin_busy(id, at);
            }
        }
    }

    /// Ends a dropped packet.
    #[inline(always)]
    pub(super) fn lose(&mut self, slot: u32) {
        let packet = self.slab.get(slot);
        if packet.flags.has(PLAIN) {
            return self.slab.lose(slot);
        }
        self.endpoints[packet.flow as usize * 2].balance -= 1;
        self.slab.free(slot);
    }

    /// Handles a packet at the end of its route. Returns the link that its answer has
    /// [crossed](Network::carry).
    #[inline(never)]
    pub(super) fn deliver(&mut self, end: u32, slot: u32) -> Option<u32> {
        if end < END {
            self.cross(end, slot);
            return None;
        }
        let flow = self.slab.get(slot).flow as usize;
        if end == END_SINK {
            let packet = self.slab.get(slot);
            let Source { stats, one_way, .. } = &mut self.sources[flow];
            one_way.arrive(self.now, packet.sent, packet.seq);
            stats.arrived_packets += 1;
            stats.arrived_bytes += u64::from(packet.size);
            stats.in_profile_bytes += u64::from(packet.in_profile()) * u64::from(packet.size);
            self.delivered += 1;
            self.slab.free(slot);
            return None;
        }
        let at = flow * 2 + usize::from(end == END_SERVER);
        let endpoint = &mut self.endpoints[at];
        if !endpoint.live {
            endpoint.balance -= 1;
            self.absorbed += 1;
            self.slab.free(slot);
            return None;
        }
        self.delivered += 1;
        // The link of its answer.
        load_early(self.links.as_ptr().wrapping_add(endpoint.first as usize));
        let packet = self.slab.get_mut(slot);
        if packet.flags.has(Flags::TOLLED) {
            endpoint.heard_rtt = packet.toll.rtt;
        }
        let answer = if endpoint.shaped == UNSHAPED {
            endpoint.machine.answer(self.now, packet)
        } else {
            Answer::Unanswered
        };
        match answer {
            Answer::Only => {
                self.slab.renew();
                return self.send_and_carry(at, slot);
            }
            Answer::Packet => {
                self.slab.renew();
                self.note_timer(at);
                return self.send_and_carry(at, slot);
            }
            Answer::More => {
                self.slab.renew();
                self.send_off(at, slot);
            }
            Answer::Unanswered => return self.deliver_unexpected(at, slot),
            Answer::Taken | Answer::Nothing | Answer::Still => {
                endpoint.balance -= 1;
                self.slab.free(slot);
                if answer == Answer::Nothing {
                    self.renew_timer(at);
                }
                if answer != Answer::Taken {
                    return None;
                }
            }
        }
        self.pump(at);
        None
    }

    /// [`deliver`](Network::deliver) of a packet off a machine's fast path.
    #[inline(always)]
    fn deliver_unexpected(&mut self, at: usize, slot: u32) -> Option<u32> {
        let endpoint = &mut self.endpoints[at];
        let (packet, sack) = self.slab.with_sack(slot);
        let answer = if endpoint.shaped == UNSHAPED {
            let came = packet.flags.has(Flags::SACK).then_some(packet.sack);
            let answer = endpoint.machine.respond(self.now, packet, sack, &mut self.sack_scratch);
            if matches!(answer, Answer::Packet | Answer::More | Answer::Only) {
                self.slab.renew_with(slot, came, &mut self.sack_scratch);
            }
            answer
        } else {
            endpoint.machine.handle_packet(self.now, packet, sack);
            Answer::Taken
        };
        match answer {
            Answer::Packet | Answer::Only => {
                if answer == Answer::Packet {
                    self.note_timer(at);
                }
                return self.send_and_carry(at, slot);
            }
            Answer::More => self.send_off(at, slot),
            _ => {
                self.endpoints[at].balance -= 1;
                self.slab.free(slot);
            }
        }
        match answer {
            Answer::Still => {}
            Answer::Nothing => self.note_timer(at),
            _ => self.pump(at),
        }
        None
    }

    /// Sends a machine's pending packets, and sets its timer if it is earlier than before.
    #[inline]
    pub(super) fn pump(&mut self, at: usize) {
        self.send_all(at);
        self.settle(at);
    }

    /// Records that a machine is done, and sets its timer, after it has sent its pending packets.
    #[inline]
    pub(super) fn settle(&mut self, at: usize) {
        let endpoint = &mut self.endpoints[at];
        if !endpoint.done && endpoint.machine.is_done() {
            self.note_done(at);
        }
        self.note_timer(at);
    }

    /// Sets a machine's timer if it is earlier than before.
    #[inline(always)]
    pub(super) fn note_timer(&mut self, at: usize) {
        let endpoint = &self.endpoints[at];
        let deadline = endpoint.deadline();
        if deadline < endpoint.armed {
            self.arm(at, deadline);
        }
    }

    /// Sets a machine's timer, even to a later instant. A timer that moves with each packet would
    /// otherwise fire too early.
    #[inline]
    fn renew_timer(&mut self, at: usize) {
        let endpoint = &self.endpoints[at];
        let deadline = endpoint.deadline();
        if deadline != endpoint.armed {
            self.arm(at, deadline);
        }
    }

    /// Records that a machine has done all its work.
    #[cold]
    fn note_done(&mut self, at: usize) {
        let flow = FlowId((at / 2) as u32);
        let end = if at.is_multiple_of(2) { End::Client } else { End::Server };
        self.done.push((flow, end, self.now));
        let endpoint = &mut self.endpoints[at];
        endpoint.done = true;
        if endpoint.shaped != UNSHAPED {
            self.dismiss(at);
        }
        let endpoint = &mut self.endpoints[at];
        if std::mem::take(&mut endpoint.awaited) && !self.endpoints[at ^ 1].awaited {
            self.retire_flow(flow);
        }
        if !self.followers.is_empty() {
            for follower in self.followers.remove(&(at as u32)).into_iter().flatten() {
                self.note_other_done(follower);
            }
        }
    }

    /// Counts one more end done for a waiting flow.
    fn note_other_done(&mut self, flow: FlowId) {
        let Some((left, delay)) = self.waiting.get_mut(&flow.0) else { return };
        *left -= 1;
        let begins = self.now.saturating_add(*delay);
        let at = flow.0 as usize * 2;
        let endpoint = &mut self.endpoints[at];
        if *left > 0 || begins >= endpoint.stop_at {
            return;
        }
        endpoint.open_at = begins;
        let deadline = endpoint.deadline();
        self.arm(at, deadline);
        self.begun.push((flow, begins));
    }

    /// Handles a machine's timer.
    fn wake(&mut self, at: usize) {
        let now = self.now;
        let endpoint = &mut self.endpoints[at];
        if endpoint.live && endpoint.shaped == UNSHAPED && now < endpoint.open_at.min(endpoint.stop_at) {
            let answer = endpoint.machine.take_turn(now, self.slab.draft());
            if answer != Answer::Unanswered {
                self.launch_bare(at);
                if answer == Answer::More {
                    self.send_all(at);
                }
                let deadline = self.endpoints[at].deadline();
                return self.arm(at, deadline);
            }
        }
        let mut opens = false;
        let endpoint = &mut self.endpoints[at];
        if endpoint.live && endpoint.deadline() <= now {
            if endpoint.open_at <= now {
                endpoint.open_at = Time::NEVER;
                endpoint.machine.open(now);
                opens = endpoint.shaped != UNSHAPED && !machines::is_hosted(endpoint.shaped);
            }
            if endpoint.stop_at <= now {
                endpoint.stop_at = Time::NEVER;
                endpoint.machine.stop(now);
            }
            if endpoint.machine.poll_timeout() <= now {
                endpoint.machine.handle_timeout(now);
            }
            if opens {
                self.admit(at);
            }
            self.send_all(at);
        }
        let deadline = self.endpoints[at].deadline();
        self.arm(at, deadline);
    }

    /// Sends the next packet of a source of cross-traffic.
    fn emit(&mut self, at: usize) {
        let source = &mut self.sources[at];
        let shaped = source.shaped;
        let next = source.next();
        let id = (self.links.len() + self.mediums.len() + at) as u32;
        self.scheduler.set(id, next);
        if shaped != UNSHAPED {
            return self.emit_shaped(at);
        }
        self.launch_plain(at, false);
    }

    /// Puts a packet of a source on its route.
    pub(super) fn launch_plain(&mut self, at: usize, in_profile: bool) {
        let source = &mut self.sources[at];
        let (seq, sent) = (source.launched as u32, Stamp::at(self.now));
        source.launched += 1;
        let SourceSpec { route, size, .. } = source.spec;
        let packet = self.slab.draft();
        *packet =
            Packet { size, flags: PLAIN, flow: at as u32, cursor: route.0, seq, sent, ..Packet::default() };
        if in_profile {
            packet.mark_in_profile();
        }
        let slot = self.slab.launch();
        self.offer(self.routes[route.0 as usize], slot, size);
    }

    /// Ends a transmission on a shared medium: the next station with a packet sends it.
    fn take_turn(&mut self, medium: usize) {
        let event = (self.links.len() + medium) as u32;
        let (now, links, slab) = (self.now, &mut self.links, &mut self.slab);
        let sends = self.mediums[medium].take_turn(|id| {
            let link = &mut links[id as usize];
            link.transmit(now, slab).then_some(link.free_at())
        });
        let Some(id) = sends else {
            self.scheduler.set(event, Time::NEVER);
            return;
        };
        let arrival = self.links[id as usize].next_arrival();
        self.scheduler.set(id, arrival);
        self.scheduler.set(event, self.mediums[medium].free_at());
    }
}
