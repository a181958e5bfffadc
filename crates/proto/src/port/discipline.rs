//! Queue disciplines: the order of departure at a port, and the registry of disciplines.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tollway_law::link::{AnyLink, LinkConfig, LinkLaw, Placement};
use tollway_law::param::{Entry, Same, Tabled};
use tollway_law::{Rate, Time};

use super::classes::Waits;
use super::fifo::FifoQueue;
use super::{AnyQueue, At, Offered, Pool};

/// A port's queue: it stores arriving packets, selects the next departure, and calls the port's law
/// for both.
///
/// The law sees each arriving packet before the check for room, and each departing one while it
/// still counts as queued.
pub trait Discipline<L: LinkLaw, H: Copy> {
    /// Packets queued.
    fn packets(&self) -> u32;

    /// Bytes queued.
    fn bytes(&self) -> u64;

    /// Enqueues an arriving packet; may drop queued packets to make room.
    fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered;

    /// Dequeues the next packet, with its toll written. Returns it, and true if the law marked it
    /// just now; `None` if the queue is empty. Drops packets as the law decides.
    fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)>;

    /// Every packet, queue by queue, each queue in order.
    fn queued(&self) -> Box<dyn Iterator<Item = H> + '_>;

    /// Changes the capacity of the link, for laws that the discipline holds beside the port's.
    fn set_capacity(&mut self, _now: Time, _capacity: Rate) {}

    /// Waiting times by queue; empty for a discipline without these counters.
    fn waits(&self) -> &[Waits] {
        &[]
    }
}

/// A discipline with its constants before it is placed at a port: a plan holds the config, and the
/// config builds each port's queue.
pub trait QueueConfig: Same + fmt::Debug + Send + Sync {
    /// Builds the queue for a port.
    fn place(&self, at: &Placement<'_>) -> AnyQueue<AnyLink, u32>;

    /// Memory of an empty queue in bytes, where its parameters determine it.
    fn memory(&self) -> usize {
        0
    }
}

impl PartialEq for dyn QueueConfig {
    fn eq(&self, other: &dyn QueueConfig) -> bool {
        self.same(other)
    }
}

impl dyn QueueConfig {
    /// The config, if it is of this type.
    pub fn get<C: QueueConfig>(&self) -> Option<&C> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A discipline in the registry: scenario files name it in the place of a link law.
#[derive(Debug)]
pub struct QueueEntry {
    /// The link law of its port.
    pub law: Entry<dyn LinkConfig>,
    /// Its own word and tables.
    pub queue: Entry<dyn QueueConfig>,
}

/// The entry of a discipline with a table of constants under its word, at a port with `law`.
pub(super) const fn entry<C: Tabled + QueueConfig>(law: Entry<dyn LinkConfig>) -> QueueEntry {
    let (word, tables) = (C::TABLE.word, C::TABLES);
    QueueEntry {
        law,
        queue: Entry { word, tables, read: |tables| Arc::new(C::read(tables.table(C::TABLE.word))) },
    }
}

/// Lists the disciplines besides FIFO with their entries; generates the enum of all, its dispatch,
/// its conversions, and the registry.
macro_rules! disciplines {
    ($($(#[$doc:meta])* $name:ident($queue:ty): $entry:expr),* $(,)?) => {
        /// Every discipline that a scenario file may name.
        pub const QUEUES: &[QueueEntry] = &[$($entry,)*];

        /// Any queue discipline; the default is FIFO.
        ///
        /// All others are boxed, since few ports of a large network need one.
        #[derive(Clone, Debug)]
        pub enum AnyQueue<L, H> {
            /// First in, first out.
            Fifo(FifoQueue<H>),
            $($(#[$doc])* $name(Box<$queue>),)*
        }

        $(impl<L, H> From<$queue> for AnyQueue<L, H> {
            fn from(queue: $queue) -> AnyQueue<L, H> {
                AnyQueue::$name(Box::new(queue))
            }
        })*

        impl<L: LinkLaw + Clone, H: Copy + Default> Discipline<L, H> for AnyQueue<L, H> {
            #[inline]
            fn packets(&self) -> u32 {
                match self {
                    AnyQueue::Fifo(queue) => Discipline::<L, H>::packets(queue),
                    $(AnyQueue::$name(queue) => Discipline::<L, H>::packets(&**queue),)*
                }
            }

            #[inline]
            fn bytes(&self) -> u64 {
                match self {
                    AnyQueue::Fifo(queue) => Discipline::<L, H>::bytes(queue),
                    $(AnyQueue::$name(queue) => Discipline::<L, H>::bytes(&**queue),)*
                }
            }

            #[inline]
            fn enqueue<P: Pool<Handle = H>>(&mut self, handle: H, at: &mut At<'_, L, P>) -> Offered {
                match self {
                    AnyQueue::Fifo(queue) => queue.enqueue(handle, at),
                    $(AnyQueue::$name(queue) => queue.enqueue(handle, at),)*
                }
            }

            #[inline]
            fn dequeue<P: Pool<Handle = H>>(&mut self, at: &mut At<'_, L, P>) -> Option<(H, bool)> {
                match self {
                    AnyQueue::Fifo(queue) => queue.dequeue(at),
                    $(AnyQueue::$name(queue) => queue.dequeue(at),)*
                }
            }

            fn queued(&self) -> Box<dyn Iterator<Item = H> + '_> {
                match self {
                    AnyQueue::Fifo(queue) => Discipline::<L, H>::queued(queue),
                    $(AnyQueue::$name(queue) => Discipline::<L, H>::queued(&**queue),)*
                }
            }

            fn set_capacity(&mut self, now: Time, capacity: Rate) {
                match self {
                    AnyQueue::Fifo(_) => {}
                    $(AnyQueue::$name(queue) => Discipline::<L, H>::set_capacity(&mut **queue, now, capacity),)*
                }
            }

            fn waits(&self) -> &[Waits] {
                match self {
                    AnyQueue::Fifo(_) => &[],
                    $(AnyQueue::$name(queue) => Discipline::<L, H>::waits(&**queue),)*
                }
            }
        }
    };
}

pub(super) use disciplines;

impl<L, H: Copy + Default> Default for AnyQueue<L, H> {
    fn default() -> AnyQueue<L, H> {
        AnyQueue::Fifo(FifoQueue::default())
    }
}
