//! The simulated kernel: connections, their limits, and the programs of the eBPF back-end.

use std::collections::HashMap;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// eBPF: a lease, a limit of each tenant's packets, a pace for new connections.
    Programs,
    /// `inet_diag`: a limit of each socket, which outlives the agent.
    Diag,
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    seen: Seen,
    tenant: Option<usize>,
    /// The limit that its program has set.
    own: Option<u64>,
    wants: f64,
    opened: Time,
    /// Listings in a row that left it out.
    missed: u32,
    /// Its program has set a limit that no listing of the agent has shown.
    unsure: bool,
    /// As `unsure`, and the agent has stopped or ended since: the limit is in no record.
    unknown: bool,
}

impl Connection {
    /// True if its limit is not its program's.
    pub(super) fn is_paced(&self) -> bool {
        !self.unsure && !self.unknown && self.seen.limit != self.own
    }
}

#[derive(Debug)]
pub(super) struct Programs {
    until: Time,
    holds: Vec<Hold>,
    /// By tenant: the instant at which all its packets would have left at its rate.
    due: [Time; TENANTS],
    counts: [Traffic; TENANTS],
    shares: HashMap<u64, u64>,
}

impl Programs {
    pub(super) fn new(now: Time) -> Programs {
        let lease = bpf::Config::default().lease;
        Programs {
            until: now + lease,
            holds: Vec::new(),
            due: Default::default(),
            counts: Default::default(),
            shares: HashMap::new(),
        }
    }

    /// Renews the lease, as the guardian does.
    pub(super) fn put_off(&mut self, now: Time) {
        let lease = bpf::Config::default().lease;
        if let Some(until) = bpf::put_off(self.until.0, now.0, lease.0) {
            self.until = Time(until);
        }
    }

    /// Passes packets of a tenant as far as its bucket allows. Returns the bytes that passed.
    fn pass(&mut self, now: Time, tenant: usize, bytes: f64) -> f64 {
        let Some(hold) = self.holds.get(tenant) else { return bytes };
        let (rate, due) = (hold.rate.bytes_per_sec(), self.due[tenant].max(now));
        let room = (now + hold.depth).saturating_sub(due).as_secs_f64() * rate;
        let passed = bytes.min(room);
        self.due[tenant] = due + Time::from_secs_f64(passed / rate);
        self.counts[tenant].passed += passed as u64;
        self.counts[tenant].dropped += (bytes - passed) as u64;
        passed
    }
}

#[derive(Debug)]
pub(super) struct SimulatedKernel {
    backend: Backend,
    pub(super) now: Time,
    rng: Pcg64Mcg,
    /// Ordered by cookie.
    pub(super) connections: Vec<Connection>,
    last: u16,
    pub(super) programs: Option<Programs>,
    /// By tenant: bytes per second of sockets that are not TCP connections.
    others: [f64; TENANTS],
    /// By tenant: bytes on the wire in the last step to which the promised rate applies.
    pub(super) promised: [f64; TENANTS],
}

impl SimulatedKernel {
    pub(super) fn new(backend: Backend, rng: Pcg64Mcg) -> SimulatedKernel {
        SimulatedKernel {
            backend,
            now: Time::from_secs(1),
            rng,
            connections: Vec::new(),
            last: 0,
            programs: None,
            others: [0.0; TENANTS],
            promised: [0.0; TENANTS],
        }
    }

    pub(super) fn is_leased(&self) -> bool {
        self.programs.as_ref().is_some_and(|programs| self.now < programs.until)
    }

    /// Opens a connection.
    pub(super) fn open(&mut self) {
        self.last += 1;
        let mut seen = super::super::tests::opened(self.last);
        seen.at = self.now;
        let own = self.rng.random_bool(0.2).then(|| self.rng.random_range(100_000..5_000_000));
        seen.limit = own;
        self.connections.push(Connection {
            seen,
            tenant: tenant_of(self.last),
            own,
            wants: self.rng.random_range(5e4..2e7),
            opened: self.now,
            missed: 0,
            unsure: false,
            unknown: false,
        });
    }

    /// Opens and closes connections. Programs set limits and change their demand at random.
    pub(super) fn churn(&mut self) {
        let step = STEP.as_secs_f64();
        if self.connections.len() < 16 && self.rng.random_bool(3.0 * step) {
            self.open();
        }
        if self.connections.len() > 2 && self.rng.random_bool(2.0 * step) {
            let at = self.rng.random_range(0..self.connections.len());
            self.connections.remove(at);
        }
        if self.rng.random_bool(0.5 * step) {
            let at = self.rng.random_range(0..self.connections.len());
            let own = self.rng.random_range(100_000..5_000_000);
            let connection = &mut self.connections[at];
            connection.own = Some(own);
            connection.seen.limit = Some(own);
            connection.unsure = self.backend == Backend::Diag;
        }
        if self.rng.random_bool(0.3 * step) {
            let tenant = self.rng.random_range(0..TENANTS);
            self.others[tenant] = if self.rng.random() { 0.0 } else { self.rng.random_range(0.0..1e7) };
        }
    }

