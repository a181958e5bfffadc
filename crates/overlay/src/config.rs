//! The configuration file of a site.
//!
//! ```
//! let site = tollway_overlay::config::Site::parse(
//!     "site-a.toml".as_ref(),
//!     r#"
//!     site = "a"
//!     listen = "127.0.0.1:4222"
//!     [tenant.plant]
//!     password = "secret"
//!     slow = "spool"
//!     "#,
//! )?;
//! assert_eq!(site.rules.tenants[0].name, "plant");
//! # Ok::<(), tollway_overlay::config::ConfigError>(())
//! ```

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use tollway_law::{Bytes, Rate, Time};

use crate::rules::{Proof, SiteRules, Slow, TenantRules};

/// An error in a site's file or keys.
#[derive(Debug, thiserror::Error)]
#[error("`{path}`: {message}")]
pub struct ConfigError {
    /// The file.
    pub path: String,
    /// The error and its place.
    pub message: String,
    /// The remedy.
    pub help: String,
}

/// A site's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Limits and tenants.
    pub rules: SiteRules,
    /// The address for clients.
    pub listen: SocketAddr,
    /// The address for clients that other sites list in their `INFO`.
    pub advertise: Option<String>,
    /// The site's identity.
    pub keys: Option<Keys>,
    /// The address for other sites.
    pub link_listen: Option<SocketAddr>,
    /// Links to other sites, by name.
    pub links: Vec<Link>,
    /// The disk spool.
    pub spool: Option<Spool>,
}

/// The files of a site's identity.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// The authority's certificate. Only certificates that it has signed are accepted.
    pub authority: PathBuf,
    /// The site's certificate.
    pub certificate: PathBuf,
    /// The site's private key.
    pub key: PathBuf,
}

/// A link to another site.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The other site's name.
    pub site: String,
    /// The other site's address; without one, the other site must connect.
    pub address: Option<String>,
    /// The link's rate until it is measured.
    pub rate: Rate,
}

/// The disk spool's folder and size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spool {
    /// The folder.
    pub folder: PathBuf,
    /// Limit of spooled messages of all subscriptions together.
    #[serde(default = "spool_size")]
    pub size: Bytes,
}

fn spool_size() -> Bytes {
    Bytes(1 << 30)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    site: String,
    listen: SocketAddr,
    advertise: Option<String>,
    payload: Option<Bytes>,
    buffer: Option<Bytes>,
    patience: Option<Time>,
    #[serde(default)]
    tls: Tls,
    keys: Option<Keys>,
    links: Option<Links>,
    #[serde(default)]
    link: BTreeMap<String, LinkFile>,
    #[serde(default)]
    tenant: BTreeMap<String, TenantFile>,
    spool: Option<Spool>,
}

