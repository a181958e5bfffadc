//! The event loop between interfaces and emulated links.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tollway_law::{Rate, Time};

use super::capture::Tap;
use super::panel::Panel;
use super::{FlowRecord, Mesh, MeshSpec, Strays};
use crate::clock::Clock;
use crate::error::Error;
use crate::punctual::{Punctual, Sleeper};
use crate::sys::tun::{self, Tun};
use tollway_proto::Lateness;
use tollway_proto::link::LinkStats;

/// Counters of one link.
#[derive(Clone, Debug)]
pub struct LinkRecord {
    /// Totals; the queue's figures are those of the last interval.
    pub total: LinkStats,
    /// Waiting times of packets at its port.
    pub waits: Lateness,
    /// Packets at the port or on the wire at the end of the run.
    pub held: u64,
    /// Totals at the end of each interval of [`Mesh::INTERVAL`]; the queue's figures are per
    /// interval.
    pub intervals: Vec<LinkStats>,
    /// Rates and the times from which they applied, if the rate changed during the run.
    pub rates: Vec<(Time, Rate)>,
}

/// Measurements of a run.
#[derive(Clone, Debug)]
pub struct Record {
    /// The program's running time.
    pub elapsed: Time,
    /// By link.
    pub links: Vec<LinkRecord>,
    /// Flows, each direction separately.
    pub flows: Vec<FlowRecord>,
    /// Packets that entered no link.
    pub strays: Strays,
    /// Packets that the kernel refused to receive.
    pub refused: u64,
    /// Lateness of packets handed to the kernel after their virtual arrival.
    pub lateness: Lateness,
    /// True if the emulator's thread had real-time priority.
    pub real_time: bool,
    /// Processor time of the emulator's thread.
    pub cpu: Time,
}

/// Interfaces with links between them.
///
/// It carries packets in three phases: setting up, the program's own time, and winding up. Servers
/// reach each other in all of them. Only the second is recorded, and its clock starts at zero.
pub(super) struct Bridge {
    spec: MeshSpec,
    mesh: Mesh,
    /// By node.
    tuns: Vec<Tun>,
    /// A semaphore (`EFD_SEMAPHORE`): each unit ends a phase.
    phases: OwnedFd,
    /// Receives a message at the start of the second phase.
    started: Sender<()>,
    tap: Option<Tap>,
    /// The emulator's end of a viewer's channels.
    panel: Option<Panel>,
    clock: Clock,
    sleeper: Sleeper,
    lateness: Lateness,
    refused: u64,
    intervals: Vec<Vec<LinkStats>>,
    /// End of the current interval.
    next_interval: Time,
    /// The thread's processor time at the start of the second phase.
    cpu: Time,
}

impl Bridge {
    /// Number of phases in a run.
    pub(super) const PHASES: u64 = 3;

    pub(super) fn new(spec: &MeshSpec, tuns: Vec<Tun>, phases: OwnedFd, started: Sender<()>) -> Bridge {
        // Times of changes count from the program's start.
        let at_rest = MeshSpec { changes: Vec::new(), ..spec.clone() };
        Bridge {
            spec: spec.clone(),
            mesh: Mesh::new(&at_rest, tun::VNET_LEN),
            tuns,
            phases,
            started,
            tap: None,
            panel: None,
            clock: Clock::starting_at(Time::ZERO),
            sleeper: Sleeper::default(),
            lateness: Lateness::default(),
            refused: 0,
            intervals: vec![Vec::new(); spec.links.len()],
            next_interval: Mesh::INTERVAL,
            cpu: Time::ZERO,
        }
    }

    /// Adds a capture and a viewer's panel.
    pub(super) fn watched(mut self, tap: Option<Tap>, panel: Option<Panel>) -> Bridge {
        (self.tap, self.panel) = (tap, panel);
        self
    }

    /// Yields the processor until each deadline, which delays packets by some ten microseconds.
    pub(super) fn patient(mut self) -> Bridge {
        self.sleeper.patient = true;
        self
    }

    /// Carries packets through all three phases. Returns the record and the capture.
    pub(super) fn run(mut self) -> Result<(Record, Option<Tap>), Error> {
        let punctual = Punctual::thread();
        self.sleeper.real_time = punctual.is_real_time();
        let tuns = std::mem::take(&mut self.tuns);
        let watched = (self.tap.take(), self.panel.take());
        self.carry(&tuns)?;
        self.begin(&tuns);
        (self.tap, self.panel) = watched;
        self.cpu = crate::clock::thread_cpu();
        // The receiver is gone if the program could not be started.
        let _ = self.started.send(());
        self.carry(&tuns)?;
        let record = self.record(&tuns);
        let tap = self.tap.take();
        self.panel = None;
        self.carry(&tuns)?;
        Ok((record, tap))
    }

    /// Starts the recorded phase, with idle links and with all counters and the clock at zero.
    ///
    /// Packets of servers that are in flight are delivered at once.
    fn begin(&mut self, tuns: &[Tun]) {
        self.mesh.handle_timeout(Time::NEVER);
        self.deliver(tuns);
        self.mesh = Mesh::new(&self.spec, tun::VNET_LEN);
        (self.lateness, self.refused) = (Lateness::default(), 0);
        self.intervals.iter_mut().for_each(Vec::clear);
        self.next_interval = Mesh::INTERVAL;
        self.clock = Clock::starting_at(Time::ZERO);
    }

