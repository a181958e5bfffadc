//! The status of a router. Counters are since its start.

use tollway_agent::status::{Product, Table, Unit, alert, count, gauge, info, label, rows};

tollway_agent::status! {
    /// The status of a router at one instant.
    pub struct Status {
        /// Seconds since its start.
        time_s: f64 = gauge("s up").metric("uptime").unit(Unit::Seconds, 1.0);
        /// The version of the configuration in force.
        version: String = info();
        /// The origin of the configuration.
        source: String = info();
        /// The interface.
        device: String = info();
        /// The law of both directions.
        law: String = info();
        /// The reason why packets pass, or a newer configuration is not in force.
        trouble: Option<String> = alert("Trouble");
        /// Connections with tolls that were metered.
        metered: u64 = count("metered").rare();
        /// Senders that were accused.
        accused: u64 = count("accused").rare();
        /// The directions.
        ways: Vec<WayStatus> = rows(&WAYS);
        /// The tenants.
        tenants: Vec<TenantStatus> = rows(&TENANTS);
        /// Senders that are held.
        held: Vec<HeldStatus> = rows(&HELD);
    }
}

tollway_agent::status! {
    /// A direction.
    pub struct WayStatus {
        /// `up`, out of the interface, or `down`, into it.
        direction: &'static str = label("way").metric("direction");
        /// Its rate in the configuration.
        limit_bps: f64 = gauge("limit").scaled(1e-6, 1).metric("limit_bits_per_second");
        /// The rate of the last second.
        rate_bps: f64 = gauge("Mb/s").scaled(1e-6, 1).metric("rate_bits_per_second");
        /// Bytes sent, with the line's overhead.
        bytes: u64 = count("MB").scaled(1e-6, 1).metric("sent").unit(Unit::Bytes, 1.0);
        /// Packets sent; a train counts as its segments.
        packets: u64 = count("packets").metric("sent_packets");
        /// Packets that the law or a full queue dropped.
        dropped: u64 = count("drops");
        /// Packets that the law marked.
        marked: u64 = count("marks");
        /// Bytes that wait.
        queued: u64 = gauge("queue kB").scaled(1e-3, 1).unit(Unit::Bytes, 1.0);
        /// Mean waiting time in the last second.
        wait_ms: Option<f64> = gauge("wait ms").scaled(1.0, 2).metric("wait").unit(Unit::Seconds, 1e-3);
        /// Packets for which the kernel had no room on the way here.
        missed: u64 = count("missed").rare();
        /// Packets that the kernel did not accept back.
        unsent: u64 = count("unsent").rare();
        /// Packets that passed in the kernel while the router did not answer.
        passed: u64 = count("passed").rare();
        /// Packets that the kernel's limit dropped meanwhile.
        refused: u64 = count("refused").rare();
        /// Processor time of the direction's thread, seconds.
        cpu_s: f64 = count("").metric("cpu").unit(Unit::Seconds, 1.0);
        /// Mean delay of packets that left late, because the thread was.
        late_ms: f64 = gauge("").metric("lateness").unit(Unit::Seconds, 1e-3);
    }
}

tollway_agent::status! {
    /// A tenant in a direction. Its counters are since the last change of the configuration.
    pub struct TenantStatus {
        /// Its name.
        tenant: String = label("tenant");
        /// `up` or `down`.
        direction: &'static str = label("way").metric("direction");
        /// Its rate in the configuration.
        limit_bps: f64 = gauge("limit").scaled(1e-6, 1).metric("limit_bits_per_second");
        /// The rate of the last second.
        rate_bps: f64 = gauge("Mb/s").scaled(1e-6, 1).metric("rate_bits_per_second");
        /// Bytes that conformed.
        bytes: u64 = count("MB").scaled(1e-6, 1).metric("conforming").unit(Unit::Bytes, 1.0);
        /// Bytes that were sent without conforming.
        excess_bytes: u64 = count("excess").scaled(1e-6, 1).metric("excess").unit(Unit::Bytes, 1.0).rare();
        /// Packets dropped: they did not conform, or found a full queue, or its law dropped them.
        dropped: u64 = count("drops");
        /// Packets that the queues' law marked.
        marked: u64 = count("marks").rare();
        /// Bytes that wait for tokens.
        queued: u64 = gauge("queue kB").scaled(1e-3, 1).unit(Unit::Bytes, 1.0);
        /// Mean waiting time for tokens in the last second.
        wait_ms: Option<f64> = gauge("wait ms").scaled(1.0, 2).metric("wait").unit(Unit::Seconds, 1e-3);
        /// Connections or hosts now.
        members: u64 = gauge("members");
    }
}

tollway_agent::status! {
    /// A sender that its meter holds.
    pub struct HeldStatus {
        /// Its addresses and ports, or its address.
        sender: String = label("sender");
        /// Its offence.
        offence: &'static str = label("offence");
        /// Packets dropped since then, above what it may send.
        dropped: u64 = count("drops");
    }
}

const HELD: Table = Table::new("sender", HeldStatus::FIELDS);
const TENANTS: Table = Table::new("tenant", TenantStatus::FIELDS);
const WAYS: Table = Table::new("way", WayStatus::FIELDS);

/// The outputs of a router's status.
pub const ROUTER: Product =
    Product::new("router", "Version {version} of {source}: {law} at {device}.", Status::FIELDS);
