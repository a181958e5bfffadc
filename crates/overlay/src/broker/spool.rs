//! Messages that wait on disk for slow receivers.

use bytes::Bytes;
use tollway_law::Time;

use super::session::ClientSession;
use super::spooled::Chunk;
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

impl Broker {
    /// Takes a command for the disk. Its answer goes to [`spool_answered`](Broker::spool_answered).
    pub fn take_spool_command(&mut self) -> Option<SpoolCommand> {
        self.spool_commands.pop_front()
    }

    /// Bytes on disk, or on their way to it.
    pub fn spooled(&self) -> u64 {
        self.spooled
    }

    /// True if the spool is full or the disk refuses writes.
    pub(super) fn spool_is_full(&self) -> bool {
        self.spooled >= self.rules.spool || self.spool_trouble.is_some()
    }

    /// The disk's error, until it accepts a write again.
    pub fn spool_trouble(&self) -> Option<&str> {
        self.spool_trouble.as_deref()
    }

    /// Appends an operation, which `write` writes, to a client's spool.
    pub(super) fn spool(&mut self, to: usize, write: impl FnOnce(&ClientSession, &mut Vec<u8>)) {
        let session = &mut self.sessions[to];
        let mut tail = std::mem::take(&mut session.spooled.tail);
        let before = tail.len();
        write(session, &mut tail);
        let added = (tail.len() - before) as u64;
        session.spooled.bytes += added;
        self.spooled += added;
        if tail.len() >= CHUNK {
            self.chunk_number += 1;
            session.spooled.chunks.push_back(Chunk::OnDisk(self.chunk_number));
            self.chunk_owners.insert(self.chunk_number, to);
            self.spool_commands.push_back(SpoolCommand::Store(self.chunk_number, tail.into()));
            tail = Vec::new();
        }
        session.spooled.tail = tail;
    }

    /// Moves spooled operations to the output of a client, unless the client is congested.
    pub(super) fn unspool(&mut self, to: usize) {
        let session = &mut self.sessions[to];
        while !session.spooled.loading && !session.congested && session.closing.is_none() {
            let bytes = match session.spooled.chunks.front() {
                Some(&Chunk::OnDisk(number)) => {
                    session.spooled.loading = true;
                    self.spool_commands.push_back(SpoolCommand::Load(number));
                    return;
                }
                Some(Chunk::Here(bytes)) => {
                    let bytes = bytes.clone();
                    session.spooled.chunks.pop_front();
                    bytes
                }
                None if session.spooled.tail.is_empty() => return,
                None => Bytes::from(std::mem::take(&mut session.spooled.tail)),
            };
            self.spooled -= bytes.len() as u64;
            session.spooled.bytes -= bytes.len() as u64;
            session.out.push_shared(bytes);
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
        match answer {
            SpoolAnswer::Stored(_) => self.spool_trouble = None,
            SpoolAnswer::Refused(number, bytes, why) => {
                self.spool_trouble = Some(why);
                let Some(&owner) = self.chunk_owners.get(&number) else { return };
                let chunks = &mut self.sessions[owner].spooled.chunks;
                let this = |chunk: &&mut Chunk| matches!(chunk, Chunk::OnDisk(other) if *other == number);
                if let Some(chunk) = chunks.iter_mut().find(this) {
                    *chunk = Chunk::Here(bytes);
                    self.chunk_owners.remove(&number);
                }
                // A load of this chunk was already requested; its answer is ignored.
                let spooled = &mut self.sessions[owner].spooled;
                if spooled.loading && matches!(spooled.chunks.front(), Some(Chunk::Here(_))) {
                    spooled.loading = false;
                    self.unspool(owner);
                }
            }
            SpoolAnswer::Loaded(number, bytes) => {
                let Some(owner) = self.chunk_owners.remove(&number) else { return };
                let session = &mut self.sessions[owner];
                session.spooled.loading = false;
                if let Some(first) = session.spooled.chunks.front_mut() {
                    *first = Chunk::Here(bytes);
                }
                session.taken_at = now;
                self.unspool(owner);
            }
            SpoolAnswer::Lost(number, why) => {
                let Some(&owner) = self.chunk_owners.get(&number) else { return };
                let session = &mut self.sessions[owner];
                session.spooled.loading = false;
                self.fail(owner, &format!("Spool lost: {why}"));
            }
        }
    }

    /// Drops a client's spool.
    pub(super) fn forget_spool(&mut self, key: usize) {
        let spooled = std::mem::take(&mut self.sessions[key].spooled);
        self.spooled -= spooled.bytes;
        for chunk in spooled.chunks {
            if let Chunk::OnDisk(number) = chunk {
                self.chunk_owners.remove(&number);
                self.spool_commands.push_back(SpoolCommand::Forget(number));
            }
        }
    }
}

/// Size of a chunk on disk, in bytes.
const CHUNK: usize = 1 << 18;
