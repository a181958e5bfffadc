//! A router as a process: its directions, their programs, and the watch on the interface.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollway_agent::control;
use tollway_agent::events::Events;
use tollway_agent::programs::LoadError;
use tollway_law::Time;
use tollway_net::edge::{
    EdgeMeters, Held, TenantMoment, Trips, Way, WayMoment, WaySpec, Wire, longest_train,
};
use tollway_net::sys::interface;
use tollway_net::sys::netlink::{self, Property};
use tollway_net::sys::tun::{self, Tun};
use tollway_net::{Clock, Error, random};

use crate::config::{Config, Direction, OnFailure};
use crate::programs::{Programs, SIGHTS, Settings, Side, Sight};
use crate::status::{HeldStatus, Status, TenantStatus, WayStatus};
use crate::tenants::Condition;

/// The reason why a router does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such interface.
    #[error("there is no interface `{name}`; there are {}", .known.join(", "))]
    NoDevice {
        /// The name.
        name: String,
        /// The interfaces there are.
        known: Vec<String>,
    },
    /// Another router has the interface.
    #[error("another router runs at `{0}`; `tollway router status` asks it")]
    Taken(String),
    /// The kernel's part cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system refuses a socket, an interface or a thread.
    #[error(transparent)]
    Net(#[from] Error),
    /// The system refuses an action.
    #[error("cannot {action}: {source}; run it as root, or with CAP_NET_ADMIN and CAP_NET_RAW")]
    Refused {
        /// The action.
        action: &'static str,
        /// The error.
        source: io::Error,
    },
}

fn refused(action: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Refused { action, source }
}

/// A router. It ends once [stopped](Agent::stop) or dropped.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    source: String,
    running: Option<Running>,
    /// The reason why a newer configuration is not in force.
    refusal: Option<String>,
    /// The reason why packets pass.
    outage: Option<String>,
    events: Events,
    began: Instant,
    /// The next attempt to start again, and the wait after it if it fails.
    retry: (Instant, Duration),
    before: Mutex<Option<Before>>,
}

/// The last reading of the counters, for rates.
#[derive(Debug)]
struct Before {
    at: Instant,
    totals: Vec<Totals>,
    shown: Vec<(f64, Option<f64>)>,
}

/// Bytes that left a link or a tenant, and the sum of waiting times with the number of packets.
#[derive(Clone, Copy, Debug)]
struct Totals {
    bytes: u64,
    waited: (Time, u64),
}

/// The parts of a router at an interface.
#[derive(Debug)]
struct Running {
    /// The interface's number.
    index: u32,
    programs: Arc<Programs>,
    ways: [Option<Carried>; 2],
    meters: Option<EdgeMeters>,
    _claim: UnixListener,
}

#[derive(Debug)]
struct Carried {
    way: Way,
    /// The interface through which packets come here.
    name: String,
}

impl Agent {
    /// Puts a router in place; `source` names the origin of the configuration.
    ///
    /// # Errors
    /// There is no such interface, the kernel lacks a feature, or this process a right.
    pub fn start(config: Config, source: String, events: Events) -> Result<Agent, StartError> {
        let running = Some(Running::start(&config, true)?);
        let began = Instant::now();
        let (retry, before) = ((began, FIRST_WAIT), Mutex::new(None));
        Ok(Agent { config, source, running, refusal: None, outage: None, events, began, retry, before })
    }

    /// Makes everything that a router needs, redirects nothing, and removes it again.
    ///
    /// # Errors
    /// As for [`Agent::start`].
    pub fn rehearse(config: &Config) -> Result<(), StartError> {
        Running::start(config, false).map(drop)
    }

    /// Ends the router: packets pass from now on, and those on its links leave within a second.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Looks after the interface: puts the router in place again after the interface was replaced.
    /// To be called some times a second.
    pub fn tick(&mut self) {
        let device = &self.config.device;
        let index = interface::index(device).ok();
        let failed = self.running.as_ref().is_some_and(Running::is_over);
        if failed || self.running.as_ref().is_some_and(|running| Some(running.index) != index) {
            let why = if failed { "a direction has failed" } else { "the interface is gone" };
            self.events.warn("outage", format_args!("{device}: {why}; packets pass"));
            self.outage = Some(why.into());
            self.running = None;
        }
        if self.running.is_none() && index.is_some() && Instant::now() >= self.retry.0 {
            match Running::start(&self.config, true) {
                Ok(running) => {
                    self.events.info("start", format_args!("{device} is back"));
                    (self.running, self.outage) = (Some(running), None);
                    self.retry.1 = FIRST_WAIT;
                }
                Err(error) => {
                    self.outage = Some(error.to_string());
                    self.retry = (Instant::now() + self.retry.1, (self.retry.1 * 2).min(LAST_WAIT));
                }
            }
        }
    }

