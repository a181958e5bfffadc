//! TLS in front of servers of a run: a certificate authority of the run, and ports that terminate
//! TLS.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustix::event::{PollFd, PollFlags};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};
use tollway_net::Error;
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::{addresses, clean, interface, problem};

use super::{Spec, relay};

/// A port of a node that terminates TLS, and the port there to which the plain bytes lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Index of the node.
    pub node: u32,
    /// The port for TLS.
    pub port: u16,
    /// The port of the server.
    pub to: u16,
}

/// The certificate authority of a run. Its key is in memory only.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The folder of its certificate, until the end of the run.
    folder: PathBuf,
    /// For each of [`Spec::tls`], the connections that its server did not accept.
    refused: Arc<[AtomicU64]>,
}

impl Authority {
    /// Makes an authority, and the files of its certificate: alone, and with the system's roots.
    pub(super) fn new(ports: usize) -> io::Result<Authority> {
        let mut params = params(Vec::new(), "Tollway exec")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        let refused = (0..ports).map(|_| AtomicU64::default()).collect();
        let authority = Authority { issuer, folder: clean::folder("tls")?, refused };
        fs::set_permissions(&authority.folder, readable(0o755))?;
        let own = authority.issuer.pem();
        let system = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let system = system.into_iter().chain(ROOTS.map(PathBuf::from)).find_map(|path| fs::read(path).ok());
        let bundle = [&system.unwrap_or_default()[..], b"\n", own.as_bytes()].concat();
        for (path, text) in [(authority.certificate(), own.as_bytes()), (authority.bundle(), &bundle)] {
            fs::write(&path, text)?;
            fs::set_permissions(path, readable(0o644))?;
        }
        Ok(authority)
    }

    /// The file of its certificate.
    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    fn bundle(&self) -> PathBuf {
        self.folder.join("bundle.pem")
    }

    /// For each of [`Spec::tls`], the connections so far that its server did not accept.
    pub(super) fn refused(&self) -> Vec<u64> {
        self.refused.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Makes a program trust it.
    pub(super) fn export(&self, command: &mut Command) {
        for key in ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"] {
            command.env(key, self.bundle());
        }
        command.env("NODE_EXTRA_CA_CERTS", self.certificate());
    }

    /// The configuration of a server with a certificate for `names`.
    fn server(&self, names: Vec<String>) -> io::Result<Arc<ServerConfig>> {
        let mut params = params(names, "Tollway exec server")?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let builder = builder.with_no_client_auth();
        let chain = vec![certificate.der().clone()];
        builder.with_single_cert(chain, key.into()).map(Arc::new).map_err(io::Error::other)
    }

    /// Opens the ports of `spec` that terminate TLS.
    ///
    /// # Errors
    /// A port is `in_use`, or the system refuses a thread.
    pub(super) fn start(
        &self,
        spec: &Spec,
        namespaces: &[Namespace],
        all: impl Fn(u32) -> Vec<IpAddr>,
        in_use: impl Fn(u32, &str, String) -> Error,
    ) -> Result<(), Error> {
        for (i, tls) in spec.tls.iter().enumerate() {
            let node = &spec.mesh.nodes[tls.node as usize];
            let aliases = spec.aliases.iter().filter(|alias| alias.1 == tls.node).map(|alias| &alias.0);
            // Also as `--localhost` and `--listen` lead here.
            let mine = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            let ips = addresses(tls.node).into_iter().chain(mine).chain(interface::addresses());
            let names = [node.clone(), "localhost".into()].into_iter().chain(aliases.cloned());
            let names = names.chain(ips.map(|ip| ip.to_string())).collect();
            let config = self.server(names).map_err(problem("make a certificate"))?;
            let namespace = &namespaces[tls.node as usize];
            let ends = all(tls.node).into_iter().map(|ip| SocketAddr::from((ip, tls.port)));
            let sockets = namespace.within(|| relay::open_all(ends, relay::listen));
            let sockets = sockets.map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => {
                    in_use(tls.node, node, format!("`--tls {}:{}`", tls.port, tls.to))
                }
                _ => problem("open a port for TLS")(source),
            })?;
            let to = mine.into_iter().chain(addresses(tls.node)).map(|ip| SocketAddr::from((ip, tls.to)));
            let (to, refused): (Arc<[SocketAddr]>, _) = (to.collect(), Arc::clone(&self.refused));
            let open = move || {
                let opened = TcpStream::connect(&to[..]);
                refused[i].fetch_add(u64::from(opened.is_err()), Ordering::Relaxed);
                opened
            };
            for socket in sockets {
                let (config, open) = (Arc::clone(&config), open.clone());
                let namespace = namespace.again().map_err(problem("copy a descriptor"))?;
                let thread = std::thread::Builder::new().name("tollway-tls".into());
                let accept = move || drop(namespace.enter().map(|()| accept(&socket, &config, &open)));
                thread.spawn(accept).map_err(problem("start a thread"))?;
            }
        }
        Ok(())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The settings of a certificate that is valid from yesterday on, for a year.
