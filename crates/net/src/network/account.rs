//! Counters over a whole network.

use std::time::Duration;

use super::{LOOKS, Load, Network, Place, Punctuality, TRAIN};
use crate::driver::{Counters, Driver};
use crate::error::Error;

impl Network {
    /// Counters of all nodes together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.drivers.iter().for_each(|driver| sum.add(&driver.counters));
        sum
    }

    /// Counters and processor time of each thread.
    pub fn loads(&self) -> Vec<Load> {
        let load = |driver: &Driver| Load {
            nodes: driver.names().map(str::to_owned).collect(),
            cpu: driver.cpu,
            counters: driver.counters,
        };
        self.drivers.iter().map(load).collect()
    }

    /// Lateness of the emulation so far.
    pub fn punctuality(&self) -> Punctuality {
        let mut sum = Punctuality::default();
        for driver in &self.drivers {
            sum.departures.merge(&driver.departures);
            sum.timeouts.merge(&driver.timeouts);
            sum.waits.merge(&driver.waits);
            sum.standstills.merge(&driver.standstills);
            sum.longest_pause = sum.longest_pause.max(driver.longest_pause);
        }
        #[cfg(target_os = "linux")]
        {
            sum.programs = self.programs.iter().map(|(_, programs)| programs.waited()).sum();
        }
        sum
    }

    /// Links from here that sent packets longer than the path to the next socket allows.
    ///
    /// Each entry has the link, the size of its longest packet, and the path's limit as the kernel
    /// knows it, in bytes.
    pub fn too_narrow(&self) -> Vec<(u32, usize, usize)> {
        // A router on the path to another process may have dropped them. The local interface does
        // not count such drops.
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

    /// Packets that wires created as copies of others.
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

    /// Packets whose bytes are held now: those queued and those in flight.
    pub fn held(&self) -> u64 {
        self.drivers.iter().map(|driver| driver.buffers.alive()).sum()
    }

    /// Datagrams that the kernel dropped for lack of room; `None` if it does not count them.
    pub(super) fn kernel_drops(&mut self) -> Result<Option<u64>, Error> {
        #[cfg(target_os = "linux")]
        if self.hosts.is_some() {
            let dropped = self.settle_wires()?;
            return Ok(self.drops_in_namespaces().map(|sockets| sockets + dropped));
        }
        Ok(self.drivers.iter().map(Driver::kernel_drops).sum())
    }

    /// Ends the run: counts datagrams left in sockets. Returns the kernel's drops, if it counts
    /// them.
    ///
    /// # Errors
    /// [`Error::Unaccounted`] if the kernel counts drops and the sum differs from the datagrams
    /// sent.
    pub fn settle(&mut self) -> Result<Option<u64>, Error> {
        self.on_time = None;
        let mut looks = 0;
        let mut kernel = loop {
            self.drivers.iter_mut().for_each(Driver::drain);
            let dropped = self.kernel_drops()?;
            // Only the other process can account for datagrams sent to it.
            let missing = if self.part.is_some() { 0 } else { self.missing(dropped.unwrap_or(0)) };
            if missing == 0 || looks == LOOKS {
                break dropped.map(|dropped| dropped + self.lost_in_backlog(missing));
            }
            // On a busy machine a datagram may take a while from the kernel to its socket.
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

    /// Datagrams sent that were not received, do not wait, and are not among the `dropped`.
    pub(super) fn missing(&self, dropped: u64) -> u64 {
        let Counters { sent, received, waiting, .. } = self.counters();
        sent.saturating_sub(received + waiting + dropped)
    }

    /// Upper bound of the `missing` datagrams that the kernel dropped before it knew their socket.
    ///
    /// On a busy machine the backlog queue of a processor overflows, whatever traffic fills it. The
    /// queue counts a train of datagrams once.
    pub(super) fn lost_in_backlog(&self, missing: u64) -> u64 {
        let dropped = crate::socket::backlog_drops().zip(self.backlog_drops);
        missing.min(dropped.map_or(0, |(now, then)| now.saturating_sub(then)) * TRAIN)
    }
}
