//! Network namespaces without a name: they end with this process and its children.
//!
//! An ordinary user gets them inside a user namespace, where the kernel allows that. Root needs no
//! user namespace.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::tun::{Tun, TunSpec};
use crate::error::Error;

/// The privilege by which namespaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process may administer networks.
    Root,
    /// Inside the process's own user namespace.
    User,
}

impl Privilege {
    /// Gets the right to make namespaces, in a user namespace if necessary, which the process then
    /// enters.
    ///
    /// Call it before the first thread is started, since a process with threads can't enter a user
    /// namespace.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] names the setting to enable.
    pub fn acquire() -> Result<Privilege, Error> {
        // A container may deny what the capabilities promise.
        if may_administer() && apart(|| unshare(UnshareFlags::NEWNET)).is_ok() {
            return Ok(Privilege::Root);
        }
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let entered =
            enter_user_namespace(user, group).and_then(|()| apart(|| unshare(UnshareFlags::NEWNET)));
        entered.map(|()| Privilege::User).map_err(|source| Error::NotAllowed { remedy: remedy(), source })
    }
}

/// A node's network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes a namespace with one interface besides loopback.
    pub fn new(spec: TunSpec) -> io::Result<(Namespace, Tun)> {
        Namespace::with(|| Tun::open(spec))
    }

    /// Makes a namespace, and returns the result of `work` there.
    pub fn with<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<(Namespace, T)> {
        apart(|| {
            unshare(UnshareFlags::NEWNET)?;
            let file = File::open("/proc/thread-self/ns/net")?;
            // The kernel multicasts over IPv6, so only an interface that carries IPv6 enables it.
            // Programs here may use any port, and ping.
            let group = rustix::process::getgid().as_raw();
            for (key, value) in [
                ("ipv6/conf/all/disable_ipv6", "1".to_owned()),
                ("ipv6/conf/default/disable_ipv6", "1".to_owned()),
                ("ipv4/ip_unprivileged_port_start", "0".to_owned()),
                ("ipv4/ping_group_range", format!("{group} {group}")),
            ] {
                // A kernel without the setting needs no change.
                let _ = fs::write(format!("/proc/sys/net/{key}"), value);
            }
            Ok((Namespace { file }, work()?))
        })
    }

    /// Another handle of the same namespace.
    pub fn again(&self) -> io::Result<Namespace> {
        Ok(Namespace { file: self.file.try_clone()? })
    }

    /// The file descriptor that refers to it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Numbers that identify it: device and inode.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.metadata().map(|file| identity(&file))
    }

    /// Moves the calling thread into it.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.file.as_fd(), kind)?)
    }

    /// Calls `work` there, on a separate thread.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        apart(|| {
            self.enter()?;
            work()
        })
    }

    /// Sets a kernel parameter of the namespace, such as `net.ipv4.tcp_ecn`, as sysctl(8) does.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let path = PathBuf::from("/proc/sys").join(key.replace('.', "/"));
        // Any other setting would apply to the whole machine.
        if !key.starts_with("net.") || key.contains("..") || key.contains('/') {
            return Err(io::Error::other("only parameters that begin with `net.` belong to a node"));
        }
        self.within(|| fs::write(path, value))
    }

    /// The kernel's table of interfaces there, in the format of `/proc/net/dev`.
    pub fn interfaces(&self) -> io::Result<String> {
        self.within(|| fs::read_to_string("/proc/thread-self/net/dev"))
    }

    /// Packets that the sockets there have dropped so far.
    pub fn socket_drops(&self) -> io::Result<SocketDrops> {
        self.within(|| {
            let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            // A kernel without IPv6 has no table of it.
            let snmp6 = table("snmp6").unwrap_or_default();
            Ok(SocketDrops::of(&table("snmp")?, &snmp6, &table("netstat")?))
        })
    }

    /// TCP ports with a listening socket there.
    pub fn listening(&self) -> io::Result<Vec<u16>> {
        let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        self.within(|| {
            Ok(["tcp", "tcp6"]
                .iter()
                .flat_map(|name| table(name))
                .flat_map(|table| listening(&table))
                .collect())
        })
    }

    /// Number of serving ports there: listening TCP ports, and bound UDP ports.
    pub fn serving(&self) -> io::Result<(usize, usize)> {
        self.within(serving)
    }

    /// Waits until more ports serve there than `before`, or until `gone`. Returns true if they do.
    ///
    /// The limit is `most` plus the time for which `process` waited for a processor, since it
    /// cannot begin to listen on a busy machine meanwhile.
    pub fn await_server(
        &self,
        before: (usize, usize),
        process: rustix::process::Pid,
        most: Duration,
        mut gone: impl FnMut() -> bool + Send,
    ) -> io::Result<bool> {
        self.within(|| {
            let begin = std::time::Instant::now();
            let mut bound = 0;
            loop {
                let (tcp, udp) = serving()?;
                // A look-up of a name also binds a UDP port, but only briefly.
                bound = if udp > before.1 { bound + 1 } else { 0 };
                if tcp > before.0 || bound > LOOKS {
                    return Ok(true);
                }
                if gone() || begin.elapsed().saturating_sub(waited(process)) > most {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    }
}

/// Packets dropped at sockets for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketDrops {
    /// Datagrams that found the receive buffer full (`RcvbufErrors`).
    pub datagrams: u64,
    /// Connections that found the listen queue full (`ListenOverflows`).
    pub connections: u64,
}

impl SocketDrops {
    /// Reads the texts of `/proc/net/snmp`, `/proc/net/snmp6` and `/proc/net/netstat`.
    fn of(snmp: &str, snmp6: &str, netstat: &str) -> SocketDrops {
        // A line of names, then one of values, both after the protocol.
        let counter = |table: &str, protocol: &str, name: &str| {
            let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol));
            let (names, values) = (lines.next()?, lines.next()?);
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|pair| pair.0 == name)?.1.parse().ok()
        };
        let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors")?.trim().parse().ok());
        SocketDrops {
            datagrams: counter(snmp, "Udp:", "RcvbufErrors").unwrap_or(0) + v6.unwrap_or(0),
            connections: counter(netstat, "TcpExt:", "ListenOverflows").unwrap_or(0),
        }
    }
}

