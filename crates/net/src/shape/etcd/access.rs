//! Who we are to a store, and whom we take it for.

use std::io;
use std::time::Duration;

/// What it takes to be let into a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// A user of etcd's and the password.
    pub user: Option<(String, String)>,
    /// Certificates of the authorities that may have signed the store's, PEM. For `etcds://`.
    pub authorities: Option<Vec<u8>>,
    /// Our own certificate, with what leads from it to its authority, and its key, PEM. For a store that asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// A password is not for logs.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        let identity = self.identity.is_some();
        f.debug_struct("Access").field("user", &user).field("identity", &identity).finish_non_exhaustive()
    }
}

/// How a store is asked; one that says nothing for so long is asked again.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: a certificate or a key is none, or TLS is wanted and this build has none.
pub(super) fn agent(patience: Duration, tls: bool, access: &Access) -> io::Result<ureq::Agent> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(3)))
        .timeout_recv_response(Some(Duration::from_secs(5)))
        .timeout_recv_body(Some(patience))
        // Why it refuses stands in the answer.
        .http_status_as_error(false)
        // A store is not on the other side of somebody's proxy.
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
        "this build has no TLS for stores: build it with the feature `etcd-tls`",
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
        if some.is_empty() { Err(wrong(format!("{whose} has no certificate in it"))) } else { Ok(some) }
    };
    let Some(authorities) = &access.authorities else {
        return Err(wrong("who signed the store's certificate is not said: give the authority's own".into()));
    };
    let roots = certificates(authorities, "the authority's file")?;
    let own = match &access.identity {
        None => None,
        Some((chain, key)) => {
            let chain = certificates(chain, "our certificate's file")?;
            let key = PrivateKey::from_pem(key)
                .map_err(|error| wrong(format!("our key's file has no private key in it: {error}")))?;
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

/// Why it went wrong, in words that say what to do.
pub(super) fn explain(why: &str, tls: bool) -> String {
    let hint = HINTS.iter().find(|(part, _)| why.contains(part)).map(|(_, hint)| *hint);
    // A server that is not content with our certificate says so, or just ends the connection: what it has said may be lost with that.
    let ended = tls && ENDED.iter().any(|part| why.contains(part));
    let hint =
        hint.or_else(|| ended.then_some("it may want a certificate of ours, or one by another authority"));
    hint.map_or_else(|| why.to_owned(), |hint| format!("{hint} ({why})"))
}

/// What etcd and TLS say, and what that means here.
const HINTS: &[(&str, &str)] = &[
    ("user name is empty", "it wants a user and a password"),
    ("invalid user ID or password", "the user or the password is wrong"),
    ("authentication is not enabled", "it knows no users: leave the user out"),
    (
        "CommonName",
        "where it has users, it takes from a client's certificate no common name: make ours without one",
    ),
    ("permission denied", "the user may not read these keys"),
    ("UnknownIssuer", "its certificate is signed by none of the authorities that were given"),
    ("NotValidForName", "its certificate is for another name or address"),
    ("Expired", "a certificate is no longer valid"),
    ("corrupt message", "it does not speak TLS: `etcd://` is without"),
    ("InvalidContentType", "it does not speak TLS: `etcd://` is without"),
];
const ENDED: &[&str] = &["fatal alert", "reset by peer", "Broken pipe"];
