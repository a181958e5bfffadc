//! The browser view of a switch: members' rates, windows and outstanding bytes. Read-only.

use std::fmt;
use std::net::SocketAddr;

use tollway_report::http::{Request, Response, Server};

use crate::agent::Teller;

/// A page served from a separate thread until this is dropped.
pub struct View {
    server: Server,
}

/// The reason the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The address is not a loopback address: clients' names are private.
    #[error("{0} is not a loopback address, and the view is for this machine only")]
    NotLoopback(SocketAddr),
    /// The address is in use.
    #[error("cannot serve the view at {address}: {error}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
}

impl View {
    /// Starts at `address`, of a loopback interface; port 0 selects a free one.
    ///
    /// # Errors
    /// The address is not a loopback address, or is in use.
    pub fn serve(teller: Teller, address: SocketAddr) -> Result<View, ViewError> {
        if !address.ip().is_loopback() {
            return Err(ViewError::NotLoopback(address));
        }
        let server = Server::serve(address, "view", move |request| answer(&teller, request));
        let server = server.map_err(|error| ViewError::Serve { address, error })?;
        Ok(View { server })
    }

    /// The address of the page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.address())
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

fn answer(teller: &Teller, request: &Request) -> Response {
    // A foreign page may resolve its own name to this address (DNS rebinding).
    let host = request.host.as_deref().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if !matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
        return Response::words(403, "request it at localhost\n");
    }
    match request.path.as_str() {
        "/" => Response::new(200, "text/html; charset=utf-8", PAGE.into()).with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'",
        ),
        "/data" => match teller.status().and_then(|status| serde_json::to_string(&status).ok()) {
            Some(json) => Response::new(200, "application/json", json),
            None => Response::words(500, "the switch does not answer\n"),
        },
        _ => Response::words(404, "see /\n"),
    }
}

const PAGE: &str = include_str!("view.html");
