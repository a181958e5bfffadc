//! Certificates and keys from PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A file that cannot be used for TLS.
#[derive(Debug)]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// The mistake.
    pub message: String,
    /// The remedy.
    pub help: &'static str,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TlsError {}

/// A certificate chain, and the file of its private key.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The file of the chain.
    pub certificate: &'a Path,
    /// The file of the key.
    pub key: &'a Path,
}

/// The clients' certificates that a server demands.
#[derive(Clone, Debug)]
pub enum Clients {
    /// None.
    Unknown,
    /// Certificates of these authorities, if a client shows one.
    May(Arc<RootCertStore>),
    /// Certificates of these authorities.
    Must(Arc<RootCertStore>),
}

impl Identity<'_> {
    /// The chain and its key.
    ///
    /// # Errors
    /// A file can't be read, or has the wrong content.
    fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::from_pem_file(self.key)
            .map_err(|error| wrong(self.key, format!("no key in `{}`: {error}", self.key.display())));
        Ok((certificates(self.certificate)?, key?))
    }

    /// The configuration of a server with this identity.
    ///
    /// # Errors
    /// A file can't be read, or has the wrong content.
    pub fn server(&self, clients: &Clients) -> Result<Arc<ServerConfig>, TlsError> {
        let (chain, key) = self.load()?;
        let odd = |error: rustls::Error| wrong(self.key, error.to_string());
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().map_err(odd)?;
        let builder = match verifier(clients).map_err(|error| wrong(self.certificate, error))? {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        builder.with_single_cert(chain, key).map(Arc::new).map_err(odd)
    }
}

/// The configuration of a client that trusts `roots`, and shows `own` on demand.
///
/// # Errors
/// A file can't be read, or has the wrong content.
pub fn client(
    roots: impl Into<Arc<RootCertStore>>,
    own: Option<Identity<'_>>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider());
    let odd = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::Error| wrong(&path, error.to_string())
    };
    let builder = builder.with_safe_default_protocol_versions().map_err(odd(Path::new("")))?;
    let builder = builder.with_root_certificates(roots);
    Ok(Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = own.load()?;
            builder.with_client_auth_cert(chain, key).map_err(odd(own.key))?
        }
    }))
}

/// The certificates in a file: at least one.
///
/// # Errors
/// The file can't be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| wrong(path, format!("no certificate in `{}`: {why}", path.display()));
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() { Err(wrong("it contains none".into())) } else { Ok(all) }
}

/// The authorities whose certificates are in a file.
///
/// # Errors
/// The file can't be read, or has none.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, error.to_string()))?;
    }
    Ok(roots)
}

fn verifier(clients: &Clients) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let (roots, required) = match clients {
        Clients::Unknown => return Ok(None),
        Clients::May(roots) => (roots, false),
        Clients::Must(roots) => (roots, true),
    };
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    builder.build().map(Some).map_err(|error| error.to_string())
}

fn wrong(path: &Path, message: String) -> TlsError {
    TlsError { path: path.to_owned(), message, help: PEM }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

const PEM: &str =
    "give a PEM file that this user may read; its path is relative to the configuration's folder";