    /// Records that no agent runs from now on.
    pub(super) fn lose_agent(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.unknown |= connection.unsure);
    }

    /// Sends the traffic of all sockets for one step.
    pub(super) fn send(&mut self) {
        let (now, span) = (self.now, STEP.as_secs_f64());
        let mut programs = self.programs.as_mut().filter(|programs| now < programs.until);
        self.promised = [0.0; TENANTS];
        for connection in &mut self.connections {
            let seen = &mut connection.seen;
            let pace = match (self.backend, &programs, connection.tenant) {
                (Backend::Diag, ..) => seen.limit,
                (_, Some(programs), Some(tenant)) => {
                    let opening = programs.holds.get(tenant).map(|hold| hold.opening.bytes_per_sec() as u64);
                    let share = programs.shares.get(&seen.cookie).copied().or(opening);
                    Some(share.unwrap_or(u64::MAX).min(connection.own.unwrap_or(u64::MAX)))
                }
                _ => connection.own,
            };
            let pace = pace.map_or(f64::INFINITY, |pace| pace as f64);
            let bytes = (connection.wants.min(pace) * span) as u64;
            let segments = seen.segments;
            seen.at = now;
            seen.sent += bytes;
            seen.segments = (seen.sent / u64::from(seen.mss)) as u32;
            seen.unsent = if connection.wants > pace { 100_000 } else { 0 };
            seen.pacing = if pace.is_finite() { pace as u64 } else { u64::MAX };
            let Some(tenant) = connection.tenant else { continue };
            let wire = (bytes + u64::from(seen.segments - segments) * 52) as f64;
            let passed = match &mut programs {
                Some(programs) => programs.pass(now, tenant, wire),
                None => wire,
            };
            // Without programs the promise does not cover young connections, limits that no listing
            // has shown, and other sockets.
            let known = now - connection.opened >= Time::from_secs(2) && !connection.unsure;
            if self.backend == Backend::Programs || known {
                self.promised[tenant] += passed;
            }
        }
        for (tenant, rate) in self.others.iter().enumerate().filter(|_| self.backend == Backend::Programs) {
            let bytes = rate * span;
            self.promised[tenant] += match &mut programs {
                Some(programs) => programs.pass(now, tenant, bytes),
                None => bytes,
            };
        }
    }

    /// Calls `each` for all connections. A listing may leave some out, but none three times in a
    /// row.
    fn look(&mut self, mut each: impl FnMut(&mut Connection)) {
        for connection in &mut self.connections {
            if connection.missed < 2 && self.rng.random_bool(0.01) {
                connection.missed += 1;
                continue;
            }
            connection.missed = 0;
            each(connection);
        }
    }

    fn find(&mut self, cookie: u64) -> io::Result<&mut Connection> {
        let at = self.connections.binary_search_by_key(&cookie, |connection| connection.seen.cookie);
        Ok(&mut self.connections[at.map_err(|_| io::ErrorKind::NotFound)?])
    }
}

/// The kernel as the guardian uses it.
#[derive(Debug)]
pub(super) struct Bare(pub(super) Rc<RefCell<SimulatedKernel>>);

impl Kernel for Bare {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.0.borrow_mut().look(|connection| seen.push(connection.seen));
        Ok(())
    }

    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let limit = rate.map(|rate| rate.bytes_per_sec() as u64);
        self.0.borrow_mut().find(connection.cookie)?.seen.limit = limit;
        Ok(())
    }

    fn describe(&self) -> String {
        "a simulation".into()
    }
}

/// The pipe from an agent to its guardian, and the record file for the next agent.
#[derive(Debug, Default)]
pub(super) struct GuardianPipe {
    pub(super) pipe: Vec<u8>,
    pub(super) file: Vec<u8>,
    /// The agent has ended, by itself or by a fault.
    pub(super) ended: bool,
    /// The limits that programs had set, by cookie.
    paced: ByNumber<u64, Option<u64>>,
    look: Time,
    silent: u32,
}

impl GuardianPipe {
    /// Starts a new agent's pipe and file.
    pub(super) fn begin(&mut self) {
        *self = GuardianPipe { file: BOOT.to_vec(), ..GuardianPipe::default() };
    }

