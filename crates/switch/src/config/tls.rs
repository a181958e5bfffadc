//! Certificates and keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use toml::Spanned;

use super::error::SourceText;
use super::{ConfigError, Upstream};

/// The table `[tls]`, for connections from clients.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawServer {
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    /// The authority that must have signed clients' certificates.
    client_ca: Option<Spanned<PathBuf>>,
}

/// The table `[upstream]`, for connections to members.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawUpstream {
    /// The authority that must have signed members' certificates; enables TLS.
    ca: Option<Spanned<PathBuf>>,
    name: Option<Spanned<String>>,
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    #[serde(default)]
    proxy_protocol: bool,
}

const PEM: &str =
    "give a PEM file that this user may read; its path is relative to the configuration's folder";

impl RawServer {
    pub(super) fn load(
        &self,
        folder: &Path,
        place: &SourceText<'_>,
    ) -> Result<Arc<ServerConfig>, ConfigError> {
        let certificates = certificates(&self.certificate, folder, place)?;
        let key = key(&self.key, folder, place)?;
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| place.mistake(self.key.span(), error.to_string(), None))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(roots(file, folder, place)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                let verifier =
                    verifier.map_err(|error| place.mistake(file.span(), error.to_string(), Some(PEM)))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(certificates, key);
        let config = config.map_err(|error| place.mistake(self.key.span(), error.to_string(), Some(PEM)))?;
        Ok(Arc::new(config))
    }
}

impl RawUpstream {
    pub(super) fn load(&self, folder: &Path, place: &SourceText<'_>) -> Result<Upstream, ConfigError> {
        let mut upstream = Upstream { tls: None, proxy: self.proxy_protocol };
        let Some(ca) = &self.ca else {
            let without =
                self.name.as_ref().map(Spanned::span).or(self.certificate.as_ref().map(Spanned::span));
            return match without {
                None => Ok(upstream),
                Some(span) => {
                    let help = "add `ca = \"members-ca.pem\"`";
                    Err(place.mistake(span, "TLS to members needs a trusted authority".into(), Some(help)))
                }
            };
        };
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| place.mistake(ca.span(), error.to_string(), None))?;
        let builder = builder.with_root_certificates(roots(ca, folder, place)?);
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(file)) => builder
                .with_client_auth_cert(certificates(certificate, folder, place)?, key(file, folder, place)?)
                .map_err(|error| place.mistake(file.span(), error.to_string(), Some(PEM)))?,
            (None, None) => builder.with_no_client_auth(),
            (Some(one), None) | (None, Some(one)) => {
                let help = "give both `certificate` and `key`, or neither";
                return Err(place.mistake(one.span(), "one of them is missing".into(), Some(help)));
            }
        };
        let name = self.name.as_ref().map(|name| {
            ServerName::try_from(name.get_ref().clone()).map_err(|error| {
                let help = "write the name of the members' certificates: `name = \"redis.internal\"`";
                place.mistake(name.span(), error.to_string(), Some(help))
            })
        });
        upstream.tls = Some((Arc::new(config), name.transpose()?));
        Ok(upstream)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(
    file: &Spanned<PathBuf>,
    folder: &Path,
    place: &SourceText<'_>,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let path = folder.join(file.get_ref());
    let wrong = |why: String| {
        place.mistake(file.span(), format!("no certificate in `{}`: {why}", path.display()), Some(PEM))
    };
    let all = CertificateDer::pem_file_iter(&path).map_err(|error| wrong(error.to_string()))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() { Err(wrong("it contains none".into())) } else { Ok(all) }
}

fn key(
    file: &Spanned<PathBuf>,
    folder: &Path,
    place: &SourceText<'_>,
) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let path = folder.join(file.get_ref());
    PrivateKeyDer::from_pem_file(&path).map_err(|error| {
        place.mistake(file.span(), format!("no key in `{}`: {error}", path.display()), Some(PEM))
    })
}

fn roots(
    file: &Spanned<PathBuf>,
    folder: &Path,
    place: &SourceText<'_>,
) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, folder, place)? {
        roots.add(certificate).map_err(|error| place.mistake(file.span(), error.to_string(), Some(PEM)))?;
    }
    Ok(roots)
}
