//! The service manager that has started this process: sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// A connection to the service manager, if there is one.
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    every: Duration,
    next: Instant,
    ready: bool,
}

impl Supervisor {
    /// Finds the service manager by `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub(crate) fn find() -> Supervisor {
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
        let every = Duration::from_micros(watchdog.unwrap_or(u64::from(u32::MAX)) / 3);
        Supervisor { socket, every, next: Instant::now(), ready: false }
    }

    /// Reports that the agent works. To be called at every tick.
    pub(crate) fn tell(&mut self) {
        let Some(socket) = &self.socket else { return };
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.every;
            // A failed message does not affect the tick.
            let _ = socket.send(if std::mem::replace(&mut self.ready, true) {
                b"WATCHDOG=1"
            } else {
                b"READY=1\nWATCHDOG=1"
            });
        }
    }
}
