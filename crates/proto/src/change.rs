//! Changes of links and flows during a run: one vocabulary for scenario files and both engines.

use tollway_law::sender::SenderLaw as _;
use tollway_law::{Budget, Rate, Time};

use crate::faults::{Impairments, Loss};
use crate::port::Limit;
use crate::transport::{Connection, Reader};

/// A change of one link direction or of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new rate of a link, also for the packet in transmission.
    Rate(Rate),
    /// A new one-way delay, for packets that depart from now on.
    Delay(Time),
    /// A new capacity, as configured for the law.
    Capacity(Rate),
    /// A new limit of the queue.
    Limit(Limit),
    /// Random losses, replacing those in effect.
    Losses(Vec<Loss>),
    /// Impairments of the wire, replacing those in effect.
    Wire(Impairments),
    /// True to lose every packet before the queue.
    Blackout(bool),
    /// A relative error of what the law states
    /// ([`LinkLaw::set_error`](tollway_law::link::LinkLaw::set_error)).
    LawError(f64),
    /// Another budget of a flow's senders, if their law spends one.
    Budget(Budget),
    /// Another class of a flow's packets, also of those on their way.
    Class(u8),
    /// Another receive buffer of both ends, packets.
    ReceiveBuffer(u32),
    /// Another pace of the applications at both ends.
    Reader(Reader),
    /// True to hold back new data of both ends, false to let them leave again.
    Paused(bool),
}

impl Change {
    /// Applies a change of a flow to its client and server at `now`. The engine sets the class of
    /// packets.
    pub fn apply(self, now: Time, ends: [&mut Connection; 2]) {
        match self {
            Change::Budget(budget) => {
                let spenders = ends.into_iter().filter_map(|end| end.law_mut().spender_mut());
                spenders.for_each(|law| law.set_budget(budget));
            }
            Change::Class(_) => {
                let rtt = ends[0].srtt();
                ends[0].law_mut().spender_mut().into_iter().for_each(|law| law.change_class(now, rtt));
            }
            Change::ReceiveBuffer(packets) => {
                ends.into_iter().for_each(|end| end.set_receive_buffer(packets))
            }
            Change::Reader(reader) => ends.into_iter().for_each(|end| end.set_reader(reader)),
            Change::Paused(paused) => ends.into_iter().for_each(|end| end.set_paused(paused)),
            _ => {}
        }
    }
}