    fn write(&mut self, cookie: u64, own: Option<Option<u64>>) {
        let record = ward::record(cookie, own);
        self.pipe.extend(record);
        if cookie != 0 {
            self.file.extend(record);
        }
    }

    /// The agent's check of its guardian, once per second. A guardian that has ended, or has read
    /// nothing for two checks, gets a successor with all records.
    pub(super) fn replace_guardian(&mut self, now: Time, stopped: Option<Time>) -> bool {
        if now < self.look {
            return false;
        }
        self.look = now + Time::from_secs(1);
        self.silent = if stopped.is_some_and(|stopped| now < stopped) { self.silent + 1 } else { 0 };
        if stopped.is_some() && self.silent < 2 {
            return false;
        }
        (self.pipe, self.file, self.silent) = (Vec::new(), BOOT.to_vec(), 0);
        let paced: Vec<_> = self.paced.iter().map(|(&cookie, &own)| (cookie, own)).collect();
        paced.into_iter().for_each(|(cookie, own)| self.write(cookie, Some(own)));
        true
    }
}

/// The kernel as the agent uses it.
#[derive(Debug)]
pub(super) struct Handle {
    machine: Rc<RefCell<SimulatedKernel>>,
    wire: Rc<RefCell<GuardianPipe>>,
    /// For eBPF, by cookie: the share, and the program's limit at the last listing.
    asked: HashMap<u64, (u64, Option<u64>)>,
    pending: Vec<(u64, u64)>,
}

impl Handle {
    pub(super) fn new(machine: &Rc<RefCell<SimulatedKernel>>, wire: &Rc<RefCell<GuardianPipe>>) -> Handle {
        wire.borrow_mut().begin();
        let (machine, wire) = (Rc::clone(machine), Rc::clone(wire));
        Handle { machine, wire, asked: HashMap::new(), pending: Vec::new() }
    }

    fn programs<T>(&self, act: impl FnOnce(&mut Programs) -> T) -> Option<T> {
        self.machine.borrow_mut().programs.as_mut().map(act)
    }
}

impl Kernel for Handle {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        let machine = &mut *self.machine.borrow_mut();
        let diag = machine.backend == Backend::Diag;
        machine.look(|connection| {
            connection.unsure = false;
            let mut shown = connection.seen;
            if let Some((share, own)) = self.asked.get_mut(&shown.cookie).filter(|_| !diag)
                && std::mem::replace(own, connection.own) == connection.own
            {
                shown.limit = Some(*share).filter(|&share| share != u64::MAX);
            }
            seen.push(shown);
        });
        Ok(())
    }

    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let (cookie, value) = (connection.cookie, rate.map(|rate| rate.bytes_per_sec() as u64));
        if self.machine.borrow().backend == Backend::Programs {
            let own = self.asked.get(&cookie).map_or(connection.limit, |asked| asked.1);
            let share = value.unwrap_or(u64::MAX);
            self.asked.insert(cookie, (share, own));
            self.pending.push((cookie, share));
            return Ok(());
        }
        // As in `SockDiag`.
        let wire = &mut *self.wire.borrow_mut();
        if value.is_some() && !wire.paced.contains_key(&cookie) {
            wire.write(cookie, Some(connection.limit));
            wire.paced.insert(cookie, connection.limit);
        }
        self.machine.borrow_mut().find(cookie)?.seen.limit = value;
        if wire.paced.get(&cookie).is_some_and(|own| *own == value || value.is_none()) {
            wire.paced.remove(&cookie);
            wire.write(cookie, None);
        }
        Ok(())
    }

    fn owns(&mut self, connection: &Seen) {
        let wire = &mut *self.wire.borrow_mut();
        if let Some(own) = wire.paced.get_mut(&connection.cookie) {
            *own = connection.limit;
            wire.write(connection.cookie, Some(connection.limit));
        }
    }

    fn traffic(&mut self, counts: &mut Counts) -> io::Result<()> {
        counts.tenants = self.programs(|programs| programs.counts).into_iter().flatten().collect();
        Ok(())
    }

    fn hold(&mut self, _strangers: Rate, holds: &[Hold]) -> io::Result<()> {
        self.programs(|programs| programs.holds = holds.to_vec());
        Ok(())
    }

    fn beat(&mut self) {
        if self.machine.borrow().backend == Backend::Diag {
            self.wire.borrow_mut().write(0, None);
        }
    }

    fn settle(&mut self) -> io::Result<()> {
        let (now, pending) = (self.machine.borrow().now, std::mem::take(&mut self.pending));
        self.programs(|programs| {
            programs.until = now + bpf::Config::default().lease;
            programs.shares.extend(pending);
        });
        Ok(())
    }

    fn describe(&self) -> String {
        "a simulation".into()
    }
}
