//! The way from a node of an emulated network to the outside, without root. A helper program,
//! ordinary to the host, opens sockets there for the network's traffic.
//!
//! The helper is `passt` (the same program as `pasta`) or `slirp4netns`, whichever is installed.
//! Both speak Ethernet over a Unix socket. The node has a tap interface whose frames go to the
//! helper. The node's kernel forwards between that interface and the links.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use socket2::{Domain, SockAddr, Socket, Type};

use tollway_net::Error;
use tollway_net::sys::child::prepare;
use tollway_net::sys::interface::{self, Arp, InterfaceRequest};
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::signals::Signals;
use tollway_net::sys::{address, clean, netlink, problem, sockopt, tun};

/// The address of the name server while there is an outside.
pub(super) const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 3);

/// The way to the outside, until it is dropped.
#[derive(Debug)]
pub(super) struct Outside {
    helper: Child,
}

impl Outside {
    /// Opens a way to the outside at the node `gateway`, for all nodes.
    pub(super) fn open(namespaces: &[Namespace], gateway: u32, signals: &Signals) -> Result<Outside, Error> {
        let (tap, mac) = namespaces[gateway as usize]
            .within(open_tap)
            .map_err(problem("make the interface to the outside"))?;
        for (_, namespace) in (0..).zip(namespaces).filter(|&(node, _)| node != gateway) {
            let route = || netlink::route_everything(interface::index(tun::NAME)?, false, None);
            namespace.within(route).map_err(problem("make a route to the outside"))?;
        }
        let (helper, mut wire) = start(signals)?;
        let mut outside = Outside { helper };
        let announced = (0..namespaces.len() as u32).take(ANNOUNCED).map(address);
        let met = announced.chain([OURS]).try_for_each(|ours| wire.send(&arp_request(mac, ours)));
        // A helper answers once it is ready, or never.
        let answered = met.and_then(|()| {
            wire.socket.set_read_timeout(Some(PATIENCE))?;
            let answer = wire.receive(&mut [0; FRAME])?;
            wire.socket.set_read_timeout(None)?;
            Ok(answer)
        });
        if !answered.as_ref().is_ok_and(|&len| len > 0) {
            return Err(Error::Outside { why: outside.last_words() });
        }
        if wire.v6 {
            // Without IPv6 in the network (`--sysctl`), the way is IPv4's only.
            let _ = route_v6(namespaces, gateway);
        }
        let threads = (tap.try_clone(), wire.again());
        let (Ok(again), Ok(mut back)) = threads else {
            return Err(Error::Outside { why: "there is no descriptor left".into() });
        };
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(work).map_err(problem("start a thread"))
        };
        spawn("tollway-out", Box::new(move || while pass_out(&tap, &mut wire).is_ok() {}))?;
        spawn("tollway-in", Box::new(move || pass_in(&mut back, again)))?;
        Ok(outside)
    }

    /// True if the helper has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        self.helper.try_wait().is_ok_and(|status| status.is_some())
    }

    /// The helper's last message before its end.
    fn last_words(&mut self) -> String {
        let _ = self.helper.kill();
        let mut said = String::new();
        if let Some(mut stderr) = self.helper.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        // Without a system log, helpers print a line on that, too.
        let line = said.lines().rfind(|line| !line.trim().is_empty() && !line.contains("to syslog"));
        format!("its helper ended: {}", line.unwrap_or("it printed nothing"))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = (self.helper.kill(), self.helper.wait());
    }
}

/// Starts the helper that is installed, and returns the socket for its frames.
fn start(signals: &Signals) -> Result<(Child, HelperSocket), Error> {
    for start in [passt, slirp4netns] {
        match start(signals) {
            Ok(started) => return Ok(started),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::Outside { why: error.to_string() }),
        }
    }
    let why =
        "neither `passt` (which comes with `pasta`) nor `slirp4netns` is installed; install one of them";
    Err(Error::Outside { why: why.into() })
}

