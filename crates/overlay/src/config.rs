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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tollway_agent::file;
use tollway_law::{Rate, Time};
use tollway_scenario::file::reading::{At, Kind, Mistakes, Reader, page_markdown, read};
use tollway_scenario::file::{Scenario, ScenarioError};
use tollway_scenario::section;

use crate::rules::{Proof, SiteRules, Slow, TenantRules};

section! {
    /// A site's file.
    SITE = "" {
        /// The site's name; unique in the overlay.
        "site": Kind::Text;
        /// The address for clients.
        "listen": Kind::Text;
        /// `HOST:PORT` of clients, which other sites list to theirs.
        "advertise": Kind::Text, optional;
        /// Largest message, headers and payload together.
        "payload": Kind::Bytes { least: 1000, most: 64 << 20 }, default "1 MiB";
        /// Bytes that wait for a receiver before it counts as slow.
        "buffer": Kind::Bytes { least: 16 << 10, most: 1 << 30 }, default "1 MiB";
        /// Time limit for a receiver without progress, and for messages to an unreachable site.
        "patience": Kind::Time { least: 100_000_000 }, default "10 s";
        /// TLS for clients.
        "tls": Kind::Word(&["off", "on"]), default "off";
        /// The site's identity.
        "keys": Kind::Table(&KEYS), optional;
        /// The socket for other sites.
        "links": Kind::Table(&LINKS), optional;
        /// Links to other sites.
        "link": Kind::Named(&LINK), optional;
        /// Accounts of clients.
        "tenant": Kind::Named(&TENANT), optional;
        /// The disk for messages to slow receivers.
        "spool": Kind::Table(&SPOOL), optional;
    }
}

section! {
    /// PEM files.
    KEYS = "[keys]" {
        /// The trusted authority's certificate.
        "authority": Kind::Text;
        /// The site's certificate.
        "certificate": Kind::Text;
        /// The site's private key.
        "key": Kind::Text;
    }
}

section! {
    /// The socket for other sites.
    LINKS = "[links]" {
        /// Its address.
        "listen": Kind::Text;
    }
}

section! {
    /// A link to another site.
    LINK = "[link.SITE]" {
        /// That site's address or `HOST:PORT`; without it, that site must connect.
        "address": Kind::Text, optional;
        /// The link's rate, until it is measured.
        "rate": Kind::WireRate;
    }
}

section! {
    /// A tenant.
    TENANT = "[tenant.NAME]" {
        /// Its weight against other tenants on links.
        "salary": Kind::Number { least: 0.001, most: 1000.0 }, default "1";
        /// A client's password; its user name is the tenant's name.
        "password": Kind::Text, optional;
        /// A client's token.
        "token": Kind::Text, optional;
        /// Clients need a certificate for `NAME.tenant.tollway`.
        "certificate": Kind::Truth, default "false";
        /// The treatment of slow receivers.
        "slow": Kind::Word(&["price", "spool", "drop"]), default "price";
        /// Limit of connections.
        "connections": Kind::Count { least: 0, most: i64::MAX as u64 }, default "65536";
        /// Limit of subscriptions.
        "subscriptions": Kind::Count { least: 0, most: i64::MAX as u64 }, default "65536";
    }
}

section! {
    /// The disk for messages to slow receivers.
    SPOOL = "[spool]" {
        /// The folder.
        "folder": Kind::Text;
        /// Its limit.
        "size": Kind::Bytes { least: 0, most: u64::MAX }, default "1 GiB";
    }
}

/// The chapter of the manual that lists every key of a site's file.
pub fn overlay_reference_markdown() -> String {
    let by = "`overlay_reference_markdown()` in `crates/overlay`";
    let sections = [&SITE, &KEYS, &LINKS, &LINK, &TENANT, &SPOOL];
    page_markdown("Configuration of `tollway overlay`", by, EXAMPLE, &sections, &[])
}

/// The example of the manual's page.
const EXAMPLE: &str = r#"site = "a"
listen = "0.0.0.0:4222"

[keys]
authority = "authority.pem"
certificate = "a.pem"
key = "a-key.pem"

[links]
listen = "0.0.0.0:7222"

[link.b]
address = "b.example.net:7222"
rate = "20 Mbps"

