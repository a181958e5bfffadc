//! The sections of a policy file and their keys.

use tollway_scenario::file::reading::Default::Else;
use tollway_scenario::file::reading::{Default, Key, Kind};
use tollway_scenario::{keys, section};

const fn key(name: &'static str, kind: Kind, default: Default, says: &'static str) -> Key {
    Key { name, kind, default, says }
}

const SPAN: Kind = Kind::Time { least: 1 };

section! {
    /// The policies of this machine.
    POLICIES = "" {
        /// Version of the policies in the output of `tollway shape status`.
        "version": Kind::Line, else "computed from the text";
        /// Interval between two looks at the connections, 1 ms to 10 s. It grows where it would
        /// take more than a sixteenth of a processor.
        "tick": SPAN, default "15 ms";
        /// The uplink that all tenants share.
        "link": Kind::Table(&UPLINK), optional;
        /// Tenants: connections that share a rate.
        "aggregate": Kind::Named(&POLICY), optional;
    }
}

section! {
    /// The uplink. Without `rate`, only the tenants' own rates limit them.
    UPLINK = "[link]": [
        keys! {
            /// Rate of all tenants together, on the wire.
            "rate": Kind::Rate, else "none";
            /// Rate of all tenants together while the bucket has tokens, which makes up for unused
            /// capacity.
            "peak": Kind::Rate, else "the rate";
            /// Framing of each packet beyond its IP size: 18 B for Ethernet, 38 B with preamble and
            /// gap.
            "overhead": Kind::Bytes { least: 0, most: 1000 }, default "0 B";
        },
        &[key("depth", DEPTH, Else("100 ms of the rate"), DEPTH_OF)],
    ]
}

const DEPTH: Kind = Kind::Bytes { least: 0, most: 1 << 40 };
const DEPTH_OF: &str =
    "B: depth of the bucket, the largest excess over the rate that unused capacity allows.";

section! {
    /// A tenant: the connections that match its filter share one rate, divided over them by
    /// weighted max–min fairness. If several tenants match a connection, the most specific one
    /// applies: over all keys, a full value counts two, a pattern or a range one, `*` none; of two
    /// that are equal, the first in the file. A tenant whose `user`, `cgroup` or `container`
    /// matches comes before tenants that state none of these. It also has all other traffic of
    /// that user or control group that no tenant's filter matches, as part of its rest. Traffic
    /// that leaves by the loopback device stays on this machine, and matches only if `to` is given.
    POLICY = "[aggregate.NAME]": [
        keys! {
            /// r: rate of all its connections together, on the wire. Required if the link has no
            /// rate.
            "rate": Kind::Rate, else "the link's";
            /// p: their rate while the bucket has tokens.
            "peak": Kind::Rate, else "1.25 times the rate; without a rate of the link, the rate";
            /// Weight among the tenants that compete for the link.
            "weight": WEIGHT, default "1";
            /// Classes of the tenant's connections. Connections that match none form a class of
            /// weight 1.
            "class": Kind::Named(&POLICY_CLASS), optional;
        },
        &[key("depth", DEPTH, Else("50 ms of the rate; below 2.4 Mb/s the first window of a connection, up to 100 ms"), DEPTH_OF)],
        &[FROM, key("to", ADDRESSES, Else("any, except by the loopback device"), OTHER_END)],
        FILTER,
    ]
}

section! {
    /// A class of a tenant's connections. The tenant's classes share its rate by weight. The filter
    /// works as for tenants.
    POLICY_CLASS = "[aggregate.NAME.class.NAME]": [
        keys! {
            /// Weight of the class within the tenant.
            "weight": WEIGHT;
        },
        &[FROM, key("to", ADDRESSES, Else("any"), OTHER_END)],
        FILTER,
    ]
}

const FROM: Key =
    key("from", ADDRESSES, Else("any"), "Local address: one, a network `10.0.0.0/8`, `10.0.*`, or a list.");
const OTHER_END: &str = "Remote address, in the same forms.";

const FILTER: &[Key] = keys! {
    /// Local port: one, a range `8000-8099`, or a list.
    "from-port": PORTS, else "any";
    /// Remote port, in the same forms.
    "to-port": PORTS, else "any";
    /// User that runs the program: names or numbers.
    "user": Kind::Match("a user's name or number, or an array of such"), else "any";
    /// Control group in which the socket was created, or one above it: a path with `*` and `?`.
    "cgroup": Kind::Match("a control group, such as \"/system.slice/nginx.service\", or an array of such"),
        else "any";
    /// Container, by the name of its control group: its identifier, at least the first twelve
    /// letters of that, or a name with `*` and `?`.
    "container": Kind::Match("a container, such as \"web-*\", or an array of such"), else "any";
};

const ADDRESSES: Kind =
    Kind::Match("an address, such as \"192.0.2.1\" or \"10.0.0.0/8\", or an array of such");
const PORTS: Kind = Kind::Match("a port, such as 443 or \"8000-8099\", or an array of such");
const WEIGHT: Kind = Kind::Over { over: 0.0, most: 1e6 };
