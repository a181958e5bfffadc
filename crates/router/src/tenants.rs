//! Tenants in the configuration: their packets, and the rate that they share.

use tollway_law::link::{AnyLink, DropTail};
use tollway_law::{Bytes, Time, words};
use tollway_net::LinkSpec;
use tollway_net::edge::{Filter, Labels, Members, TenantSpec, sees_packets};
use tollway_net::sys::prefix::{Ports, Prefix};
use tollway_proto::port::AnyQueue;
use tollway_proto::shaper::{Action, TenantConfig};
use tollway_proto::{Port, port};
use tollway_scenario::file::policy;
use tollway_scenario::file::reading::{Kind, Mistakes, RULES, Reader};
use tollway_scenario::{keys, section};

use crate::programs::{SIGHTS, Side};

section! {
    /// A tenant: packets that match its filter share one token bucket in each direction, as the
    /// connections of a host share one by `[aggregate.NAME]` of a scenario. Packets that wait do so
    /// in a queue of each member, under the file's `law`, and then cross the link. If several
    /// tenants match, the most specific one applies: over all keys, a full value counts two, a
    /// network or a range one; of two that are equal, the first in the file. Packets of no tenant
    /// go to the link at once.
    TENANT = "[aggregate.NAME]": [
        keys! {
            /// Source of packets out of the interface, destination of those into it: an address, a
            /// network `10.0.0.0/8`, `10.0.*`, or a list.
            "from": ADDRESSES, else "any";
            /// Destination of packets out of the interface, source of those into it, in the same
            /// forms.
            "to": ADDRESSES, else "any";
            /// Port at the end of `from`: one, a range `8000-8099`, or a list. Later fragments show
            /// none.
            "from-port": PORTS, else "any";
            /// Port at the end of `to`, in the same forms.
            "to-port": PORTS, else "any";
            /// Codepoint of differentiated services: a name such as `EF`, `AF41` or `CS1`, a number,
            /// or a list.
            "dscp": Kind::Match("a codepoint, such as \"EF\" or 46, or an array of such"), else "any";
            /// Mark that a rule of the firewall has set: a number, `0x10/0xf0` with a mask, or a list. Needs
            /// `direction = "up"`.
            "mark": Kind::Match("a mark, such as 7 or \"0x10/0xf0\", or an array of such"), else "any";
            /// Interface by which packets came, or a list. Needs `direction = "up"`.
            "interface": Kind::Match("an interface, such as \"wg0\", or an array of such"), else "any";
            /// Direction: out of the interface, into it, or each, with a bucket for each.
            "direction": Kind::Word(Ways::WORDS), default "both";
            /// r: the rate of all its packets together, without `overhead`.
            "rate": Kind::Rate;
            /// Lends the unused part of the rate to the other tenants with this key, in proportion to
            /// their rates, and borrows theirs. `peak` is then the upper bound.
            "borrow": Kind::Truth, default "false";
            /// B: the depth of the bucket, which is the longest burst.
            "depth": Kind::Bytes { least: 1514, most: 1 << 33 }, else "100 ms of the rate";
        },
        RULES,
        keys! {
            /// Its members: connections (`none`), or hosts, by the end `from` or `to`. Each member
            /// has an equal part, a host whatever the number of its connections.
            "hosts": Kind::Word(Hosts::WORDS), default "none";
            /// Largest number of waiting packets of all members together.
            "queue": Kind::Count { least: 1, most: 1 << 20 }, default "1000";
            /// Codepoint written into packets that conform.
            "conforming-dscp": Kind::Line, else "unchanged";
            /// With `action = "mark"`: codepoint written into packets that do not conform.
            "excess-dscp": Kind::Line, else "unchanged";
            /// With `action = "mark"`: packets that do not conform are marked by ECN, if their
            /// transport has it.
            "excess-ecn": Kind::Truth, default "false";
        },
    ]
}

const ADDRESSES: Kind =
    Kind::Match("an address, such as \"192.0.2.1\" or \"10.0.0.0/8\", or an array of such");
const PORTS: Kind = Kind::Match("a port, such as 443 or \"8000-8099\", or an array of such");

words! {
    /// The directions of a tenant.
    pub enum Ways {
        /// Out of the interface.
        Up = "up",
        /// Into it.
        Down = "down",
        /// Each.
        Both = "both",
    }
}

words! {
    /// The hosts that are members.
    pub enum Hosts {
        /// Connections are.
        None = "none",
        /// Those at the end `from`.
        From = "from",
        /// Those at the end `to`.
        To = "to",
    }
}

/// A condition that a packet's bytes do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The mark under a mask.
    Mark(u32, u32),
    /// The interface of arrival.
    Interface(String),
}

