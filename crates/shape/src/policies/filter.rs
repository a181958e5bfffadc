//! Filters: the connections that a policy applies to.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tollway_net::sys::prefix::Prefix;
use tollway_scenario::file::matches;

use crate::{Distinctions, Identity, Rules};

/// The conditions on a connection; an empty list matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Networks of the local address.
    #[serde(with = "prefixes")]
    pub from: Vec<Prefix>,
    /// Networks of the remote address.
    #[serde(with = "prefixes")]
    pub to: Vec<Prefix>,
    /// Ranges of local ports: first and last.
    pub from_ports: Vec<(u16, u16)>,
    /// Ranges of remote ports: first and last.
    pub to_ports: Vec<(u16, u16)>,
    /// User numbers.
    pub users: Vec<u32>,
    /// Patterns of its control group, or of an ancestor.
    pub cgroups: Vec<String>,
    /// Patterns of its container.
    pub containers: Vec<String>,
}

/// The filters of a policy file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// By tenant: its filter, and those of its classes. Each tenant's first class, which has no
    /// filter, holds the rest.
    pub tenants: Vec<(Filter, Vec<Filter>)>,
}

impl Filter {
    /// Returns how specific the match is: higher is more specific. `None` if the filter does not
    /// match.
    pub fn score(&self, who: &Identity<'_>) -> Option<u32> {
        // Traffic inside this machine uses no uplink.
        if who.stays && self.to.is_empty() {
            return None;
        }
        self.closeness(who)
    }

    /// True if it names local addresses, and none of `local` is one: no socket here matches.
    pub(super) fn is_foreign(&self, local: &[IpAddr]) -> bool {
        let here = |network: &Prefix| local.iter().any(|address| network.score(*address).is_some());
        !self.from.is_empty() && !self.from.iter().any(here)
    }

    /// The score of a connection that may use the uplink.
    fn closeness(&self, who: &Identity<'_>) -> Option<u32> {
        Some(self.of_ends(who)? + self.of_owner(who)?)
    }

    /// The score of the addresses and ports, which a program chooses.
    fn of_ends(&self, who: &Identity<'_>) -> Option<u32> {
        let (local, remote) = (who.local.ip().to_canonical(), who.remote.ip().to_canonical());
        let port = |ports: &[(u16, u16)], port: u16| {
            best(ports, |&(first, last)| {
                (first..=last).contains(&port).then_some(1 + u32::from(first == last))
            })
        };
        let mut score = best(&self.from, |network| network.score(local))?;
        score += best(&self.to, |network| network.score(remote))?;
        score += port(&self.from_ports, who.local.port())?;
        score += port(&self.to_ports, who.remote.port())?;
        Some(score)
    }

    /// The score of the user and the control group, which a program can't choose.
    fn of_owner(&self, who: &Identity<'_>) -> Option<u32> {
        let mut score = best(&self.users, |&user| (user == who.uid).then_some(2))?;
        score += best(&self.cgroups, |pattern| in_group(pattern, who.cgroup?))?;
        score += best(&self.containers, |pattern| in_container(pattern, who.cgroup?))?;
        Some(score)
    }

    /// The rank of a tenant with this filter, if it may have the connection; and whether the whole
    /// filter matches. A tenant whose user or control group matches comes before those that state
    /// neither: else a program would leave its tenant by an address or a port. For the same reason
    /// its traffic to other addresses and ports is its own.
    fn rank(&self, who: &Identity<'_>) -> Option<((u32, u32), bool)> {
        let owner = self.of_owner(who)?;
        match self.score(who) {
            Some(score) if owner > 0 => Some(((2, score), true)),
            Some(score) => Some(((0, score), true)),
            None if owner > 0 && !who.stays => Some(((1, owner), false)),
            None => None,
        }
    }
}

/// The form of prefixes in JSON: addresses and lengths.
mod prefixes {
    use std::net::IpAddr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use tollway_net::sys::prefix::Prefix;

    pub(super) fn serialize<S: Serializer>(prefixes: &[Prefix], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(prefixes.iter().map(Prefix::parts))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
        let parts = Vec::<(IpAddr, u32)>::deserialize(deserializer)?;
        let prefix = |(address, len)| Prefix::of(address, len).ok_or_else(|| Error::custom("no prefix"));
        parts.into_iter().map(prefix).collect()
    }
}

impl Rules for Filters {
    fn class_of(&self, who: &Identity<'_>) -> Option<u32> {
        let mut best: Option<((u32, u32), u32, &[Filter])> = None;
        let mut first = 0;
        for (filter, classes) in &self.tenants {
            if let Some((rank, whole)) = filter.rank(who)
                && best.is_none_or(|(most, ..)| rank > most)
            {
                best = Some((rank, first, if whole { classes } else { &[] }));
            }
            first += 1 + classes.len() as u32;
        }
        let (_, first, classes) = best?;
        let mut class: Option<(u32, u32)> = None;
        for (filter, at) in classes.iter().zip(first + 1..) {
            if let Some(score) = filter.closeness(who)
                && class.is_none_or(|(most, _)| score > most)
            {
                class = Some((score, at));
            }
        }
        Some(class.map_or(first, |(_, at)| at))
    }

