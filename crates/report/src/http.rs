//! A minimal HTTP/1 server for browsers and scrapers, safe for untrusted clients.
//!
//! It serves one request per connection. A client costs at most one thread for `PATIENCE` and a few
//! kilobytes. Above `MOST` connections the oldest is closed, so that silent clients block no
//! others.
//!
//! A connection to a loopback address must name such an address in its `Host` header. A foreign
//! page could otherwise make a browser of this machine read the answers under the page's own name
//! (DNS rebinding).

#[cfg(any(test, fuzzing))]
#[path = "tests/http.rs"]
pub(crate) mod fuzzing;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method: `GET`, or another.
    pub method: String,
    /// The path, up to the `?`.
    pub path: String,
    /// The query after the `?`; empty without one.
    pub query: String,
    /// The `Host` header; `None` without one.
    pub host: Option<String>,
    /// The body.
    pub body: String,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

impl Response {
    /// A response with `body` of the media type `kind`.
    pub fn new(status: u16, kind: &'static str, body: String) -> Response {
        Response { status, headers: vec![("Content-Type", kind)], body }
    }

    /// A response with plain text.
    pub fn words(status: u16, text: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", text.to_owned())
    }

    /// Adds a header.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Response {
        self.headers.push((name, value));
        self
    }

    fn to_bytes(&self, head_only: bool) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len());
        if !head_only {
            text += &self.body;
        }
        text.into_bytes()
    }
}

/// A server with its own thread, until it is dropped. Each connection has a further thread, so a
/// client that reads slowly delays neither others nor the end.
pub struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server at `address`; port 0 means any free port. Its threads have the name `name`,
    /// and the caller's signal mask.
    ///
    /// # Errors
    /// The address is in use or not of this machine, or no thread can be started.
    pub fn serve(
        address: SocketAddr,
        name: &'static str,
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let (ends, answer, open) = (Arc::clone(&over), Arc::new(answer), Arc::new(Open::default()));
        let accept = move || {
            while let accepted = listener.accept()
                && !ends.load(Ordering::Relaxed)
            {
                let Ok((stream, _)) = accepted else {
                    // A file descriptor may become free soon.
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                };
                let (turn, answer) = (Turn::take(&open, stream), Arc::clone(&answer));
                // If no thread can be started, the connection closes.
                let _ = std::thread::Builder::new().name(name.into()).spawn(move || {
                    // A client that hangs up needs no response.
                    let _ = serve_one(&turn.stream, Instant::now() + PATIENCE, &*answer);
                });
            }
            // Closes the remaining connections.
            open.all().drain(..).for_each(|stream| hang_up(&stream));
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(accept)?;
        Ok(Server { address, over, thread: Some(thread) })
    }

    /// The address and port in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let here = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        // Wakes the thread, which waits for a connection.
        let woken = TcpStream::connect_timeout(&SocketAddr::new(here, self.address.port()), WAKE);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// The open connections, oldest first.
#[derive(Default)]
struct Open(Mutex<Vec<Arc<TcpStream>>>);

impl Open {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<TcpStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open connection, which is removed from the list when dropped.
struct Turn {
    open: Arc<Open>,
    stream: Arc<TcpStream>,
}

impl Turn {
    fn take(open: &Arc<Open>, stream: TcpStream) -> Turn {
        let turn = Turn { open: Arc::clone(open), stream: Arc::new(stream) };
        let mut all = open.all();
        if all.len() >= MOST {
            hang_up(&all.remove(0));
        }
        all.push(Arc::clone(&turn.stream));
        drop(all);
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.open.all().retain(|stream| !Arc::ptr_eq(stream, &self.stream));
    }
}

fn hang_up(stream: &TcpStream) {
    // The other end may have closed it.
    let _ = stream.shutdown(Shutdown::Both);
}

fn serve_one(
    mut stream: &TcpStream,
    until: Instant,
    answer: &(impl Fn(&Request) -> Response + ?Sized),
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut told = false;
    let (answer, head_only) = loop {
        match parse(&bytes) {
            Parsed::Whole(request) if is_foreign(&request, stream.local_addr()?.ip()) => {
                break (Response::words(403, FOREIGN), false);
            }
            Parsed::Whole(request) => break (answer(&request), request.method == "HEAD"),
            Parsed::Wrong(status, why) => break (Response::words(status, why), false),
            // A client that expects permission to send its body receives it once.
            Parsed::Body { expected: true } if !told => {
                told = true;
                write_all(stream, b"HTTP/1.1 100 Continue\r\n\r\n", until)?;
            }
            Parsed::Head | Parsed::Body { .. } => {
                let mut buffer = [0; 1024];
                stream.set_read_timeout(Some(left(until)?))?;
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    len => bytes.extend_from_slice(&buffer[..len]),
                }
            }
        }
    };
    write_all(stream, &answer.to_bytes(head_only), until)?;
    stream.shutdown(Shutdown::Write)?;
    // The rest of the input is read first. A close with unread input would reset the connection and
    // lose the response.
    let until = until.min(Instant::now() + Duration::from_secs(1));
    let mut rest = 1 << 16;
    while rest > 0 {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut [0; 1024])? {
            0 => break,
            len => rest -= len.min(rest),
        }
    }
    Ok(())
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The state of a request's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parsed {
    /// The head is incomplete.
    Head,
    /// The body is incomplete; `expected` if the client waits for permission to send it.
    Body { expected: bool },
    /// A complete request; further bytes are ignored.
    Whole(Request),
    /// A bad request, with the status and text of the response.
    Wrong(u16, &'static str),
}

/// Parses the bytes received so far.
fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let len = match head.parse(&bytes[..bytes.len().min(HEAD)]) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD => return Parsed::Head,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Wrong(431, "the header of the request is too long\n");
        }
        Err(_) => return Parsed::Wrong(400, "this is not a request of HTTP/1\n"),
    };
    let (mut body_len, mut host, mut expected) = (None, None, false);
    for header in head.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") {
            return Parsed::Wrong(411, "the request needs a Content-Length\n");
        } else if is("content-length") {
            let Some(len) = number(header.value).filter(|len| body_len.is_none_or(|known| known == *len))
            else {
                return Parsed::Wrong(400, "its Content-Length is not a number\n");
            };
            body_len = Some(len);
        } else if is("host") {
            // With two names, one could be ours and the other the name in use.
            let Some(name) = std::str::from_utf8(header.value).ok().filter(|_| host.is_none()) else {
                return Parsed::Wrong(400, "its Host is not a name\n");
            };
            host = Some(name.to_owned());
        } else if is("expect") {
            expected = true;
        }
    }
    let body_len = match body_len.unwrap_or(0) {
        len if len <= BODY as u64 => len as usize,
        _ => return Parsed::Wrong(413, "the body of the request is too long\n"),
    };
    let Some(body) = bytes.get(len..len + body_len) else { return Parsed::Body { expected } };
    let Ok(body) = std::str::from_utf8(body) else {
        return Parsed::Wrong(400, "the body of the request is not text\n");
    };
    let url = head.path.unwrap_or_default();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    Parsed::Whole(Request {
        method: head.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        host,
        body: body.to_owned(),
    })
}

