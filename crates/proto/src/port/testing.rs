//! Packets for the tests of ports.

use tollway_law::Time;
use tollway_law::link::AnyLink;

use super::{Offered, Pool, Port};
use crate::{Flags, Packet};

/// Packets by handle; the flow of each is its class, too.
#[derive(Default)]
pub(super) struct Packets(pub(super) Vec<Packet>);

impl Pool for Packets {
    type Handle = u32;

    fn packet(&mut self, handle: u32) -> &mut Packet {
        &mut self.0[handle as usize]
    }

    fn class(&self, handle: u32) -> u8 {
        self.0[handle as usize].flow as u8
    }

    fn hosts(&self, handle: u32) -> [u32; 2] {
        [self.0[handle as usize].flow / 10, 10]
    }
}

impl Packets {
    /// Adds a packet with data.
    pub(super) fn add(&mut self, flow: u32, size: u16, ecn: Flags) -> u32 {
        self.0.push(Packet { flow, size, flags: Flags::DATA.with(ecn), ..Packet::default() });
        self.0.len() as u32 - 1
    }

    /// Adds `n` packets and puts them into the queue of `port` at 1 ns.
    pub(super) fn fill(&mut self, port: &mut Port<AnyLink, u32>, flow: u32, size: u16, n: u32) {
        for _ in 0..n {
            let handle = self.add(flow, size, Flags::NONE);
            assert_eq!(port.enqueue(Time(1), handle, self, |_, _| {}), Offered::Queued);
        }
    }

    /// The next `n` packets of `port`, or as many as there are, taken out at 2 ns.
    pub(super) fn drain(&mut self, port: &mut Port<AnyLink, u32>, n: usize) -> Vec<Packet> {
        let handles = (0..n).map_while(|_| port.dequeue(Time(2), self, |_, _| {}));
        let handles: Vec<u32> = handles.map(|(handle, _)| handle).collect();
        handles.into_iter().map(|handle| self.0[handle as usize]).collect()
    }

    /// The bytes of the packets queued in `port`, added up.
    pub(super) fn bytes_in(&self, port: &Port<AnyLink, u32>) -> u64 {
        port.queued().map(|handle| u64::from(self.0[handle as usize].size)).sum()
    }
}