/// TLS for clients, on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tls {
    #[default]
    Off,
    On,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Links {
    listen: SocketAddr,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    address: Option<String>,
    rate: Rate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantFile {
    salary: Option<f64>,
    password: Option<String>,
    token: Option<String>,
    #[serde(default)]
    certificate: bool,
    #[serde(default)]
    slow: Slow,
    connections: Option<usize>,
    subscriptions: Option<usize>,
}

impl Site {
    /// A warning if the file at `path` has secrets that other users can read.
    pub fn readable(&self, path: &Path) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        let secret = |tenant: &TenantRules| matches!(tenant.proof, Proof::Secret { .. });
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        (mode & 0o044 != 0 && self.rules.tenants.iter().any(secret)).then(|| {
            let path = path.display();
            format!("other users can read the passwords in `{path}`: run `chmod 600 {path}`")
        })
    }

    /// Reads a site's file.
    ///
    /// # Errors
    /// The file can't be read, or is wrong.
    pub fn load(path: &Path) -> Result<Site, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            path: path.display().to_string(),
            message: format!("cannot be read: {error}"),
            help: "give the file of a site; docs/src/overlay.md writes one step by step".into(),
        })?;
        Site::parse(path, &text)
    }

    /// Parses `text` as the file at `path`. Paths in it are relative to that file.
    ///
    /// # Errors
    /// The text is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Site, ConfigError> {
        let wrong = |message: String, help: &str| ConfigError {
            path: path.display().to_string(),
            message,
            help: help.into(),
        };
        let file: File = toml::from_str(text).map_err(|error| {
            wrong(
                format!("{error}").trim_end().to_owned(),
                "docs/src/overlay-operations.md lists the keys of a site's file",
            )
        })?;
        file.check().map_err(|(message, help)| wrong(message, help))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let open = SiteRules::open(&file.site);
        let tenants = file.tenant.iter().map(|(name, tenant)| tenant.rules(name, &open.tenants[0]));
        let tenants: Vec<TenantRules> = tenants.collect();
        let rules = SiteRules {
            site: file.site.clone(),
            certificates: tenants.iter().any(|tenant| tenant.proof == Proof::Certificate),
            tenants: if tenants.is_empty() { open.tenants.clone() } else { tenants },
            payload: file.payload.map_or(open.payload, |bytes| bytes.get() as usize),
            buffer: file.buffer.map_or(open.buffer, |bytes| bytes.get() as usize),
            patience: file.patience.unwrap_or(open.patience),
            spool: file.spool.as_ref().map_or(0, |spool| spool.size.get()),
            tls: file.tls == Tls::On,
        };
        let keys = file.keys.map(|keys| Keys {
            authority: folder.join(keys.authority),
            certificate: folder.join(keys.certificate),
            key: folder.join(keys.key),
        });
        let link = |(site, link): (String, LinkFile)| Link { site, address: link.address, rate: link.rate };
        Ok(Site {
            rules,
            listen: file.listen,
            advertise: file.advertise,
            keys,
            link_listen: file.links.map(|links| links.listen),
            links: file.link.into_iter().map(link).collect(),
            spool: file.spool.map(|spool| Spool { folder: folder.join(&spool.folder), ..spool }),
        })
    }

    /// The first key that differs from `new` and cannot change without a restart.
    pub fn fixed(&self, new: &Site) -> Option<&'static str> {
        let differs = [
            ("site", self.rules.site != new.rules.site),
            ("listen", self.listen != new.listen),
            ("advertise", self.advertise != new.advertise),
            ("tls", self.rules.tls != new.rules.tls || self.rules.certificates != new.rules.certificates),
            ("[keys]", self.keys != new.keys),
            ("[links]", self.link_listen != new.link_listen),
            ("[spool]", self.spool != new.spool),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }

    /// The site's number among sites, computed from its name.
    pub fn number(name: &str) -> u32 {
        // FNV-1a: the same everywhere.
        name.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

impl File {
    fn check(&self) -> Result<(), (String, &'static str)> {
        const ADDRESS: &str = "write `HOST:PORT` or `ADDRESS:PORT`";
        const LABEL: &str =
            "use 1 to 32 lower-case letters, digits and `-`: the name is part of its certificate";
        let mut numbers = HashSet::from([Site::number(&self.site)]);
        for name in [&self.site].into_iter().chain(self.link.keys()).chain(self.tenant.keys()) {
            if !is_label(name) {
                return Err((format!("`{name}` is not a valid name of a site or tenant"), LABEL));
            }
        }
        for (name, link) in &self.link {
            if *name == self.site {
                return Err((
                    format!("`[link.{name}]` names this site"),
                    "name the site at the other end of the link",
                ));
            }
            if !numbers.insert(Site::number(name)) {
                return Err((
                    format!("`{name}` has the same number as another site"),
                    "give one of them another name",
                ));
            }
            if link.address.as_deref().is_some_and(|address| !is_address(address)) {
                return Err((format!("`link.{name}.address` is not valid"), ADDRESS));
            }
            if link.rate < Rate::from_bps(1000.0) {
                return Err((
                    format!("`link.{name}.rate` is {}", link.rate),
                    "write the link's rate, at least 1 kbps",
                ));
            }
        }
        if self.advertise.as_deref().is_some_and(|address| !is_address(address)) {
            return Err(("`advertise` is not valid".into(), ADDRESS));
        }
        let linked = !self.link.is_empty() || self.links.is_some();
        if (linked || self.tls == Tls::On) && self.keys.is_none() {
            let help = "add `[keys]` with `authority`, `certificate` and `key`; `tollway overlay keys` makes some for a trial";
            return Err(("links and `tls` need keys".into(), help));
        }
        if self.links.is_none() && self.link.values().any(|link| link.address.is_none()) {
            return Err((
                "a link without `address` needs a listening socket, and the file has none".into(),
                "add `[links]` with `listen`, or the link's `address`",
            ));
        }
        self.check_tenants()?;
        let size = |name: &str, value: Option<Bytes>, least: u64, most: u64| match value {
            Some(value) if !(least..=most).contains(&value.get()) => Err((
                format!("`{name}` is {value}"),
                "`payload` must be from 1 kB to 64 MiB, `buffer` from 16 KiB to 1 GiB",
            )),
            _ => Ok(()),
        };
        size("payload", self.payload, 1000, 64 << 20)?;
        size("buffer", self.buffer, 16 << 10, 1 << 30)?;
        if self.patience.is_some_and(|time| !(Time::from_millis(100)..=Time::from_secs(3600)).contains(&time))
        {
            return Err(("`patience` is out of range".into(), "write a time from 100 ms to 3600 s"));
        }
        Ok(())
    }

    fn check_tenants(&self) -> Result<(), (String, &'static str)> {
        let mut open = None;
        for (name, tenant) in &self.tenant {
            let secret = tenant.password.is_some() || tenant.token.is_some();
            if tenant.certificate && secret {
                return Err((
                    format!("`[tenant.{name}]` has both `certificate` and a secret"),
                    "choose one of them",
                ));
            }
            if tenant.certificate && self.tls == Tls::Off {
                return Err((
                    format!("`[tenant.{name}]` requires a certificate, and clients' connections have no TLS"),
                    "write `tls = \"on\"`",
                ));
            }
            if [&tenant.password, &tenant.token].into_iter().flatten().any(String::is_empty) {
                return Err((
                    format!("a secret of `[tenant.{name}]` is empty"),
                    "write one, or leave it out",
                ));
            }
            if !tenant.certificate
                && !secret
                && let Some(other) = open.replace(name)
            {
                return Err((
                    format!("`[tenant.{other}]` and `[tenant.{name}]` both accept every client"),
                    "give one of them a `password`, a `token`, or `certificate = true`",
                ));
            }
            if tenant.salary.is_some_and(|salary| !(0.001..=1000.0).contains(&salary)) {
                return Err((
                    format!("`tenant.{name}.salary` is out of range"),
                    "write a weight from 0.001 to 1000; the default is 1",
                ));
            }
        }
        Ok(())
    }
}

impl TenantFile {
    fn rules(&self, name: &str, open: &TenantRules) -> TenantRules {
        let proof = match (self.certificate, &self.password, &self.token) {
            (true, ..) => Proof::Certificate,
            (false, None, None) => Proof::None,
            (false, password, token) => Proof::Secret { password: password.clone(), token: token.clone() },
        };
        TenantRules {
            name: name.to_owned(),
            salary: self.salary.unwrap_or(open.salary),
            proof,
            slow: self.slow,
            connections: self.connections.unwrap_or(open.connections),
            subscriptions: self.subscriptions.unwrap_or(open.subscriptions),
        }
    }
}

/// Checks that a text has a host and a port.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Checks that a name is a DNS label of at most 32 bytes.
pub(crate) fn is_label(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

impl Keys {
    /// The versions of the files.
    pub(crate) fn marks(&self) -> Vec<Option<Mark>> {
        [&self.authority, &self.certificate, &self.key].into_iter().map(|path| mark(path)).collect()
    }
}

/// A watch on a site's file.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    /// The version that was read last.
    read: Option<Mark>,
    /// The current version, and the time since which it has not changed.
    now: (Option<Mark>, Instant),
}

/// A file's version: modification time, length and inode.
pub(crate) type Mark = (SystemTime, u64, u64);

impl Watch {
    /// Watches `path`, which has been read.
    pub fn new(path: &Path) -> Watch {
        let mark = mark(path);
        Watch { path: path.to_owned(), read: mark, now: (mark, Instant::now()) }
    }

    /// Reads the file again if it has changed since the last reading.
    pub fn poll(&mut self) -> Option<Result<Site, ConfigError>> {
        let (found, now) = (mark(&self.path), Instant::now());
        if found != self.now.0 {
            self.now = (found, now);
        }
        if found == self.read || now < self.now.1 + SETTLED {
            return None;
        }
        self.read = found;
        Some(Site::load(&self.path))
    }
}

fn mark(path: &Path) -> Option<Mark> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}

