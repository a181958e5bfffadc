//! `tollway theory`.

use std::process::ExitCode;

use tollway_report::Allocations;
use tollway_scenario::file::Scenario;

use crate::args::Theory;
use crate::fail::Failure;
use crate::terminal::{self, say};

pub(crate) fn theory(args: &Theory) -> Result<ExitCode, Failure> {
    let scenario = Scenario::load(&args.file, &args.sets)?;
    let all = scenario.variants().iter().map(|variant| {
        Allocations::of(variant).map_err(|why| {
            let whose = match variant.name.as_str() {
                "" => String::new(),
                name => format!("variant `{name}`: "),
            };
            Failure::input(miette::miette!("{whose}this file defines no allocation: {why}"))
        })
    });
    let all = all.collect::<Result<Vec<Allocations>, Failure>>()?;
    if args.json {
        let variants: Vec<serde_json::Value> = all.iter().map(Allocations::to_json).collect();
        let name = &scenario.variants()[0].plan.name;
        terminal::say_json(&serde_json::json!({ "scenario": name, "variants": variants }));
    } else {
        let texts: Vec<String> = all.iter().map(|one| one.to_text(terminal::width())).collect();
        say(texts.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}
