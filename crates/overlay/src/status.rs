//! A site's state as text and JSON.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// A site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub site: String,
    /// The address for clients.
    pub listen: String,
    /// Since the start, seconds.
    pub up_s: f64,
    /// The processor's time used, seconds.
    pub cpu_s: f64,
    /// Clients that are connected.
    pub clients: usize,
    /// Messages that clients have published.
    pub published: u64,
    /// Messages handed to clients' connections.
    pub delivered: u64,
    /// Messages dropped for subscriptions that asked for it.
    pub dropped: u64,
    /// Messages that have come from other sites.
    pub received: u64,
    /// Clients disconnected because they took nothing for too long.
    pub cut: u64,
    /// Messages to ordered subjects that came back without a place.
    pub unordered: u64,
    /// Bytes on disk for slow subscriptions.
    pub spooled: u64,
    /// Other sites that can be reached.
    pub reachable: usize,
    /// Bytes kept until all sites have them.
    pub retained: u64,
    /// The first fault: a newer configuration that is not in force, two sites of one name, or a
    /// disk that refuses.
    pub trouble: Option<String>,
    /// Links to other sites.
    pub links: Vec<LinkStatus>,
    /// Tenants.
    pub tenants: Vec<TenantStatus>,
    /// Clients for which much waits, the most first.
    pub slow: Vec<SlowStatus>,
}

/// A link to another site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The other site.
    pub site: String,
    /// True if it is connected.
    pub up: bool,
    /// The reason if it is not.
    pub trouble: Option<String>,
    /// Bytes that wait.
    pub queued: u64,
    /// Dollars for a lot.
    pub price: f64,
    /// The measured rate, Mb/s.
    pub rate_mbps: f64,
    /// Bytes of messages sent.
    pub data: u64,
    /// Bytes of all else sent.
    pub control: u64,
}

/// A tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub tenant: String,
    /// Clients that are connected.
    pub connections: usize,
    /// Their subscriptions.
    pub subscriptions: usize,
    /// Messages that they have published.
    pub published: u64,
    /// Messages that they were sent.
    pub delivered: u64,
    /// Messages dropped for them.
    pub dropped: u64,
    /// Clients that wait for what it costs to reach other sites.
    pub waiting: usize,
    /// Savings, dollars.
    pub balance: f64,
    /// The time between two salaries, ms.
    pub period_ms: f64,
    /// Bytes bought on links.
    pub bought: u64,
}

/// A client for which much waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowStatus {
    /// Its number, tenant, address and name.
    pub client: String,
    /// Bytes that wait.
    pub waiting: u64,
    /// Clients that wait for it.
    pub holds: usize,
}

impl Status {
    /// Tables.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "Site {} at {}: {} clients, {} other sites; up {:.0} s.\n",
            self.site, self.listen, self.clients, self.reachable, self.up_s
        );
        if let Some(trouble) = &self.trouble {
            let _ = writeln!(text, "Trouble: {trouble}");
        }
        let _ = writeln!(
            text,
            "{} published here, {} from other sites, {} delivered, {} dropped, {} bytes on disk, {} clients cut off.",
            self.published, self.received, self.delivered, self.dropped, self.spooled, self.cut
        );
        if !self.links.is_empty() {
            text += "\nlink to            state   waits kB    price  rate Mb/s     sent MB\n";
        }
        for link in &self.links {
            let state = if link.up { "up" } else { "down" };
            let _ = writeln!(
                text,
                "{:<18} {state:<5} {:>10.1} {:>8.2} {:>10.2} {:>11.1}{}",
                link.site,
                link.queued as f64 * 1e-3,
                link.price,
                link.rate_mbps,
                link.data as f64 * 1e-6,
                link.trouble.as_ref().map_or(String::new(), |why| format!("  ({why})"))
            );
        }
        text += "\ntenant             clients  subscr.   published   delivered  dropped  waiting  balance\n";
        for tenant in &self.tenants {
            let _ = writeln!(
                text,
                "{:<18} {:>7} {:>8} {:>11} {:>11} {:>8} {:>8} {:>8.1}",
                tenant.tenant,
                tenant.connections,
                tenant.subscriptions,
                tenant.published,
                tenant.delivered,
                tenant.dropped,
                tenant.waiting,
                tenant.balance
            );
        }
        for slow in &self.slow {
            let _ = writeln!(
                text,
                "slow: client {}: {:.1} kB wait, and {} senders",
                slow.client,
                slow.waiting as f64 * 1e-3,
                slow.holds
            );
        }
        text
    }

    /// The tables of what another process has written as JSON; `None` if that is something else.
    pub fn told(json: &str) -> Option<String> {
        Some(serde_json::from_str::<Status>(json).ok()?.to_text())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn status() -> Status {
        let link = LinkStatus {
            site: "b".into(),
            up: true,
            queued: 1500,
            price: 2.5,
            rate_mbps: 20.0,
            ..LinkStatus::default()
        };
        let down = LinkStatus { site: "c".into(), trouble: Some("refused".into()), ..LinkStatus::default() };
        Status {
            site: "a".into(),
            listen: "127.0.0.1:4222".into(),
            published: 7,
            trouble: Some("`listen`".into()),
            links: vec![link, down],
            tenants: vec![TenantStatus {
                tenant: "plant".into(),
                connections: 3,
                published: 7,
                ..TenantStatus::default()
            }],
            slow: vec![SlowStatus { client: "9 of plant".into(), waiting: 99_000, holds: 2 }],
            ..Status::default()
        }
    }

    #[test]
    fn what_a_site_tells_reads_the_same_here_and_there() {
        let text = status().to_text();
        for part in ["Site a", "Trouble", "b ", "2.50", "(refused)", "plant", "9 of plant: 99.0 kB"] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert_eq!(Status::told(&serde_json::to_string(&status()).unwrap()), Some(text));
        for other in ["", "{}", "[]"] {
            assert_eq!(Status::told(other), None);
        }
    }
}
