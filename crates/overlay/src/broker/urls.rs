//! The addresses of other sites for clients, which `INFO` lists, and the notice of this site's end.

use std::net::SocketAddr;
use std::sync::Arc;

use tollway_law::Time;
use tollway_proto::overlay::DaemonId;

use super::{Broker, NATS_VERSION};
use crate::nats::write::Info;
use crate::rules::Proof;

impl Broker {
    /// Announces this site's address for clients to other sites. They list it in their `INFO`.
    pub fn advertise(&mut self, url: &str) {
        if let Some(sites) = &mut self.sites {
            sites.daemon.join(&[URL, url.as_bytes()].concat());
        }
        self.urls.insert(0, (None, url.to_owned()));
    }

    /// Begins the end of this site: it leaves all groups, so that others send it nothing new, and
    /// tells its clients to connect elsewhere.
    pub fn retire(&mut self, now: Time) {
        self.retired = true;
        if let Some(sites) = &mut self.sites {
            sites.daemon.leave_all(now);
        }
        self.urls.retain(|(site, _)| site.is_some());
        self.tell_info();
    }

    /// True if all messages of this site have reached their destinations, and all output its
    /// clients.
    pub fn is_drained(&self) -> bool {
        let retained = self.sites.as_ref().map_or(0, |sites| sites.daemon.snapshot().retained);
        retained == 0 && self.sessions.iter().all(|(_, session)| session.out.is_empty())
    }

    /// Handles a membership that stands for another site's address.
    pub(super) fn url_changed(&mut self, site: DaemonId, group: &Arc<[u8]>, joined: bool) {
        let Some(url) = group.strip_prefix(URL) else { return };
        let Ok(url) = std::str::from_utf8(url) else { return };
        let entry = (Some(site), url.to_owned());
        self.urls.retain(|other| *other != entry);
        if joined {
            self.urls.push(entry);
        }
        self.urls_changed();
    }

    /// Tells the clients which sites are reachable now, if that differs from what they know.
    pub(super) fn urls_changed(&mut self) {
        let before = std::mem::take(&mut self.listed);
        let reaches = |site: DaemonId| self.sites.as_ref().is_some_and(|sites| sites.daemon.reaches(site));
        let listed = self.urls.iter().filter(|(site, _)| site.is_none_or(reaches));
        self.listed = listed.map(|(_, url)| url.clone()).collect();
        if self.listed != before {
            self.tell_info();
        }
    }

    fn tell_info(&mut self) {
        let clients: Vec<usize> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.tenant.is_some() && session.closing.is_none())
            .map(|(key, _)| key)
            .collect();
        for key in clients {
            let line = self.info(key);
            self.tell(key, &line);
        }
    }

    /// The `INFO` line of a client.
    pub(super) fn info(&self, key: usize) -> String {
        let (host, port) = &self.address;
        let session = &self.sessions[key];
        let info = Info {
            server_id: &self.rules.site,
            server_name: &self.rules.site,
            version: NATS_VERSION,
            tollway: env!("CARGO_PKG_VERSION"),
            proto: 1,
            host,
            port: *port,
            headers: true,
            jetstream: false,
            max_payload: self.rules.payload,
            client_id: session.number,
            client_ip: session.address.parse().ok().map(|address: SocketAddr| address.ip()),
            auth_required: !self.tenants.iter().any(|one| one.rules.proof == Proof::None && !one.gone),
            tls_required: self.rules.tls,
            tls_verify: self.rules.certificates,
            connect_urls: &self.listed,
            ldm: self.retired,
        };
        info.to_line()
    }
}

/// Prefix of the groups that stand for addresses of sites. No tenant has such a name.
const URL: &[u8] = b"$url\0";
