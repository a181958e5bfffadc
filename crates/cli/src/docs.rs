//! `tollway docs`: chapters of the book, which the program contains.

use std::process::ExitCode;

use tollway_scenario::file::suggestion;

use crate::fail::Failure;
use crate::terminal::say;

/// Prints the chapter or the key called `name`; without a name, the list of chapters.
///
/// # Errors
/// No chapter and no key has this name.
pub(crate) fn docs(name: Option<&str>) -> Result<ExitCode, Failure> {
    let Some(name) = name else {
        for (name, text) in CHAPTERS {
            say(format_args!("{name:<22} {}\n", title(text)));
        }
        return Ok(ExitCode::SUCCESS);
    };
    match CHAPTERS.iter().find(|(chapter, _)| *chapter == name) {
        Some((_, text)) => {
            for line in text.lines().filter(|line| !line.starts_with("<!--")) {
                say(format_args!("{}\n", without_anchor(line)));
            }
        }
        None => {
            let keys = keys(name);
            if keys.is_empty() {
                let names = CHAPTERS.iter().map(|(chapter, _)| *chapter);
                let help = suggestion(name, names).unwrap_or_default();
                let help = format!("{help} `tollway docs` lists the chapters; a key is written `link.law`");
                return Err(Failure::input(miette::miette!(
                    help = help,
                    "no chapter or key is called `{name}`"
                )));
            }
            for (chapter, line) in keys {
                say(format_args!("{chapter}: {}\n", without_anchor(line)));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines on the key called `name`, such as `flow.delayed-ack`, with their chapters.
fn keys(name: &str) -> Vec<(&'static str, &'static str)> {
    let start = format!("- <a id=\"{}\"></a>", name.replace('.', "-"));
    let lines = CHAPTERS.iter().flat_map(|(chapter, text)| text.lines().map(move |line| (*chapter, line)));
    lines.filter(|(_, line)| line.starts_with(&start)).collect()
}

fn title(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("# ")
}

/// The line of a key without the mark for links.
fn without_anchor(line: &str) -> String {
    match line.strip_prefix("- <a id=").and_then(|rest| rest.split_once("</a>")) {
        Some((_, rest)) => format!("- {rest}"),
        None => line.to_owned(),
    }
}

macro_rules! chapters {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../docs/src/", $name, ".md")))),*]
    };
}

/// Names and texts of the chapters for users, in the book's order.
const CHAPTERS: &[(&str, &str)] = chapters![
    "first-ten-minutes" "installing" "tasks" "scenario" "scenario-reference" "links-reference"
    "flows-reference" "systems-reference" "importing" "datacentre" "results" "columns" "watching" "captures"
    "sweeps" "python" "theory" "reproduce" "trust" "live" "exec" "exec-reference" "ci" "host" "host-reference" "router"
    "router-reference" "shape" "policy-reference" "switch" "switch-reference" "redis" "sites"
    "sites-reference" "overlay" "overlay-reference" "overlay-operations" "troubleshooting" "sizing"
    "security" "glossary"
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_key_has_its_lines() {
        let [(chapter, line)] = keys("flow.delayed-ack")[..] else {
            panic!("{:?}", keys("flow.delayed-ack"))
        };
        assert_eq!(chapter, "flows-reference");
        assert!(
            without_anchor(line).starts_with("- **`delayed-ack`** (time or `\"none\"`; `none`)."),
            "{line}"
        );
        assert!(keys("link.rate").len() > 1 && keys("flow.rtt").is_empty());
        assert!(docs(Some("sweps")).unwrap_err().text().contains("did you mean `sweeps`"));
    }

    /// Help texts name no file of the source tree, and chapters that exist.
    #[test]
    fn chapters_that_help_names_are_there() {
        let mut commands = vec![crate::args::Args::command()];
        let mut count = 0;
        while let Some(mut command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            for text in [command.render_help().to_string(), command.render_long_help().to_string()] {
                assert!(!text.contains("docs/src"), "{text}");
                for rest in text.split("`tollway docs ").skip(1) {
                    count += 1;
                    let name = rest.split('`').next().unwrap_or_default();
                    let known =
                        CHAPTERS.iter().any(|(chapter, _)| *chapter == name) || !keys(name).is_empty();
                    assert!(known, "{name}");
                }
            }
        }
        assert!(count > 10, "{count}");
    }
}
