//! Messages that wait on disk for slow receivers.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use tollway_law::Time;

use super::session::ClientSession;
use super::spooled::{Place, Spooled};
use super::{Broker, mark};

/// A command to the disk. Commands are executed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolCommand {
    /// Stores these bytes under this number.
    Store(u64, Bytes),
    /// Returns the stored bytes, and removes them.
    Load(u64),
    /// Removes the stored bytes.
    Forget(u64),
}

/// The answer to a command. [`SpoolCommand::Forget`] gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolAnswer {
    /// The bytes are stored.
    Stored(u64),
    /// The bytes could not be stored: they are returned with the error.
    Refused(u64, Bytes, String),
    /// The stored bytes.
    Loaded(u64, Bytes),
    /// The stored bytes are lost, with the error.
    Lost(u64, String),
}

/// The site's spool.
#[derive(Debug, Default)]
pub(super) struct Spool {
    commands: VecDeque<SpoolCommand>,
    /// Owners and lengths of chunks on disk, by number.
    owners: HashMap<u64, (Owner, u64)>,
    number: u64,
    /// Bytes that wait, on disk or in memory.
    pub(super) bytes: u64,
    /// Bytes of the disk that the chunks take.
    disk: u64,
    trouble: Option<String>,
    retry_at: Time,
}

/// The receiver of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A session, by its key.
    Session(usize),
    /// A kept subscription, by its key.
    Kept(usize),
}

impl Spool {
    /// Adds a message of `len` bytes, already in the tail. A full tail moves to the disk, if the
    /// disk has room within `limit`.
    pub(super) fn added(&mut self, spooled: &mut Spooled, len: usize, owner: Owner, limit: u64) {
        spooled.tail_messages += 1;
        spooled.bytes += len as u64;
        self.bytes += len as u64;
        if spooled.tail.len() < CHUNK {
            return;
        }
        spooled.close_tail();
        let at = spooled.chunks.len() - 1;
        if self.trouble.is_none() {
            self.store(spooled, at, owner, limit);
        }
    }

    /// Stores a chunk that is in memory, if the disk has room within `limit`.
    fn store(&mut self, spooled: &mut Spooled, at: usize, owner: Owner, limit: u64) -> bool {
        let chunk = &mut spooled.chunks[at];
        let room = self.disk + blocks(chunk.len) <= limit;
        let Place::Here(bytes) = &chunk.place else { return false };
        if room {
            self.number += 1;
            self.disk += blocks(chunk.len);
            self.owners.insert(self.number, (owner, chunk.len));
            self.commands.push_back(SpoolCommand::Store(self.number, bytes.clone()));
            chunk.place = Place::Disk(self.number);
        }
        room
    }

    /// Requests the first chunk behind `skip` others, if it is on disk and none is loading.
    pub(super) fn load(&mut self, spooled: &mut Spooled, skip: usize) {
        if let (Some(&Place::Disk(number)), false) =
            (spooled.chunks.get(skip).map(|chunk| &chunk.place), spooled.loading)
        {
            spooled.loading = true;
            self.commands.push_back(SpoolCommand::Load(number));
        }
    }

    /// Removes all messages of a receiver. Returns their number.
    pub(super) fn forget(&mut self, spooled: Spooled) -> u64 {
        self.bytes -= spooled.bytes;
        let messages = spooled.messages();
        for chunk in spooled.chunks {
            if let Place::Disk(number) = chunk.place
                && self.take_owner(number).is_some()
            {
                self.commands.push_back(SpoolCommand::Forget(number));
            }
        }
        messages
    }

    fn take_owner(&mut self, number: u64) -> Option<Owner> {
        let (owner, len) = self.owners.remove(&number)?;
        self.disk -= blocks(len);
        Some(owner)
    }
}

impl Broker {
    /// Takes a command for the disk. Its answer goes to [`spool_answered`](Broker::spool_answered).
    pub fn take_spool_command(&mut self) -> Option<SpoolCommand> {
        self.spool.commands.pop_front()
    }

    /// Bytes on disk, or on their way to it.
    pub fn spooled(&self) -> u64 {
        self.spool.bytes
    }

    /// True if the spool is full or the disk refuses writes.
    pub(super) fn spool_is_full(&self) -> bool {
        self.spool.bytes >= self.rules.spool || self.spool.trouble.is_some()
    }

    /// The disk's error, until it accepts a write again.
    pub fn spool_trouble(&self) -> Option<&str> {
        self.spool.trouble.as_deref()
    }

    /// Appends a message, which `write` writes, to a client's spool.
    pub(super) fn spool(&mut self, to: usize, write: impl FnOnce(&ClientSession, &mut Vec<u8>)) {
        let session = &mut self.sessions[to];
        let mut tail = std::mem::take(&mut session.spooled.tail);
        let before = tail.len();
        write(session, &mut tail);
        let added = tail.len() - before;
        session.spooled.tail = tail;
        self.spool.added(&mut session.spooled, added, Owner::Session(to), self.rules.spool);
    }