    /// True while packets cross the links.
    pub fn works(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.is_over())
    }

    /// Puts another configuration in force. Packets on the links go on to the new ones.
    ///
    /// # Errors
    /// The reason it cannot be; the previous one stays in force.
    pub fn install(&mut self, config: Config) -> Result<(), StartError> {
        let old = &self.config;
        let same_place = (&old.device, old.on_failure, old.meter, &old.conditions)
            == (&config.device, config.on_failure, config.meter, &config.conditions)
            && [(&old.up, &config.up), (&old.down, &config.down)]
                .iter()
                .all(|(a, b)| a.is_some() == b.is_some());
        match &self.running {
            // The kernel's part holds the rates of a limit.
            Some(running) if same_place && config.on_failure == OnFailure::Pass => {
                for (side, direction) in Side::ALL.into_iter().zip([&config.up, &config.down]) {
                    running.change(side, direction);
                }
            }
            _ => {
                interface::index(&config.device).map_err(|_| no_device(&config.device))?;
                self.running = None;
                match Running::start(&config, true) {
                    Ok(running) => self.running = Some(running),
                    Err(error) => {
                        self.running = Running::start(&self.config, true).ok();
                        return Err(error);
                    }
                }
            }
        }
        (self.config, self.outage) = (config, None);
        Ok(())
    }

    /// Records the reason a newer configuration is not in force; `None` clears it.
    pub fn set_refusal(&mut self, refusal: Option<String>) {
        self.refusal = refusal;
    }

    /// The counters of a direction; `None` if it has no rate, or does not answer.
    pub fn moment(&self, side: Side) -> Option<WayMoment> {
        self.running.as_ref()?.ways[side as usize].as_ref()?.way.moment()
    }

    /// The present status.
    pub fn status(&self) -> Status {
        let (ways, tenants) = self.running.as_ref().map(|running| self.ways(running)).unwrap_or_default();
        let meters = self.running.as_ref().and_then(|running| running.meters.as_ref());
        let found = meters.map(EdgeMeters::moment).unwrap_or_default();
        let held =
            |Held { of, offence, dropped }| HeldStatus { sender: of, offence: offence.name(), dropped };
        Status {
            time_s: self.began.elapsed().as_secs_f64(),
            version: self.config.version.clone(),
            source: self.source.clone(),
            device: self.config.device.clone(),
            law: self.config.law.clone(),
            trouble: self.outage.clone().or_else(|| self.refusal.clone()),
            metered: found.seen,
            accused: found.accused,
            held: found.held.into_iter().map(held).collect(),
            ways,
            tenants,
        }
    }

    fn ways(&self, running: &Running) -> (Vec<WayStatus>, Vec<TenantStatus>) {
        let moments: Vec<Option<WayMoment>> = Side::ALL.into_iter().map(|side| self.moment(side)).collect();
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = moments.iter().flatten().flat_map(|moment| {
            let lane = &moment.lane;
            let link = Totals { bytes: lane.stats.sent_bytes, waited: lane.waited };
            let of = |tenant: &TenantMoment| {
                let stats = &tenant.stats;
                Totals { bytes: stats.policy.bytes + stats.policy.excess_bytes, waited: stats.waited }
            };
            [link].into_iter().chain(lane.tenants.iter().map(of))
        });
        let mut shown = rates(&mut before, totals.collect()).into_iter();
        let mut next = || shown.next().unwrap_or_default();
        let (mut all, mut tenants) = (Vec::new(), Vec::new());
        for side in Side::ALL {
            let at = side as usize;
            let direction = [&self.config.up, &self.config.down][at];
            let Some(moment) = &moments[at] else { continue };
            let (rate_bps, wait_ms) = next();
            let (Some(carried), Some(direction)) = (&running.ways[at], direction) else { continue };
            let stats = &moment.lane.stats;
            let counts = running.programs.counts(side).unwrap_or_default();
            all.push(WayStatus {
                direction: side.word(),
                limit_bps: direction.link.rate.mbps() * 1e6,
                rate_bps,
                bytes: stats.sent_bytes,
                packets: stats.sent_packets,
                dropped: stats.drops.queue(),
                marked: stats.marks,
                queued: moment.lane.queued.1,
                wait_ms,
                missed: tun::drops(&table, &carried.name).map_or(0, |drops| drops.0),
                unsent: moment.unsent,
                passed: counts.passed,
                refused: counts.refused,
                cpu_s: moment.cpu.as_secs_f64(),
                late_ms: moment.lateness.mean().as_millis_f64(),
            });
            let limits =
                direction.tenants.iter().map(|tenant| tenant.config.policy.profile.rate.mbps() * 1e6);
            for (TenantMoment { name, stats }, limit_bps) in moment.lane.tenants.iter().zip(limits) {
                let (rate_bps, wait_ms) = next();
                tenants.push(TenantStatus {
                    tenant: name.clone(),
                    direction: side.word(),
                    limit_bps,
                    rate_bps,
                    bytes: stats.policy.bytes,
                    excess_bytes: stats.policy.excess_bytes,
                    dropped: stats.dropped + stats.policy.dropped + stats.policy.too_large,
                    marked: stats.marked,
                    queued: stats.queued.1,
                    wait_ms,
                    members: stats.members,
                });
            }
        }
        (all, tenants)
    }
}