/// True if a request for the address `to` is for another name than a loopback address has. Every
/// browser sends a `Host` header.
fn is_foreign(request: &Request, to: IpAddr) -> bool {
    to.to_canonical().is_loopback() && request.host.as_deref().is_some_and(|host| !is_loopback(host))
}

/// True if a `Host` header names the loopback interface, at any port: an SSH tunnel may have
/// another.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

const FOREIGN: &str = "this server accepts only the names 127.0.0.1 and localhost\n";

/// A number of digits only. Signs and other notations are errors.
fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.parse().ok().filter(|_| text.bytes().all(|digit| digit.is_ascii_digit()))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Error",
    }
}

/// Upper bound on open connections.
const MOST: usize = 64;
/// Upper bounds on the head and on the body, in bytes.
const HEAD: usize = 8192;
const BODY: usize = 4096;
/// Upper bound on headers.
const HEADERS: usize = 64;
/// Upper bound on the time for a request and its response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Upper bound on the time to wake the thread at the end.
const WAKE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_header_names_the_loopback_interface() {
        for (host, is) in [
            ("127.0.0.1:8000", true),
            ("127.0.0.1", true),
            ("LocalHost:1", true),
            ("[::1]:8000", true),
            ("10.0.0.1:80", false),
            ("localhost.example", false),
            ("", false),
            (":80", false),
        ] {
            assert_eq!(is_loopback(host), is, "{host}");
        }
    }

    #[test]
    fn a_foreign_name_is_refused_at_a_loopback_address_only() {
        let server = echo();
        for (host, status) in [("localhost:9", 200), ("evil.example", 403), ("192.0.2.1", 403)] {
            let answer = ask(&server, &format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
        }
        let Parsed::Whole(request) = parse(b"GET / HTTP/1.1\r\nHost: scraped.example\r\n\r\n") else {
            panic!("it is whole");
        };
        assert!(is_foreign(&request, "127.0.0.2".parse().unwrap()));
        assert!(is_foreign(&request, "::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_foreign(&request, "192.0.2.1".parse().unwrap()));
    }

    fn echo() -> Server {
        let answer = |request: &Request| {
            assert_ne!(request.path, "/bug");
            Response::words(200, &format!("{} {} {}", request.path, request.query, request.body))
        };
        Server::serve(([127, 0, 0, 1], 0).into(), "echo", answer).unwrap()
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(100))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn what_is_asked_is_answered() {
        let server = echo();
        let answer = ask(&server, "POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nyes");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain"), "{answer}");
        assert!(answer.ends_with("Content-Length: 10\r\nConnection: close\r\n\r\n/a b=c yes"), "{answer}");
        let answer = ask(&server, "HEAD /a HTTP/1.0\r\n\r\n");
        assert!(answer.contains("Content-Length: 4\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        let waits = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(waits.as_bytes()).unwrap();
        let mut told = [0; 25];
        stream.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"x").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/  x"), "{answer}");
    }

    #[test]
    fn what_has_no_bounds_is_refused_and_ends_nothing() {
        let server = echo();
        let long = "x".repeat(9000);
        for (request, status) in [
            // An announced length alone allocates nothing.
            ("GET / HTTP/1.1\r\nContent-Length: 9000000000000000\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nContent-Length: 4097\r\n\r\n", 413),
            ("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999999\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx", 400),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\n\r\n", 400),
            ("\u{16}\u{3}\u{1}", 400),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65)), 431),
            (&format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
            (&format!("GET / HTTP/1.1\r\nA: {long}"), 431),
        ] {
            let answer = ask(&server, request);
            let begin: String = request.chars().take(60).collect();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{begin:?}: {answer}");
        }
        // A panic in a handler ends only its connection.
        assert_eq!(ask(&server, "GET /bug HTTP/1.1\r\n\r\n"), "");
        assert!(ask(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn those_who_say_nothing_give_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = Arc::new(Open::default());
        let come = || {
            let asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            asking.set_nonblocking(true).unwrap();
            (asking, Turn::take(&open, listener.accept().unwrap().0))
        };
        let mut all: Vec<_> = (0..MOST).map(|_| come()).collect();
        let waits = |stream: &mut TcpStream| {
            stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(all.iter_mut().all(|(asking, _)| waits(asking)), "there is room for all");
        all.push(come());
        assert!(all[1..].iter_mut().all(|(asking, _)| waits(asking)));
        let (first, _) = &mut all[0];
        first.set_nonblocking(false).unwrap();
        first.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "who came first is told at once");
        assert_eq!(open.all().len(), MOST);
        drop(all);
        assert_eq!(open.all().len(), 0, "who has gone takes no place");
    }

    #[test]
    fn those_who_still_ask_hear_of_the_end() {
        let server = echo();
        let mut half = TcpStream::connect(server.address()).unwrap();
        half.write_all(b"GET /half HTT").unwrap();
        assert!(ask(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        drop(server);
        // The connection closes at once when the server ends.
        half.set_nonblocking(true).unwrap();
        let heard = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            half.read(&mut [0]).ok()
        });
        assert_eq!(heard, Some(0));
    }

    #[test]
    fn who_takes_too_long_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let answer = |_: &Request| Response::words(200, "");
        let error = serve_one(&stream, Instant::now() + Duration::from_millis(20), &answer).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        let error = write_all(&stream, &vec![0; 1 << 26], Instant::now() + Duration::from_millis(20));
        assert!(error.is_err());
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..200,
            with in any::<u8>(),
        ) {
            fuzzing::read_anything(&bytes);
            let mut request =
                b"POST /a/link?b HTTP/1.1\r\nHost: localhost:80\r\nContent-Length: 14\r\nExpect: 100-continue\r\n\r\n{\"loss\": 0.5 }".to_vec();
            let at = at % request.len();
            request[at] = with;
            fuzzing::read_anything(&request);
        }
    }
}
