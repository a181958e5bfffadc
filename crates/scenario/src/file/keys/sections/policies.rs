//! Policies for this machine's own connections: a file of its own.

use super::super::Default::{Else, Is, Must};
use super::super::{Key, Kind, Section};
use super::*;

/// The top of a policy file.
pub(crate) static POLICIES: Section = Section {
    header: "",
    says: "Policies are one TOML file. Quantities are strings with their unit, as in scenario files.",
    parts: &[&[
        key(
            "version",
            Kind::Line,
            Else("made from the text"),
            "What `tollway shape status` calls this version.",
        ),
        key(
            "tick",
            SPAN,
            Is("15 ms"),
            "How often connections are looked at, 1 ms to 10 s; less often where that would take more than a sixteenth of a processor.",
        ),
        key("link", Kind::Table(&UPLINK), Else(""), "What all of them share."),
        key("aggregate", Kind::Named(&POLICY), Else(""), "Tenants: connections that share a rate."),
    ]],
};

/// `[link]`.
pub(crate) static UPLINK: Section = Section {
    header: "[link]",
    says: "The uplink. Without a rate nothing but their own rates holds the tenants.",
    parts: &[
        &[
            key("rate", Kind::Rate, Else("none"), "Of all tenants together, on the wire."),
            key(
                "peak",
                Kind::Rate,
                Else("the rate"),
                "How fast all together may go while the bucket has tokens, to make up for what was left unused.",
            ),
            key(
                "overhead",
                Kind::Bytes { least: 0, most: 1000 },
                Is("0 B"),
                "What each packet has on the wire beside IP's: 18 B for Ethernet, 38 B with preamble and gap.",
            ),
        ],
        BURST,
    ],
};

const BURST: &[Key] = &[key(
    "depth",
    Kind::Bytes { least: 0, most: 1 << 40 },
    Else("100 ms of the rate"),
    "Of the bucket: B, what may be sent beyond the rate before what was left unused is counted again.",
)];

/// `[aggregate.NAME]` of a policy file.
pub(crate) static POLICY: Section = Section {
    header: "[aggregate.NAME]",
    says: "A tenant: connections that its filter matches have one rate, divided over them weighted max–min. Of several that match a \
           connection the most specific is its: a full value counts two, a pattern or a range one, `*` none, over all keys; of two \
           as specific the first in the file. Connections to this machine itself are meant only where `to` is given.",
    parts: &[
        &[
            key(
                "rate",
                Kind::Rate,
                Else("the link's"),
                "Of all of them together: r, on the wire. Needed where the link has none.",
            ),
            key("peak", Kind::Rate, Else("the rate"), "p: how fast they may go while the bucket has tokens."),
            key("weight", WEIGHT, Is("1"), "What it counts for where tenants compete for the link."),
            key(
                "class",
                Kind::Named(&POLICY_CLASS),
                Else(""),
                "Parts of the tenant's connections; what none matches is a part of weight 1.",
            ),
        ],
        BURST,
        &[FROM, key("to", ADDRESSES, Else("any but this machine's own"), OTHER_END)],
        FILTER,
    ],
};

/// `[aggregate.NAME.class.NAME]`.
pub(crate) static POLICY_CLASS: Section = Section {
    header: "[aggregate.NAME.class.NAME]",
    says: "Some of a tenant's connections, which share its rate with the rest by weight. Which, is told as for tenants.",
    parts: &[
        &[key("weight", WEIGHT, Must, "What the class counts for among the tenant's.")],
        &[FROM, key("to", ADDRESSES, Else("any"), OTHER_END)],
        FILTER,
    ],
};

const FROM: Key = key(
    "from",
    ADDRESSES,
    Else("any"),
    "Our end's address: one, a network `10.0.0.0/8`, `10.0.*`, or a list.",
);
const OTHER_END: &str = "The other end's, likewise.";

const FILTER: &[Key] = &[
    key("from-port", PORTS, Else("any"), "Our end's port: one, a range `8000-8099`, or a list."),
    key("to-port", PORTS, Else("any"), "The other end's, likewise."),
    key(
        "user",
        Kind::Match("a user's name or number, or an array of such"),
        Else("any"),
        "Who runs the program: names or numbers.",
    ),
    key(
        "cgroup",
        Kind::Match("a control group, such as \"/system.slice/nginx.service\", or an array of such"),
        Else("any"),
        "The control group that the socket was made in, or one above it: a path with `*` and `?`.",
    ),
    key(
        "container",
        Kind::Match("a container, such as \"web-*\", or an array of such"),
        Else("any"),
        "The container, by what its control group is called: an identifier, or twelve letters of it, or a name with `*` and `?`.",
    ),
];

const ADDRESSES: Kind =
    Kind::Match("an address, such as \"192.0.2.1\" or \"10.0.0.0/8\", or an array of such");
const PORTS: Kind = Kind::Match("a port, such as 443 or \"8000-8099\", or an array of such");
const WEIGHT: Kind = Kind::Over { over: 0.0, most: 1e6 };