/// Starts `passt`, with a connected socket. Each frame follows its length.
fn passt(signals: &Signals) -> io::Result<(Child, HelperSocket)> {
    let (ours, theirs) = UnixStream::pair()?;
    // No other program is started meanwhile that could inherit the socket.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let v6 = has_ipv6();
    let mut command = Command::new("passt");
    command.args(["--foreground", "--quiet", if v6 { "--no-ra" } else { "--ipv4-only" }]);
    command.arg("--fd").arg(theirs.as_raw_fd().to_string());
    command.args(["--address", &OURS.to_string(), "--netmask", "24", "--gateway", &ROUTER.to_string()]);
    // The host's loopback is not part of the outside, and no connection from outside is accepted.
    command.args(["--no-map-gw", "--dns-forward", &RESOLVER.to_string(), "--no-dhcp"]);
    command.args(["--tcp-ports", "none", "--udp-ports", "none"]);
    Ok((spawn(command, signals)?, HelperSocket { socket: ours, lengths: true, v6, buffered: None }))
}

/// Starts `slirp4netns`, which listens at a path. Each frame is a message.
fn slirp4netns(signals: &Signals) -> io::Result<(Child, HelperSocket)> {
    // At a guessable path another user could listen first.
    let folder = clean::folder("outside")?;
    let done = slirp4netns_in(&folder.join("frames"), signals);
    let _ = fs::remove_dir_all(&folder);
    done
}

