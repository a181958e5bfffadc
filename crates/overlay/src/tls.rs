//! Certificates of sites and tenants.

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ServerConfig};
use tollway_agent::tls::{self, Clients, Identity, TlsError};

use crate::config::Site;
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
    /// Reads the keys of a site that has some. Clients must show a certificate if every tenant
    /// requires one.
    ///
    /// # Errors
    /// A file can't be read, or has the wrong content.
    pub fn load(site: &Site) -> Result<Option<Ends>, TlsError> {
        let (Some(keys), rules) = (&site.keys, &site.rules) else { return Ok(None) };
        let roots = Arc::new(tls::authorities(&keys.authority)?);
        let own = Identity { certificate: &keys.certificate, key: &keys.key };
        let all = rules.tenants.iter().all(|tenant| tenant.proof == crate::rules::Proof::Certificate);
        let clients = if all { Clients::Must } else { Clients::May };
        let ends = Ends {
            clients: rules.tls.then(|| own.server(&clients(Arc::clone(&roots)))).transpose()?,
            accept: own.server(&Clients::Must(Arc::clone(&roots)))?,
            dial: tls::client(roots, Some(own))?,
        };
        // Only other sites need this name. Clients need one of the site's hosts.
        let linked = site.link_listen.is_some() || !site.links.is_empty();
        let chain = tls::certificates(&keys.certificate)?;
        if linked && !chain.first().is_some_and(|own| Names::is_site(own, &rules.site)) {
            let message = format!(
                "`{}` is not for `{}`, the certificate name of `{}`",
                keys.certificate.display(),
                site_name(&rules.site),
                rules.site
            );
            return Err(TlsError {
                path: keys.certificate.clone(),
                message,
                help: "give the site's certificate; `tollway overlay keys` makes one",
            });
        }
        Ok(Some(ends))
    }
}

/// The names in certificates.
#[derive(Debug)]
pub(crate) struct Names;

impl Names {
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
