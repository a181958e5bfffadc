//! The sections of a policy file and their keys.

use tollway_scenario::file::reading::Default::Else;
use tollway_scenario::file::reading::{Default, Key, Kind};
use tollway_scenario::{keys, section};

const fn key(name: &'static str, kind: Kind, default: Default, says: &'static str) -> Key {
    Key { name, kind, default, says }
}

const SPAN: Kind = Kind::Time { least: 1 };

section! {
    /// Policies are one TOML file. Quantities are strings with their unit, as in scenario files.
    POLICIES = "" {
        /// What `tollway shape status` calls this version.
        "version": Kind::Line, else "made from the text";
        /// How often connections are looked at, 1 ms to 10 s; less often where that would take more
        /// than a sixteenth of a processor.
        "tick": SPAN, default "15 ms";
        /// What all of them share.
        "link": Kind::Table(&UPLINK), optional;
        /// Tenants: connections that share a rate.
        "aggregate": Kind::Named(&POLICY), optional;
    }
}

section! {
    /// The uplink. Without a rate nothing but their own rates holds the tenants.
    UPLINK = "[link]": [
        keys! {
            /// Of all tenants together, on the wire.
            "rate": Kind::Rate, else "none";
            /// How fast all together may go while the bucket has tokens, to make up for what was
            /// left unused.
            "peak": Kind::Rate, else "the rate";
            /// What each packet has on the wire beside IP's: 18 B for Ethernet, 38 B with preamble
            /// and gap.
            "overhead": Kind::Bytes { least: 0, most: 1000 }, default "0 B";
        },
        BURST,
    ]
}

const BURST: &[Key] = keys! {
    /// Of the bucket: B, what may be sent beyond the rate before what was left unused is counted
    /// again.
    "depth": Kind::Bytes { least: 0, most: 1 << 40 }, else "100 ms of the rate";
};

section! {
    /// A tenant: connections that its filter matches have one rate, divided over them weighted
    /// max–min. Of several that match a connection the most specific is its: a full value counts
    /// two, a pattern or a range one, `*` none, over all keys; of two as specific the first in the
    /// file. Connections to this machine itself are meant only where `to` is given.
    POLICY = "[aggregate.NAME]": [
        keys! {
            /// Of all of them together: r, on the wire. Needed where the link has none.
            "rate": Kind::Rate, else "the link's";
            /// p: how fast they may go while the bucket has tokens.
            "peak": Kind::Rate, else "the rate";
            /// What it counts for where tenants compete for the link.
            "weight": WEIGHT, default "1";
            /// Parts of the tenant's connections; what none matches is a part of weight 1.
            "class": Kind::Named(&POLICY_CLASS), optional;
        },
        BURST,
        &[FROM, key("to", ADDRESSES, Else("any but this machine's own"), OTHER_END)],
        FILTER,
    ]
}

section! {
    /// Some of a tenant's connections, which share its rate with the rest by weight. Which, is told
    /// as for tenants.
    POLICY_CLASS = "[aggregate.NAME.class.NAME]": [
        keys! {
            /// What the class counts for among the tenant's.
            "weight": WEIGHT;
        },
        &[FROM, key("to", ADDRESSES, Else("any"), OTHER_END)],
        FILTER,
    ]
}

const FROM: Key = key(
    "from",
    ADDRESSES,
    Else("any"),
    "Our end's address: one, a network `10.0.0.0/8`, `10.0.*`, or a list.",
);
const OTHER_END: &str = "The other end's, likewise.";

const FILTER: &[Key] = keys! {
    /// Our end's port: one, a range `8000-8099`, or a list.
    "from-port": PORTS, else "any";
    /// The other end's, likewise.
    "to-port": PORTS, else "any";
    /// Who runs the program: names or numbers.
    "user": Kind::Match("a user's name or number, or an array of such"), else "any";
    /// The control group that the socket was made in, or one above it: a path with `*` and `?`.
    "cgroup": Kind::Match("a control group, such as \"/system.slice/nginx.service\", or an array of such"),
        else "any";
    /// The container, by what its control group is called: an identifier, or twelve letters of it,
    /// or a name with `*` and `?`.
    "container": Kind::Match("a container, such as \"web-*\", or an array of such"), else "any";
};

const ADDRESSES: Kind =
    Kind::Match("an address, such as \"192.0.2.1\" or \"10.0.0.0/8\", or an array of such");
const PORTS: Kind = Kind::Match("a port, such as 443 or \"8000-8099\", or an array of such");
const WEIGHT: Kind = Kind::Over { over: 0.0, most: 1e6 };
