//! FCP's budgets: each owner's is divided over its connections.

use std::collections::HashMap;
use std::fmt;

use tollway_law::budget::{Share, Strategy};
use tollway_law::{Budget, Bytes, Time};
use tollway_proto::host::{BudgetHost, Seen};

use crate::connection::Connection;

/// An owner of connections, with one budget for all of them.
#[derive(Debug)]
pub struct Owner {
    /// Its name in reports.
    pub name: String,
    host: BudgetHost,
    /// By cookie.
    members: HashMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    /// Time of the last acknowledgement, and the bytes acknowledged then.
    last: Time,
    acked: u64,
    /// True while it has a part of the budget.
    joined: bool,
}

impl Owner {
    /// An owner of `budget`, divided by `strategy`.
    pub fn new(name: String, budget: Budget, strategy: Box<dyn Strategy + Send>) -> Owner {
        Owner { name, host: BudgetHost::new(budget, strategy), members: HashMap::new() }
    }
}

/// The rule that assigns connections to owners: an index, or `None` for no budget.
pub type OwnerOf = Box<dyn FnMut(&Connection, &mut Vec<Owner>) -> Option<usize> + Send>;

/// The owners of a machine's connections.
pub struct Budgets {
    owners: Vec<Owner>,
    owner_of: OwnerOf,
}

impl Budgets {
    /// Owners, and the rule that assigns connections to them, which may add owners.
    pub fn new(owners: Vec<Owner>, owner_of: OwnerOf) -> Budgets {
        Budgets { owners, owner_of }
    }

    /// Divides each budget over the connections under the law that are in use: those with an
    /// acknowledgement within a second. `give` sets a budget; zero removes it.
    pub fn divide(&mut self, now: Time, connections: &[Connection], mut give: impl FnMut(u64, Budget)) {
        let mut by_owner: HashMap<usize, HashMap<u64, &Connection>> = HashMap::new();
        for connection in connections.iter().filter(|connection| connection.active) {
            if let Some(owner) = (self.owner_of)(connection, &mut self.owners) {
                by_owner.entry(owner).or_default().insert(connection.cookie, connection);
            }
        }
        for (at, owner) in self.owners.iter_mut().enumerate() {
            let present = by_owner.remove(&at).unwrap_or_default();
            for (cookie, connection) in &present {
                let new = || Member { last: now, acked: u64::MAX, joined: false };
                let member = owner.members.entry(*cookie).or_insert_with(new);
                if member.acked != connection.acked {
                    (member.last, member.acked) = (now, connection.acked);
                }
            }
            let host = &mut owner.host;
            owner.members.retain(|cookie, member| {
                let used = present.contains_key(cookie) && now < member.last.saturating_add(IDLE);
                if used && !member.joined {
                    host.join(now, Share::new(*cookie), Bytes(FIRST));
                } else if !used && member.joined {
                    host.leave(now, *cookie);
                    give(*cookie, Budget::ZERO);
                }
                member.joined = used;
                present.contains_key(cookie)
            });
            let see = |cookie| {
                let Some(connection) = present.get(&cookie) else { return Seen::default() };
                let rtt = Time::from_nanos(connection.rtt.as_nanos() as u64);
                Seen { price: connection.price, rtt, sent: connection.acked, ending: false }
            };
            host.handle_timeout(now, see, &mut give);
        }
    }
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets").field("owners", &self.owners).finish_non_exhaustive()
    }
}

/// Time without acknowledgements after which a connection's part goes to the others.
const IDLE: Time = Time::from_secs(1);
/// Bytes that a connection announces before it knows a price: ten packets.
const FIRST: u64 = 14_480;
