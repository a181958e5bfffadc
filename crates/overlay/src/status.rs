//! A site's state as text and JSON.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// The status of a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The site's name.
    pub site: String,
    /// The address for clients.
    pub listen: String,
    /// Time since the start, in seconds.
    pub up_s: f64,
    /// Processor time used, in seconds.
    pub cpu_s: f64,
    /// Number of connected clients.
    pub clients: usize,
    /// Messages that clients have published.
    pub published: u64,
    /// Messages handed to clients' connections.
    pub delivered: u64,
    /// Messages dropped at the request of slow subscriptions.
    pub dropped: u64,
    /// Messages lost by all tenants.
    pub lost: Losses,
    /// Messages from other sites for tenants that this site does not have.
    pub stray: u64,
    /// Messages received from other sites.
    pub received: u64,
    /// Clients disconnected because they made no progress.
    pub cut: u64,
    /// Messages to ordered subjects that came back without a place.
    pub unordered: u64,
    /// Bytes on disk for slow subscriptions.
    pub spooled: u64,
    /// Number of reachable other sites.
    pub reachable: usize,
    /// Bytes retained until all sites have received them.
    pub retained: u64,
    /// The first fault: a newer configuration that is not in force, two sites of one name, or a
    /// disk that refuses writes.
    pub trouble: Option<String>,
    /// Links to other sites.
    pub links: Vec<LinkStatus>,
    /// Tenants of the site.
    pub tenants: Vec<TenantStatus>,
    /// Clients with a large backlog, in descending order.
    pub slow: Vec<SlowStatus>,
}

/// The status of a link to another site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The other site's name.
    pub site: String,
    /// True if it is connected.
    pub up: bool,
    /// The reason why it is not connected; `None` if it is.
    pub trouble: Option<String>,
    /// Bytes that wait for the link.
    pub queued: u64,
    /// Price of a lot, in dollars.
    pub price: f64,
    /// The measured rate, in Mb/s.
    pub rate_mbps: f64,
    /// Bytes of messages sent.
    pub data: u64,
    /// Bytes sent other than messages.
    pub control: u64,
}

/// The status of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The tenant's name.
    pub tenant: String,
    /// Number of connected clients.
    pub connections: usize,
    /// Number of their subscriptions.
    pub subscriptions: usize,
    /// Messages published by its clients.
    pub published: u64,
    /// Messages delivered to its clients.
    pub delivered: u64,
    /// Messages dropped for its clients.
    pub dropped: u64,
    /// Messages lost.
    pub lost: Losses,
    /// Clients that wait for the price of links to other sites.
    pub waiting: usize,
    /// Savings, in dollars.
    pub balance: f64,
    /// Time between two salaries, in ms.
    pub period_ms: f64,
    /// Bytes bought on links.
    pub bought: u64,
}

/// Messages lost since the start, by cause. A message counts once for each site or receiver that
/// lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// For sites that ended, or were unreachable for longer than `patience`.
    pub expired: u64,
    /// Of queue groups without a member at a reachable site.
    pub no_destination: u64,
    /// On the spool of a subscription that ended.
    pub spool: u64,
    /// For clients that were disconnected as slow; an upper bound.
    pub cut: u64,
}

impl Losses {
    /// Name in metrics, description, and number of each cause.
    pub fn causes(&self) -> [(&'static str, &'static str, u64); 4] {
        [
            ("expired", "for unreachable sites", self.expired),
            ("no_destination", "without destination", self.no_destination),
            ("spool", "with a spool", self.spool),
            ("cut", "of disconnected clients", self.cut),
        ]
    }

    /// The number of all lost messages.
    pub fn total(&self) -> u64 {
        self.causes().iter().map(|(.., count)| count).sum()
    }
}

impl std::iter::Sum for Losses {
    fn sum<I: Iterator<Item = Losses>>(all: I) -> Losses {
        all.fold(Losses::default(), |sum, one| Losses {
            expired: sum.expired + one.expired,
            no_destination: sum.no_destination + one.no_destination,
            spool: sum.spool + one.spool,
            cut: sum.cut + one.cut,
        })
    }
}

/// A client with a large backlog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowStatus {
    /// The client's number, tenant, address and name.
    pub client: String,
    /// Bytes that wait for it.
    pub waiting: u64,
    /// Number of senders that wait for it.
    pub holds: usize,
}

impl Status {
    /// Formats the status as tables.
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
            "{} published here, {} from other sites, {} delivered, {} dropped, {} bytes on disk, {} clients \
            disconnected.",
            self.published, self.received, self.delivered, self.dropped, self.spooled, self.cut
        );
        if self.lost.total() > 0 || self.stray > 0 {
            let causes = self.lost.causes().map(|(_, what, count)| format!("{count} {what}"));
            let _ = writeln!(text, "Lost: {}, {} for unknown tenants.", causes.join(", "), self.stray);
        }
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
        text += "\ntenant             clients  subscr.   published   delivered  dropped     lost  waiting  balance\n";
        for tenant in &self.tenants {
            let _ = writeln!(
                text,
                "{:<18} {:>7} {:>8} {:>11} {:>11} {:>8} {:>8} {:>8} {:>8.1}",
                tenant.tenant,
                tenant.connections,
                tenant.subscriptions,
                tenant.published,
                tenant.delivered,
                tenant.dropped,
                tenant.lost.total(),
                tenant.waiting,
                tenant.balance
            );
        }
        for slow in &self.slow {
            let _ = writeln!(
                text,
                "slow: client {}: {:.1} kB and {} senders wait",
                slow.client,
                slow.waiting as f64 * 1e-3,
                slow.holds
            );
        }
        text
    }

    /// Formats another process's status from JSON; `None` if `json` is no status.
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
            lost: Losses { expired: 5, no_destination: 4, ..Losses::default() },
            trouble: Some("`listen`".into()),
            links: vec![link, down],
            tenants: vec![TenantStatus {
                tenant: "plant".into(),
                connections: 3,
                published: 7,
                lost: Losses { spool: 3, ..Losses::default() },
                ..TenantStatus::default()
            }],
            slow: vec![SlowStatus { client: "9 of plant".into(), waiting: 99_000, holds: 2 }],
            ..Status::default()
        }
    }

    #[test]
    fn what_a_site_tells_reads_the_same_here_and_there() {
        let text = status().to_text();
        for part in [
            "Site a",
            "Trouble",
            "b ",
            "2.50",
            "(refused)",
            "plant",
            "9 of plant: 99.0 kB",
            "Lost: 5 for unreachable sites, 4 without destination",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert_eq!(Status::told(&serde_json::to_string(&status()).unwrap()), Some(text));
        for other in ["", "{}", "[]"] {
            assert_eq!(Status::told(other), None);
        }
    }
}
