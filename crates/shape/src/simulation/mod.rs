//! A seeded simulation of the agent: agent, guardian, kernel and policy store in one process, with
//! virtual time.
//!
//! The agent, the guardian's [`Ward`] and the rule of the lease are the real ones. [`kernel`]
//! stands in for Linux, for both back-ends. Faults are drawn from the seed: hangs and deaths of
//! agent and guardian, alone and together; listings that leave connections out; churn; clocks that
//! jump; policies that change while the store is away; and a reader of `status` that stalls.
//! Promises are checked at each step, in the order in which a real machine would keep or break
//! them.

mod kernel;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use self::kernel::{Backend, Bare, GuardianPipe, Handle, Programs, SimulatedKernel};
use super::ward::Ward;
use super::*;

/// Rates of the tenants in Mb/s, by version of the policies.
const RATES: [[f64; TENANTS]; 4] = [[22.5, 22.5], [10.0, 30.0], [30.0, 5.0], [5.0, 40.0]];
const TENANTS: usize = 2;
const STEP: Time = Time::from_millis(10);
const TICK: Time = Time::from_millis(50);
/// Steps of the interval over which rates are promised: 2 s.
const WINDOW: usize = 200;
const BOOT: ward::Record = [7; ward::RECORD];
const LIFE: Time = Time::from_secs(12);

/// Assigns connections by port: to each tenant and to none in turn.
#[derive(Debug)]
struct InTurn;

impl Rules for InTurn {
    fn class_of(&self, who: &Identity<'_>) -> Option<u32> {
        tenant_of(who.remote.port()).map(|tenant| tenant as u32)
    }
}

fn tenant_of(port: u16) -> Option<usize> {
    Some(usize::from(port) % (TENANTS + 1)).filter(|&tenant| tenant < TENANTS)
}

fn regime(version: usize) -> Regime {
    let party = |(at, &mbps): (usize, &f64)| {
        let contract = Contract { rate: Some(Rate::from_mbps(mbps)), ..Contract::default() };
        Party {
            name: format!("t{at}"),
            tenant: Tenant { contract, classes: vec![1.0] },
            classes: vec![String::new()],
        }
    };
    Regime {
        version: version.to_string(),
        tick: TICK,
        overhead: 0,
        link: Contract { rate: Some(Rate::from_mbps(50.0)), ..Contract::default() },
        tenants: RATES[version % RATES.len()].iter().enumerate().map(party).collect(),
        rules: Arc::new(InTurn),
    }
}

/// The agent's process.
struct Process {
    agent: Agent,
    due: Time,
    beat: Time,
    /// The process is stopped until this time.
    stopped: Time,
    version: usize,
    /// The version at the last tick, which the kernel has.
    applied: usize,
}

/// The guardian's process.
struct Warden {
    ward: Ward,
    stopped: Time,
    /// The last time it read something, or renewed the lease.
    heard: Time,
}

struct World {
    backend: Backend,
    seed: u64,
    rng: Pcg64Mcg,
    machine: Rc<RefCell<SimulatedKernel>>,
    wire: Rc<RefCell<GuardianPipe>>,
    agent: Option<Process>,
    warden: Option<Warden>,
    /// The guardian was killed after the current or last agent started.
    unguarded: bool,
    restart: Time,
    /// The newest policies, and the time until which the store can't be reached.
    version: usize,
    away: Time,
    /// By step: each tenant's bytes on the wire and its rate in force, in bytes per second.
    past: VecDeque<([f64; TENANTS], [f64; TENANTS])>,
    /// The time from which rates are promised.
    covered: Time,
    /// The times at which the agent last started to run, and last ran.
    running: Time,
    quiet: Time,
    /// The end of the guardian's last stop.
    awake: Time,
    /// The last time at which the lease could be renewed.
    renewed: Time,
    /// The time at which the policies changed.
    changed: Time,
}

impl World {
    fn new(backend: Backend, seed: u64) -> World {
        let rng = Pcg64Mcg::seed_from_u64(seed);
        let machine = SimulatedKernel::new(backend, Pcg64Mcg::seed_from_u64(!seed));
        let world = World {
            backend,
            seed,
            rng,
            machine: Rc::new(RefCell::new(machine)),
            wire: Rc::default(),
            agent: None,
            warden: None,
            unguarded: false,
            restart: Time::ZERO,
            version: 0,
            away: Time::ZERO,
            past: VecDeque::new(),
            covered: Time::ZERO,
            running: Time::ZERO,
            quiet: Time::ZERO,
            awake: Time::ZERO,
            renewed: Time::ZERO,
            changed: Time::ZERO,
        };
        for _ in 0..6 {
            world.machine.borrow_mut().open();
        }
        world
    }

    fn now(&self) -> Time {
        self.machine.borrow().now
    }

    fn chance(&mut self, per_second: f64) -> bool {
        self.rng.random_bool(per_second * STEP.as_secs_f64())
    }

    /// A random span from 50 ms to `most` ms.
    fn span(&mut self, most: u64) -> Time {
        Time::from_millis(self.rng.random_range(50..most))
    }

