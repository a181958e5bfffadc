//! A browser page with the current sites, links, prices and tenants. It changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tollway_report::http::{Request, Response, Server};

use crate::status::Status;

/// A server of the page, which ends on drop.
#[derive(Debug)]
pub struct View(Server);

impl View {
    /// Starts at `address`, which must be a loopback address; port 0 selects a free port.
    ///
    /// # Errors
    /// The address is taken, or is not a loopback address.
    pub fn serve(latest: Arc<Mutex<Status>>, address: SocketAddr) -> io::Result<View> {
        if !address.ip().is_loopback() {
            let text = format!("{address} is not a loopback address, and the view is for this machine only");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let answer = move |request: &Request| {
            let status = latest.lock().unwrap_or_else(PoisonError::into_inner);
            answer(&status, request)
        };
        Server::serve(address, "view", answer).map(View)
    }

    /// The page's URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.0.address())
    }
}

fn answer(status: &Status, request: &Request) -> Response {
    // A foreign page could make the browser send requests under another name (DNS rebinding).
    if !request.host.as_deref().is_some_and(is_ours) {
        return Response::words(403, "this server accepts only the names 127.0.0.1 and localhost\n");
    }
    let answer = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => Response::new(200, "text/html; charset=utf-8", PAGE.to_owned()).with(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
             frame-ancestors 'none'",
        ),
        ("GET", "/data") => match serde_json::to_string(status) {
            Ok(json) => Response::new(200, "application/json", json),
            Err(_) => Response::words(500, "cannot write the status\n"),
        },
        _ => Response::words(404, "see /\n"),
    };
    answer.with("Cache-Control", "no-store").with("X-Content-Type-Options", "nosniff")
}

/// Returns true if a `Host` header names the loopback interface, at any port.
fn is_ours(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The page, which loads no other file.
const PAGE: &str = include_str!("view.html");

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn the_page_and_its_data_are_for_this_machine() {
        let latest = Arc::new(Mutex::new(crate::status::tests::status()));
        let view = View::serve(Arc::clone(&latest), ([127, 0, 0, 1], 0).into()).unwrap();
        let ask = |path: &str, host: &str| {
            let mut stream = TcpStream::connect(view.0.address()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask("/", "localhost:1").contains("<title>"));
        assert!(ask("/data", "127.0.0.1").contains("\"site\":\"a\""));
        assert!(ask("/data", "evil.example").starts_with("HTTP/1.1 403"));
        assert!(ask("/other", "[::1]:9").starts_with("HTTP/1.1 404"));
        assert!(View::serve(latest, ([192, 0, 2, 1], 0).into()).is_err());
    }
}
