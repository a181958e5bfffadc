//! Draws a page, a PNG and the terminal tables from synthetic runs, for inspection: `cargo run -p
//! tollway-report --example gallery -- out`.

use std::path::PathBuf;

use tollway_report::html::Page;
use tollway_report::plot::Figure;
use tollway_report::{Experiment, Overview, claim};

#[path = "../tests/it/synthetic.rs"]
mod synthetic;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "out".into()));
    std::fs::create_dir_all(&out)?;
    let runs =
        [synthetic::Kind::Xcp, synthetic::Kind::Fifo, synthetic::Kind::Red].map(|k| synthetic::run(k, 4));
    print!("{}", Overview::new(&runs).to_text(100));

    let text = include_str!("../../../papers/xcp/validation.toml");
    let experiment = Experiment::parse(text, &PathBuf::from("papers/xcp/validation.toml"))?;
    let report = claim::check(&experiment.claims, &runs, &experiment.context(Vec::new()));
    print!("\n{}", report.to_table(100));

    let title = "XCP, FIFO and RED on one 10 Mbps bottleneck";
    let figure = Figure::new(title, "quickstart · seed 1 · made-up data", &[], &runs);
    figure.write(&out.join("variants.png"))?;
    Page { figure: &figure, runs: &runs, claims: Some(&report) }.write(&out.join("variants.html"))?;

    let alone = [synthetic::run(synthetic::Kind::Xcp, 40)];
    let figure = Figure::new("Forty flows, one variant", "made-up data", &[], &alone);
    figure.write(&out.join("alone.png"))?;
    print!("\n{}", Overview::new(&alone).to_text(100));
    Ok(())
}