    /// Starts an agent, as `tollway shape` does. Waits for the guardian of the one before.
    fn start(&mut self) {
        let now = self.now();
        if self.warden.is_some() || self.machine.borrow().is_leased() {
            return;
        }
        match self.backend {
            Backend::Diag => {
                let ward = Ward::read(&self.wire.borrow().file, &BOOT);
                self.free(&ward);
                self.assert_free("before an agent's first look");
            }
            Backend::Programs => self.machine.borrow_mut().programs = Some(Programs::new(now)),
        }
        let handle = Handle::new(&self.machine, &self.wire);
        let (agent, stopped) = (Agent::new(now, Box::new(handle), regime(self.version)), Time::ZERO);
        let (version, applied) = (self.version, self.version);
        self.agent = Some(Process { agent, due: now, beat: now, stopped, version, applied });
        self.warden = Some(Warden { ward: Ward::default(), stopped, heard: now });
        (self.unguarded, self.covered, self.running, self.awake) = (false, now, now, now);
    }

    /// Restores limits from a ward, as a guardian or a new agent does.
    fn free(&self, ward: &Ward) {
        let mut looks = 0;
        let pause = |_| {
            looks += 1;
            looks < 20
        };
        ward.free(&mut Bare(Rc::clone(&self.machine)), pause).unwrap();
    }

    /// Ends the agent as SIGTERM does.
    fn stop(&mut self) {
        if let Some(mut process) = self.agent.take() {
            process.agent.release().unwrap();
            self.machine.borrow_mut().programs = None;
            self.assert_free("after the end");
            self.quiet = self.now();
            self.wire.borrow_mut().ended = true;
        }
    }

    fn kill_agent(&mut self) {
        if self.agent.take().is_some() {
            self.quiet = self.quiet.max(self.now());
            self.wire.borrow_mut().ended = true;
            self.restart = self.now() + self.span(4000);
        }
    }

    fn kill_warden(&mut self) {
        if self.warden.take().is_some() {
            self.unguarded = true;
        }
    }

    /// Draws the faults of this step. Returns the jump of the clock.
    fn faults(&mut self) -> Time {
        let now = self.now();
        if self.chance(0.1) {
            let until = now + self.span(5000);
            if let Some(process) = &mut self.agent {
                process.stopped = until;
                self.quiet = now;
            }
        }
        if self.chance(0.1) {
            let until = now + self.span(5000);
            if let Some(warden) = &mut self.warden {
                warden.stopped = until;
            }
        }
        if self.chance(0.05) {
            self.kill_agent();
        }
        if self.chance(0.05) {
            self.kill_warden();
        }
        if self.chance(0.05) {
            self.kill_warden();
            self.kill_agent();
        }
        if self.chance(0.05) {
            self.stop();
            self.restart = now + self.span(1000);
        }
        if self.chance(0.3) {
            self.version += 1;
            self.changed = now;
        }
        if self.chance(0.1) {
            self.away = now + self.span(3000);
        }
        let mut machine = self.machine.borrow_mut();
        machine.churn();
        if self.agent.as_ref().is_none_or(|process| now < process.stopped) {
            machine.lose_agent();
        }
        drop(machine);
        if self.chance(0.05) { self.span(8000) } else { Time::ZERO }
    }

    /// Runs the guardian's process, unless it is stopped.
    fn run_warden(&mut self) {
        let now = self.now();
        let Some(mut warden) = self.warden.take() else { return };
        if now < warden.stopped {
            self.awake = warden.stopped;
            self.warden = Some(warden);
            return;
        }
        let ended = self.wire.borrow().ended;
        match self.backend {
            Backend::Programs if ended => {
                self.machine.borrow_mut().programs = None;
                return;
            }
            Backend::Programs => {
                self.renewed = now;
                if now - warden.heard >= Time(guardian::BEAT.as_nanos() as u64) {
                    warden.heard = now;
                    self.machine.borrow_mut().programs.iter_mut().for_each(|all| all.put_off(now));
                }
            }
            Backend::Diag => {
                let pipe: Vec<u8> = self.wire.borrow_mut().pipe.drain(..).collect();
                let mut input = &pipe[..];
                while warden.ward.take(&mut input) {
                    warden.heard = now;
                }
                let silent = now - warden.heard >= Time(guardian::PULSE.as_nanos() as u64);
                if ended || silent && warden.ward.note_silence() {
                    self.free(&warden.ward);
                }
                if ended {
                    self.wire.borrow_mut().file.clear();
                    return;
                }
            }
        }
        self.warden = Some(warden);
    }