/// The conditions of all tenants, each once; a filter names them by their places.
pub(crate) fn conditions(top: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<Condition> {
    let mut all = Vec::new();
    for (name, keys) in top.named("aggregate", &TENANT) {
        for key in ["mark", "interface"].into_iter().filter(|key| keys.has(key)) {
            if keys.one_of("direction") != Some(Ways::Up) {
                let message = format!("tenant `{name}` has `{key}`, which packets into the interface lack");
                mistakes.add(keys.at(key), message, "here").help("write `direction = \"up\"`");
            }
        }
        for condition in conditions_of(&keys, mistakes) {
            if !all.contains(&condition) {
                all.push(condition);
            }
        }
    }
    if all.len() > SIGHTS {
        let message = format!("tenants name {} marks and interfaces, more than {SIGHTS}", all.len());
        mistakes.add(top.place(), message, "too many").help("join some of them, for marks by a mask");
    }
    all
}

fn conditions_of(keys: &Reader<'_>, mistakes: &mut Mistakes) -> Vec<Condition> {
    let mut all = keys.each("mark", mark, MARK, mistakes);
    all.extend(keys.patterns("interface").into_iter().map(|(name, _)| Condition::Interface(name)));
    all
}

fn mark(text: &str) -> Result<Condition, String> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    };
    let parts = number(value).zip(mask.map_or(Some(u32::MAX), number));
    let whole = parts.filter(|(value, mask)| *mask > 0 && value & mask == *value);
    whole.map(|(value, mask)| Condition::Mark(value, mask)).ok_or_else(|| format!("`{text}` is not a mark"))
}

/// The tenants of a direction, whose packets then cross `link`.
pub(crate) fn tenants(
    top: &Reader<'_>,
    side: Side,
    link: &LinkSpec,
    conditions: &[Condition],
    mistakes: &mut Mistakes,
) -> Vec<TenantSpec> {
    let mut all = Vec::new();
    for (name, keys) in top.named("aggregate", &TENANT) {
        let ways = keys.one_of("direction").unwrap_or(Ways::Both);
        if ways == Ways::Both || (ways == Ways::Up) == (side == Side::Up) {
            let mut tenant = tenant(name, &keys, side, link, mistakes);
            // The mistakes in them are known.
            for condition in conditions_of(&keys, &mut Mistakes::default()) {
                let at = conditions.iter().position(|known| *known == condition);
                let kind = usize::from(matches!(condition, Condition::Interface(_)));
                tenant.filter.sights[kind] |= at.map_or(0, |at| 1 << at.min(SIGHTS));
            }
            all.push(tenant);
        }
    }
    all
}

/// Adds the mistakes of a tenant that do not depend on the direction.
pub(crate) fn check(top: &Reader<'_>, mistakes: &mut Mistakes) {
    for (name, keys) in top.named("aggregate", &TENANT) {
        for way in [Ways::Up, Ways::Down] {
            if keys.one_of("direction") == Some(way) && top.lacks(way.word()) {
                let message =
                    format!("tenant `{name}` is of the direction `{0}`, which has no rate", way.word());
                mistakes
                    .add(keys.at("direction"), message, "here")
                    .help("give the direction's rate at the top");
            }
        }
        let (rate, peak) = (keys.rate("rate"), keys.rate("peak"));
        if let (Some(rate), Some(peak)) = (rate, peak)
            && peak < rate
        {
            let message = format!("tenant `{name}` has a peak of {peak}, under its rate of {rate}");
            mistakes.add(keys.at("peak"), message, "too low").help("the peak must be the rate or more");
        }
        for key in ["excess-dscp", "excess-ecn"] {
            if keys.has(key) && keys.word("action") != "mark" {
                let message = format!("`{key}` has no effect: no packet that does not conform is sent");
                mistakes
                    .add(keys.at(key), message, "here")
                    .help("write `action = \"mark\"`, or leave it out");
            }
        }
    }
}