fn slirp4netns_in(path: &Path, signals: &Signals) -> io::Result<(Child, HelperSocket)> {
    let mut command = Command::new("slirp4netns");
    command.args(["--target-type=bess", "--cidr=10.78.0.0/24", "--disable-host-loopback"]).arg(path);
    let mut helper = spawn(command, signals)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match connect(path) {
            Ok(socket) => {
                return Ok((helper, HelperSocket { socket, lengths: false, v6: false, buffered: None }));
            }
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    || helper.try_wait()?.is_some()
                    || Instant::now() > until =>
            {
                let _ = (helper.kill(), helper.wait());
                return Err(io::Error::other(format!("cannot connect to `slirp4netns`: {error}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Connects to a helper of this user or of root.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::from(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC), None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    sockopt::require_own_peer(&socket)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

fn spawn(mut command: Command, signals: &Signals) -> io::Result<Child> {
    prepare(&mut command, signals.before());
    // The terminal's signals are for the program, which may continue after them.
    command.env(clean::MARK, clean::mark()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

/// The socket for frames to and from a helper.
#[derive(Debug)]
struct HelperSocket {
    socket: UnixStream,
    /// True for a stream in which each frame follows its length; else messages.
    lengths: bool,
    /// The helper carries IPv6.
    v6: bool,
    buffered: Option<BufReader<UnixStream>>,
}

impl HelperSocket {
    fn again(&self) -> io::Result<HelperSocket> {
        Ok(HelperSocket {
            socket: self.socket.try_clone()?,
            buffered: None,
            lengths: self.lengths,
            v6: self.v6,
        })
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if !self.lengths {
            return self.socket.write_all(frame);
        }
        let mut whole = [0; 4 + FRAME];
        whole[..4].copy_from_slice(&(frame.len() as u32).to_be_bytes());
        whole[4..4 + frame.len()].copy_from_slice(frame);
        self.socket.write_all(&whole[..4 + frame.len()])
    }

    /// Receives a frame and returns its length; zero if the helper has ended.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.lengths {
            return self.socket.read(into);
        }
        let mut len = [0; 4];
        let stream: &mut dyn Read = match &mut self.buffered {
            Some(buffered) => buffered,
            None => &mut self.socket,
        };
        stream.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        let into =
            into.get_mut(..len).ok_or_else(|| io::Error::other("a frame is larger than its buffer"))?;
        stream.read_exact(into)?;
        Ok(len)
    }
}

fn pass_out(mut tap: &File, wire: &mut HelperSocket) -> io::Result<()> {
    let mut frame = [0; FRAME];
    let len = tap.read(&mut frame)?;
    wire.send(&frame[..len])
}

fn pass_in(wire: &mut HelperSocket, mut tap: File) {
    wire.buffered = wire.socket.try_clone().ok().map(|socket| BufReader::with_capacity(1 << 18, socket));
    let mut frame = [0; FRAME];
    while let Ok(len @ 1..) = wire.receive(&mut frame) {
        // A frame that the kernel refuses is lost, as on any Ethernet.
        let _ = tap.write(&frame[..len]);
    }
}

/// Makes the interface to the helper in this thread's namespace, with its route. Returns its
/// hardware address.
fn open_tap() -> io::Result<(File, [u8; 6])> {
    let file = tun::device(0)?;
    let mut request = InterfaceRequest::new(NAME);
    request.set_short((libc::IFF_TAP | libc::IFF_NO_PI) as i16);
    request.ask(&file.as_fd(), libc::TUNSETIFF)?;
    let set = |key: String, value: &str| {
        // Only root may change neighbour settings. Without them a first packet may wait for an
        // answer.
        let _ = fs::write(format!("/proc/sys/net/ipv4/{key}"), value);
    };
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    for interface in ["all", NAME, tun::NAME] {
        // Packets from the outside arrive on another interface than the route to their source uses.
        set(format!("conf/{interface}/rp_filter"), "0");
    }
    // The helper may have IPv4 only. A kernel without IPv6 has no such setting.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6"), "1");
    // ARP requests for a node's address are answered with the interface's own.
    set(format!("conf/{NAME}/proxy_arp"), "1");
    set(format!("neigh/{NAME}/proxy_delay"), "0");
    interface::bring_up(NAME, OURS, Ipv4Addr::new(255, 255, 255, 0), tun::MTU, Arp::Yes)?;
    netlink::route_everything(interface::index(NAME)?, false, Some(ROUTER.into()))?;
    Ok((file, interface::hardware_address(NAME)?))
}

/// True if this machine has a default route of IPv6.
fn has_ipv6() -> bool {
    let default = format!("{} 00 ", "0".repeat(32));
    let table = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    table.lines().any(|line| line.starts_with(&default) && !line.trim_end().ends_with(" lo"))
}

/// Makes the routes of IPv6 to a helper that carries it.
fn route_v6(namespaces: &[Namespace], gateway: u32) -> io::Result<()> {
    for (node, namespace) in (0..).zip(namespaces) {
        namespace.within(|| {
            if node != gateway {
                return netlink::route_everything(interface::index(tun::NAME)?, true, None);
            }
            // No detection of duplicates delays the first packet.
            for (key, value) in [("accept_dad", "0"), ("accept_ra", "0"), ("disable_ipv6", "0")] {
                fs::write(format!("/proc/sys/net/ipv6/conf/{NAME}/{key}"), value)?;
            }
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
            let index = interface::index(NAME)?;
            netlink::add_address_v6(index, OURS_V6)?;
            netlink::route_everything(index, true, Some(ROUTER_V6.into()))
        })?;
    }
    Ok(())
}

/// An ARP request for the router that also announces the address `ours` (RFC 826).
fn arp_request(mac: [u8; 6], ours: Ipv4Addr) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // Ethernet type ARP; hardware Ethernet, protocol IPv4, lengths of their addresses, a request.
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&ours.octets());
    frame[38..42].copy_from_slice(&ROUTER.octets());
    frame
}

/// The interface's name.
const NAME: &str = "outside";
/// Addresses of the interface and of the router behind it, as in slirp4netns.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 100);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The same of IPv6.
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 0x100);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2);
/// Upper bound of a helper's frames, in bytes.
const FRAME: usize = 1 << 16;
/// Longest wait until a helper is ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// Upper bound of nodes whose addresses are announced to the helper at the start.
const ANNOUNCED: usize = 8;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_helper_of_another_user_is_not_believed() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: to be another user needs root");
        }
        let folder = std::env::temp_dir().join(format!("tollway-helper-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let path = folder.join("frames");
        // Another user's process listens at the path before `slirp4netns` could.
        let script = "import os, socket, sys, time\n\
                      os.setgid(65534); os.setuid(int(sys.argv[2]))\n\
                      listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                      listener.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); listener.listen()\n\
                      print(flush=True); time.sleep(60)";
        for (user, kind) in [("65534", Some(io::ErrorKind::PermissionDenied)), ("0", None)] {
            let mut helper = Command::new("python3");
            helper.args(["-c", script]).arg(&path).arg(user).stdout(Stdio::piped());
            let mut helper = helper.spawn().unwrap();
            helper.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            let done = connect(&path).err().map(|error| error.kind());
            helper.kill().unwrap();
            helper.wait().unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(done, kind, "user {user}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
