//! Traffic that `inet_diag` does not list: datagrams, and connections that end between two ticks.

use std::fs;

use tollway_law::Time;

/// Counts of this network namespace, read once per second.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    next: Time,
    before: Option<Counts>,
    warning: Option<String>,
}

/// Datagrams sent, and TCP connections opened, since the namespace exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    datagrams: u64,
    opened: u64,
}

impl Unseen {
    pub(super) fn look(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + Time::from_secs(1);
        let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        let counts = Counts::read(&read("snmp"), &read("snmp6"));
        self.warning = self.before.replace(counts).and_then(|before| counts.warning(before));
    }

    pub(super) fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

impl Counts {
    /// Reads the texts of `/proc/net/snmp` and `/proc/net/snmp6`.
    fn read(snmp: &str, snmp6: &str) -> Counts {
        let value = |table: &str, name: &str| {
            let mut rows = snmp.lines().filter_map(|line| line.strip_prefix(table));
            let (names, values) = (rows.next()?, rows.next()?);
            let at = names.split_whitespace().position(|word| word == name)?;
            values.split_whitespace().nth(at)?.parse::<u64>().ok()
        };
        let six =
            snmp6.lines().find_map(|line| line.strip_prefix("Udp6OutDatagrams")?.trim().parse::<u64>().ok());
        let opened = ["ActiveOpens", "PassiveOpens"].map(|name| value("Tcp:", name).unwrap_or(0));
        Counts {
            datagrams: value("Udp:", "OutDatagrams").unwrap_or(0) + six.unwrap_or(0),
            opened: opened.iter().sum(),
        }
    }

    /// A message on the traffic of a second, if there is much.
    fn warning(self, before: Counts) -> Option<String> {
        let datagrams = self.datagrams.saturating_sub(before.datagrams);
        let opened = self.opened.saturating_sub(before.opened);
        let mut said = Vec::new();
        if datagrams >= MANY_DATAGRAMS {
            said.push(format!("{datagrams} UDP datagrams"));
        }
        if opened >= MANY_OPENED {
            said.push(format!("{opened} new TCP connections, of which those that end within a tick"));
        }
        (!said.is_empty()).then(|| {
            format!(
                "in the last second there were {}: these are not limited; `--backend bpf` limits them",
                said.join(", and ")
            )
        })
    }
}

/// Datagrams and connections per second from which on they are worth a message.
const MANY_DATAGRAMS: u64 = 200;
const MANY_OPENED: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_and_short_connections_are_reported_by_the_second() {
        let snmp = "Ip: Forwarding OutRequests\nIp: 1 7\nTcp: RtoMin ActiveOpens PassiveOpens\nTcp: 200 30 12\n\
                    Udp: InDatagrams OutDatagrams\nUdp: 5 1000\nUdpLite: InDatagrams OutDatagrams\nUdpLite: 1 1\n";
        let counts = Counts::read(snmp, "Ip6InReceives\t3\nUdp6OutDatagrams             \t400\n");
        assert_eq!(counts, Counts { datagrams: 1400, opened: 42 });
        assert_eq!(Counts::read("", ""), Counts::default());
        let after = |datagrams, opened| {
            Counts { datagrams: counts.datagrams + datagrams, opened: counts.opened + opened }.warning(counts)
        };
        assert_eq!(after(199, 99), None);
        let said = after(200, 0).unwrap();
        assert!(said.contains("200 UDP datagrams") && !said.contains("TCP"), "{said}");
        let said = after(900, 5000).unwrap();
        assert!(said.contains("900 UDP datagrams") && said.contains("5000 new TCP connections"), "{said}");
    }
}