/// The rate in bit/s and the mean waiting time in ms of each since the reading before, if that is
/// half a second ago; otherwise those of then.
fn rates(before: &mut Option<Before>, totals: Vec<Totals>) -> Vec<(f64, Option<f64>)> {
    let now = Instant::now();
    let mut shown = vec![(0.0, None); totals.len()];
    if let Some(old) = before.as_ref().filter(|old| old.totals.len() == totals.len()) {
        let span = now.saturating_duration_since(old.at).as_secs_f64();
        if span < 0.5 {
            return old.shown.clone();
        }
        for ((shown, new), old) in shown.iter_mut().zip(&totals).zip(&old.totals) {
            // A new link counts from zero.
            let (time, count) = match new.waited.1.checked_sub(old.waited.1) {
                Some(count) => (new.waited.0.saturating_sub(old.waited.0), count),
                None => new.waited,
            };
            let wait = (count > 0).then(|| time.as_millis_f64() / count as f64);
            let bytes = new.bytes.checked_sub(old.bytes).unwrap_or(new.bytes);
            *shown = (bytes as f64 * 8.0 / span, wait);
        }
    }
    *before = Some(Before { at: now, totals, shown: shown.clone() });
    shown
}

impl Running {
    /// Puts the parts in place; packets come only if `divert`.
    fn start(config: &Config, divert: bool) -> Result<Running, StartError> {
        let device = &config.device;
        let index = interface::index(device).map_err(|_| no_device(device))?;
        let claim = claim(device)?;
        let ethernet = interface::is_ethernet(device).map_err(refused("read the interface's kind"))?;
        let wire = Wire::sender(device).map_err(refused("open a packet socket"))?;
        let cookie = wire.cookie().map_err(refused("number a packet socket"))?;
        let directions = [&config.up, &config.down];
        let mut ends = [None, None];
        let (mut to, mut limit) = ([0; 2], [None; 2]);
        for (at, direction) in directions.iter().enumerate() {
            let Some(Direction { link, tenants, .. }) = direction else { continue };
            let (tun, name) = Tun::open_bare(ethernet).map_err(refused("make an interface"))?;
            allow_trains(&name, longest_train(link, tenants)).map_err(refused("set up an interface"))?;
            to[at] = interface::index(&name).map_err(refused("find an interface"))?;
            limit[at] = (config.on_failure == OnFailure::Limit).then_some(link.rate);
            ends[at] = Some((tun, name));
        }
        let mark = u32::from_ne_bytes(random().map_err(Error::Random)?) | 1;
        let (sights, count) = (sights(&config.conditions)?, config.conditions.len() as u32);
        let settings = Settings { device: index, cookie, to, limit, mark, sights, count };
        let mut programs = Programs::load(settings)?;
        if divert {
            programs.divert(device)?;
        }
        let programs = Arc::new(programs);
        let meters = config.meter.map(|meter| EdgeMeters::new(meter.budget));
        let mut running =
            Running { index, programs, ways: [None, None], meters: meters.clone(), _claim: claim };
        let (trips, clock) = (Trips::default(), Clock::starting_at(Time::ZERO));
        let trips = directions.iter().all(|direction| direction.is_some()).then_some(trips);
        let mut wire = Some(wire);
        for side in Side::ALL {
            let (Some(direction), Some((tun, name))) =
                (directions[side as usize], ends[side as usize].take())
            else {
                continue;
            };
            let out = if side == Side::Up { wire.take() } else { None };
            let (link, tenants) = (direction.link.clone(), direction.tenants.clone());
            let labelled = side == Side::Up && count > 0;
            let metered = config.meter.is_some_and(|meter| meter.side == side);
            let meters = meters.as_ref().map(|all| if metered { all.clone() } else { all.of_answers() });
            let trips = trips.as_ref().map(|all| if side == Side::Up { all.clone() } else { all.back() });
            let spec = WaySpec { link, tenants, meters, trips, clock, labelled, tun, ethernet, out };
            let programs = Arc::clone(&running.programs);
            let way = Way::start(spec, &format!("tollway-{}", side.word()), move || programs.beat(side))?;
            running.ways[side as usize] = Some(Carried { way, name });
        }
        Ok(running)
    }

