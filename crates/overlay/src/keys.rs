//! Keys for a trial: an authority, and certificates that it has signed for sites and tenants.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::config::is_label;
use crate::tls::{site_name, tenant_name};

/// An error of [`make`].
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The name cannot be part of a certificate.
    #[error("`{0}` is not a valid name of a site or tenant: use 1 to 32 lower-case letters, digits and `-`")]
    Name(String),
    /// Keys exist already, and are kept.
    #[error("`{0}` already exists; give another folder, or remove it")]
    Exists(PathBuf),
    /// A file can't be written.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A certificate can't be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Makes trial keys for sites and tenants in `folder`. Returns the files.
///
/// They are `ca.pem`, `NAME.pem` and `NAME.key` for each site, and `tenant-NAME.pem` and
/// `tenant-NAME.key` for each tenant. Clients can reach a site under the names `hosts`, `localhost`
/// and `127.0.0.1`. The authority's own key is not stored, so no further certificate can be signed.
///
/// # Errors
/// A name is wrong, or a file exists already or can't be written.
pub fn make(
    folder: &Path,
    sites: &[String],
    tenants: &[String],
    hosts: &[String],
) -> Result<Vec<PathBuf>, KeysError> {
    if let Some(wrong) = sites.iter().chain(tenants).find(|name| !is_label(name)) {
        return Err(KeysError::Name(wrong.clone()));
    }
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Tollway trial authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::create_dir_all(folder).map_err(|source| KeysError::Write { path: folder.to_owned(), source })?;
    let mut made = vec![put(folder, "ca.pem", &authority.pem(), 0o644)?];
    let local = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    for site in sites {
        let names: Vec<String> =
            [site_name(site)].into_iter().chain(local.clone()).chain(hosts.iter().cloned()).collect();
        made.extend(sign(folder, site, names, &authority)?);
    }
    for tenant in tenants {
        made.extend(sign(folder, &format!("tenant-{tenant}"), vec![tenant_name(tenant)], &authority)?);
    }
    Ok(made)
}

fn sign(
    folder: &Path,
    file: &str,
    names: Vec<String>,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> Result<[PathBuf; 2], KeysError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, file);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, authority)?;
    Ok([
        put(folder, &format!("{file}.pem"), &certificate.pem(), 0o644)?,
        put(folder, &format!("{file}.key"), &key.serialize_pem(), 0o600)?,
    ])
}

fn put(folder: &Path, name: &str, text: &str, mode: u32) -> Result<PathBuf, KeysError> {
    let path = folder.join(name);
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(KeysError::Exists(path)),
        Err(source) => Err(KeysError::Write { path, source }),
    }
}
