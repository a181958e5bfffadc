//! Tests of the scenario file: plans of valid files, messages on mistakes.

mod generators;
mod imports;
mod matrices;
mod messages;
mod overlay;
mod plans;
mod random;
mod references;
mod refusals;
mod routes;
mod switches;

use super::{Scenario, ScenarioError};
use crate::plan::Plan;

/// A small valid scenario, which tests extend.
pub(super) const BASE: &str = r#"
name = "test"
duration = "10 s"
[node.s]
count = 4
[node.r]
[node.d]
[link.access]
from = "s"
to = "r"
rate = "100 Mbps"
delay = { first = "1 ms", last = "4 ms" }
[link.bottleneck]
from = "r"
to = "d"
rate = "10 Mbps"
delay = "10 ms"
[flow.f]
from = "s"
to = "d"
law = "newreno"
"#;

pub(super) fn parse(text: &str, sets: &[&str]) -> Result<Scenario, ScenarioError> {
    Scenario::parse("test.toml", text, sets)
}

/// The single plan of a valid file.
pub(super) fn plan(text: &str, sets: &[&str]) -> Plan {
    match parse(text, sets) {
        Ok(s) => s.variants()[0].plan.clone(),
        Err(e) => panic!("{}", show(&e)),
    }
}

/// An error in the form of a terminal without colours.
pub(super) fn show(error: &ScenarioError) -> String {
    let theme = miette::GraphicalTheme::unicode_nocolor();
    let handler = miette::GraphicalReportHandler::new_themed(theme).with_width(100);
    let mut out = String::new();
    handler.render_report(&mut out, error).expect("a report is written to a string");
    out
}