    /// Carries packets until the phase ends.
    fn carry(&mut self, tuns: &[Tun]) -> Result<(), Error> {
        let phases = self.phases.try_clone().map_err(Error::Wait)?;
        let wake =
            self.panel.as_ref().map(|panel| panel.wake.try_clone()).transpose().map_err(Error::Wait)?;
        let mut fds: Vec<PollFd<'_>> = tuns.iter().map(|tun| PollFd::new(tun, PollFlags::IN)).collect();
        fds.push(PollFd::new(&phases, PollFlags::IN));
        fds.extend(wake.as_ref().map(|wake| PollFd::new(wake, PollFlags::IN)));
        let mut buffer = self.mesh.spare();
        let mut at_once = false;
        loop {
            let now = self.clock.now();
            while self.next_interval <= now {
                self.mesh.handle_timeout(self.next_interval);
                self.close_interval(self.next_interval);
                self.next_interval += Mesh::INTERVAL;
            }
            self.mesh.handle_timeout(now);
            self.deliver(tuns);
            let deadline = if at_once { now } else { self.mesh.poll_timeout().min(self.next_interval) };
            let ready = self.sleeper.wait(&self.clock, &mut fds, deadline)?;
            at_once = false;
            if ready == 0 {
                continue;
            }
            if !fds[tuns.len()].revents().is_empty() {
                let _ = rustix::io::read(&phases, &mut [0u8; 8]);
                return Ok(());
            }
            let mut records = 0;
            if fds.get(tuns.len() + 1).is_some_and(|fd| !fd.revents().is_empty())
                && let Some(panel) = &mut self.panel
            {
                records = panel.apply(self.clock.now(), &mut self.mesh);
            }
            for (node, tun) in tuns.iter().enumerate() {
                if fds[node].revents().contains(PollFlags::IN) {
                    at_once |= self.read(node as u32, tun, &mut buffer, tuns)?;
                }
            }
            // After packets that were sent before the request.
            (0..records).for_each(|_| self.hand_over(tuns));
        }
    }

    /// Sends the record so far to the viewer. The current interval continues.
    fn hand_over(&mut self, tuns: &[Tun]) {
        let record = self.record(tuns);
        for intervals in &mut self.intervals {
            intervals.pop();
        }
        if let Some(panel) = &self.panel {
            // A viewer that is gone needs none.
            let _ = panel.records.send(record);
        }
    }

    /// Makes the record of the phase until now, and closes the current interval.
    fn record(&mut self, tuns: &[Tun]) -> Record {
        let elapsed = self.clock.now();
        self.mesh.handle_timeout(elapsed);
        self.deliver(tuns);
        self.close_interval(elapsed);
        let intervals = self.intervals.clone();
        let mut links = Vec::with_capacity(intervals.len());
        for (i, intervals) in intervals.into_iter().enumerate() {
            let total = self.mesh.read_link(elapsed, i);
            let (waits, held) = self.mesh.waits(i);
            let rates = self.mesh.rates(i).to_vec();
            links.push(LinkRecord { total, waits, held, intervals, rates });
        }
        Record {
            elapsed,
            links,
            flows: self.mesh.flows(),
            strays: self.mesh.strays(),
            refused: self.refused,
            lateness: self.lateness.clone(),
            real_time: self.sleeper.real_time,
            cpu: crate::clock::thread_cpu().saturating_sub(self.cpu),
        }
    }

    /// Reads packets that programs at a node sent. Returns true if there may be more.
    fn read(&mut self, node: u32, tun: &Tun, buffer: &mut Box<[u8]>, tuns: &[Tun]) -> Result<bool, Error> {
        for _ in 0..BATCH {
            if self.clock.now() >= self.next_interval {
                break; // Later packets belong to the next interval.
            }
            let read =
                tun.read(buffer).map_err(|source| Error::Namespace { action: "read packets", source })?;
            let Some(len) = read else { return Ok(false) };
            let now = self.clock.now();
            let frame = &buffer[..len];
            if let Some(tap) = &mut self.tap {
                tap.note(now, node, frame.get(tun::VNET_LEN..).unwrap_or_default());
            }
            let segment = tun::segment_of(frame);
            if len > COPIED {
                let next = self.mesh.spare();
                self.mesh.handle_train(now, node, std::mem::replace(buffer, next), len, segment);
            } else {
                self.mesh.handle_frame(now, node, frame, segment);
            }
            self.deliver(tuns);
        }
        Ok(true)
    }

    /// Hands packets that have arrived to the kernel.
    fn deliver(&mut self, tuns: &[Tun]) {
        while let Some(delivery) = self.mesh.poll_delivery() {
            let frame = self.mesh.frame(delivery);
            if let Some(tap) = &mut self.tap {
                tap.note(delivery.at, delivery.node, &frame[tun::VNET_LEN..]);
            }
            let taken = tuns[delivery.node as usize].write(frame).is_ok();
            self.lateness.note(self.clock.now().saturating_sub(delivery.at), 1);
            self.refused += u64::from(!taken);
            self.mesh.release(delivery, taken);
        }
    }

    fn close_interval(&mut self, at: Time) {
        let totals: Vec<LinkStats> =
            (0..self.intervals.len()).map(|link| self.mesh.read_link(at, link)).collect();
        if let Some(panel) = &mut self.panel {
            panel.tell(at, &self.mesh, &totals);
        }
        self.intervals.iter_mut().zip(totals).for_each(|(intervals, total)| intervals.push(total));
    }
}

/// Length in bytes up to which a frame is copied, so that it does not occupy a train's buffer.
const COPIED: usize = 2048;
/// Limit of packets read from one interface per turn.
const BATCH: usize = 64;
/// Time that a program has to end before it is killed.
pub const PATIENCE: Duration = Duration::from_secs(2);