    /// Runs the agent's process as `run` does, unless it is stopped.
    fn run_agent(&mut self) {
        let now = self.now();
        if self.agent.is_none() && now >= self.restart {
            self.start();
        }
        let reader_stalls = self.rng.random_bool(0.5);
        let Some(process) = &mut self.agent else { return };
        if now < process.stopped {
            self.running = process.stopped;
            return;
        }
        (self.quiet, self.renewed) = (now, now);
        if now >= process.due {
            process.agent.tick(|| now, TICK).unwrap();
            process.applied = process.version;
            if !reader_stalls {
                assert_eq!(process.agent.status().version, process.version.to_string());
            }
            process.due = (process.due + TICK).max(now);
            if now >= self.away && process.version != self.version {
                process.version = self.version;
                process.agent.install(now, regime(self.version));
                process.due = now;
            }
            process.beat = now;
        }
        if now >= process.beat {
            process.agent.beat();
            process.beat = now + run::BEAT;
        }
        if self.backend == Backend::Diag
            && self.wire.borrow_mut().replace_guardian(now, self.warden.as_ref().map(|warden| warden.stopped))
        {
            self.warden = Some(Warden { ward: Ward::default(), stopped: Time::ZERO, heard: now });
            (self.unguarded, self.awake) = (false, now);
        }
    }

    /// Sends the kernel's traffic for one step.
    fn traffic(&mut self) {
        self.machine.borrow_mut().send();
        let rates = match &self.agent {
            Some(process) => RATES[process.applied % RATES.len()].map(|mbps| mbps * 125e3),
            None => [0.0; TENANTS],
        };
        let sent = self.machine.borrow().promised;
        self.past.push_back((sent, rates));
        if self.past.len() > WINDOW {
            self.past.pop_front();
        }
    }

    fn step(&mut self) {
        let jump = self.faults();
        self.machine.borrow_mut().now += STEP + jump;
        if jump > Time::ZERO {
            // Leases and the guardian's patience end during the jump, so promises start anew.
            self.machine.borrow_mut().lose_agent();
            self.covered = self.now();
            (self.running, self.awake) = (self.running.max(self.covered), self.awake.max(self.covered));
            self.quiet = self.quiet.max(self.covered);
        }
        // After a jump either may run first.
        if self.rng.random() {
            self.traffic();
            self.run_warden();
            self.run_agent();
        } else {
            self.run_agent();
            self.run_warden();
            self.traffic();
        }
        self.check();
    }

    /// Checks all promises of `docs/src/security.md`.
    fn check(&mut self) {
        let now = self.now();
        let alive = self.agent.is_some();
        let runs = self.agent.as_ref().is_some_and(|process| now >= process.stopped);
        let guarded = self.warden.as_ref().is_some_and(|warden| now >= warden.stopped);
        if !(runs || alive && guarded && self.backend == Backend::Programs) {
            self.covered = now;
        }
        let at = format!("{:?}, seed {}, at {now}", self.backend, self.seed);
        if now - self.covered >= Time::from_secs(3) {
            for tenant in 0..TENANTS {
                let sent: f64 = self.past.iter().map(|step| step.0[tenant]).sum();
                let rate = self.past.iter().fold(0.0, |most: f64, step| most.max(step.1[tenant]));
                let most = 1.1 * rate * WINDOW as f64 * STEP.as_secs_f64();
                assert!(sent <= most, "{at}: tenant {tenant} sent {sent} of {most} in 2 s");
            }
        }
        let awake = now.saturating_sub(self.awake.max(self.quiet));
        match self.backend {
            Backend::Diag if !self.unguarded && awake >= Time::from_secs(1) => {
                self.assert_free("a second after the agent");
            }
            Backend::Programs if !alive && !self.unguarded && awake >= Time::from_secs(1) => {
                assert!(self.machine.borrow().programs.is_none(), "{at}: programs are left");
            }
            Backend::Programs if now - self.renewed > bpf::Config::default().lease => {
                assert!(!self.machine.borrow().is_leased(), "{at}: the lease goes on");
            }
            _ => {}
        }
        let settled = self.running.max(self.away).max(self.changed);
        let fresh = now.saturating_sub(settled) >= Time::from_millis(500);
        if let Some(process) = self.agent.as_ref().filter(|_| runs && fresh) {
            assert_eq!(process.version, self.version, "{at}: old policies are in force");
        }
    }

    fn assert_free(&self, when: &str) {
        let machine = self.machine.borrow();
        let paced = machine.connections.iter().find(|connection| connection.is_paced());
        assert!(
            paced.is_none(),
            "{:?}, seed {}, at {}: {paced:?} {when}",
            self.backend,
            self.seed,
            machine.now
        );
    }

    fn live(mut self) {
        while self.now() < LIFE {
            self.step();
        }
        // At the end the agent continues or starts once more, and is ended.
        for _ in 0..1000 {
            self.machine.borrow_mut().now += STEP;
            self.run_warden();
            self.run_agent();
            self.traffic();
            if self.agent.as_ref().is_some_and(|process| self.now() >= process.stopped + TICK * 2) {
                break;
            }
        }
        assert!(self.agent.is_some(), "{:?}, seed {}: no agent could be started", self.backend, self.seed);
        self.stop();
    }
}

#[test]
fn whatever_befalls_agent_and_guardian_their_promises_hold() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TOLLWAY_SOAK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + 300 * number("TOLLWAY_SOAK_SECONDS").unwrap_or(1),
    };
    for seed in seeds {
        for backend in [Backend::Programs, Backend::Diag] {
            World::new(backend, seed).live();
        }
    }
}