    fn is_over(&self) -> bool {
        self.ways.iter().flatten().any(|carried| carried.way.is_over())
    }

    /// Replaces the link of a direction.
    fn change(&self, side: Side, direction: &Option<Direction>) {
        if let (Some(carried), Some(direction)) = (&self.ways[side as usize], direction) {
            // A train that is too long only waits longer.
            let _ = allow_trains(&carried.name, longest_train(&direction.link, &direction.tenants));
            carried.way.replace(direction.link.clone(), direction.tenants.clone());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // New packets pass, and those on the links leave.
        self.programs.fall_silent();
        for carried in self.ways.iter_mut().filter_map(Option::take) {
            // A failure has been reported before.
            let _ = carried.way.end();
        }
    }
}

/// The conditions by the numbers that the kernel has for interfaces.
fn sights(conditions: &[Condition]) -> Result<[Sight; SIGHTS], StartError> {
    let mut all = [Sight::default(); SIGHTS];
    for (sight, condition) in all.iter_mut().zip(conditions) {
        match condition {
            Condition::Mark(mark, mask) => (sight.mark, sight.mask) = (*mark, *mask),
            Condition::Interface(name) => {
                sight.interface = interface::index(name).map_err(|_| no_device(name))?;
            }
        }
    }
    Ok(all)
}

/// Sets the longest train that reaches user space as one packet, in bytes; 0 is none.
fn allow_trains(name: &str, bytes: u32) -> io::Result<()> {
    let packets = if bytes > 0 { 65_535 } else { 1 };
    let size = if bytes > 0 { bytes.min(LONGEST) } else { LONGEST };
    netlink::set(name, &[(Property::LongestTrain, size), (Property::LongestTrainPackets, packets)])
}

/// Reserves the interface in this network namespace, until the result is dropped.
fn claim(device: &str) -> Result<UnixListener, StartError> {
    let address = SocketAddr::from_abstract_name(format!("tollway-router-{device}"));
    let bound = address.and_then(|address| UnixListener::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::Taken(device.to_owned()),
        _ => refused("reserve the interface")(error),
    })
}

fn no_device(name: &str) -> StartError {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let known = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    StartError::NoDevice { name: name.to_owned(), known: known.filter(|name| name != "lo").collect() }
}

/// Wait after the first failed attempt to start again, and after later ones.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(5);
/// Upper bound of any train in bytes. The longest of TCP have 65 226, and a read has room for 64 KiB.
const LONGEST: u32 = 65_500;

/// The default control socket of this user.
pub fn default_path() -> PathBuf {
    control::folder().join("router.sock")
}
