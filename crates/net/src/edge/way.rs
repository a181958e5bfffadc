//! The thread that carries one direction's packets.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use tollway_law::Time;
use tollway_proto::Lateness;
use tollway_proto::shaper::Action;

use super::lane::{Lane, LaneMoment, sees_packets};
use super::meters::EdgeMeters;
use super::tenants::TenantSpec;
use super::trips::Trips;
use crate::clock::{Clock, thread_cpu};
use crate::emulator::LinkSpec;
use crate::error::Error;
use crate::hosts::wire::{BATCH, Wire};
use crate::punctual::{Punctual, Sleeper};
use crate::sys::problem;
use crate::sys::tun::{self, Tun};

/// A direction of an interface.
#[derive(Debug)]
pub struct WaySpec {
    /// Its link; the nodes at its ends are ignored.
    pub link: LinkSpec,
    /// The tenants, whose packets wait for tokens before they wait for the link.
    pub tenants: Vec<TenantSpec>,
    /// Meters of senders, which both directions share.
    pub meters: Option<EdgeMeters>,
    /// Round trips of connections, which both directions share.
    pub trips: Option<Trips>,
    /// The clock, which must be that of the other direction.
    pub clock: Clock,
    /// True if each frame has a tag of IEEE 802.1ad outermost, whose number has a bit for each of the
    /// tenants' conditions that holds. It is removed.
    pub labelled: bool,
    /// The interface to which the kernel redirects packets.
    pub tun: Tun,
    /// True if frames have Ethernet's header.
    pub ethernet: bool,
    /// The way on; `None` leads back through `tun`.
    pub out: Option<Wire>,
}

/// A direction whose packets a thread carries, until [`Way::end`].
#[derive(Debug)]
pub struct Way {
    commands: Sender<Command>,
    wake: OwnedFd,
    thread: JoinHandle<Result<(), Error>>,
}

/// The counters of a direction since its start.
#[derive(Clone, Debug, Default)]
pub struct WayMoment {
    /// Those of its link.
    pub lane: LaneMoment,
    /// Frames read, and trains among them.
    pub frames: u64,
    /// Trains of segments among them.
    pub trains: u64,
    /// Frames that the kernel refused to send or to take back.
    pub unsent: u64,
    /// Lateness of frames that left after their virtual departure.
    pub lateness: Lateness,
    /// Processor time of the thread.
    pub cpu: Time,
}

#[derive(Debug)]
enum Command {
    Replace(Box<LinkSpec>, Vec<TenantSpec>),
    Read(Sender<WayMoment>),
    End,
}

impl Way {
    /// Starts the thread, called `name`. It calls `beat` at least every 100 ms.
    ///
    /// # Errors
    /// The system gives no thread, descriptor or random bytes.
    pub fn start(spec: WaySpec, name: &str, beat: impl FnMut() + Send + 'static) -> Result<Way, Error> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| problem("make an event descriptor")(error.into()))?;
        let (commands, received) = mpsc::channel();
        let secret = crate::random().map_err(Error::Random)?;
        let mut lane = Lane::new(&spec.link, &spec.tenants, spec.ethernet, secret);
        lane.set_labelled(spec.labelled);
        lane.set_shared(spec.meters, spec.trips);
        let carrier = Carrier {
            lane,
            tun: spec.tun,
            out: spec.out,
            clock: spec.clock,
            sleeper: Sleeper::default(),
            commands: received,
            wake: wake.try_clone().map_err(problem("copy a descriptor"))?,
            beat: Box::new(beat),
            beat_at: Time::ZERO,
            moment: WayMoment::default(),
            leaving: Vec::with_capacity(BATCH),
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || carrier.run()).map_err(problem("start a thread"))?;
        Ok(Way { commands, wake, thread })
    }

    /// Replaces the link and the tenants. Packets that wait there go on to the new ones.
    pub fn replace(&self, link: LinkSpec, tenants: Vec<TenantSpec>) {
        self.tell(Command::Replace(Box::new(link), tenants));
    }

    /// The counters; `None` if the thread does not answer within five seconds.
    pub fn moment(&self) -> Option<WayMoment> {
        let (reply, answer) = mpsc::channel();
        self.tell(Command::Read(reply));
        answer.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// True if the thread has failed.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the thread once the packets on the link have left, for which it has a second.
    ///
    /// # Errors
    /// The error that ended it before.
    pub fn end(self) -> Result<(), Error> {
        self.tell(Command::End);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(problem("carry packets")(std::io::Error::other("it failed"))))
    }

