//! FCP's budgets: each owner's is divided over its connections.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use tollway_law::budget::{Share, Strategy};
use tollway_law::{Budget, Bytes, Rate, Time};
use tollway_proto::host::{BudgetHost, Seen};

use crate::connection::Connection;

/// An owner of connections, with one budget for all of them.
#[derive(Debug)]
pub struct Owner {
    /// Its name in reports.
    pub name: String,
    host: BudgetHost,
    rules: Vec<Rule>,
    /// By cookie.
    members: HashMap<u64, Member>,
}

/// A rule for some of an owner's connections. The first that matches applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Their own or their peer's port; any if `None`.
    pub port: Option<u16>,
    /// Their peer; any if `None`.
    pub peer: Option<IpAddr>,
    /// The weight of each.
    pub weight: f64,
    /// The rate of each.
    pub goal: Option<Goal>,
}

/// The rate that a connection is to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// A constant one.
    Rate(Rate),
    /// The one that sends `size` within `within` of the connection's start, from what is left of
    /// both.
    Deadline {
        /// Bytes of data.
        size: Bytes,
        /// Time from its start.
        within: Time,
    },
}

impl Rule {
    fn matches(&self, connection: &Connection) -> bool {
        let ports = [connection.local.port(), connection.remote.port()];
        self.port.is_none_or(|port| ports.contains(&port))
            && self.peer.is_none_or(|peer| peer == connection.remote.ip())
    }
}

impl Goal {
    /// The rate of a connection that began at `began`, with `acked` bytes acknowledged. Zero after
    /// the deadline or the last byte.
    fn wants(self, now: Time, began: Time, acked: u64) -> Rate {
        match self {
            Goal::Rate(rate) => rate,
            Goal::Deadline { size, within } => {
                let left = began.saturating_add(within).saturating_sub(now).as_secs_f64();
                let unsent = size.get().saturating_sub(acked) as f64;
                if left > 0.0 { Rate::from_bytes_per_sec(HEADERS * unsent / left) } else { Rate::ZERO }
            }
        }
    }
}

#[derive(Debug)]
struct Member {
    /// Time at which it was seen first.
    began: Time,
    /// Time of the last acknowledgement, and the bytes acknowledged then.
    last: Time,
    acked: u64,
    /// True while it has a part of the budget.
    joined: bool,
}

impl Owner {
    /// An owner of `budget`, divided by `strategy`.
    pub fn new(name: String, budget: Budget, strategy: Box<dyn Strategy + Send>) -> Owner {
        Owner { name, host: BudgetHost::new(budget, strategy), rules: Vec::new(), members: HashMap::new() }
    }

    /// The owner with rules for some of its connections.
    pub fn with_rules(self, rules: Vec<Rule>) -> Owner {
        Owner { rules, ..self }
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
                let new = || Member { began: now, last: now, acked: u64::MAX, joined: false };
                let member = owner.members.entry(*cookie).or_insert_with(new);
                if member.acked != connection.acked {
                    (member.last, member.acked) = (now, connection.acked);
                }
            }
            let (host, rules) = (&mut owner.host, &owner.rules);
            let rule = |connection: &Connection| rules.iter().find(|rule| rule.matches(connection));
            let mut wanted = HashMap::new();
            for (cookie, connection) in &present {
                if let Some(goal) = rule(connection).and_then(|rule| rule.goal) {
                    let began = owner.members[cookie].began;
                    wanted.insert(*cookie, goal.wants(now, began, connection.acked));
                }
            }
            owner.members.retain(|cookie, member| {
                let used = present.contains_key(cookie) && now < member.last.saturating_add(IDLE);
                if used && !member.joined {
                    let weight = rule(present[cookie]).map_or(1.0, |rule| rule.weight);
                    host.join(now, Share { weight, ..Share::new(*cookie) }, Bytes(FIRST));
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
                let wants = wanted.get(&cookie).copied();
                Seen { price: connection.price, rtt, sent: connection.acked, ending: false, wants }
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
/// Bytes on the wire for a byte of data, with room for a few repairs.
const HEADERS: f64 = 1.1;
/// Bytes that a connection announces before it knows a price: ten packets.
const FIRST: u64 = 14_480;

#[cfg(test)]
mod tests {
    use tollway_law::Price;
    use tollway_law::budget::Stable;

    use super::*;
    use crate::connection::Echoes;

    fn connection(cookie: u64, port: u16, acked: u64) -> Connection {
        Connection {
            cookie,
            cgroup: 1,
            user: 0,
            local: ([10, 0, 0, 1], 40_000 + cookie as u16).into(),
            remote: ([10, 0, 0, 2], port).into(),
            window: 10.0,
            rate: 0,
            acked,
            rtt: std::time::Duration::from_millis(20),
            min_rtt: std::time::Duration::from_millis(20),
            active: true,
            fallen: None,
            echoes: Echoes::Feedback,
            forged: 0,
            price: Some(Price::per_byte(1e-7)),
        }
    }

    /// Of a budget that buys 10 MB/s, what is left of its data and its time.
    #[test]
    fn a_connection_with_a_deadline_is_paid_what_is_left_of_its_data_and_time() {
        let goal = Goal::Deadline { size: Bytes(10_000_000), within: Time::from_secs(10) };
        let rule = Rule { port: Some(9000), peer: None, weight: 1.0, goal: Some(goal) };
        let owner = Owner::new("o".into(), Budget::per_sec(1.0), Box::new(Stable)).with_rules(vec![rule]);
        let mut budgets = Budgets::new(vec![owner], Box::new(|_, _| Some(0)));
        let mut given = HashMap::new();
        let mut at = |tick: u64, acked: u64| {
            let now = Time::from_millis(5 * tick);
            let connections = [connection(1, 9000, acked), connection(2, 80, tick)];
            budgets.divide(now, &connections, |cookie, budget| {
                given.insert(cookie, budget.get());
            });
            (given.get(&1).copied().unwrap_or(0.0), given.get(&2).copied().unwrap_or(0.0))
        };
        // 1 MB/s, with headers.
        let (mut paid, mut rest) = (0.0, 0.0);
        (1..100).for_each(|tick| (paid, rest) = at(tick, 0));
        assert!((paid - 0.11).abs() < 0.01 && (rest - 0.89).abs() < 0.01, "{paid} {rest}");
        // Half of the time is over, and a tenth of the data sent.
        (1000..1100).for_each(|tick| (paid, rest) = at(tick, 1_000_000 + tick));
        assert!((paid - 0.21).abs() < 0.02 && (rest - 0.79).abs() < 0.02, "{paid} {rest}");
        // After the last byte it is one of the others.
        (1100..1200).for_each(|tick| (paid, rest) = at(tick, 10_000_000 + tick));
        assert!((paid - 0.5).abs() < 0.01 && (rest - 0.5).abs() < 0.01, "{paid} {rest}");
    }
}
