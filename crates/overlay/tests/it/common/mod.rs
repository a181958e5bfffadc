//! Sites and clients for tests, on loopback.

pub(crate) mod tools;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tollway_overlay::agent::{Events, Form};
use tollway_overlay::config::Site;
use tollway_overlay::server::Server;
use tollway_overlay::status::Status;
use tollway_overlay::tls::Ends;

/// Makes an empty folder for this test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tollway-overlay-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A site that a thread runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) status: Arc<Mutex<Status>>,
    pub(crate) notes: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(folder: &Path, text: &str) -> Running {
        let site = Site::parse(&folder.join("site.toml"), text).unwrap();
        let certified = Ends::load(&site).unwrap();
        let epoch = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let (status, notes) = (Arc::new(Mutex::new(Status::default())), Arc::new(Mutex::new(Vec::new())));
        let over = Arc::new(AtomicBool::new(false));
        let (shown, said, ends) = (Arc::clone(&status), Arc::clone(&notes), Arc::clone(&over));
        let (opened, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::open(&site, certified, epoch, 1).unwrap();
            let log = Events::to(Form::Text, move |line| said.lock().unwrap().push(line));
            server.log_to(log.unwrap());
            opened.send(server.address()).unwrap();
            let each = |server: &mut Server, _| {
                *shown.lock().unwrap() = server.status();
                ends.load(Ordering::Relaxed)
            };
            server.run(each).unwrap();
        });
        let address = address.recv().unwrap();
        Running { address, status, notes, over, thread: Some(thread) }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }

    /// Waits until the status satisfies `is`, within a test's time limit.
    pub(crate) fn until(&self, what: &str, is: impl Fn(&Status) -> bool) {
        until(what, || is(&self.status()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the site broke off");
        }
    }
}

pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("in vain: {what}");
}

/// A client that uses the protocol directly.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) heard: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client { stream, heard: Vec::new() };
        client.say("CONNECT {\"headers\":true,\"no_responders\":true}\r\n");
        client.flush();
        client
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until all operations are done. The output read meanwhile stays.
    pub(crate) fn flush(&mut self) {
        self.say("PING\r\n");
        self.hear("PONG\r\n");
    }

    /// Reads until `text` arrives, and takes the output up to its end.
    pub(crate) fn hear(&mut self, text: &str) -> String {
        loop {
            let found = self.heard.windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = found {
                let rest = self.heard.split_off(at + text.len());
                return String::from_utf8_lossy(&std::mem::replace(&mut self.heard, rest)).into_owned();
            }
            assert!(self.read(), "no {text:?} in {:?}", String::from_utf8_lossy(&self.heard));
        }
    }

    /// Reads the next bytes. Returns false if none arrive.
    pub(crate) fn read(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(len) => {
                self.heard.extend_from_slice(&buffer[..len]);
                len > 0
            }
            Err(_) => false,
        }
    }

    /// Reads until the connection ends.
    pub(crate) fn end(&mut self) -> String {
        while self.read() {}
        String::from_utf8_lossy(&self.heard).into_owned()
    }
}

/// A connection with TLS to the site at `address`, with the certificate and key `shown` in
/// `folder`. The site's certificate must be of the authority in the folder `authority`.
pub(crate) fn tls(
    address: SocketAddr,
    authority: &Path,
    folder: &Path,
    shown: Option<&str>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.join("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(name) => {
            let chain = vec![CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // TLS begins after the INFO line.
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
    }
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Reads until `end` arrives or the connection ends.
pub(crate) fn read_until(stream: &mut impl Read, end: &str) -> String {
    let (mut heard, mut buffer) = (String::new(), [0; 1024]);
    while !heard.contains(end)
        && let Ok(len @ 1..) = stream.read(&mut buffer)
    {
        heard += &String::from_utf8_lossy(&buffer[..len]);
    }
    heard
}

/// The site's answer to `hello` over [`tls`].
pub(crate) fn over_tls(
    address: SocketAddr,
    authority: &Path,
    folder: &Path,
    shown: Option<&str>,
    hello: &str,
) -> String {
    let mut stream = tls(address, authority, folder, shown);
    let _ = stream.write_all(format!("{hello}PING\r\n").as_bytes());
    read_until(&mut stream, "PONG\r\n")
}