[tenant.plant]
password = "secret"
salary = 2
slow = "spool"

[spool]
folder = "spool"
"#;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The folder.
    pub folder: PathBuf,
    /// Limit of spooled messages of all subscriptions together.
    pub size: u64,
}

impl Keys {
    /// Watches on the files.
    pub(crate) fn watch(&self) -> [(PathBuf, file::Watch); 3] {
        [&self.authority, &self.certificate, &self.key].map(|path| (path.clone(), file::Watch::of(path)))
    }
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
    /// The file can't be read, or has mistakes.
    pub fn load(path: &Path) -> Result<Site, ScenarioError> {
        Site::parse(path, &Scenario::read(path)?)
    }

    /// Parses `text` as the file at `path`. Paths in it are relative to that file.
    ///
    /// # Errors
    /// All independent mistakes, with their places.
    pub fn parse(path: &Path, text: &str) -> Result<Site, ScenarioError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let resolve = |top: &Reader<'_>, mistakes: &mut Mistakes| resolve(top, folder, mistakes);
        let site = read(&path.display().to_string(), text, &SITE, ("a site's file", "site's file"), resolve);
        // Lines around a mistake may have a secret.
        site.map_err(|error| error.masked(&["password", "token"]))
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

/// The site of a file. After a mistake its values have no meaning.
fn resolve(top: &Reader<'_>, folder: &Path, mistakes: &mut Mistakes) -> Site {
    let site = top.text("site").unwrap_or_default();
    if top.has("site") {
        label(&site, top.at("site"), mistakes);
    }
    let patience = top.span("patience");
    if patience > Time::from_secs(3600) {
        mistakes.add(top.at("patience"), "`patience` must be from 100 ms to 3600 s", "out of range");
    }
    let tls = top.word("tls") == "on";
    let links = links(&site, top, mistakes);
    if (top.has("link") || top.has("links") || tls) && top.lacks("keys") {
        let key = ["link", "links", "tls"].into_iter().find(|key| top.has(key)).unwrap_or("tls");
        mistakes.add(top.at(key), "links and `tls` need keys", "no `[keys]`").help(
            "add `[keys]` with `authority`, `certificate` and `key`; `tollway overlay keys` makes some for a trial",
        );
    }
    let open = SiteRules::open(&site);
    let tenants = tenants(tls, top, mistakes);
    let spool = top.has("spool").then(|| {
        let keys = top.table("spool", &SPOOL);
        let folder = folder.join(keys.text("folder").unwrap_or_default());
        Spool { folder, size: keys.bytes("size").unwrap_or_default() }
    });
    let keys = top.has("keys").then(|| {
        let keys = top.table("keys", &KEYS);
        let file = |key| folder.join(keys.text(key).unwrap_or_default());
        Keys { authority: file("authority"), certificate: file("certificate"), key: file("key") }
    });
    Site {
        rules: SiteRules {
            certificates: tenants.iter().any(|tenant| tenant.proof == Proof::Certificate),
            tenants: if tenants.is_empty() { open.tenants } else { tenants },
            payload: top.bytes("payload").map_or(open.payload, |bytes| bytes as usize),
            buffer: top.bytes("buffer").map_or(open.buffer, |bytes| bytes as usize),
            patience,
            spool: spool.as_ref().map_or(0, |spool| spool.size),
            tls,
            site,
        },
        listen: address(top, "listen", mistakes).unwrap_or(NOWHERE),
        advertise: host(top, "advertise", mistakes),
        keys,
        link_listen: top
            .has("links")
            .then(|| address(&top.table("links", &LINKS), "listen", mistakes).unwrap_or(NOWHERE)),
        links,
        spool,
    }
}

fn links(site: &str, top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<Link> {
    let mut numbers = HashSet::from([Site::number(site)]);
    let mut links = Vec::new();
    for (name, keys) in top.named("link", &LINK) {
        label(name, keys.place(), mistakes);
        if name == site {
            mistakes
                .add(keys.place(), format!("`[link.{name}]` names this site"), "this site")
                .help("name the site at the other end of the link");
        } else if !numbers.insert(Site::number(name)) {
            mistakes
                .add(keys.place(), format!("`{name}` has the same number as another site"), "this name")
                .help("give one of them another name");
        }
        if top.lacks("links") && keys.lacks("address") {
            let message = "a link without `address` needs a listening socket, and the file has none";
            mistakes
                .add(keys.place(), message, "no `address`")
                .help("add `[links]` with `listen`, or the link's `address`");
        }
        links.push(Link {
            site: name.to_owned(),
            address: host(&keys, "address", mistakes),
            rate: keys.rate("rate").unwrap_or(Rate::ZERO),
        });
    }
    links.sort_by(|a, b| a.site.cmp(&b.site));
    links
}

fn tenants(tls: bool, top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<TenantRules> {
    let mut tenants: Vec<TenantRules> = Vec::new();
    for (name, keys) in top.named("tenant", &TENANT) {
        label(name, keys.place(), mistakes);
        let [password, token] = ["password", "token"].map(|key| {
            let secret = keys.text(key);
            if secret.as_ref().is_some_and(String::is_empty) {
                let message = format!("a secret of `[tenant.{name}]` is empty");
                mistakes.add(keys.at(key), message, "empty").help("write one, or leave it out");
            }
            secret
        });
        let proof = match (keys.truth("certificate"), password, token) {
            (true, None, None) => Proof::Certificate,
            (true, ..) => {
                let message = format!("`[tenant.{name}]` has both `certificate` and a secret");
                mistakes.add(keys.at("certificate"), message, "both").help("choose one of them");
                Proof::Certificate
            }
            (false, None, None) => Proof::None,
            (false, password, token) => Proof::Secret { password, token },
        };
        if proof == Proof::Certificate && !tls {
            let message =
                format!("`[tenant.{name}]` requires a certificate, and clients' connections have no TLS");
            mistakes.add(keys.at("certificate"), message, "no TLS").help("write `tls = \"on\"`");
        }
        let open = |tenant: &&TenantRules| tenant.proof == Proof::None;
        if let (Proof::None, Some(other)) = (&proof, tenants.iter().find(open)) {
            let message = format!("`[tenant.{}]` and `[tenant.{name}]` both accept every client", other.name);
            mistakes
                .add(keys.place(), message, "the second")
                .help("give one of them a `password`, a `token`, or `certificate = true`");
        }
        tenants.push(TenantRules {
            name: name.to_owned(),
            salary: keys.number("salary"),
            proof,
            slow: Slow::of_word(keys.word("slow")),
            connections: keys.count("connections").unwrap_or_default() as usize,
            subscriptions: keys.count("subscriptions").unwrap_or_default() as usize,
        });
    }
    tenants.sort_by(|a, b| a.name.cmp(&b.name));
    tenants
}

/// The address at a key, if it is given.
fn address(keys: &Reader<'_>, key: &str, mistakes: &mut Mistakes) -> Option<SocketAddr> {
    let text = keys.text(key)?;
    let address = text.parse().ok();
    if address.is_none() {
        mistakes
            .add(keys.at(key), format!("`{key}`: `{text}` is not an address and a port"), "here")
            .help("write it like \"127.0.0.1:4222\" or \"[::1]:4222\"");
    }
    address
}

/// The host and port at a key, if it is given.
fn host(keys: &Reader<'_>, key: &str, mistakes: &mut Mistakes) -> Option<String> {
    let text = keys.text(key)?;
    let parts = text.rsplit_once(':');
    if !parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        mistakes
            .add(keys.at(key), format!("`{key}`: `{text}` is not a host and a port"), "here")
            .help("write it like \"site-b.example:7222\" or \"192.0.2.2:7222\"");
    }
    Some(text)
}

/// Adds a mistake if a name cannot be that of a site or a tenant.
fn label(name: &str, at: At, mistakes: &mut Mistakes) {
    if !is_label(name) {
        mistakes
            .add(at, format!("`{name}` is not a valid name of a site or tenant"), "this name")
            .help("use 1 to 32 lower-case letters, digits and `-`: the name is part of its certificate");
    }
}

/// The address after a mistake.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Checks that a name is a DNS label of at most 32 bytes.
pub(crate) fn is_label(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// A watch on a site's file.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    watch: file::Watch,
}

impl Watch {
    /// Watches `path`, which has been read.
    pub fn new(path: &Path) -> Watch {
        Watch { path: path.to_owned(), watch: file::Watch::of(path) }
    }

    /// Makes the next [`poll`](Watch::poll) read the file in any case.
    pub fn again(&mut self) {
        self.watch.again();
    }

    /// Reads the file again if it has changed since the last reading.
    pub fn poll(&mut self) -> Option<Result<Site, ScenarioError>> {
        self.watch.has_changed(&self.path).then(|| Site::load(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use miette::Diagnostic as _;
    use tollway_scenario::file::Mistake;

    use super::*;

    const BASE: &str = "site = \"a\"\nlisten = \"127.0.0.1:4222\"\n";

    fn parse(text: &str) -> Result<Site, ScenarioError> {
        Site::parse("dir/site.toml".as_ref(), &format!("{BASE}{text}"))
    }

    #[test]
    fn the_manual_lists_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/overlay-reference.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, overlay_reference_markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == overlay_reference_markdown(),
            "run `UPDATE_DOCS=1 cargo test -p tollway-overlay manual`"
        );
        Site::parse("dir/site.toml".as_ref(), EXAMPLE).unwrap();
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
            ("lisen = 1", "there is no key `lisen`"),
            ("patience = \"2\"", "unit"),
            ("patience = \"1 ms\"", "`patience`"),
            ("buffer = \"1 B\"", "`buffer` must be from 16384"),
            ("advertise = \"here\"", "`here` is not a host"),
            ("[link.b]\nrate = \"1 Mbps\"\naddress = \"b\"", "`b` is not a host"),
            ("[link.B]\nrate = \"1 Mbps\"", "`B` is not a valid name"),
            ("[link.a]\nrate = \"1 Mbps\"", "names this site"),
            ("[link.b]\nrate = \"1 Mbps\"", "need keys"),
            ("tls = \"on\"", "need keys"),
            ("[tenant.x]\n[tenant.y]\n", "both accept every client"),
            ("[tenant.x]\ncertificate = true\n", "no TLS"),
            ("[tenant.x]\npassword = \"\"\n", "is empty"),
            ("[tenant.x]\nsalary = 0\n", "salary"),
            ("[tenant.x]\nslow = \"lose\"\n", "lose"),
            (
                "[links]\nlisten = \"here\"\n[keys]\nauthority = \"a\"\ncertificate = \"b\"\nkey = \"c\"",
                "`here` is not an address",
            ),
        ] {
            let error = parse(text).expect_err(text);
            let found = |mistake: &Mistake| {
                assert!(mistake.place().starts_with("dir/site.toml:"), "{}", mistake.place());
                mistake.message.contains(part)
            };
            assert!(error.mistakes().iter().any(found), "{text}: {error:?}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_in_place_with_the_probable_key() {
        let error = parse("patiense = \"2 s\"\n[tenant.x]\nsalry = 3\n[spool]\nfoldr = \"p\"\n").unwrap_err();
        let found = error.mistakes().iter().map(|one| (one.place(), one.help.clone().unwrap_or_default()));
        let wanted = [("3", "patience"), ("5", "salary"), ("7", "folder")];
        for ((place, help), (line, key)) in found.zip(wanted) {
            assert_eq!(place, format!("dir/site.toml:{line}"));
            assert!(help.contains(&format!("did you mean `{key}`")), "{help}");
        }
        assert_eq!(error.mistakes().len(), 3);
    }

    #[test]
    fn a_message_shows_no_secret_beside_a_mistake() {
        let error = parse("[tenant.x]\npassword = \"s3cret\"\nsalry = 3\ntoken = 's3cret'\n").unwrap_err();
        let place = error.labels().and_then(|mut labels| labels.next()).expect("a place");
        let source = error.source_code().expect("the text").read_span(place.inner(), 1, 1).unwrap();
        let text = String::from_utf8_lossy(source.data());
        assert!(!text.contains("s3cret") && text.contains("password = ****"), "{text}");
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
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        assert!(next("site = 1").is_err());
        assert_eq!(next(&format!("{BASE}patience = \"3 s\"\n")).unwrap().rules.patience, Time::from_secs(3));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
