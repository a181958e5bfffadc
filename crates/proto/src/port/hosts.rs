//! Host isolation: shares for hosts first, and then for each host's flows.

use tollway_law::words;

words! {
    /// Hosts among which a port shares the capacity before their flows, as in CAKE (Høiland-Jørgensen, Täht and Morton, LANMAN 2018).
    pub enum Isolation {
        /// None: flows share alike.
        None = "none",
        /// Those that flows come from; in `exec` those that open connections.
        From = "from",
        /// Those that flows go to.
        To = "to",
        /// Both: a flow has the lesser of its two hosts' shares.
        Both = "both",
    }
}

/// The two hosts of each flow and of each source of cross-traffic: where it comes from and where it goes.
#[derive(Debug, Default)]
pub struct HostTable {
    flows: Vec<[u32; 2]>,
    sources: Vec<[u32; 2]>,
}

impl HostTable {
    /// Notes the hosts of a flow, or of a source if `plain`.
    pub fn set(&mut self, number: u32, plain: bool, hosts: [u32; 2]) {
        let (table, at) = (if plain { &mut self.sources } else { &mut self.flows }, number as usize);
        if table.len() <= at {
            table.resize(at + 1, [0; 2]);
        }
        table[at] = hosts;
    }

    /// The hosts of a flow, or of a source if `plain`; zeros if they are not known.
    pub fn get(&self, number: u32, plain: bool) -> [u32; 2] {
        let table = if plain { &self.sources } else { &self.flows };
        table.get(number as usize).copied().unwrap_or_default()
    }
}

/// How many flows of each host are busy.
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

    /// Another flow between these hosts is busy.
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

    /// A busy flow between these hosts has nothing to send.
    pub(super) fn remove(&mut self, [from, to]: [u32; 2]) {
        if self.isolation != Isolation::None {
            self.from[from as usize] -= 1;
            self.to[to as usize] -= 1;
        }
    }

    /// The part of a `quantum` that a flow between these hosts has in a turn, at least 1.
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
