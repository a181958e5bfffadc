//! Certificates of sites and tenants.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::{ConfigError, Keys};
use crate::rules::SiteRules;

/// The TLS configurations of a site.
#[derive(Clone, Debug)]
pub struct Ends {
    /// For clients; `None` without TLS.
    pub(crate) clients: Option<Arc<ServerConfig>>,
    /// For sites that connect to this one.
    pub(crate) accept: Arc<ServerConfig>,
    /// For sites to which this one connects.
    pub(crate) dial: Arc<ClientConfig>,
}

impl Ends {
    /// Reads a site's keys. Clients must show a certificate if every tenant of `rules` requires
    /// one.
    ///
    /// # Errors
    /// A file can't be read, or has the wrong content.
    pub fn load(keys: &Keys, rules: &SiteRules) -> Result<Ends, ConfigError> {
        let wrong = |path: &Path, message: String, help: &str| ConfigError {
            path: path.display().to_string(),
            message,
            help: help.into(),
        };
        let certificates = |path: &Path| {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            read.map_err(|error| wrong(path, error.to_string(), "it must contain certificates in PEM"))
        };
        let mut roots = RootCertStore::empty();
        for root in certificates(&keys.authority)? {
            roots.add(root).map_err(|error| {
                wrong(&keys.authority, error.to_string(), "give an authority's certificate")
            })?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&keys.certificate)?;
        let key = || {
            PrivateKeyDer::from_pem_file(&keys.key)
                .map_err(|error| wrong(&keys.key, error.to_string(), "it must contain a private key in PEM"))
        };
        let provider = Arc::new(ring::default_provider());
        let odd = |error: rustls::Error| {
            wrong(&keys.certificate, error.to_string(), "the certificate and the key must match")
        };
        let verifier = |required: bool| {
            let builder =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
            let builder = if required { builder } else { builder.allow_unauthenticated() };
            builder
                .build()
                .map_err(|error| wrong(&keys.authority, error.to_string(), "give an authority's certificate"))
        };
        let server = |required: bool| -> Result<Arc<ServerConfig>, ConfigError> {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_safe_default_protocol_versions().map_err(odd)?;
            let builder = builder.with_client_cert_verifier(verifier(required)?);
            Ok(Arc::new(builder.with_single_cert(chain.clone(), key()?).map_err(odd)?))
        };
        let dial = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let dial = dial.with_safe_default_protocol_versions().map_err(odd)?;
        let dial = dial.with_root_certificates(Arc::clone(&roots));
        let dial = dial.with_client_auth_cert(chain.clone(), key()?).map_err(odd)?;
        let all = rules.tenants.iter().all(|tenant| tenant.proof == crate::rules::Proof::Certificate);
        let ends = Ends {
            clients: rules.tls.then(|| server(all)).transpose()?,
            accept: server(true)?,
            dial: Arc::new(dial),
        };
        if !chain.first().is_some_and(|own| Identity::is_site(own, &rules.site)) {
            let message =
                format!("is not for `{}`, the certificate name of `{}`", site_name(&rules.site), rules.site);
            return Err(wrong(
                &keys.certificate,
                message,
                "give the site's certificate; `tollway overlay keys` makes one",
            ));
        }
        Ok(ends)
    }
}

/// The names in certificates.
#[derive(Debug)]
pub(crate) struct Identity;

impl Identity {
    /// The tenant that a verified certificate names.
    pub(crate) fn tenant_of(certificate: &CertificateDer<'_>, rules: &SiteRules) -> Option<String> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let names = rules.tenants.iter().map(|tenant| &tenant.name);
        names.into_iter().find(|name| is_for(&parsed, &tenant_name(name))).cloned()
    }

    /// Returns true if a verified certificate names the site.
    pub(crate) fn is_site(certificate: &CertificateDer<'_>, site: &str) -> bool {
        ParsedCertificate::try_from(certificate).is_ok_and(|parsed| is_for(&parsed, &site_name(site)))
    }
}

fn is_for(certificate: &ParsedCertificate<'_>, name: &str) -> bool {
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(certificate, &name).is_ok())
}

/// The name in a tenant's certificate.
pub(crate) fn tenant_name(tenant: &str) -> String {
    format!("{tenant}.tenant.tollway")
}

/// The name in a site's certificate.
pub(crate) fn site_name(site: &str) -> String {
    format!("{site}.site.tollway")
}
