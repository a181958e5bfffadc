//! Counts over a whole network.

use std::time::Duration;

use super::{LOOKS, Load, Network, Place, Punctuality, TRAIN};
use crate::driver::{Counters, Driver};
use crate::error::Error;

impl Network {
    /// What all nodes together did so far.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.drivers.iter().for_each(|driver| sum.add(&driver.counters));
        sum
    }

    /// What each thread did so far.
    pub fn loads(&self) -> Vec<Load> {
        let load = |driver: &Driver| Load {
            nodes: driver.names().map(str::to_owned).collect(),
            cpu: driver.cpu,
            counters: driver.counters,
        };
        self.drivers.iter().map(load).collect()
    }

    /// How late the emulation has been so far.
    pub fn punctuality(&self) -> Punctuality {
        let mut sum = Punctuality::default();
        for driver in &self.drivers {
            sum.departures.merge(&driver.departures);
            sum.timeouts.merge(&driver.timeouts);
            sum.waits.merge(&driver.waits);
            sum.standstills.merge(&driver.standstills);
            sum.longest_pause = sum.longest_pause.max(driver.longest_pause);
        }
        sum
    }

    /// Links from here over which packets went that are longer than the way to the next socket takes, as far as the kernel knows: the
    /// link, bytes of the longest of them, bytes that the way takes.
    pub fn too_narrow(&self) -> Vec<(u32, usize, usize)> {
        // On the way to another process a router may have dropped them, of whom nobody hears as of one's own interface.
        if self.part.is_none() && self.counters().too_long == 0 {
            return Vec::new();
        }
        let exceeds = |(link, place): (u32, &Place)| {
            let (longest, most) = self.drivers[place.driver].exceeds(place.at as usize)?;
            Some((link, longest, most))
        };
        (0..).zip(&self.links).filter_map(exceeds).collect()
    }

    /// Packets dropped on links so far.
    pub fn drops(&self) -> u64 {
        self.drivers.iter().flat_map(|driver| &driver.links).map(|hop| hop.link.drops().total()).sum()
    }

    /// Packets that wires have made, as copies of others.
    pub fn copies(&self) -> u64 {
        self.drivers.iter().flat_map(|driver| &driver.links).map(|hop| hop.link.copies()).sum()
    }

    /// Packets in queues now.
    pub fn queued(&self) -> u64 {
        self.drivers
            .iter()
            .flat_map(|driver| &driver.links)
            .map(|hop| u64::from(hop.link.port.packets()))
            .sum()
    }

    /// Packets in emulated transmitters and on emulated wires now.
    pub fn in_flight(&self) -> u64 {
        self.drivers.iter().flat_map(|driver| &driver.links).map(|hop| hop.link.in_flight() as u64).sum()
    }

    /// Packets whose bytes are held now: the same as queued and in flight together.
    pub fn held(&self) -> u64 {
        self.drivers.iter().map(|driver| driver.buffers.alive()).sum()
    }

    /// Packets that the kernel had no room for, if it tells.
    pub(super) fn kernel_drops(&mut self) -> Result<Option<u64>, Error> {
        #[cfg(target_os = "linux")]
        if self.hosts.is_some() {
            let dropped = self.settle_wires()?;
            return Ok(self.drops_in_namespaces().map(|sockets| sockets + dropped));
        }
        Ok(self.drivers.iter().map(Driver::kernel_drops).sum())
    }

    /// Ends the run: counts what is still in sockets and asks the kernel what it dropped; `None` if it does not tell.
    ///
    /// # Errors
    /// [`Error::Unaccounted`] if the kernel tells and the sum is not what was sent.
    pub fn settle(&mut self) -> Result<Option<u64>, Error> {
        self.on_time = None;
        let mut looks = 0;
        let mut kernel = loop {
            self.drivers.iter_mut().for_each(Driver::drain);
            let dropped = self.kernel_drops()?;
            // What was sent to another process only that one can account for.
            let missing = if self.part.is_some() { 0 } else { self.missing(dropped.unwrap_or(0)) };
            if missing == 0 || looks == LOOKS {
                break dropped.map(|dropped| dropped + self.lost_in_backlog(missing));
            }
            // What the kernel has taken reaches a socket when the kernel gets round to it, on a busy machine after a while.
            looks += 1;
            std::thread::sleep(Duration::from_millis(10));
        };
        if let Some(dropped) = kernel.filter(|_| self.part.is_none())
            && self.missing(dropped) > 0
        {
            let Counters { sent, received, waiting, .. } = self.counters();
            return Err(Error::Unaccounted { sent, received, waiting, dropped });
        }
        #[cfg(target_os = "linux")]
        for driver in &mut self.drivers {
            let dropped = driver.settle_rooms()?;
            kernel = kernel.zip(dropped).map(|(kernel, dropped)| kernel + dropped);
        }
        Ok(kernel)
    }

    /// Datagrams sent that were neither received nor wait nor are among the `dropped`.
    pub(super) fn missing(&self, dropped: u64) -> u64 {
        let Counters { sent, received, waiting, .. } = self.counters();
        sent.saturating_sub(received + waiting + dropped)
    }

    /// How many of the `missing` datagrams the kernel can have dropped before it knew whose they were: on a busy machine the queue of a
    /// processor runs over, whoever filled it. A train of datagrams counts once there.
    pub(super) fn lost_in_backlog(&self, missing: u64) -> u64 {
        let dropped = crate::socket::backlog_drops().zip(self.backlog_drops);
        missing.min(dropped.map_or(0, |(now, then)| now.saturating_sub(then)) * TRAIN)
    }
}
