//! Certificates and keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{RootCertStore, ServerConfig};
use tollway_agent::tls::{self, Clients, Identity, TlsError};
use tollway_scenario::file::reading::{Mistakes, Reader};

use super::Upstream;
use super::keys::{TLS, UPSTREAM};

/// The table `[tls]`, for connections from clients.
pub(super) fn server(top: &Reader<'_>, folder: &Path, mistakes: &mut Mistakes) -> Option<Arc<ServerConfig>> {
    top.has("tls").then_some(())?;
    let files = Files { keys: top.table("tls", &TLS), names: ["certificate", "key", "client-ca"], folder };
    let (certificate, key) = (files.path("certificate")?, files.path("key")?);
    let clients = match files.path("client-ca") {
        None => Clients::Unknown,
        Some(path) => Clients::Must(files.loaded(tls::authorities(&path).map(Arc::new), mistakes)?),
    };
    files.loaded(Identity { certificate: &certificate, key: &key }.server(&clients), mistakes)
}

/// The table `[upstream]`, for connections to members.
pub(super) fn upstream(top: &Reader<'_>, folder: &Path, mistakes: &mut Mistakes) -> Upstream {
    let files = Files { keys: top.table("upstream", &UPSTREAM), names: ["certificate", "key", "ca"], folder };
    let keys = &files.keys;
    let mut upstream = Upstream { tls: None, proxy: keys.truth("proxy-protocol") };
    let Some(ca) = files.path("ca") else {
        if let Some(key) = ["name", "certificate", "key"].into_iter().find(|key| keys.has(key)) {
            mistakes
                .add(keys.at(key), "TLS to members needs a trusted authority", "no `ca`")
                .help("add `ca = \"members-ca.pem\"`");
        }
        return upstream;
    };
    let own = (files.path("certificate"), files.path("key"));
    if own.0.is_some() != own.1.is_some() {
        let given = if own.0.is_some() { "certificate" } else { "key" };
        mistakes
            .add(keys.at(given), "one of `certificate` and `key` is missing", "only this one")
            .help("give both, or neither");
        return upstream;
    }
    let client = |roots: RootCertStore| match &own {
        (Some(certificate), Some(key)) => tls::client(roots, Some(Identity { certificate, key })),
        _ => tls::client(roots, None),
    };
    let config = files.loaded(tls::authorities(&ca).and_then(client), mistakes);
    let name = |text: &str| ServerName::try_from(text.to_owned()).map_err(|error| error.to_string());
    let help = "write the name of the members' certificates: `name = \"redis.internal\"`";
    let name = files.keys.parsed("name", name, help, mistakes);
    upstream.tls = config.map(|config| (config, name));
    upstream
}

/// The files that a table names.
struct Files<'a> {
    keys: Reader<'a>,
    names: [&'static str; 3],
    folder: &'a Path,
}

impl Files<'_> {
    /// The path at a key, if it is given.
    fn path(&self, key: &str) -> Option<PathBuf> {
        self.keys.text(key).map(|name| self.folder.join(name))
    }

    /// Returns the loaded value, or adds a mistake at the key that names the wrong file.
    fn loaded<T>(&self, loaded: Result<T, TlsError>, mistakes: &mut Mistakes) -> Option<T> {
        let error = match loaded {
            Ok(loaded) => return Some(loaded),
            Err(error) => error,
        };
        let wrong = self.names.iter().find(|key| self.path(key).is_some_and(|path| path == error.path));
        let at = wrong.map_or(self.keys.place(), |key| self.keys.at(key));
        mistakes.add(at, error.to_string(), "this file").help(error.help);
        None
    }
}
