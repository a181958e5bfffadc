//! Tests of the programs in the running kernel, on connections in a namespace and a control group
//! of the test.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::netlink::{self, Property};
use tollway_net::sys::tun::TunSpec;

use super::*;

#[test]
fn a_connection_is_paced_to_its_share() {
    in_room("share", |config| {
        let mut bpf = Bpf::start(config).unwrap();
        let pair = Pair::open();
        let stream = pair.send();
        let seen = find(&mut bpf, &pair);
        bpf.pace(&seen, Some(share())).unwrap();
        // Segments queued at full speed must leave first.
        settle_for(&mut bpf, Duration::from_millis(500));
        // Times are those at which the kernel wrote the record. On a busy machine the sender may be
        // delayed, so the rate must never be above the share, and must reach it once.
        let share = share().bytes_per_sec();
        let mut begin = record(&mut bpf, &pair);
        let end = (0..20).find_map(|_| {
            settle_for(&mut bpf, Duration::from_secs(1));
            let end = record(&mut bpf, &pair);
            let span = bpf.jiffy * (end.jiffies - begin.jiffies);
            let rate = (end.sent - begin.sent) as f64 / span.as_secs_f64();
            begin = end;
            assert!(rate < 1.02 * share, "{rate} B/s for {share}");
            (rate > 0.98 * share).then_some(end)
        });
        let end = end.expect("in twenty seconds there is one in which the share is had");
        drop(stream);
        assert_eq!(end.uid, rustix::process::getuid().as_raw());
        assert!(groups_in(config.group.as_ref().unwrap()).contains(&end.cgroup));
        let seen = find(&mut bpf, &pair);
        assert!(seen.rtt > Time::ZERO && seen.cwnd > 0 && seen.stays && seen.limit == Some(2_500_000));
        assert_eq!((seen.mss, seen.headers(0), seen.options), (1448, 52, 12));
    });
}

#[test]
fn who_was_open_before_is_met_and_who_closes_is_forgotten() {
    in_room("open", |config| {
        let pair = Pair::open();
        let mut bpf = Bpf::start(config).unwrap();
        for (rate, limit) in [(Some(share()), 2_500_000), (None, u64::MAX), (Some(share()), 2_500_000)] {
            let seen = find(&mut bpf, &pair);
            bpf.pace(&seen, rate).unwrap();
            bpf.settle().unwrap();
            find(&mut bpf, &pair);
            assert_eq!(pair.limit(), limit, "at the next tick, though nothing is sent");
        }

        let other = Pair::open();
        let local = other.client.local_addr().unwrap();
        find(&mut bpf, &other);
        drop(other);
        await_that("it is forgotten", || !seen(&mut bpf).iter().any(|socket| socket.local == local));
        bpf.release().unwrap();
        assert_eq!(pair.limit(), u64::MAX);
        assert_eq!(clear(config).unwrap(), Cleared::default());
    });
}

#[test]
fn what_an_ipv6_socket_calls_an_ipv4_address_is_one() {
    let record = Raw {
        family: libc::AF_INET6 as u16,
        local6: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1],
        local_port: 443,
        ..Raw::default()
    };
    let seen = record.read(1, Time::ZERO, Time::ZERO, u64::MAX);
    assert_eq!(
        (seen.local.to_string().as_str(), seen.remote.to_string().as_str()),
        ("10.0.0.1:443", "[::]:0")
    );
}

#[test]
fn more_connections_than_there_is_room_for_are_said() {
    in_room("full", |config| {
        let mut bpf = Bpf::start(&Config { connections: 4, ..config.clone() }).unwrap();
        // Both ends are connections of this machine.
        let _one = Pair::open();
        assert_eq!((seen(&mut bpf).len(), bpf.warnings()), (2, vec![]));
        let _more = [Pair::open(), Pair::open()];
        assert_eq!(seen(&mut bpf).len(), 4);
        let said = bpf.warnings();
        assert!(said[0].1.contains("table of 4 connections is full"), "{said:?}");
    });
}

#[test]
fn what_a_program_sets_itself_is_seen_and_given_back() {
    in_room("own", |config| {
        let pair = Pair::open();
        pair.set_limit(1_000_000);
        let mut bpf = Bpf::start(config).unwrap();
        let seen = find(&mut bpf, &pair);
        assert_eq!(seen.limit, Some(1_000_000));
        bpf.pace(&seen, Some(share())).unwrap();
        bpf.settle().unwrap();
        assert_eq!(find(&mut bpf, &pair).limit, Some(2_500_000));
        pair.set_limit(3_000_000);
        assert_eq!(find(&mut bpf, &pair).limit, Some(3_000_000), "it has changed its mind");
        assert_eq!(find(&mut bpf, &pair).limit, Some(2_500_000));
        assert_eq!(pair.limit(), 2_500_000);
        bpf.release().unwrap();
        assert_eq!(pair.limit(), 3_000_000);
    });
}

