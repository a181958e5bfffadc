//! Credentials for a store, and the authorities it is checked against.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The credentials for a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// An etcd user's name and password.
    pub user: Option<(String, String)>,
    /// Certificates of the authorities that may have signed the store's, in PEM. For `etcds://`.
    pub authorities: Option<Vec<u8>>,
    /// The client's certificate chain and its key, in PEM. For a store that requires one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Leaves out the password: it must not appear in logs.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        let identity = self.identity.is_some();
        f.debug_struct("Access").field("user", &user).field("identity", &identity).finish_non_exhaustive()
    }
}

/// Makes an HTTP client for a store. A body that brings no data for `patience` ends with a timeout.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: a certificate or a key is not valid, or TLS is needed and this
/// build has none.
pub(super) fn agent(patience: Duration, tls: bool, access: &Access) -> io::Result<ureq::Agent> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(3)))
        .timeout_recv_response(Some(Duration::from_secs(5)))
        .timeout_recv_body(Some(patience))
        // The reason of a refusal is in the body.
        .http_status_as_error(false)
        // A store is not reached through a proxy.
        .proxy(None);
    Ok(match tls {
        true => secured(config, access)?.build().into(),
        false => config.build().into(),
    })
}

type Config = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

#[cfg(not(feature = "etcd-tls"))]
fn secured(_: Config, _: &Access) -> io::Result<Config> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this build does not support TLS for stores: build it with the feature `etcd-tls`",
    ))
}

#[cfg(feature = "etcd-tls")]
fn secured(config: Config, access: &Access) -> io::Result<Config> {
    use std::sync::Arc;

    use ureq::tls::{
        Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
    };

    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let certificates = |pem: &[u8], whose: &str| -> io::Result<Vec<Certificate<'static>>> {
        let items: Result<Vec<_>, _> = parse_pem(pem).collect();
        let items = items.map_err(|error| wrong(format!("{whose} is not PEM: {error}")))?;
        let some: Vec<_> = items
            .into_iter()
            .filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            })
            .collect();
        if some.is_empty() { Err(wrong(format!("{whose} contains no certificate"))) } else { Ok(some) }
    };
    let Some(authorities) = &access.authorities else {
        return Err(wrong(
            "the authority of the store's certificate is not given: name its certificate with `--store-ca`"
                .into(),
        ));
    };
    let roots = certificates(authorities, "the authority's file")?;
    let own = match &access.identity {
        None => None,
        Some((chain, key)) => {
            let chain = certificates(chain, "our certificate's file")?;
            let key = PrivateKey::from_pem(key)
                .map_err(|error| wrong(format!("our key's file contains no private key: {error}")))?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(own);
    Ok(config.tls_config(tls.build()))
}

/// True if `member` answers by TLS; `None` if that is unknown. A mismatch of TLS and plain text
/// only closes the connection, so that a probe has to find out.
fn speaks_tls(member: &str) -> Option<bool> {
    let address = member.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, PROBE).ok()?;
    stream.set_read_timeout(Some(PROBE)).ok()?;
    let mut kind = [0];
    match stream.write_all(EMPTY_HELLO).and_then(|()| stream.read(&mut kind)) {
        Ok(len) => Some(len > 0 && matches!(kind[0], ALERT | HANDSHAKE)),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Some(false)
        }
        Err(_) => None,
    }
}

/// A message on why `member` failed, with the remedy.
pub(super) fn explain(why: &str, tls: bool, member: &str) -> String {
    let hint = HINTS.iter().find(|(part, _)| why.contains(part)).map(|(_, hint)| *hint);
    // A server that does not accept our certificate sends an alert or just closes; the close may
    // lose the alert.
    let ended = ENDED.iter().any(|part| why.contains(part));
    let hint = hint.or_else(|| match (tls, speaks_tls(member)) {
        (false, Some(true)) => {
            Some("it uses TLS: write `etcds://`, and give the certificate of its authority")
        }
        (true, Some(false)) => Some("it does not use TLS: write `etcd://`"),
        (true, _) if ended => Some("it may require a client certificate, or one from another authority"),
        _ => None,
    });
    hint.map_or_else(|| why.to_owned(), |hint| format!("{hint} ({why})"))
}

/// Parts of messages of etcd and TLS, and the remedy for each.
const HINTS: &[(&str, &str)] = &[
    ("user name is empty", "it requires a user and a password"),
    ("invalid user ID or password", "the user or the password is wrong"),
    ("authentication is not enabled", "it has no users: leave out the user"),
    ("CommonName", "a store with users rejects client certificates with a common name: use one without"),
    ("permission denied", "the user may not read these keys"),
    ("UnknownIssuer", "its certificate is not signed by a given authority"),
    ("NotValidForName", "its certificate is for another name or address"),
    ("Expired", "a certificate is no longer valid"),
    ("corrupt message", "it does not use TLS: write `etcd://`"),
    ("InvalidContentType", "it does not use TLS: write `etcd://`"),
];
const ENDED: &[&str] = &["fatal alert", "reset by peer", "Broken pipe"];

/// The shortest message that TLS (RFC 8446, 5.1) answers: an empty ClientHello. The answer is a
/// record of one of these kinds. The empty line is for servers of plain text, which read on until
/// there is one.
const EMPTY_HELLO: &[u8] = &[HANDSHAKE, 3, 1, 0, 4, 1, 0, 0, 0, b'\r', b'\n', b'\r', b'\n'];
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
/// Longest wait for each step of the probe.
const PROBE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_speaks_tls_is_told_from_who_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let member = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            for answer in [&[ALERT, 3, 1, 0, 2, 2, 50][..], b"HTTP/1.1 400 Bad Request", b""].repeat(2) {
                let mut stream = listener.accept().unwrap().0;
                stream.read_exact(&mut [0; EMPTY_HELLO.len()]).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        let said = |tls| [(), (), ()].map(|()| explain("reset by peer", tls, &member));
        let wants =
            "it uses TLS: write `etcds://`, and give the certificate of its authority (reset by peer)";
        assert_eq!(said(false), [wants, "reset by peer", "reset by peer"]);
        let lacks = "it does not use TLS: write `etcd://` (reset by peer)";
        let may = "it may require a client certificate, or one from another authority (reset by peer)";
        assert_eq!(said(true), [may, lacks, lacks]);
        answering.join().unwrap();
        assert_eq!(explain("it is away", false, &member), "it is away");
    }
}