fn tenant(name: &str, keys: &Reader<'_>, side: Side, link: &LinkSpec, mistakes: &mut Mistakes) -> TenantSpec {
    let rate = keys.rate("rate").unwrap_or_default();
    let depth = keys.bytes("depth").unwrap_or((rate.bytes_in(BURST).ceil() as u64).max(LEAST));
    let policy = policy(keys, rate, Bytes(depth));
    let mut read = |key: &str| keys.each(key, codepoint, CODEPOINT, mistakes);
    let dscp = read("dscp");
    let mut label = |key| keys.parsed(key, codepoint, CODEPOINT, mistakes);
    let labels = Labels {
        conforming: label("conforming-dscp"),
        excess: label("excess-dscp"),
        excess_ecn: keys.truth("excess-ecn"),
    };
    let mut addresses = |key| keys.each(key, address, ADDRESS, mistakes).concat();
    let (from, to) = (addresses("from"), addresses("to"));
    let mut ports = |key| keys.each(key, port_range, PORT, mistakes);
    let filter =
        Filter { from, to, from_ports: ports("from-port"), to_ports: ports("to-port"), dscp, sights: [0; 2] };
    let members = match (keys.one_of("hosts").unwrap_or(Hosts::None), side) {
        (Hosts::None, _) => Members::Flows,
        (Hosts::From, Side::Up) | (Hosts::To, Side::Down) => Members::Sources,
        (Hosts::To, Side::Up) | (Hosts::From, Side::Down) => Members::Destinations,
    };
    let room = keys.count("queue").unwrap_or_default() as u32;
    TenantSpec {
        name: name.to_owned(),
        filter: if side == Side::Up { filter } else { filter.back() },
        members,
        config: TenantConfig {
            policy,
            queue: queue(link, members, room),
            room,
            borrows: keys.truth("borrow"),
        },
        labels,
    }
}

/// The queue of each member: that of the link, but a single one for a single flow. A law that writes
/// tolls is for the link alone.
fn queue(link: &LinkSpec, members: Members, room: u32) -> Port<AnyLink, u32> {
    let limit = port::Limit { packets: link.limit.packets.min(room), ..link.limit };
    if sees_packets(&link.law) {
        return Port::new(AnyLink::DropTail(DropTail), limit, AnyQueue::default());
    }
    let by_flow = matches!(link.queue, AnyQueue::ByFlow(_) | AnyQueue::Sfq(_));
    let single = members == Members::Flows && by_flow;
    let queue = if single { AnyQueue::default() } else { link.queue.clone() };
    Port::new(link.law.clone(), limit, queue)
}

/// The words of a tenant, for people.
pub(crate) fn summary(tenant: &TenantSpec) -> String {
    let policy = &tenant.config.policy;
    let action = match policy.action {
        Action::Shape => "shaped to",
        Action::Mark => "marked above",
        Action::Drop => "dropped above",
    };
    format!("  {}: {action} {} Mbps", tenant.name, policy.profile.rate.mbps())
}

fn address(text: &str) -> Result<Vec<Prefix>, String> {
    Prefix::parse(text).ok_or_else(|| format!("`{text}` is not an address"))
}

fn port_range(text: &str) -> Result<Ports, String> {
    Ports::parse(text).ok_or_else(|| format!("`{text}` is not a port"))
}

/// A codepoint by number, or by its name in RFC 2474, 2597, 3246 and 8622.
fn codepoint(text: &str) -> Result<u8, String> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = |text: &str| text.bytes().map(|b| b.wrapping_sub(b'0')).collect::<Vec<u8>>();
    let named = match &*upper {
        "BE" | "DF" => Some(0),
        "LE" => Some(1),
        "EF" => Some(46),
        "VA" => Some(44),
        _ => match (upper.get(..2), upper.get(2..).map(digits).as_deref()) {
            (Some("CS"), Some(&[class @ 0..=7])) => Some(class << 3),
            (Some("AF"), Some(&[class @ 1..=4, drop @ 1..=3])) => Some(class << 3 | drop << 1),
            _ => upper.parse().ok().filter(|value| *value < 64),
        },
    };
    named.ok_or_else(|| format!("`{text}` is not a codepoint"))
}

const ADDRESS: &str = "write it like `192.0.2.1`, `10.0.0.0/8`, `10.0.*`, `2001:db8::/32` or `*`";
const PORT: &str = "write it like `443` or `\"8000-8099\"`";
const MARK: &str = "write it like `7`, `0x10` or `\"0x10/0xf0\"`";
const CODEPOINT: &str =
    "write a number from 0 to 63, or a name: `CS0` to `CS7`, `AF11` to `AF43`, `EF`, `VA`, `LE`";
/// The depth of a bucket, in time of its rate, and its least size in bytes.
const BURST: Time = Time::from_millis(100);
const LEAST: u64 = 3028;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codepoints_have_names_and_numbers() {
        for (text, value) in [("EF", 46), ("af41", 34), ("AF13", 14), ("CS1", 8), ("LE", 1), ("63", 63)] {
            assert_eq!(codepoint(text), Ok(value), "{text}");
        }
        for text in ["", "64", "AF51", "AF14", "CS8", "CS", "expedited", "AF1", "ÄÖ"] {
            assert!(codepoint(text).is_err(), "{text}");
        }
    }
}
