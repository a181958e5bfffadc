//! Listening sockets that the service manager keeps open across restarts: sd_listen_fds(3).

use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;

use listenfd::ListenFd;

/// Returns the service manager's socket at `address`, non-blocking, if it has passed one.
///
/// The first call must precede threads that read the environment. Clients that connect while no
/// process accepts wait for the next one.
pub fn passed(address: SocketAddr) -> Option<TcpListener> {
    static PASSED: OnceLock<Vec<TcpListener>> = OnceLock::new();
    let passed = PASSED.get_or_init(|| {
        let mut sockets = ListenFd::from_env();
        (0..sockets.len()).filter_map(|at| sockets.take_tcp_listener(at).ok()?).collect()
    });
    let serves = |at: SocketAddr| {
        // The manager's wildcard is that of IPv6, which also accepts IPv4.
        let any = at.ip().is_unspecified() && address.ip().is_unspecified();
        at.port() == address.port() && (any || at.ip() == address.ip())
    };
    let socket = passed.iter().find(|socket| socket.local_addr().is_ok_and(serves))?.try_clone().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}
