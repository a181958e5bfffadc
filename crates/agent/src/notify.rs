//! The service manager that has started this process: sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// A connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    every: Duration,
    next: Instant,
    ready: bool,
}

impl Notifier {
    /// Finds the service manager by `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub fn find() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let address = match path.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&path),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        Notifier::new(socket, watchdog.map(Duration::from_micros))
    }

    fn new(socket: Option<UnixDatagram>, watchdog: Option<Duration>) -> Notifier {
        let every = watchdog.unwrap_or(Duration::from_secs(3600)) / 3;
        Notifier { socket, every, next: Instant::now(), ready: false }
    }

    /// True if a report is due. An agent that must first find out whether it works asks this.
    pub fn is_due(&self) -> bool {
        self.socket.is_some() && Instant::now() >= self.next
    }

    /// Reports that the agent works: readiness at first, then the watchdog's signs of life. To be
    /// called at every tick.
    pub fn works(&mut self) {
        if self.is_due() {
            self.next = Instant::now() + self.every;
            let first = !std::mem::replace(&mut self.ready, true);
            self.send(if first { b"READY=1\nWATCHDOG=1" } else { b"WATCHDOG=1" });
        }
    }

    /// Reports that the agent is ending.
    pub fn stops(&self) {
        self.send(b"STOPPING=1");
    }

    fn send(&self, message: &[u8]) {
        // A failed message does not affect the agent.
        let _ = self.socket.as_ref().map(|socket| socket.send(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_reported_once_and_then_signs_of_life() {
        let (ours, manager) = UnixDatagram::pair().unwrap();
        manager.set_nonblocking(true).unwrap();
        let heard = || {
            let mut text = [0; 64];
            manager.recv(&mut text).map(|len| String::from_utf8_lossy(&text[..len]).into_owned()).ok()
        };
        let mut notifier = Notifier::new(Some(ours), Some(Duration::ZERO));
        notifier.works();
        assert_eq!(heard().as_deref(), Some("READY=1\nWATCHDOG=1"));
        notifier.works();
        assert_eq!(heard().as_deref(), Some("WATCHDOG=1"));
        notifier.every = Duration::from_secs(1000);
        notifier.works();
        assert!(heard().is_some() && !notifier.is_due());
        notifier.works();
        assert_eq!(heard(), None);
        notifier.stops();
        assert_eq!(heard().as_deref(), Some("STOPPING=1"));
        // Without a manager nothing is sent.
        let mut notifier = Notifier::new(None, None);
        notifier.works();
        assert!(!notifier.is_due());
    }
}