    fn tell(&self, command: Command) {
        // The thread may have failed.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Upper bound, in bytes, of a train that crosses a link of `spec` as one packet; 0 is none.
///
/// A train keeps the packets behind it waiting for its transmission: at most `TRAIN`. Where a
/// tenant's policy drops or marks packets, or limits their size, each comes alone.
pub fn longest_train(spec: &LinkSpec, tenants: &[TenantSpec]) -> u32 {
    let policies = || tenants.iter().map(|tenant| &tenant.config.policy);
    let rates = policies().map(|policy| policy.profile.rate);
    let rate = rates.fold(spec.rate, |least, rate| if rate < least { rate } else { least });
    let depths = policies().map(|policy| policy.profile.depth.get().min(65_536) as f64 / 2.0);
    let bytes = depths.fold((rate.bytes_per_sec() * TRAIN.as_secs_f64()).min(65_536.0), f64::min) as u32;
    let single = policies().any(|policy| policy.action != Action::Shape || policy.profile.largest.is_some());
    if bytes >= SHORTEST && !single && !sees_packets(&spec.law) { bytes } else { 0 }
}

struct Carrier {
    lane: Lane,
    tun: Tun,
    out: Option<Wire>,
    clock: Clock,
    sleeper: Sleeper,
    commands: Receiver<Command>,
    wake: OwnedFd,
    beat: Box<dyn FnMut() + Send>,
    beat_at: Time,
    moment: WayMoment,
    /// Frames that leave in this turn.
    leaving: Vec<u32>,
}

impl Carrier {
    fn run(mut self) -> Result<(), Error> {
        let punctual = Punctual::thread();
        (self.sleeper.real_time, self.sleeper.patient) = (punctual.is_real_time(), true);
        let wake = self.wake.try_clone().map_err(Error::Wait)?;
        let mut buffer = self.lane.spare();
        let (mut at_once, mut end) = (false, None);
        loop {
            let now = self.clock.now();
            if now >= self.beat_at {
                (self.beat)();
                self.beat_at = now + BEAT;
            }
            self.forward(now);
            let next = self.lane.poll_timeout();
            if end.is_some_and(|end| now >= end || (!at_once && next == Time::NEVER)) {
                return Ok(());
            }
            let deadline = if at_once { now } else { next.min(self.beat_at) };
            let ready = {
                let mut fds = [PollFd::new(&self.tun, PollFlags::IN), PollFd::new(&wake, PollFlags::IN)];
                self.sleeper.wait(&self.clock, &mut fds, deadline)?;
                fds.map(|fd| !fd.revents().is_empty())
            };
            at_once = false;
            if ready[1] {
                let _ = rustix::io::read(&wake, &mut [0u8; 8]);
                if self.obey() {
                    end.get_or_insert(self.clock.now() + PATIENCE);
                    at_once = true;
                }
            }
            if ready[0] {
                (buffer, at_once) = self.read(buffer)?;
            }
        }
    }

    /// Carries out the commands. Returns true if the thread is to end.
    fn obey(&mut self) -> bool {
        let mut ends = false;
        while let Ok(command) = self.commands.try_recv() {
            let now = self.clock.now();
            match command {
                Command::Replace(spec, tenants) => {
                    self.forward(now);
                    self.lane.replace(now, &spec, &tenants);
                }
                Command::Read(reply) => {
                    let moment =
                        WayMoment { lane: self.lane.moment(now), cpu: thread_cpu(), ..self.moment.clone() };
                    // The reader may have given up.
                    let _ = reply.send(moment);
                }
                Command::End => ends = true,
            }
        }
        ends
    }

    /// Reads frames and offers them to the link. Returns the buffer for the next one, and true if
    /// there may be more.
    fn read(&mut self, mut buffer: Box<[u8]>) -> Result<(Box<[u8]>, bool), Error> {
        for _ in 0..BATCH {
            let Some(len) = self.tun.read(&mut buffer).map_err(problem("read packets"))? else {
                return Ok((buffer, false));
            };
            self.moment.frames += 1;
            self.moment.trains += u64::from(tun::segment_of(&buffer[..len]) > 0);
            buffer = self.lane.offer(self.clock.now(), buffer, len);
        }
        Ok((buffer, true))
    }

    /// Sends the frames that have left the link by `now`.
    fn forward(&mut self, now: Time) {
        while let Some((at, handle)) = self.lane.poll(now) {
            self.moment.lateness.note(self.clock.now().saturating_sub(at), 1);
            self.leaving.push(handle);
            if self.leaving.len() == BATCH {
                self.flush();
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        let mut rest = &self.leaving[..];
        while !rest.is_empty() {
            let sent = match &self.out {
                Some(wire) => wire.send(rest.iter().map(|&handle| self.lane.frame(handle))).unwrap_or(0),
                None => usize::from(self.tun.write(self.lane.frame(rest[0])).is_ok()),
            };
            // One that the kernel refused, or that it had no room for, is lost.
            let wanted = if self.out.is_some() { rest.len() } else { 1 };
            self.moment.unsent += u64::from(sent < wanted);
            rest = &rest[(sent + usize::from(sent < wanted)).min(rest.len())..];
        }
        self.leaving.drain(..).for_each(|handle| self.lane.free(handle));
    }
}

/// Longest transmission time of a train, which delays the packets behind it.
const TRAIN: Time = Time::from_millis(1);
/// Shorter trains are not worth it, in bytes.
const SHORTEST: u32 = 16_000;
/// Interval of heartbeats.
const BEAT: Time = Time::from_millis(100);
/// Time that packets on the link have to leave at the end.
const PATIENCE: Time = Time::from_secs(1);