    /// Moves spooled messages to the output of a client, unless the client is congested.
    pub(super) fn unspool(&mut self, to: usize) {
        let session = &mut self.sessions[to];
        while !session.spooled.loading && !session.congested && session.closing.is_none() {
            if session.spooled.chunks.is_empty() {
                if session.spooled.tail.is_empty() {
                    return;
                }
                session.spooled.close_tail();
            }
            self.spool.load(&mut session.spooled, 0);
            if session.spooled.loading {
                return;
            }
            let Some(chunk) = session.spooled.chunks.pop_front() else { return };
            self.spool.bytes -= chunk.len;
            session.spooled.bytes -= chunk.len;
            if let Place::Here(bytes) = chunk.place {
                session.out.push_shared(bytes, chunk.messages);
            }
            mark(&mut self.dirty, to, session);
            session.congested |= session.out.len() >= self.rules.buffer;
            if session.congested
                && let Some(tenant) = session.tenant
            {
                self.tenants[tenant].congested += 1;
            }
        }
    }

    /// Handles an answer of the disk.
    pub fn spool_answered(&mut self, now: Time, answer: SpoolAnswer) {
        let loaded = matches!(answer, SpoolAnswer::Loaded(..));
        let (number, place, lost) = match answer {
            SpoolAnswer::Stored(_) => {
                self.spool.trouble = None;
                return;
            }
            SpoolAnswer::Refused(number, bytes, why) => {
                self.spool.trouble = Some(why);
                self.spool.retry_at = now + RETRY;
                (number, Some(bytes), None)
            }
            SpoolAnswer::Loaded(number, bytes) => (number, Some(bytes), None),
            SpoolAnswer::Lost(number, why) => (number, None, Some(why)),
        };
        let Some(owner) = self.spool.take_owner(number) else { return };
        let Some(spooled) = self.spooled_of(owner) else { return };
        let front = matches!(spooled.chunks.front(), Some(chunk) if matches!(chunk.place, Place::Disk(n) if n == number));
        if let Some(chunk) = spooled.on_disk(number) {
            chunk.place = Place::Here(place.unwrap_or_default());
            // An answer to a later load of a refused chunk is ignored, since it has no owner.
            spooled.loading &= !front && matches!(owner, Owner::Session(_));
        }
        match (owner, lost) {
            (Owner::Session(key), Some(why)) => self.fail(key, &format!("Spool lost: {why}")),
            (Owner::Session(key), None) => {
                // It could take nothing while this loaded. A refused write gives no time.
                if loaded {
                    self.sessions[key].taken_at = now;
                }
                self.unspool(key);
            }
            (Owner::Kept(key), lost) => self.kept_loaded(key, lost.is_some()),
        }
    }

    fn spooled_of(&mut self, owner: Owner) -> Option<&mut Spooled> {
        match owner {
            Owner::Session(key) => self.sessions.get_mut(key).map(|session| &mut session.spooled),
            Owner::Kept(key) => self.kept.get_mut(key).map(|kept| &mut kept.spooled),
        }
    }

    /// After an error of the disk, tries to store a chunk again. Without a chunk in memory the
    /// error is over.
    pub(super) fn retry_spool(&mut self, now: Time) {
        if self.spool.trouble.is_none() || now < self.spool.retry_at {
            return;
        }
        self.spool.retry_at = now + RETRY;
        let sessions = self.sessions.iter_mut().map(|(key, one)| (Owner::Session(key), 1, &mut one.spooled));
        let kept = self.kept.iter_mut();
        let kept = kept.map(|(key, one)| (Owner::Kept(key), one.sent.max(1), &mut one.spooled));
        for (owner, from, spooled) in sessions.chain(kept) {
            // The first ones are about to leave.
            for at in (from..spooled.chunks.len()).rev() {
                if self.spool.store(spooled, at, owner, self.rules.spool) {
                    return;
                }
            }
        }
        self.spool.trouble = None;
    }

    /// Drops a client's spool.
    pub(super) fn forget_spool(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let lost = self.spool.forget(std::mem::take(&mut session.spooled));
        if let Some(tenant) = session.tenant {
            self.tenants[tenant].losses.spool += lost;
        }
    }
}

/// Bytes of the disk that a file of `len` bytes takes, with its entry in the folder.
fn blocks(len: u64) -> u64 {
    len.next_multiple_of(4096) + 512
}

/// Size of a chunk on disk, in bytes.
pub(super) const CHUNK: usize = 1 << 18;
/// Time between attempts to write after an error.
const RETRY: Time = Time::from_secs(1);