/// Time for which a file must be unchanged, since it may be written in several steps.
const SETTLED: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "site = \"a\"\nlisten = \"127.0.0.1:4222\"\n";

    fn parse(text: &str) -> Result<Site, ConfigError> {
        Site::parse("dir/site.toml".as_ref(), &format!("{BASE}{text}"))
    }

    #[test]
    fn a_whole_file_is_read() {
        let site = parse(
            "patience = \"2 s\"\nbuffer = \"64 KiB\"\ntls = \"on\"\n\
             [keys]\nauthority = \"ca.pem\"\ncertificate = \"a.pem\"\nkey = \"/k/a.key\"\n\
             [links]\nlisten = \"0.0.0.0:7222\"\n\
             [link.b]\naddress = \"192.0.2.2:7222\"\nrate = \"20 Mbps\"\n[link.c]\nrate = \"5 Mbps\"\n\
             [tenant.plant]\npassword = \"s\"\nslow = \"spool\"\nsalary = 3\n[tenant.lab]\ncertificate = true\n\
             [spool]\nfolder = \"spool\"\n",
        )
        .unwrap();
        assert_eq!(site.keys.as_ref().unwrap().authority, Path::new("dir/ca.pem"));
        assert_eq!(site.keys.as_ref().unwrap().key, Path::new("/k/a.key"));
        assert_eq!(site.links[0].site, "b");
        assert_eq!(site.links[1].address, None);
        assert!(site.rules.tls && site.rules.certificates);
        assert_eq!(site.rules.tenants[1].slow, Slow::Spool);
        assert_eq!(site.spool.as_ref().unwrap().folder, Path::new("dir/spool"));
        let mut other = site.clone();
        other.rules.patience = Time::from_secs(1);
        other.links.clear();
        assert_eq!(site.fixed(&other), None);
        other.listen.set_port(1);
        assert_eq!(site.fixed(&other), Some("listen"));
    }

    #[test]
    fn what_is_wrong_is_named_with_a_remedy() {
        for (text, part) in [
            ("lisen = 1", "lisen"),
            ("patience = \"2\"", "no unit"),
            ("patience = \"1 ms\"", "`patience`"),
            ("buffer = \"1 B\"", "`buffer` is 1 B"),
            ("advertise = \"here\"", "`advertise` is not valid"),
            ("[link.b]\nrate = \"1 Mbps\"\naddress = \"b\"", "`link.b.address` is not valid"),
            ("[link.B]\nrate = \"1 Mbps\"", "`B` is not a valid name"),
            ("[link.a]\nrate = \"1 Mbps\"", "names this site"),
            ("[link.b]\nrate = \"1 Mbps\"", "need keys"),
            ("tls = \"on\"", "need keys"),
            ("[tenant.x]\n[tenant.y]\n", "both accept every client"),
            ("[tenant.x]\ncertificate = true\n", "no TLS"),
            ("[tenant.x]\npassword = \"\"\n", "is empty"),
            ("[tenant.x]\nsalary = 0\n", "salary"),
            ("[tenant.x]\nslow = \"lose\"\n", "lose"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert!(error.to_string().contains("site.toml") && !error.help.is_empty());
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let folder = std::env::temp_dir().join(format!("tollway-overlay-watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("site.toml");
        std::fs::write(&path, BASE).unwrap();
        let mut watch = Watch::new(&path);
        assert!(watch.poll().is_none());
        let mut next = |text: &str| {
            std::fs::write(&path, text).unwrap();
            loop {
                if let Some(news) = watch.poll() {
                    return news;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        assert!(next("site = 1").is_err());
        assert_eq!(next(&format!("{BASE}patience = \"3 s\"\n")).unwrap().rules.patience, Time::from_secs(3));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
