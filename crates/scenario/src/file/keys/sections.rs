//! The sections of a scenario file and their keys.

mod aggregates;
mod events;
mod flows;
mod laws;
mod machines;
mod network;
mod overlay;
mod policies;
mod switches;

pub(crate) use aggregates::AGGREGATE;
pub(crate) use events::{CBR, CHANGE, LOSS};
pub(crate) use flows::{FLOW, FRAMES, HOST, READER, RECEIVE_WINDOW, RTO, WORKLOAD};
pub(crate) use laws::{LawTable, link_laws, sender_laws};
pub(crate) use machines::MACHINE;
pub(crate) use network::{
    CLASS, EXCHANGE, LINK, LINK_LAWS, MEDIUM, METER, NODE, REVERSE, TOPOLOGY, TOPOLOGY_LINK,
};
pub(crate) use overlay::{
    OVERLAY, OVERLAY_GROUP, OVERLAY_HOP, OVERLAY_PERIOD, OVERLAY_SENDER, OVERLAY_UPDATE,
};
pub(crate) use policies::{POLICIES, POLICY, POLICY_CLASS, UPLINK};
pub(crate) use switches::SWITCH;

use super::Default::{Else, Is, Must};
use super::{Default, Key, Kind, Section};

const fn key(name: &'static str, kind: Kind, default: Default, says: &'static str) -> Key {
    Key { name, kind, default, says }
}

const TIME: Kind = Kind::Time { least: 0 };
const SPAN: Kind = Kind::Time { least: 1 };
/// What a timer goes by, over and over: a shorter one would keep a run from going on.
const PERIOD: Kind = Kind::Time { least: 1000 };
const PROBABILITY: Kind = Kind::Number { least: 0.0, most: 1.0 };
const PACKET: Kind = Kind::Bytes { least: 60, most: 65535 };
const OVERHEAD: Kind = Kind::Bytes { least: 0, most: 65535 };

/// The top of a file.
pub(crate) static TOP: Section = Section {
    header: "",
    says: "A scenario is one TOML file. Quantities are strings with their unit: `\"10 Mbps\"`, `\"250 ms\"`, \
           `\"64 KiB\"`; a size may also be a whole number of bytes.",
    parts: &[&[
        key("name", Kind::Line, Must, "What the scenario is called in results and file names."),
        key("title", Kind::Line, Else("the name"), "A line to print over results."),
        key("source", Kind::Line, Else(""), "Where the experiment comes from: paper, section, figure."),
        key("description", Kind::Text, Else(""), "What it shows."),
        key("duration", SPAN, Must, "How long to run."),
        key(
            "seed",
            Kind::Count { least: 0, most: i64::MAX as u64 },
            Is("1"),
            "What every random choice is drawn from.",
        ),
        key("measure", Kind::Table(&MEASURE), Else(""), "What is measured."),
        key("topology", Kind::Table(&TOPOLOGY), Else(""), "A network from a file."),
        key("node", Kind::Named(&NODE), Else(""), "Hosts and routers."),
        key("medium", Kind::Named(&MEDIUM), Else(""), "Half-duplex media that links share."),
        key("link", Kind::Named(&LINK), Else(""), "Links between nodes."),
        key("class", Kind::Named(&CLASS), Else(""), "Classes of traffic."),
        key("flow", Kind::Named(&FLOW), Else(""), "Flows known beforehand."),
        key("workload", Kind::Named(&WORKLOAD), Else(""), "Flows that come by chance."),
        key("host", Kind::Named(&HOST), Else(""), "Owners of budgets, for the law `fcp`."),
        key(
            "aggregate",
            Kind::Named(&AGGREGATE),
            Else(""),
            "Policies: flows that share a token bucket at their host.",
        ),
        key("machine", Kind::Named(&MACHINE), Else(""), "Machines at nodes."),
        key("switch", Kind::Named(&SWITCH), Else(""), "Anypoint switches."),
        key("overlay", Kind::Table(&OVERLAY), Else(""), "Daemons that multicast messages at a price."),
        key("cbr", Kind::Named(&CBR), Else(""), "Constant-rate cross-traffic."),
        key("change", Kind::List(&CHANGE), Else(""), "What happens on the way."),
        key("loss", Kind::List(&LOSS), Else(""), "Random loss by direction and place."),
        key(
            "variant",
            Kind::Variants,
            Else("one unnamed run"),
            "The same scenario with some keys set otherwise.",
        ),
        key("grid", Kind::Grid, Else(""), "Lists of settings; every combination is a variant more."),
        key(
            "claim",
            Kind::Raw,
            Else(""),
            "What `tollway reproduce` checks (see the chapter on experiments).",
        ),
        key("plot", Kind::Raw, Else(""), "What it draws."),
        key("reference", Kind::Raw, Else(""), "Series of others to lay beside ours."),
        key(
            "random",
            Kind::Raw,
            Else(""),
            "Random networks that `tollway reproduce` holds against theory beside it.",
        ),
        key(
            "neighbourhood",
            Kind::RawTable,
            Else(""),
            "What is moved to see whether claims hold beside the base (see the chapter on trust).",
        ),
        key("live", Kind::Raw, Else(""), "What `tollway reproduce --engine live` runs on real packets too."),
    ]],
};

/// `[measure]`.
pub(crate) static MEASURE: Section = Section {
    header: "[measure]",
    says: "What is measured.",
    parts: &[&[
        key(
            "interval",
            Kind::TimeOrNone,
            Is("100 ms"),
            "Length of a row in the interval tables, of which a run has a thousand million at most (twenty million without `--out`); `\"none\"` writes summaries only.",
        ),
        key("warmup", TIME, Is("0 s"), "What happens before this is left out of summaries."),
    ]],
};

/// Every section, in the manual's order.
pub(crate) fn all() -> Vec<&'static Section> {
    let network =
        [&TOP, &MEASURE, &TOPOLOGY, &TOPOLOGY_LINK, &NODE, &MEDIUM, &LINK, &REVERSE, &METER, &EXCHANGE];
    let flows = [&CLASS, &FLOW, &FRAMES, &READER, &RTO, &RECEIVE_WINDOW];
    let others = [
        &WORKLOAD,
        &HOST,
        &AGGREGATE,
        &MACHINE,
        &SWITCH,
        &OVERLAY,
        &OVERLAY_UPDATE,
        &OVERLAY_PERIOD,
        &OVERLAY_HOP,
        &OVERLAY_GROUP,
        &OVERLAY_SENDER,
        &CBR,
        &CHANGE,
        &LOSS,
    ];
    let tables =
        |laws: &'static [LawTable]| laws.iter().filter(|law| !law.word.is_empty()).map(|law| law.section);
    let links = network.into_iter().chain(tables(link_laws()));
    links.chain(flows).chain(tables(sender_laws())).chain(others).collect()
}

/// Every section of a policy file, in the manual's order.
pub(crate) fn policies() -> [&'static Section; 4] {
    [&POLICIES, &UPLINK, &POLICY, &POLICY_CLASS]
}