/// The identity of a namespace, from the metadata of its file.
pub(super) fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Gives the calling thread, and its children, a view of the file system in which `names` resolve.
///
/// Other names resolve through `resolver`, if there is one.
pub fn resolve_names(names: &[(String, IpAddr)], resolver: Option<Ipv4Addr>) -> io::Result<()> {
    unshare(UnshareFlags::NEWNS | UnshareFlags::FS)?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let text = hosts_file(names, &fs::read_to_string("/etc/hosts").unwrap_or_default());
    // The files are on a tmpfs that only this view has: no disk must be writable, and nothing is
    // left behind. Its root is mounted for a moment on a folder that exists wherever TUN interfaces
    // do. The bind mounts of its files stay.
    let place = Path::new("/dev/net");
    rustix::mount::mount("tollway", place, "tmpfs", MountFlags::NODEV | MountFlags::NOSUID, None)?;
    let laid = lay_over(place, "/etc/hosts", &text).and_then(|()| match resolver {
        Some(resolver) => lay_over(place, "/etc/resolv.conf", &format!("nameserver {resolver}\n")),
        None => Ok(()),
    });
    rustix::mount::unmount(place, UnmountFlags::DETACH)?;
    laid
}

/// The file of `names`, which come first and so have priority, and of the machine's own entries.
///
/// The machine's IPv6 entries are left out, since only nodes are reachable over IPv6.
fn hosts_file(names: &[(String, IpAddr)], own: &str) -> String {
    let mut text = String::from("127.0.0.1 localhost\n");
    for (name, address) in names {
        text += &format!("{address} {name}\n");
    }
    let is_ipv4 = |line: &&str| {
        line.split_whitespace().next().is_some_and(|address| address.parse::<Ipv4Addr>().is_ok())
    };
    own.lines().filter(is_ipv4).for_each(|line| text += &format!("{line}\n"));
    text
}

/// The reason why the kernel refused a congestion control, for users.
pub fn congestion_refused(name: &str, error: io::Error) -> io::Error {
    let list = |which: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
        fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    };
    io::Error::other(match error.raw_os_error() {
        Some(libc::ENOENT) => {
            let known = list("available");
            format!(
                "the kernel has no congestion control `{name}`; it has {known} (as root, `modprobe tcp_{name}` may add it)"
            )
        }
        Some(libc::EPERM) => {
            let allowed = list("allowed");
            format!(
                "users may choose only {allowed}; run it as root, or allow it with `sysctl \
                net.ipv4.tcp_allowed_congestion_control='{allowed} {name}'`"
            )
        }
        _ => return error,
    })
}

/// Mounts a file with this text over `target`, in this thread's view of the file system.
///
/// The file is created in `place`.
fn lay_over(place: &Path, target: &str, text: &str) -> io::Result<()> {
    let target = Path::new(target);
    if !target.exists() {
        return Ok(()); // Nothing to lay ours over; addresses still work.
    }
    let path = place.join(target.file_name().unwrap_or_default());
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(rustix::mount::mount_bind(&path, target)?)
}

