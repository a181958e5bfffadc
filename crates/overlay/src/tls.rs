//! Who is at the other end: certificates of sites and tenants.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::rules::Rules;

/// What certificates say.
#[derive(Debug)]
pub(crate) struct Identity;

impl Identity {
    /// The tenant that a verified certificate names.
    pub(crate) fn tenant_of(certificate: &CertificateDer<'_>, rules: &Rules) -> Option<String> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let names = rules.tenants.iter().map(|tenant| &tenant.name);
        names.into_iter().find(|name| is_for(&parsed, &tenant_name(name))).cloned()
    }

    /// Whether a verified certificate names the site.
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
