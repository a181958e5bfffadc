//! The constants of links' laws.

use super::super::Default::{Else, Is};
use super::super::{Kind, Section};
use super::*;

const ARITHMETIC: &[&str] = &["float", "fixed32", "fixed128"];

/// `[link.NAME.xcp]`.
pub(crate) static XCP: Section = Section {
    header: "[link.NAME.xcp]",
    says: "The constants of XCP's router (draft-falk-xcp-spec-03, § 5).",
    parts: &[&[
        key(
            "alpha",
            Kind::Over { over: 0.0, most: 10.0 },
            Is("0.4"),
            "α: share of the spare capacity given out in an interval.",
        ),
        key(
            "beta",
            Kind::Number { least: 0.0, most: 10.0 },
            Is("0.226"),
            "β: share of the standing queue taken back.",
        ),
        key("gamma", PROBABILITY, Is("0.1"), "γ: share of the traffic that is shuffled between flows."),
        key("max-interval", SPAN, Is("1 s"), "Longest control interval, and the longest RTT that counts."),
        key(
            "min-interval",
            SPAN,
            Is("1 ms"),
            "Shortest control interval (ns-2 has 1 ms, the draft 5 to 10).",
        ),
        key(
            "form",
            Kind::Word(&["throughput", "window"]),
            Is("throughput"),
            "The draft's form, or the first paper's.",
        ),
        key("arithmetic", Kind::Word(ARITHMETIC), Is("float"), "What numbers the router reckons in."),
        key(
            "capacity",
            Kind::Word(&["configured", "measured"]),
            Is("configured"),
            "Where the law has its capacity from: the link's `capacity`, or departures while others wait, beginning with that.",
        ),
        key("overhead", OVERHEAD, Else("the link's"), "Framing that the law counts for each packet."),
        key(
            "shadow",
            Kind::Word(&["none", "fixed32", "fixed128"]),
            Is("none"),
            "Beside `float`: runs a second router on the same packets, in this arithmetic, and reports how far the two differ.",
        ),
    ]],
};

/// `[link.NAME.red]`.
pub(crate) static RED: Section = Section {
    header: "[link.NAME.red]",
    says: "The constants of RED (Floyd and Jacobson, 1993).",
    parts: &[&[
        key(
            "min-threshold",
            Kind::Threshold,
            Is("0.25"),
            "Mean queue under which nothing is signalled: a part of the limit, or packets or bytes.",
        ),
        key(
            "max-threshold",
            Kind::Threshold,
            Is("0.75"),
            "Mean queue at which `max-probability` is reached.",
        ),
        key("max-probability", Kind::Over { over: 0.0, most: 1.0 }, Is("0.1"), "Signal probability there."),
        key(
            "weight",
            Kind::Over { over: 0.0, most: 1.0 },
            Is("0.002"),
            "Weight of a new sample in the mean queue.",
        ),
        key(
            "gentle",
            Kind::Truth,
            Is("false"),
            "Lets the probability climb to 1 at twice the upper threshold instead of jumping there.",
        ),
        key(
            "in-profile",
            Kind::Number { least: 1.0, most: 1e6 },
            Is("1"),
            "A packet that its host has marked as in profile (`[aggregate.NAME]`) is dropped with the probability over this: ERED has 1.5.",
        ),
    ]],
};

/// `[link.NAME.codel]`.
pub(crate) static CODEL: Section = Section {
    header: "[link.NAME.codel]",
    says: "The constants of CoDel (RFC 8289), alone or in each queue of `fq-codel`.",
    parts: &[&[
        key("target", SPAN, Is("5 ms"), "Waiting time that a standing queue may have."),
        key("interval", SPAN, Is("100 ms"), "How long it may have more; a round trip of slow flows."),
    ]],
};

/// `[link.NAME.fq-codel]`.
pub(crate) static FQ_CODEL: Section = Section {
    header: "[link.NAME.fq-codel]",
    says: "The queues of FQ-CoDel (RFC 8290); `limit` is of all together.",
    parts: &[&[
        key(
            "queues",
            Kind::Count { least: 1, most: 65_536 },
            Is("1024"),
            "Queues that flows are hashed into.",
        ),
        key(
            "quantum",
            Kind::Bytes { least: 1, most: 1 << 20 },
            Is("1514 B"),
            "What a queue may send in its turn.",
        ),
    ]],
};

/// `[link.NAME.pie]`.
pub(crate) static PIE: Section = Section {
    header: "[link.NAME.pie]",
    says: "The constants of PIE (RFC 8033).",
    parts: &[&[
        key("target", SPAN, Is("15 ms"), "Queueing delay aimed at."),
        key("update", SPAN, Is("15 ms"), "Time between updates of the probability."),
        key("burst", TIME, Is("150 ms"), "Length of a burst that passes unharmed after a calm time."),
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("0.125"),
            "α: weight of the deviation from the target, 1/s.",
        ),
        key("beta", Kind::Number { least: 0.0, most: 1000.0 }, Is("1.25"), "β: weight of the trend, 1/s."),
        key(
            "mark-limit",
            PROBABILITY,
            Is("0.1"),
            "Probability over which packets are dropped even if they can be marked.",
        ),
    ]],
};

