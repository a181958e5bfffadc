//! A site's status.

use serde::Serialize;
use tollway_agent::status::{Product, Table, Unit, alert, by, count, flag, gauge, info, label, rows, word};

tollway_agent::status! {
    /// The status of a site.
    pub struct Status {
        /// The site's name.
        site: String = info();
        /// The address for clients.
        listen: String = info();
        /// Time since the start, in seconds.
        up_s: f64 = gauge("s up").metric("uptime").unit(Unit::Seconds, 1.0);
        /// Processor time used, in seconds.
        cpu_s: f64 = count("s of processor time").scaled(1.0, 2).metric("cpu").unit(Unit::Seconds, 1.0);
        /// Number of connected clients.
        clients: usize = gauge("clients");
        /// Messages that clients have published.
        published: u64 = count("published here");
        /// Messages handed to clients' connections.
        delivered: u64 = count("delivered");
        /// Messages dropped at the request of slow subscriptions.
        dropped: u64 = count("dropped");
        /// Messages lost by all tenants, by cause.
        lost: Losses = by("lost", "cause").rare();
        /// Messages from other sites for tenants that this site does not have.
        stray: u64 = count("for unknown tenants").rare();
        /// Messages received from other sites.
        received: u64 = count("from other sites");
        /// Clients disconnected because they made no progress.
        cut: u64 = count("clients disconnected");
        /// Messages to ordered subjects that came back without a place.
        unordered: u64 = count("returned without a place in an order").rare();
        /// Bytes on disk for slow subscriptions.
        spooled: u64 = gauge("bytes on disk").unit(Unit::Bytes, 1.0);
        /// Number of reachable other sites.
        reachable: usize = gauge("other sites");
        /// Bytes retained until all sites have received them.
        retained: u64 = gauge("bytes kept for other sites").unit(Unit::Bytes, 1.0).rare();
        /// The first fault: a newer configuration that is not in force, two sites of one name, or a
        /// disk that refuses writes.
        trouble: Option<String> = alert("Trouble");
        /// Links to other sites.
        links: Vec<LinkStatus> = rows(&LINKS);
        /// Tenants of the site.
        tenants: Vec<TenantStatus> = rows(&TENANTS);
        /// Clients with a large backlog, in descending order.
        slow: Vec<SlowStatus> = rows(&SLOW);
    }
}

tollway_agent::status! {
    /// The status of a link to another site.
    pub struct LinkStatus {
        /// The other site's name.
        site: String = label("link to");
        /// True if it is connected.
        up: bool = flag("state", "up", "down");
        /// The reason why it is not connected; `None` if it is.
        trouble: Option<String> = word("trouble").rare();
        /// Bytes that wait for the link.
        queued: u64 = gauge("waits kB").scaled(1e-3, 1).metric("queue").unit(Unit::Bytes, 1.0);
        /// Price of a lot, in dollars.
        price: f64 = gauge("price").scaled(1.0, 2);
        /// The measured rate, in Mb/s.
        rate_mbps: f64 = gauge("rate Mb/s").scaled(1.0, 2);
        /// Bytes of messages sent.
        data: u64 = gauge("sent MB").scaled(1e-6, 1).unit(Unit::Bytes, 1.0).per_second();
        /// Bytes sent other than messages.
        control: u64 = gauge("control MB").scaled(1e-6, 1).unit(Unit::Bytes, 1.0).per_second();
    }
}

tollway_agent::status! {
    /// The status of a tenant.
    pub struct TenantStatus {
        /// The tenant's name.
        tenant: String = label("tenant");
        /// Number of connected clients.
        connections: usize = gauge("clients");
        /// Number of their subscriptions.
        subscriptions: usize = gauge("subscr.");
        /// Messages published by its clients.
        published: u64 = gauge("published").per_second();
        /// Messages delivered to its clients.
        delivered: u64 = gauge("delivered").per_second();
        /// Messages dropped for its clients.
        dropped: u64 = gauge("dropped").per_second();
        /// Messages lost, by cause.
        lost: Losses = by("lost", "cause").rare();
        /// Clients that wait for the price of links to other sites.
        waiting: usize = gauge("waiting");
        /// Savings, in dollars.
        balance: f64 = gauge("balance").scaled(1.0, 1);
        /// Time between two salaries, in ms.
        period_ms: f64 = gauge("period ms").scaled(1.0, 0).metric("period").unit(Unit::Seconds, 1e-3);
        /// Bytes bought on links.
        bought: u64 = gauge("bought MB").scaled(1e-6, 1).unit(Unit::Bytes, 1.0);
    }
}

/// Messages lost since the start, by cause. A message counts once for each site or receiver that
/// lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

#[cfg(test)]
impl Losses {
    /// The number of all lost messages.
    pub(crate) fn total(&self) -> u64 {
        let Losses { expired, no_destination, spool, cut } = self;
        expired + no_destination + spool + cut
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

tollway_agent::status! {
    /// A client with a large backlog.
    pub struct SlowStatus {
        /// The client's number, tenant, address and name.
        client: String = label("slow client");
        /// Bytes that wait for it.
        waiting: u64 = gauge("waits kB").scaled(1e-3, 1);
        /// Number of senders that wait for it.
        holds: usize = gauge("senders wait");
    }
}

const LINKS: Table = Table::new("link", LinkStatus::FIELDS);
const TENANTS: Table = Table::new("tenant", TenantStatus::FIELDS);
const SLOW: Table = Table::long(SlowStatus::FIELDS);

/// The text, metrics and page of the status.
pub const OVERLAY: Product = Product::new(
    "overlay",
    "Site {site} at {listen}: {clients} clients, {reachable} other sites; up {up_s} s.",
    Status::FIELDS,
);
