//! IP packets between the interfaces of nodes' kernels and the links.

use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::Flags;

use super::Driver;
use crate::error::Error;
use crate::kernel_tcp::Room;
use crate::label::CARRIED;
use crate::socket::BATCH;
use crate::sys::tun::{self, Tun};

/// Counters of a kernel flow at one of its ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    /// Index of the node's kernel among those of this thread.
    pub(crate) room: u32,
    /// Bytes of packets with data that this kernel sent.
    pub(crate) sent: u64,
    /// Bytes of packets handed to this kernel.
    pub(crate) received: u64,
}

impl Driver {
    /// Gives nodes their own kernels, the `rooms`.
    pub(crate) fn set_rooms(&mut self, rooms: Vec<(Room, Tun)>) {
        let (rooms, tuns): (Vec<Room>, Vec<Tun>) = rooms.into_iter().unzip();
        (self.rooms, self.tuns) = (rooms, tuns.into());
    }

    /// Reads packets that a kernel sent. Returns true if there may be more.
    pub(super) fn read_room(&mut self, room: usize, end: Time) -> Result<bool, Error> {
        let tuns = Arc::clone(&self.tuns);
        let now = self.tell_time(end);
        let mut frame = std::mem::take(&mut self.train);
        frame.resize(tun::VNET_LEN + (1 << 16), 0);
        let mut read = Ok(None);
        for _ in 0..BATCH {
            let strangers = &mut self.counters.strangers;
            read = self.rooms[room].read(&tuns[room], &mut frame, &mut self.buffers, strangers);
            let Ok(Some((handle, at))) = read else { break };
            let end = &mut self.ends[at as usize];
            let packet = self.buffers.get(handle);
            if let Some(carried) = end.carried.as_mut().filter(|_| packet.flags.has(Flags::DATA)) {
                carried.sent += u64::from(packet.size);
            }
            let first = end.first;
            self.counters.created += 1;
            self.offer(first, now, handle);
        }
        self.train = frame;
        let read = read.map_err(|source| Error::Namespace { action: "read packets", source })?;
        Ok(read.is_some())
    }

    /// Hands a datagram's IP packet to the kernel at the end of its path.
    pub(super) fn hand_over(&mut self, at: usize, datagram: &[u8]) {
        self.train.clear();
        self.train.extend_from_slice(datagram);
        let Some(carried) = &mut self.ends[at].carried else { return };
        let room = carried.room as usize;
        match self.rooms[room].write(&self.tuns[room], &mut self.train) {
            Some(len) => {
                self.counters.delivered += 1;
                carried.received += u64::from(len);
            }
            None => self.counters.unsent += 1,
        }
    }

    /// Empties the interfaces after the run, and compares the packets that passed with the kernels'
    /// counters.
    ///
    /// Returns the number of packets for which a kernel had no room; `None` if a kernel does not
    /// count them.
    pub(crate) fn settle_rooms(&mut self) -> Result<Option<u64>, Error> {
        let mut frame = vec![0; tun::VNET_LEN + (1 << 16)];
        let mut drops = Some(0);
        for (room, tun) in self.rooms.iter_mut().zip(self.tuns.iter()) {
            while let Ok(Some(_)) = tun.read(&mut frame) {
                room.read += 1;
            }
            let Some((sent, received, dropped)) = room.counted() else {
                drops = None;
                continue;
            };
            if (sent, received) != (room.read, room.written) {
                let node = self.nodes[room.node as usize].name.clone();
                return Err(Error::Miscounted {
                    node,
                    sent,
                    received,
                    read: room.read,
                    written: room.written,
                });
            }
            drops = drops.map(|drops| drops + dropped);
        }
        Ok(drops)
    }

    /// Assigns packets of the kernel's flow `number` in `room` to the end `at` of a flow here.
    pub(crate) fn carry(&mut self, room: u32, number: usize, at: u32) {
        let end = &mut self.ends[at as usize];
        end.carried = Some(Carried { room, ..Carried::default() });
        self.rooms[room as usize].assign(number, end.label | CARRIED, at);
    }
}