    fn distinctions(&self) -> Distinctions {
        let mut distinct = Distinctions::default();
        for filter in self.all() {
            distinct.local.extend(filter.from.iter().map(Prefix::parts));
            distinct.remote.extend(filter.to.iter().map(Prefix::parts));
            distinct.local_ports.extend(&filter.from_ports);
            distinct.remote_ports.extend(&filter.to_ports);
            distinct.users.extend(&filter.users);
        }
        distinct
    }

    fn profile(&self, group: &str) -> Vec<Option<u32>> {
        let of = |filter: &Filter| {
            let groups = filter.cgroups.iter().map(|pattern| in_group(pattern, group));
            let containers = filter.containers.iter().map(|pattern| in_container(pattern, group));
            groups.chain(containers).collect::<Vec<_>>()
        };
        self.all().flat_map(of).collect()
    }

    fn local_counts(&self) -> bool {
        self.tenants.iter().any(|(filter, _)| !filter.to.is_empty())
    }

    fn by_group(&self) -> bool {
        self.all().any(|filter| !filter.cgroups.is_empty() || !filter.containers.is_empty())
    }
}

impl Filters {
    /// Every filter of tenants and classes.
    fn all(&self) -> impl Iterator<Item = &Filter> {
        self.tenants.iter().flat_map(|(filter, classes)| std::iter::once(filter).chain(classes))
    }
}

/// The best score of a list; 0 for an empty list.
fn best<T>(list: &[T], score: impl Fn(&T) -> Option<u32>) -> Option<u32> {
    if list.is_empty() { Some(0) } else { list.iter().filter_map(score).max() }
}

/// The score of a control group that matches `pattern`, or has an ancestor that does.
fn in_group(pattern: &str, path: &str) -> Option<u32> {
    let above = path.match_indices('/').map(|(at, _)| &path[..at.max(1)]);
    above.chain([path]).filter_map(|path| named(pattern, path)).max()
}

/// The score of a control group that is a container's, or inside it.
fn in_container(pattern: &str, path: &str) -> Option<u32> {
    path.split('/')
        .filter_map(|group| {
            let name =
                group.strip_suffix(".scope").or_else(|| group.strip_suffix(".service")).unwrap_or(group);
            let name = RUNTIMES.iter().find_map(|runtime| name.strip_prefix(runtime)).unwrap_or(name);
            // Container identifiers are long, so that a prefix is enough.
            let identifier = name.len() >= 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let begins = identifier && pattern.len() >= 12 && name.starts_with(pattern);
            if begins { Some(2) } else { named(pattern, name) }
        })
        .max()
}

fn named(pattern: &str, name: &str) -> Option<u32> {
    match pattern {
        _ if pattern == name => Some(2),
        "*" => Some(0),
        _ if matches(pattern, name) => Some(1),
        _ => None,
    }
}