/// `[link.NAME.dualpi2]`.
pub(crate) static DUALPI2: Section = Section {
    header: "[link.NAME.dualpi2]",
    says: "The constants of DualPI2 (RFC 9332), with a queue for L4S (packets with ECT(1) or CE) and one for all others; \
           `limit` is of both together.",
    parts: &[&[
        key("target", SPAN, Is("15 ms"), "Delay of the classic queue aimed at."),
        key("update", SPAN, Is("16 ms"), "Time between updates of the base probability p′."),
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("0.16"),
            "α: weight of the deviation from the target, 1/s.",
        ),
        key("beta", Kind::Number { least: 0.0, most: 1000.0 }, Is("3.2"), "β: weight of the trend, 1/s."),
        key(
            "coupling",
            Kind::Number { least: 0.0, most: 1000.0 },
            Is("2"),
            "k: L4S is marked with probability k p′, classic traffic signalled with p′².",
        ),
        key(
            "step",
            TIME,
            Is("1 ms"),
            "Waiting time over which every packet of L4S is marked, unless it is alone in its queue.",
        ),
        key(
            "classic-share",
            PROBABILITY,
            Is("0.1"),
            "Share of the capacity that the classic queue has for certain while both are busy; L4S goes first with the rest.",
        ),
    ]],
};

/// `[link.NAME.step]`.
pub(crate) static STEP: Section = Section {
    header: "[link.NAME.step]",
    says: "The constant of step marking, the switch's side of DCTCP (RFC 8257 § 3.1). Packets that can't be marked pass.",
    parts: &[&[key(
        "threshold",
        Kind::Threshold,
        Is("20 packets"),
        "K: packets that find more than this queued are marked. A part of the limit, or packets or bytes.",
    )]],
};

/// `[link.NAME.fcp]`.
pub(crate) static FCP: Section = Section {
    header: "[link.NAME.fcp]",
    says: "The constants of FCP's router (the FCP report, § 4.1, § 5).",
    parts: &[&[
        key(
            "alpha",
            Kind::Number { least: 0.0, most: 100.0 },
            Is("2"),
            "α: weight of the queue in the price.",
        ),
        key(
            "window",
            Kind::Over { over: 0.0, most: 100.0 },
            Is("2"),
            "Length of the averaging window in mean round-trip times.",
        ),
        key(
            "preload-span",
            Kind::Word(&["packet", "flow"]),
            Is("flow"),
            "How long a preload counts: as long as its packet is in the window (equation 4 as printed), or from d before it is kept until half of what it announced is in the window (rtt − d to rtt + d/2, by the flow's own round trip).",
        ),
        key(
            "unpaid",
            Kind::Word(&["queues", "counts"]),
            Is("queues"),
            "What packets that pay nothing take of the link, acknowledgements before all: what a queue that stays takes back from those that pay (equation 2 as printed), or what they are measured to take over d.",
        ),
        key(
            "target",
            TIME,
            Is("0 s"),
            "The queue that is left alone, no more than a tenth of a mean round trip: α·queue counts from there, so that the link doesn't stand idle while its price is a little too high. Zero is equation 2 as printed.",
        ),
        key(
            "newton",
            Kind::Number { least: 0.0, most: 2.0 },
            Is("0"),
            "The part of a Newton step that is added to the price, from how what comes would answer it. It damps the swings of links whose traffic pays most elsewhere, and finds a price where there was none. Zero is equation 2 as printed; 0.5 suits meshes, with an `alpha` of 0.5 and a `window` of 1. Not beside groups (`[class.NAME]`), which have prices of their own.",
        ),
    ]],
};

/// `[link.NAME.rcp]`.
pub(crate) static RCP: Section = Section {
    header: "[link.NAME.rcp]",
    says: "The constants of RCP's router (IWQoS 2005; the defaults are those of its authors' ns-2 code).",
    parts: &[&[
        key(
            "alpha",
            Kind::Over { over: 0.0, most: 10.0 },
            Is("0.4"),
            "α: share of the spare capacity given out a round trip; 0.1 in the authors' later experiments.",
        ),
        key(
            "beta",
            Kind::Number { least: 0.0, most: 10.0 },
            Is("0.4"),
            "β: share of the queue taken back; 0.226 in the paper, 1 in later experiments.",
        ),
        key("gamma", Kind::Over { over: 0.0, most: 1.0 }, Is("1"), "γ: part of the capacity aimed at."),
        key(
            "max-interval",
            SPAN,
            Is("10 ms"),
            "Longest time between updates of the rate; less than 1 us counts as that.",
        ),
    ]],
};