#[test]
fn connections_of_other_namespaces_are_met_and_released() {
    in_room("others", |config| {
        let elsewhere = namespace();
        let mut others = Bpf::start(config).unwrap();
        let pair = elsewhere.within(|| Ok(Pair::open())).unwrap();
        // A namespace exists while a process is in it: here `sleep`.
        let mut held = elsewhere.within(|| Command::new("sleep").arg("600").spawn()).unwrap();
        let stream = pair.send();
        std::thread::sleep(TICK * 4);
        assert_eq!(seen(&mut others), [], "who means one namespace sees none of another's");
        drop((others, stream));
        let config = &Config { everywhere: true, ..config.clone() };
        let mut bpf = Bpf::start(config).unwrap();
        let seen = find(&mut bpf, &pair);
        bpf.pace(&seen, Some(share())).unwrap();
        bpf.settle().unwrap();
        let stream = pair.send();
        await_that("the hook has paced it", || pair.limit() == 2_500_000);
        drop(stream);
        drop(bpf);
        assert_eq!(pair.limit(), u64::MAX);
        let _ = held.kill();
        let _ = held.wait();
    });
}

#[test]
fn a_killed_agent_leaves_nobody_paced() {
    in_room("killed", |config| {
        let (busy, idle) = (Pair::open(), Pair::open());
        let stream = busy.send();
        let group = config.group.as_ref().unwrap();
        let mut agent = agent(group);
        await_that("the agent has paced both", || busy.limit() == 2_500_000 && idle.limit() == 2_500_000);
        let again = Bpf::start(config).map(drop).unwrap_err().to_string();
        assert!(again.contains("another `tollway shape` paces"), "{again}");
        agent.kill().unwrap();
        agent.wait().unwrap();
        await_that("who sends is free", || busy.limit() == u64::MAX);
        assert_eq!(idle.limit(), 2_500_000, "who is idle has not called the hook");
        let sends = idle.send();
        await_that("who sends again is free", || idle.limit() == u64::MAX);
        drop((stream, sends));

        // The far ends are paced too; they had nothing to send.
        assert_eq!(clear(config).unwrap(), Cleared { hooks: 1, connections: 2 });
        assert_eq!(clear(config).unwrap(), Cleared::default());
    });
}

#[test]
fn what_a_killed_agent_left_is_cleared_for_the_next_one() {
    in_room("next", |config| {
        let idle = Pair::open();
        let mut agent = agent(config.group.as_ref().unwrap());
        await_that("the agent has paced it", || idle.limit() == 2_500_000);
        agent.kill().unwrap();
        agent.wait().unwrap();
        // Its lease still runs: the start waits for the end.
        let mut bpf = Bpf::start(config).unwrap();
        assert_eq!(idle.limit(), u64::MAX, "idle, and free again");
        let seen = find(&mut bpf, &idle);
        bpf.pace(&seen, Some(share())).unwrap();
        bpf.settle().unwrap();
        find(&mut bpf, &idle);
        assert_eq!(clear(config).unwrap(), Cleared { hooks: 1, connections: 1 });
        assert_eq!(idle.limit(), u64::MAX);
    });
}

/// The process that [`agent`] starts and kills. It is no test: without a control group in the
/// environment it does nothing, since it would pace all connections of the machine. If a failed
/// test leaves it behind, it ends after [`LONGEST`].
#[test]
#[ignore = "a process for the tests above, which start it; by itself it does nothing"]
fn the_agent() {
    let Some(group) = std::env::var_os(GROUP).map(PathBuf::from) else {
        return eprintln!("SKIPPED: {GROUP} names no control group");
    };
    let mut bpf = Bpf::start(&Config { group: Some(group), ..Config::default() }).unwrap();
    let mut sockets = Vec::new();
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        sockets.clear();
        bpf.connections(&mut sockets).unwrap();
        for socket in &sockets {
            bpf.pace(socket, Some(share())).unwrap();
        }
        bpf.settle().unwrap();
        std::thread::sleep(TICK);
    }
}

/// Starts a process that paces every connection of a control group to [`share`].
fn agent(group: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let (_, module) = module_path!().split_once("::").unwrap();
    command.args(["--exact", &format!("{module}::the_agent"), "--ignored", "--nocapture"]);
    command.env(GROUP, group).stdout(Stdio::null()).spawn().unwrap()
}

