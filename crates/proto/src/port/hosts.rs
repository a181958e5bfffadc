//! Host isolation: the capacity is shared among hosts, then among each host's flows.

use tollway_law::words;

words! {
    /// The hosts among which a port shares the capacity before their flows, as in CAKE
    /// (Høiland-Jørgensen, Täht and Morton, LANMAN 2018).
    pub enum Isolation {
        /// None: all flows have equal shares.
        None = "none",
        /// The flows' sources; in `exec`, the hosts that open connections.
        From = "from",
        /// The flows' destinations.
        To = "to",
        /// Both: a flow has the smaller of its two hosts' shares.
        Both = "both",
    }
}

/// The source and destination hosts of each flow and of each source of cross-traffic.
#[derive(Debug, Default)]
pub struct HostTable {
    flows: Vec<[u32; 2]>,
    sources: Vec<[u32; 2]>,
}

impl HostTable {
    /// Sets the hosts of a flow, or of a cross-traffic source if `plain`.
    pub fn set(&mut self, number: u32, plain: bool, hosts: [u32; 2]) {
        let (table, at) = (if plain { &mut self.sources } else { &mut self.flows }, number as usize);
        if table.len() <= at {
            table.resize(at + 1, [0; 2]);
        }
        table[at] = hosts;
    }

    /// The hosts of a flow, or of a cross-traffic source if `plain`; zeros if they are not known.
    pub fn get(&self, number: u32, plain: bool) -> [u32; 2] {
        let table = if plain { &self.sources } else { &self.flows };
        table.get(number as usize).copied().unwrap_or_default()
    }
}

/// The number of busy flows of each host.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    isolation: Isolation,
    from: Vec<u32>,
    to: Vec<u32>,
}

impl Loads {
    pub(super) fn new(isolation: Isolation) -> Loads {
        Loads { isolation, from: Vec::new(), to: Vec::new() }
    }

    /// Counts a flow between these hosts as busy.
    pub(super) fn add(&mut self, [from, to]: [u32; 2]) {
        if self.isolation == Isolation::None {
            return;
        }
        for (loads, host) in [(&mut self.from, from as usize), (&mut self.to, to as usize)] {
            if loads.len() <= host {
                loads.resize(host + 1, 0);
            }
            loads[host] += 1;
        }
    }

    /// Removes a busy flow between these hosts from the counts.
    pub(super) fn remove(&mut self, [from, to]: [u32; 2]) {
        if self.isolation != Isolation::None {
            self.from[from as usize] -= 1;
            self.to[to as usize] -= 1;
        }
    }

    /// Bytes that a flow between these hosts may send per turn: its part of `quantum`, at least 1.
    pub(super) fn turn(&self, quantum: i64, [from, to]: [u32; 2]) -> i64 {
        let load = |loads: &[u32], host: u32| loads.get(host as usize).copied().unwrap_or(0);
        let load = match self.isolation {
            Isolation::None => return quantum,
            Isolation::From => load(&self.from, from),
            Isolation::To => load(&self.to, to),
            Isolation::Both => load(&self.from, from).max(load(&self.to, to)),
        };
        (quantum / i64::from(load.max(1))).max(1)
    }
}