/// Prefixes of container runtimes for the names of their control groups.
const RUNTIMES: [&str; 8] = [
    "docker-",
    "libpod-",
    "cri-containerd-",
    "crio-",
    "lxc.payload.",
    "machine-",
    "systemd-nspawn@",
    "nerdctl-",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn who<'a>(remote: &str, uid: u32, cgroup: Option<&'a str>) -> Identity<'a> {
        let (local, remote) = ("10.0.0.1:443".parse().unwrap(), remote.parse().unwrap());
        Identity { local, remote, uid, cgroup, stays: false }
    }

    fn to(text: &str) -> Filter {
        Filter { to: Prefix::parse(text).unwrap(), ..Filter::default() }
    }

    #[test]
    fn addresses_are_hosts_networks_or_any() {
        let score = |filter: &str, remote: &str| to(filter).score(&who(remote, 0, None));
        assert_eq!(score("192.0.2.1", "192.0.2.1:9"), Some(2));
        assert_eq!(score("192.0.2.0/24", "192.0.2.1:9"), Some(1));
        assert_eq!(score("192.0.*", "192.0.2.1:9"), Some(1));
        assert_eq!(score("192.0.2.*", "192.0.3.1:9"), None);
        assert_eq!(score("*", "[2001:db8::1]:9"), Some(0));
        assert_eq!(score("2001:db8::/32", "[2001:db8:1::1]:9"), Some(1));
        assert_eq!(score("0.0.0.0/0", "[2001:db8::1]:9"), None);
        assert_eq!(score("::/0", "[2001:db8::1]:9"), Some(0));
        // An IPv6 socket may carry an IPv4 address.
        assert_eq!(score("192.0.2.1", "[::ffff:192.0.2.1]:9"), Some(2));
        assert_eq!(score("::ffff:192.0.2.1", "192.0.2.1:9"), Some(2));
        assert_eq!(score("::ffff:192.0.0.0/112", "[::ffff:192.0.2.1]:9"), Some(1));
        for wrong in ["", "x", "1.2.3", "1.2.3.4/33", "1.2.3.4.5.*", "*.1", "::1/129", "1.2.3.4/"] {
            assert_eq!(Prefix::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn local_is_decided_by_the_device_and_never_by_addresses() {
        for remote in ["127.0.0.2:80", "10.0.0.1:80", "[::1]:80", "192.0.2.1:9"] {
            let leaves = who(remote, 0, None);
            let stays = Identity { stays: true, ..leaves };
            assert_eq!(Filter::default().score(&leaves), Some(0), "{remote}");
            assert_eq!(Filter::default().score(&stays), None, "{remote}");
        }
        let stays = Identity { stays: true, ..who("127.0.0.1:80", 0, None) };
        assert_eq!(to("127.0.0.0/8").score(&stays), Some(1));
    }

    #[test]
    fn addresses_and_ports_do_not_take_a_user_from_its_tenant() {
        let user = Filter { users: vec![33], ..Filter::default() };
        let narrow = Filter {
            from: Prefix::parse("10.0.0.1").unwrap(),
            to: Prefix::parse("192.0.2.0/24").unwrap(),
            to_ports: vec![(80, 80)],
            ..user.clone()
        };
        let bulk = Filter { to_ports: vec![(81, 81)], ..Filter::default() };
        let ports = Filter { from_ports: vec![(443, 443)], to_ports: vec![(81, 81)], ..Filter::default() };
        let filters = Filters { tenants: vec![(ports, vec![]), (narrow, vec![bulk])] };
        let class = |remote: &str, uid| filters.class_of(&who(remote, uid, None));
        assert_eq!(class("192.0.2.1:80", 33), Some(1));
        assert_eq!(class("198.51.100.1:80", 33), Some(1), "the rest, to another address");
        assert_eq!(class("192.0.2.1:81", 33), Some(1), "the rest has no class, nor another tenant");
        assert_eq!(class("192.0.2.1:81", 34), Some(0));
        assert_eq!(class("192.0.2.1:82", 34), None);
        let stays = Identity { stays: true, ..who("198.51.100.1:80", 33, None) };
        assert_eq!(filters.class_of(&stays), None);
    }

    #[test]
    fn groups_hold_those_below_and_containers_are_known_by_their_names() {
        let path = "/system.slice/docker-0123456789abcdef0123456789abcdef.scope/init";
        let group = |pattern: &str| Filter { cgroups: vec![pattern.into()], ..Filter::default() };
        let container = |pattern: &str| Filter { containers: vec![pattern.into()], ..Filter::default() };
        let score = |filter: Filter| filter.score(&who("192.0.2.1:9", 0, Some(path)));
        assert_eq!(score(group("/system.slice")), Some(2));
        assert_eq!(score(group("/system.slice/docker-*")), Some(1));
        assert_eq!(score(group("/system")), None);
        assert_eq!(score(group("/")), Some(2), "it is above all");
        assert_eq!(score(container("0123456789ab")), Some(2));
        assert_eq!(score(container("0123456789")), None);
        assert_eq!(score(container("0123*")), Some(1));
        let web = who("192.0.2.1:9", 0, Some("/machine.slice/machine-web.scope"));
        assert_eq!(container("web").score(&web), Some(2));
        assert_eq!(group("*").score(&who("192.0.2.1:9", 0, None)), None, "where the group isn't known");
    }

    #[test]
    fn the_most_specific_wins_and_of_two_the_first() {
        let port = Filter { to_ports: vec![(80, 80)], ..Filter::default() };
        let user = Filter { users: vec![33], ..Filter::default() };
        let both = Filter { to_ports: vec![(1, 1000)], ..user.clone() };
        let bulk = Filter { to_ports: vec![(80, 81)], ..Filter::default() };
        let filters = Filters {
            tenants: vec![
                (Filter::default(), vec![]),
                (port, vec![]),
                (user, vec![bulk.clone(), Filter { to_ports: vec![(81, 81)], ..Filter::default() }]),
                (both, vec![]),
            ],
        };
        let class = |remote: &str, uid| filters.class_of(&who(remote, uid, None));
        assert_eq!(class("192.0.2.1:9", 1), Some(0));
        assert_eq!(class("192.0.2.1:80", 1), Some(1));
        // 2 for the user alone; 3 for the user and a range.
        assert_eq!(class("192.0.2.1:80", 33), Some(5));
        assert_eq!(class("192.0.2.1:2000", 33), Some(2));
        assert_eq!(class("127.0.0.1:80", 33), Some(5), "by a device that is not the loopback device");
        let classes = Filters { tenants: vec![filters.tenants[2].clone()] };
        assert_eq!(classes.class_of(&who("192.0.2.1:80", 33, None)), Some(1));
        assert_eq!(classes.class_of(&who("192.0.2.1:81", 33, None)), Some(2));
        assert_eq!(classes.class_of(&who("192.0.2.1:82", 33, None)), Some(0));
    }
}