/// Ports with a TCP listener on any address or on loopback, from `/proc/net/tcp` or `tcp6`.
pub fn listening(table: &str) -> Vec<u16> {
    let mut ports: Vec<u16> = table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (address, port) = fields.nth(1)?.split_once(':')?;
            let state = fields.nth(1)?;
            (state == LISTEN && is_local(address)).then(|| u16::from_str_radix(port, 16).ok()).flatten()
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns true if an address in these tables is any address or loopback, which a relay can reach.
///
/// The tables have words of four bytes, in the machine's byte order.
fn is_local(address: &str) -> bool {
    let ipv4 = address.strip_prefix(MAPPED).unwrap_or(address);
    ipv4.bytes().all(|digit| digit == b'0')
        || address == LOOPBACK
        || (ipv4.len() == 8 && ipv4.ends_with("7F"))
}

/// Time that a process has waited for a processor (`/proc/PID/schedstat`); zero if unknown.
fn waited(process: rustix::process::Pid) -> Duration {
    let told =
        fs::read_to_string(format!("/proc/{}/schedstat", process.as_raw_nonzero())).unwrap_or_default();
    Duration::from_nanos(told.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Serving ports in this thread's namespace, over IPv4 and IPv6: those of TCP, and those of UDP.
fn serving() -> io::Result<(usize, usize)> {
    let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    // A kernel without IPv6 has no tables of it.
    let both = |name: &str| [table(name), table(&format!("{name}6"))].map(Result::unwrap_or_default).concat();
    let bound = both("udp").lines().filter(|line| line.contains(UNCONNECTED)).count();
    table("tcp").map(|_| (both("tcp").lines().filter(|line| line.contains(LISTENING)).count(), bound))
}

/// Calls `work` on a separate thread, so that the others stay in their namespaces.
fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let done = std::thread::Builder::new().spawn_scoped(scope, work)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("the thread that sets up a namespace broke off")))
    })
}

#[expect(
    unsafe_code,
    reason = "rustix has no safe form of unshare(2), since CLONE_FILES would break open files"
)]
fn unshare(what: UnshareFlags) -> io::Result<()> {
    debug_assert!(!what.contains(UnshareFlags::FILES));
    // SAFETY: file descriptors stay shared, and only unsharing them could be unsafe.
    Ok(unsafe { rustix::thread::unshare_unsafe(what) }?)
}

/// Moves the process into a user namespace that keeps its user and group.
fn enter_user_namespace(user: u32, group: u32) -> io::Result<()> {
    // A joined thread may still be counted for a moment.
    let mut tries = 0;
    while let Err(error) = unshare(UnshareFlags::NEWUSER) {
        tries += 1;
        if error.raw_os_error() != Some(libc::EINVAL) || tries > 50 {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // Otherwise the kernel lets only root map groups (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Returns true if the process has CAP_NET_ADMIN and CAP_SYS_ADMIN.
fn may_administer() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let both = 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN;
    bits & both == both
}

/// The setting to enable if namespaces are denied, from this kernel's own settings.
fn remedy() -> String {
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "run it as root, or allow user namespaces: `sysctl \
            kernel.apparmor_restrict_unprivileged_userns=0`"
            .into();
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "run it as root, or allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`"
            .into();
    }
    if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "run it as root, or allow user namespaces: `sysctl user.max_user_namespaces=10000`".into();
    }
    "run it as root; start a container with `--privileged`, or with `--cap-add NET_ADMIN --cap-add SYS_ADMIN`"
        .into()
}

/// Number of checks, ten milliseconds apart, after which a bound UDP port counts as a server's.
const LOOKS: u32 = 5;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// As above with an empty peer address, for either version of IP; and a bound socket in
/// `/proc/net/udp`.
const LISTENING: &str = ":0000 0A ";
const UNCONNECTED: &str = ":0000 07 ";
/// `::1`, and the prefix of a mapped IPv4 address, in `/proc/net/tcp6`.
const LOOPBACK: &str = "00000000000000000000000001000000";
const MAPPED: &str = "0000000000000000FFFF0000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_at_sockets_are_found_by_name() {
        let snmp = "Tcp: A\nTcp: 7\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 9 1 455\nUdpLite: RcvbufErrors\nUdpLite: 3\n";
        let netstat = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 12 13\n";
        let snmp6 = "Udp6NoPorts \t3\nUdp6RcvbufErrors                \t45\n";
        assert_eq!(SocketDrops::of(snmp, snmp6, netstat), SocketDrops { datagrams: 500, connections: 12 });
        assert_eq!(SocketDrops::of("", "", "nonsense"), SocketDrops::default());
    }

    #[test]
    fn names_of_nodes_come_before_the_machine_s_own() {
        let own = "127.0.0.1 localhost\n127.0.1.1 box\n::1 localhost ip6-localhost\n# note\n10.1.2.3 server app.test\n";
        let names = [("server".to_owned(), Ipv4Addr::new(10, 0, 0, 2).into())];
        let text = hosts_file(&names, own);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "127.0.0.1 localhost",
                "10.0.0.2 server",
                "127.0.0.1 localhost",
                "127.0.1.1 box",
                "10.1.2.3 server app.test",
            ]
        );
    }

    #[test]
    fn listeners_are_found_on_loopback_and_on_any_address() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0\n\
            1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0\n\
            2: 0200A8C0:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0\n\
            3: 0100007F:1F91 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0\n";
        assert_eq!(listening(table), [80, 8080]);
        let table = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when\n\
            0: 00000000000000000000000000000000:4706 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n\
            1: 00000000000000000000000001000000:4707 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n\
            2: 0000000000000000FFFF00000100007F:4708 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n\
            3: 0000000000000000FFFF00000200A8C0:4709 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n\
            4: 000080FE00000000FF0001020300007F:470A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000\n";
        assert_eq!(listening(table), [0x4706, 0x4707, 0x4708]);
        assert!(listening("nonsense\n: : :").is_empty());
    }
}
