//! The sections of a scenario file and their keys.

/// Declares rows of the table of keys.
///
/// A row is the key's meaning as a doc comment, its name, its kind and its default. The default is
/// `default` with a value, `else` with a description of a computed value, or `optional`. A key
/// without a default is required.
#[macro_export]
macro_rules! keys {
    ($($(#[doc = $says:literal])* $name:literal: $kind:expr $(, $absent:ident $($what:literal)?)?;)*) => {
        &[$($crate::file::reading::Key {
            name: $name,
            kind: $kind,
            default: $crate::keys!(@ $($absent $($what)?)?),
            says: concat!($($says),*).trim_ascii(),
        }),*]
    };
    (@) => { $crate::file::reading::Default::Must };
    (@ default $value:literal) => { $crate::file::reading::Default::Is($value) };
    (@ else $words:literal) => { $crate::file::reading::Default::Else($words) };
    (@ optional) => { $crate::file::reading::Default::Else("") };
}

/// Declares a table of the file: its purpose as a doc comment, its header in the manual, and its
/// keys or lists of keys.
#[macro_export]
macro_rules! section {
    ($(#[doc = $says:literal])* $name:ident = $header:literal { $($row:tt)* }) => {
        $crate::section! { $(#[doc = $says])* $name = $header: [$crate::keys! { $($row)* }] }
    };
    ($(#[doc = $says:literal])* $name:ident = $header:literal: [$($part:expr),* $(,)?]) => {
        pub(crate) static $name: $crate::file::reading::Section = $crate::file::reading::Section {
            header: $header,
            says: concat!($($says),*).trim_ascii(),
            parts: &[$($part),*],
        };
    };
}

mod aggregates;
mod events;
mod flows;
mod laws;
mod machines;
mod network;
mod overlay;
mod switches;
mod topologies;

pub(crate) use aggregates::AGGREGATE;
pub use aggregates::RULES;
pub(crate) use events::{CBR, CHANGE, LOSS};
pub(crate) use flows::{FLOW, FRAMES, HOST, READER, RECEIVE_WINDOW, RTO, WORKLOAD};
pub(crate) use laws::{LawTable, link_laws, sender_laws};
pub(crate) use machines::MACHINE;
pub use network::LINK_LAWS;
pub(crate) use network::{
    BURSTS, CLASS, EXCHANGE, LINK, MEDIUM, METER, NODE, REVERSE, ROUTING, TOPOLOGY, TOPOLOGY_LINK,
};
pub(crate) use overlay::{
    OVERLAY, OVERLAY_GROUP, OVERLAY_HOP, OVERLAY_PERIOD, OVERLAY_SENDER, OVERLAY_UPDATE,
};
pub(crate) use switches::SWITCH;
pub(crate) use topologies::GENERATORS;

use super::{Default, Key, Kind, Section};

const fn key(name: &'static str, kind: Kind, default: Default, says: &'static str) -> Key {
    Key { name, kind, default, says }
}

const TIME: Kind = Kind::Time { least: 0 };
const SPAN: Kind = Kind::Time { least: 1 };
/// A period of a timer, at least 1 µs: a run with a shorter period would make no progress.
const PERIOD: Kind = Kind::Time { least: 1000 };
const PROBABILITY: Kind = Kind::Number { least: 0.0, most: 1.0 };
const PACKET: Kind = Kind::Bytes { least: 60, most: 65535 };
const OVERHEAD: Kind = Kind::Bytes { least: 0, most: 65535 };

section! {
    /// A scenario is one TOML file.
    TOP = "" {
        /// Name of the scenario in results and file names.
        "name": Kind::Line;
        /// Title, printed above the results.
        "title": Kind::Line, else "the name";
        /// Source of the experiment: paper, section, figure.
        "source": Kind::Line, optional;
        /// Description of the experiment.
        "description": Kind::Text, optional;
        /// Duration of the run.
        "duration": SPAN;
        /// Seed of all random choices.
        "seed": Kind::Count { least: 0, most: i64::MAX as u64 }, default "1";
        /// Settings of the measurements.
        "measure": Kind::Table(&MEASURE), optional;
        /// A network from a file or a generator.
        "topology": Kind::Table(&TOPOLOGY), optional;
        /// Division of traffic among equal-cost routes.
        "routing": Kind::Table(&ROUTING), optional;
        /// Hosts and routers.
        "node": Kind::Named(&NODE), optional;
        /// Half-duplex media that links share.
        "medium": Kind::Named(&MEDIUM), optional;
        /// Links between nodes.
        "link": Kind::Named(&LINK), optional;
        /// Classes of traffic.
        "class": Kind::Named(&CLASS), optional;
        /// Flows, each with its own section.
        "flow": Kind::Named(&FLOW), optional;
        /// Flows with random arrivals and sizes.
        "workload": Kind::Named(&WORKLOAD), optional;
        /// Hosts with a budget, for the law `fcp`.
        "host": Kind::Named(&HOST), optional;
        /// Policies: flows that share a token bucket at their host.
        "aggregate": Kind::Named(&AGGREGATE), optional;
        /// State machines at nodes.
        "machine": Kind::Named(&MACHINE), optional;
        /// Anypoint switches.
        "switch": Kind::Named(&SWITCH), optional;
        /// A cost-benefit overlay: daemons that multicast messages at a price.
        "overlay": Kind::Table(&OVERLAY), optional;
        /// Constant-rate cross-traffic.
        "cbr": Kind::Named(&CBR), optional;
        /// Changes during the run.
        "change": Kind::List(&CHANGE), optional;
        /// Random loss, by direction and place.
        "loss": Kind::List(&LOSS), optional;
        /// Variants: the scenario with other values of some keys.
        "variant": Kind::Variants, else "one unnamed run";
        /// Lists of settings; each combination is one more variant.
        "grid": Kind::Grid, optional;
        /// Claims that `tollway reproduce` checks ([Experiments](experiments.md)).
        "claim": Kind::Raw, optional;
        /// Plots that `tollway reproduce` draws.
        "plot": Kind::Raw, optional;
        /// Published series, drawn beside the measured ones.
        "reference": Kind::Raw, optional;
        /// Random networks that `tollway reproduce` also compares with theory.
        "random": Kind::Raw, optional;
        /// Settings that must be refused with a message.
        "refused": Kind::Raw, optional;
        /// Numbers of flows whose equilibrium is computed, without a run.
        "fluid": Kind::Raw, optional;
        /// Another program's ranges, in which results of the grid should lie.
        "ranges": Kind::Raw, optional;
        /// Changes of the base under which claims are checked again (see [How far to trust a
        /// number](trust.md)).
        "neighbourhood": Kind::RawTable, optional;
        /// Parts that `tollway reproduce --engine live` also runs on real packets.
        "live": Kind::Raw, optional;
    }
}

section! {
    /// Settings of the measurements.
    MEASURE = "[measure]" {
        /// Length of an interval: one row of the interval tables. A run has at most a thousand
        /// million rows (twenty million without `--out`). `"none"` writes summaries only.
        "interval": Kind::TimeOrNone, default "100 ms";
        /// Time at the start that summaries exclude.
        "warmup": TIME, default "0 s";
    }
}

/// The pages of the manual's reference: file, title, sections.
pub(crate) fn families() -> [(&'static str, &'static str, Vec<&'static Section>); 4] {
    let tables =
        |laws: &'static [LawTable]| laws.iter().filter(|law| !law.word.is_empty()).map(|law| law.section);
    let wire = [&NODE, &MEDIUM, &LINK, &BURSTS, &REVERSE, &METER, &EXCHANGE];
    let topology = [&LOSS, &CLASS, &ROUTING, &TOPOLOGY, &TOPOLOGY_LINK];
    let generators = GENERATORS.iter().map(|(_, section)| *section);
    let links = wire.into_iter().chain(tables(link_laws())).chain(topology).chain(generators);
    let flows = [&FLOW, &FRAMES, &READER, &RTO, &RECEIVE_WINDOW];
    let flows = flows.into_iter().chain(tables(sender_laws())).chain([&WORKLOAD, &CBR]);
    let overlay = [&OVERLAY, &OVERLAY_UPDATE, &OVERLAY_PERIOD, &OVERLAY_HOP, &OVERLAY_GROUP, &OVERLAY_SENDER];
    let systems = [&HOST, &AGGREGATE, &MACHINE, &SWITCH].into_iter().chain(overlay);
    [
        ("scenario-reference.md", "Scenario reference", vec![&TOP, &MEASURE, &CHANGE]),
        ("links-reference.md", "Reference: nodes and links", links.collect()),
        ("flows-reference.md", "Reference: flows", flows.collect()),
        ("systems-reference.md", "Reference: hosts, aggregates, switches, overlays", systems.collect()),
    ]
}