fn params(names: Vec<String>, name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - DAY).into(), (now + 365 * DAY).into());
    Ok(params)
}

fn readable(mode: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// Terminates TLS on each connection, whose plain bytes go to a connection that `open` makes. The
/// thread is in the node's namespace, as are the threads that it starts.
fn accept(
    listener: &TcpListener,
    config: &Arc<ServerConfig>,
    open: &(impl Fn() -> io::Result<TcpStream> + Clone + Send + 'static),
) {
    loop {
        let Ok((client, _)) = listener.accept() else {
            // Descriptors are used up, or a connection ended before it was accepted.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let (config, open) = (Arc::clone(config), open.clone());
        let talk = move || {
            let server = open()?;
            let tls = ServerConnection::new(config).map_err(io::Error::other)?;
            carry(&client, &server, tls)
        };
        // A connection that fails ends only itself.
        let thread = std::thread::Builder::new().name("tollway-tls".into());
        drop(thread.spawn(move || drop(talk())));
    }
}

/// Carries bytes between a client with TLS and a server without, until the server's end.
fn carry(mut client: &TcpStream, mut server: &TcpStream, mut tls: ServerConnection) -> io::Result<()> {
    for stream in [client, server] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let (mut inward, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    // The client's end was read, and passed on; the server's end was read.
    let (mut client_over, mut server_told, mut server_over) = (false, false, false);
    loop {
        // The plain bytes of one chunk are encrypted and sent before the next is read.
        let asks = inward.is_empty() && !client_over;
        let answers = !server_over && !tls.wants_write() && !tls.is_handshaking();
        if asks && let Some(len) = ready(tls.read_tls(&mut client))? {
            if let Err(error) = tls.process_new_packets() {
                // The client learns the reason.
                let _ = tls.write_tls(&mut client);
                return Err(io::Error::other(error));
            }
            // After `close_notify`, a read returns no byte.
            while let Some(len) = ready(tls.reader().read(&mut chunk))? {
                inward.extend(&chunk[..len]);
                client_over = len == 0;
                if client_over {
                    break;
                }
            }
            client_over |= len == 0;
        }
        while !inward.is_empty()
            && let Some(len) = ready(server.write(&inward))?
        {
            inward.drain(..len);
        }
        if client_over && inward.is_empty() && !server_told {
            server.shutdown(Shutdown::Write)?;
            server_told = true;
        }
        if answers && let Some(len) = ready(server.read(&mut chunk))? {
            tls.writer().write_all(&chunk[..len])?;
            if len == 0 {
                server_over = true;
                tls.send_close_notify();
            }
        }
        while tls.wants_write() && ready(tls.write_tls(&mut client))?.is_some() {}
        let sent = !tls.wants_write();
        if server_over && sent || client_over && tls.is_handshaking() {
            return Ok(());
        }
        let mut fds = Vec::with_capacity(2);
        let waits = [
            (client, inward.is_empty() && !client_over, !sent),
            (server, !server_over && sent && !tls.is_handshaking(), !inward.is_empty()),
        ];
        for (stream, reads, writes) in &waits {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, *reads);
            events.set(PollFlags::OUT, *writes);
            if !events.is_empty() {
                fds.push(PollFd::new(stream, events));
            }
        }
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None))?;
    }
}

/// The result of a call on a stream; `None` if it would have blocked.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Files of the system's roots on common distributions.
const ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Bytes read from a server at a time; a connection with TLS holds as many.
const CHUNK: usize = 1 << 14;
const DAY: Duration = Duration::from_secs(86_400);
