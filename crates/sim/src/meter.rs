//! Meters at the ends of links where flows enter the network.

use tollway_law::Time;
use tollway_law::meter::{Ack, Data, FlowMeter, MeterConfig, Passage};
use tollway_proto::{Flags, Packet};

use crate::link::Link;
use crate::network::PLAIN;

/// What a meter does at the far end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It sees data enter, at this post.
    Entry(u32),
    /// It sees acknowledgements go back from this post.
    Exit(u32),
}

/// All meters of a network, and what they know of each flow.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    posts: Vec<Post>,
    /// By flow: a flow is watched at one post, the first that its data pass.
    flows: Vec<Option<Box<Watched>>>,
    /// By flow, a full packet in bytes, as connections announce it when they open; empty while there is no post.
    segments: Vec<u32>,
    seen: u64,
    accused: u64,
}

/// Where a meter stands.
#[derive(Debug)]
struct Post {
    config: MeterConfig,
    /// When the last packet came off the wire.
    last: Time,
    /// Since when the wire has been busy without a break: no packet has queued before it for longer.
    busy_since: Time,
}

#[derive(Debug)]
struct Watched {
    post: u32,
    /// It has sent packets with tolls.
    tolled: bool,
    meter: FlowMeter,
}

impl Meters {
    pub(crate) fn add_post(&mut self, config: MeterConfig) -> u32 {
        self.posts.push(Post { config, last: Time::ZERO, busy_since: Time::ZERO });
        self.posts.len() as u32 - 1
    }

    pub(crate) fn of(&self, flow: u32) -> Option<&FlowMeter> {
        self.flows.get(flow as usize)?.as_ref().map(|watched| &watched.meter)
    }

    /// Flows seen and flows accused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.seen, self.accused)
    }

    /// A flow, perhaps another one than before, has the number `flow` now.
    pub(crate) fn announce(&mut self, flow: u32, segment: u32) {
        if self.posts.is_empty() {
            return;
        }
        let flow = flow as usize;
        if self.segments.len() <= flow {
            self.segments.resize(flow + 1, 0);
        }
        self.segments[flow] = segment;
        if let Some(watched) = self.flows.get_mut(flow) {
            *watched = None;
        }
    }

    /// A packet's last bit comes off the wire at a post, `on_wire` after its first; it may be damaged and no packet any more.
    pub(crate) fn on_wire(&mut self, now: Time, post: u32, on_wire: Time) {
        let Post { last, busy_since, .. } = &mut self.posts[post as usize];
        let began = now.saturating_sub(on_wire);
        // A carry of less than a nanosecond a packet is no break.
        if began > *last + Time(1) {
            *busy_since = began;
        }
        *last = now;
    }

    /// A packet has come over `link` to a post.
    pub(crate) fn on_entry(&mut self, now: Time, post: u32, link: &Link, packet: &mut Packet) -> Passage {
        let Post { config, busy_since, .. } = &self.posts[post as usize];
        let began = now.saturating_sub(link.wire_time(packet.size));
        let (data, opens) = (packet.flags.has(Flags::DATA), packet.flags.has(Flags::SYN));
        if packet.flags.has(PLAIN) || !(data || opens) {
            return Passage::Untouched;
        }
        let flow = packet.flow as usize;
        if self.flows.len() <= flow {
            self.flows.resize_with(flow + 1, || None);
        }
        let tolled = packet.flags.has(Flags::TOLLED);
        let watched = match &mut self.flows[flow] {
            Some(watched) => watched,
            // Who heeds no toll can't cheat by it.
            None if !tolled && !opens => return Passage::Untouched,
            vacant => vacant.insert(Box::new(Watched {
                post,
                tolled: false,
                meter: FlowMeter::new(*config, self.segments[flow]),
            })),
        };
        if watched.post != post {
            return Passage::Untouched;
        }
        if tolled && !watched.tolled {
            watched.tolled = true;
            self.seen += 1;
        }
        let data = Data {
            size: u32::from(packet.size),
            seq: packet.seq,
            stamp: packet.sent.0,
            sent: began.saturating_sub(link.delay()),
            waited: began.saturating_sub(*busy_since),
        };
        if !watched.tolled {
            watched.meter.on_opening(&data);
            return Passage::Untouched;
        }
        let before = watched.meter.accusation().is_some();
        let passage = watched.meter.on_data(now, &data, tolled.then_some(&mut packet.toll));
        self.accused += u64::from(!before && watched.meter.accusation().is_some());
        passage
    }

    /// A packet goes back to a host.
    pub(crate) fn on_exit(&mut self, now: Time, post: u32, packet: &Packet) {
        if packet.flags.has(PLAIN) || !packet.flags.has(Flags::ACK) {
            return;
        }
        if let Some(Some(watched)) = self.flows.get_mut(packet.flow as usize)
            && watched.post == post
        {
            watched.meter.on_ack(
                now,
                &Ack {
                    stamp: packet.flags.has(Flags::STAMP_ECHO).then_some(packet.sent_echo.0),
                    echo: packet.flags.has(Flags::ECHO).then_some(packet.toll.echo),
                },
            );
        }
    }
}
