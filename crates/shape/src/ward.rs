//! A guardian's state and actions, without its process and its clock.

use std::io::{self, Read};

use tollway_law::Rate;

use super::agent::LEFT_OUT;
use super::{ByNumber, Kernel, Seen};

/// The connections that an agent has paced, as known to its guardian.
#[derive(Debug, Default)]
pub(super) struct Ward {
    /// Limit that the connection's program had set, by cookie.
    own: ByNumber<u64, Option<u64>>,
    /// The agent has sent nothing since its connections were last freed.
    silent: bool,
}

impl Ward {
    /// Reads one record. Returns false at the end of the input.
    pub(super) fn take(&mut self, input: &mut impl Read) -> bool {
        let mut record: Record = [0; RECORD];
        if input.read_exact(&mut record).is_err() {
            return false;
        }
        self.silent = false;
        let [cookie, own] = [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| record[at + i])));
        match own {
            FREE => drop(self.own.remove(&cookie)),
            own => drop(self.own.insert(cookie, Some(own).filter(|&own| own != u64::MAX))),
        }
        true
    }

    /// Reads a file of records; the result is empty if it is of another boot of the machine.
    pub(super) fn read(mut file: &[u8], boot: &Record) -> Ward {
        let mut ward = Ward::default();
        let mut head: Record = [0; RECORD];
        if file.read_exact(&mut head).is_ok() && head == *boot {
            while ward.take(&mut file) {}
        }
        ward
    }

    /// Records that the agent has been silent for [`PULSE`]. Returns true, once per silence, if its
    /// connections must be freed.
    pub(super) fn note_silence(&mut self) -> bool {
        !std::mem::replace(&mut self.silent, true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// [Restores](restore) the limits that programs had set.
    pub(super) fn free(
        &self,
        kernel: &mut dyn Kernel,
        pause: impl FnMut(usize) -> bool,
    ) -> io::Result<(usize, usize)> {
        restore(kernel, |seen| self.own.get(&seen.cookie).copied(), pause)
    }
}

/// The record of a connection that is going to be paced, with the limit of its program; with
/// `None`, of a connection that is free.
pub(super) fn record(cookie: u64, own: Option<Option<u64>>) -> Record {
    let value = own.map_or(FREE, |own| own.unwrap_or(u64::MAX));
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&cookie.to_ne_bytes());
    record[8..].copy_from_slice(&value.to_ne_bytes());
    record
}

/// Sets each connection's limit to the result of `own`, until enough listings in a row find no
/// other limit: more than may [leave out](LEFT_OUT) a connection.
///
/// `pause` is called between two listings with the number of connections that could not be set;
/// false ends the loop. Returns the number that was set, and the number that could not be set at
/// the last listing.
///
/// # Errors
/// The kernel can't list connections.
pub(super) fn restore(
    kernel: &mut dyn Kernel,
    own: impl Fn(&Seen) -> Option<Option<u64>>,
    mut pause: impl FnMut(usize) -> bool,
) -> io::Result<(usize, usize)> {
    let (mut freed, mut quiet) = (0, 0);
    loop {
        let mut seen = Vec::new();
        kernel.connections(&mut seen)?;
        let (mut left, before) = (0, freed);
        for seen in &seen {
            let Some(own) = own(seen).filter(|own| *own != seen.limit) else { continue };
            match kernel.pace(seen, own.map(|own| Rate::from_bytes_per_sec(own as f64))) {
                Ok(()) => freed += 1,
                Err(_) => left += usize::from(seen.inode != 0),
            }
        }
        quiet = if left == 0 && freed == before { quiet + 1 } else { 0 };
        if quiet > LEFT_OUT || !pause(left) {
            return Ok((freed, left));
        }
    }
}

/// A cookie and the limit that its program had set. The first record of a file is the machine's
/// boot.
pub(super) type Record = [u8; RECORD];

/// Bytes of a record.
pub(super) const RECORD: usize = 16;
/// The limit in the record of a connection that is free.
const FREE: u64 = 0;
