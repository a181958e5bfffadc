//! The figures of a live run beside its tables.

use tollway_law::Time;
use tollway_net as net;

/// Figures of a live run.
#[derive(Clone, Debug)]
pub struct LiveInfo {
    /// Threads that ran the nodes.
    pub threads: usize,
    /// True if the system gave them real-time priority.
    pub real_time: bool,
    /// The fate of all datagrams.
    pub counters: net::Counters,
    /// Datagrams that the kernel dropped for lack of room, if it reports them.
    pub kernel_drops: Option<u64>,
    /// Delays of the emulation.
    pub punctuality: net::Punctuality,
    /// Packets from and to the nodes' kernels, by the counters of their interfaces.
    pub kernel_packets: (u64, u64),
    /// The kernel's counters of each link, if nodes are namespaces.
    pub wires: Vec<WireInfo>,
    /// Links that were put at interfaces, with the mean wait of their packets after the warm-up, in
    /// ms.
    pub routed: Vec<(String, f64)>,
    /// Connections of the kernel's TCP that left their law for Linux's own, with causes.
    pub fallen: Option<String>,
    /// The only node of this process, if other processes run the others.
    pub node: Option<String>,
    /// Failures in words: flows at the only node of this process, and packets too long for their
    /// path.
    pub broken: Vec<String>,
}

/// The kernel's counters of a link between two namespaces. They agree with the reported figures:
/// otherwise the run ends with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireInfo {
    /// The link's name.
    pub link: String,
    /// The namespace of its start, as in `ip netns`; `None` if it could not be named.
    pub namespace: Option<String>,
    /// The interface in that namespace.
    pub interface: String,
    /// Packets that left the link's transmitter and were not lost on its wire.
    pub reported: u64,
    /// Packets that the kernel counted as sent there.
    pub sent: u64,
    /// Packets that the kernel counted as received at the far end.
    pub received: u64,
    /// Packets that the kernel dropped for lack of room.
    pub dropped: u64,
}

impl LiveInfo {
    /// Returns true if the machine was fast enough.
    ///
    /// At most one departure in a hundred was then more than a millisecond late. Programs at the
    /// ends of kernel flows waited less than that for a processor, on average. The kernel accepted
    /// every datagram that was not too long for its interface, and dropped none.
    pub fn kept_up(&self) -> bool {
        let late = self.punctuality.departures.share_over(LATE);
        let unsent = self.counters.unsent - self.counters.too_long;
        let hosts = self.punctuality.programs.mean();
        late <= TOO_MANY && hosts <= LATE && self.kernel_drops.unwrap_or(0) == 0 && unsent == 0
    }
}

/// Threshold of a late departure, and the largest tolerated share of late ones.
const LATE: Time = Time::from_millis(1);
const TOO_MANY: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_wait_for_a_processor_do_not_keep_up() {
        let mut info = LiveInfo {
            threads: 1,
            real_time: false,
            counters: net::Counters::default(),
            kernel_drops: None,
            punctuality: net::Punctuality::default(),
            kernel_packets: (0, 0),
            wires: Vec::new(),
            routed: Vec::new(),
            fallen: None,
            node: None,
            broken: Vec::new(),
        };
        info.punctuality.programs = net::Waited { total: 90_000_000, count: 100 };
        assert!(info.kept_up());
        info.punctuality.programs.total = 110_000_000;
        assert!(!info.kept_up());
    }
}
