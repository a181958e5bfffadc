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
    /// A scenario is one TOML file. Quantities are strings with their unit: `"10 Mbps"`, `"250
    /// ms"`, `"64 KiB"`; a size may also be a whole number of bytes.
    TOP = "" {
        /// What the scenario is called in results and file names.
        "name": Kind::Line;
        /// A line to print over results.
        "title": Kind::Line, else "the name";
        /// Where the experiment comes from: paper, section, figure.
        "source": Kind::Line, optional;
        /// What it shows.
        "description": Kind::Text, optional;
        /// How long to run.
        "duration": SPAN;
        /// What every random choice is drawn from.
        "seed": Kind::Count { least: 0, most: i64::MAX as u64 }, default "1";
        /// What is measured.
        "measure": Kind::Table(&MEASURE), optional;
        /// A network from a file or a generator.
        "topology": Kind::Table(&TOPOLOGY), optional;
        /// How traffic is divided among equal-cost routes.
        "routing": Kind::Table(&ROUTING), optional;
        /// Hosts and routers.
        "node": Kind::Named(&NODE), optional;
        /// Half-duplex media that links share.
        "medium": Kind::Named(&MEDIUM), optional;
        /// Links between nodes.
        "link": Kind::Named(&LINK), optional;
        /// Classes of traffic.
        "class": Kind::Named(&CLASS), optional;
        /// Flows known beforehand.
        "flow": Kind::Named(&FLOW), optional;
        /// Flows that come by chance.
        "workload": Kind::Named(&WORKLOAD), optional;
        /// Owners of budgets, for the law `fcp`.
        "host": Kind::Named(&HOST), optional;
        /// Policies: flows that share a token bucket at their host.
        "aggregate": Kind::Named(&AGGREGATE), optional;
        /// Machines at nodes.
        "machine": Kind::Named(&MACHINE), optional;
        /// Anypoint switches.
        "switch": Kind::Named(&SWITCH), optional;
        /// Daemons that multicast messages at a price.
        "overlay": Kind::Table(&OVERLAY), optional;
        /// Constant-rate cross-traffic.
        "cbr": Kind::Named(&CBR), optional;
        /// What happens on the way.
        "change": Kind::List(&CHANGE), optional;
        /// Random loss by direction and place.
        "loss": Kind::List(&LOSS), optional;
        /// The same scenario with some keys set otherwise.
        "variant": Kind::Variants, else "one unnamed run";
        /// Lists of settings; every combination is a variant more.
        "grid": Kind::Grid, optional;
        /// What `tollway reproduce` checks (see the chapter on experiments).
        "claim": Kind::Raw, optional;
        /// What it draws.
        "plot": Kind::Raw, optional;
        /// Series of others to lay beside ours.
        "reference": Kind::Raw, optional;
        /// Random networks that `tollway reproduce` holds against theory beside it.
        "random": Kind::Raw, optional;
        /// What is moved to see whether claims hold beside the base (see the chapter on trust).
        "neighbourhood": Kind::RawTable, optional;
        /// What `tollway reproduce --engine live` runs on real packets too.
        "live": Kind::Raw, optional;
    }
}

section! {
    /// What is measured.
    MEASURE = "[measure]" {
        /// Length of a row in the interval tables, of which a run has a thousand million at most
        /// (twenty million without `--out`); `"none"` writes summaries only.
        "interval": Kind::TimeOrNone, default "100 ms";
        /// What happens before this is left out of summaries.
        "warmup": TIME, default "0 s";
    }
}

/// Every section, in the manual's order.
pub(crate) fn all() -> Vec<&'static Section> {
    let topology = [&TOP, &MEASURE, &TOPOLOGY, &TOPOLOGY_LINK];
    let generators = GENERATORS.iter().map(|(_, section)| *section);
    let network = [&ROUTING, &NODE, &MEDIUM, &LINK, &BURSTS, &REVERSE, &METER, &EXCHANGE];
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
    let links = topology.into_iter().chain(generators).chain(network).chain(tables(link_laws()));
    links.chain(flows).chain(tables(sender_laws())).chain(others).collect()
}