/// Runs a test in a namespace and a control group, if they and the programs can be made here; else
/// prints `SKIPPED`.
fn in_room(name: &str, test: impl FnOnce(&Config) + Send) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let group = match Group::join(name) {
        Ok(group) => group,
        Err(error) => return eprintln!("SKIPPED: no control group to be had here: {error}"),
    };
    // On a busy machine this process may not run for long.
    let lease = Time::from_secs(20);
    let config = Config { group: Some(group.path.clone()), lease, ..Config::default() };
    if let Err(error) = Bpf::start(&config) {
        return eprintln!("SKIPPED: {error}");
    }
    let tested = || {
        test(&config);
        Ok(())
    };
    namespace().within(tested).unwrap();
}

fn namespace() -> Namespace {
    let (address, mask) = (Ipv4Addr::new(10, 9, 8, 7), Ipv4Addr::new(255, 255, 255, 0));
    let namespace = Namespace::new(TunSpec { address, mask, address_v6: None, train: 0 }).unwrap().0;
    namespace.within(|| netlink::set("lo", &[(Property::LargestPacket, 1500)])).unwrap();
    namespace
}

/// A control group that this process is in until the value is dropped.
struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    fn join(name: &str) -> io::Result<Group> {
        let root = cgroup::root()?;
        let mine = fs::read_to_string("/proc/self/cgroup")?;
        let before = mine.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
        let before = root.join(before).join("cgroup.procs");
        let path = root.join(format!("tollway-test-{}-{name}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path, before };
        fs::write(group.path.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes of other tests are in it too; one may be about to end.
        let members = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(&self.before, member);
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// A connection whose far end reads everything.
struct Pair {
    client: TcpStream,
}

impl Pair {
    fn open() -> Pair {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 18];
            while far.read(&mut buffer).is_ok_and(|len| len > 0) {}
        });
        Pair { client }
    }

    /// Sends until the result is dropped.
    fn send(&self) -> Sending {
        let go_on = Arc::new(AtomicBool::new(true));
        let (mut client, sending) = (self.client.try_clone().unwrap(), go_on.clone());
        std::thread::spawn(move || {
            let block = vec![7; 1 << 16];
            while sending.load(Ordering::Relaxed) && client.write_all(&block).is_ok() {}
        });
        Sending(go_on)
    }

    /// The limit of its pacing rate, in bytes per second.
    fn limit(&self) -> u64 {
        let (mut value, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
        let (level, name, socket) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, self.client.as_raw_fd());
        #[expect(unsafe_code, reason = "nobody wraps this option")]
        // SAFETY: value and length live until the call returns, and the length is the value's.
        let answer = unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut len) };
        assert_eq!(answer, 0);
        value
    }

    /// Sets the limit, as a program may.
    fn set_limit(&self, value: u64) {
        let len = size_of::<u64>() as libc::socklen_t;
        let (level, name, socket) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, self.client.as_raw_fd());
        #[expect(unsafe_code, reason = "nobody wraps this option")]
        // SAFETY: the value lives until the call returns, and the length is the value's.
        let answer = unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), len) };
        assert_eq!(answer, 0);
    }
}

struct Sending(Arc<AtomicBool>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn seen(bpf: &mut Bpf) -> Vec<Seen> {
    let mut sockets = Vec::new();
    bpf.connections(&mut sockets).unwrap();
    sockets
}

/// The client's end, as the kernel lists it.
fn find(bpf: &mut Bpf, pair: &Pair) -> Seen {
    let (local, remote) = (pair.client.local_addr().unwrap(), pair.client.peer_addr().unwrap());
    let found = seen(bpf).into_iter().find(|socket| (socket.local, socket.remote) == (local, remote));
    found.expect("it is open, and has been seen")
}

/// The record of the client's end in the map.
fn record(bpf: &mut Bpf, pair: &Pair) -> Raw {
    let cookie = find(bpf, pair).cookie;
    bpf.tables.seen.get(cookie).unwrap().unwrap()
}

/// Renews the lease for a time `span`.
fn settle_for(bpf: &mut Bpf, span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        bpf.settle().unwrap();
        std::thread::sleep(TICK);
    }
}

/// 20 Mb/s.
fn share() -> Rate {
    Rate::from_mbps(20.0)
}

/// Waits until `is_so` returns true, with patience for a busy machine.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not yet: {what}");
        std::thread::sleep(TICK);
    }
}

const TICK: Duration = Duration::from_millis(15);
const GROUP: &str = "TOLLWAY_TEST_GROUP";
/// Longer than any test needs its agent.
const LONGEST: Duration = Duration::from_secs(120);
