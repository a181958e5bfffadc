//! A switch in the browser: members' rates, windows and what they have outstanding, as they are. It
//! changes nothing.

use std::fmt;
use std::net::SocketAddr;

use tollway_report::http::{Answer, Request, Server};

use crate::agent::Teller;

/// Serves the page from a thread of its own until it is dropped.
pub struct View {
    server: Server,
}

/// Why nothing can be seen.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Clients' names are not for everyone.
    #[error("{0} is no loopback address, and the view is for this machine only")]
    NotLoopback(SocketAddr),
    /// The address is taken.
    #[error("cannot serve the view at {address}: {error}")]
    Serve {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
}

impl View {
    /// Starts at `address`, of a loopback interface; port 0 is any free one.
    ///
    /// # Errors
    /// The address is another machine's to see, or taken.
    pub fn serve(teller: Teller, address: SocketAddr) -> Result<View, ViewError> {
        if !address.ip().is_loopback() {
            return Err(ViewError::NotLoopback(address));
        }
        let server = Server::serve(address, "view", move |request| answer(&teller, request));
        let server = server.map_err(|error| ViewError::Serve { address, error })?;
        Ok(View { server })
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.address())
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

fn answer(teller: &Teller, request: &Request) -> Answer {
    // A page from elsewhere may have a name of its own lead here (DNS rebinding).
    let host = request.host.as_deref().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if !matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
        return Answer::words(403, "ask for it at localhost\n");
    }
    match request.path.as_str() {
        "/" => Answer::new(200, "text/html; charset=utf-8", PAGE.into()).with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'",
        ),
        "/data" => match teller.status().and_then(|status| serde_json::to_string(&status).ok()) {
            Some(json) => Answer::new(200, "application/json", json),
            None => Answer::words(500, "the switch does not answer\n"),
        },
        _ => Answer::words(404, "see /\n"),
    }
}

const PAGE: &str = include_str!("view.html");
