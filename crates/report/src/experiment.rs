//! Experiment files: a scenario with claims and plots.

use std::path::{Path, PathBuf};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::Deserialize;
use tollway_scenario::file::suggestion;
use toml::{Spanned, Table, Value};

use crate::claim::{Bound, Claim, Context, Distance, Measurement, Metric, Side};
use crate::data;
use crate::deviation::Aims;
use crate::fluid::Fluid;
use crate::grid::Cells;
use crate::live::LiveClaim;
use crate::neighbourhood::Neighbourhood;
use crate::plot::{PlotSpec, plottable};
use crate::ranges::Ranges;
use crate::refused::Refused;
use crate::verify::{RandomNetworks, Verify};

/// The additions of an experiment file to its scenario. `tollway-scenario` parses the scenario from
/// the same text.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// The name: `xcp/validation`.
    pub name: String,
    /// The title.
    pub title: String,
    /// The source, such as a paper's figure.
    pub source: String,
    /// The required results.
    pub claims: Vec<Claim>,
    /// The plots of its figure.
    pub plots: Vec<PlotSpec>,
    /// Random networks whose runs are compared with theory.
    pub random: Vec<RandomNetworks>,
    /// Settings that must be refused.
    pub refused: Vec<Refused>,
    /// Numbers of flows whose equilibrium is computed.
    pub fluid: Vec<Fluid>,
    /// Ranges of another program, in which runs of the grid should lie.
    pub ranges: Vec<Ranges>,
    /// The parts that also run on real packets.
    pub live: Vec<LiveClaim>,
    /// The neighbourhood over which claims are judged.
    pub neighbourhood: Option<Neighbourhood>,
    /// The file's folder, which has the reference series.
    pub folder: PathBuf,
    /// The positions of its variants in the scenario's grid, set from [`Cells::of`].
    pub cells: Cells,
    /// The theoretical rates of its flows, set after a run.
    pub aims: Aims,
}

/// A mistake in an experiment file, with its place in the text, as a [`miette::Diagnostic`].
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error(transparent)]
#[diagnostic(transparent)]
pub struct ExperimentError(Box<Wrong>);

/// The content of the error, boxed since it holds the whole text.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Wrong {
    message: String,
    #[source_code]
    text: NamedSource<String>,
    #[label("here")]
    at: Option<SourceSpan>,
    #[help]
    help: Option<String>,
}

impl Experiment {
    /// Parses claims and plots from the experiment in `text`, a file at `path`. Keys of the
    /// scenario are skipped.
    ///
    /// # Errors
    /// The text is no TOML, or a claim or plot has an unknown key, metric, unit or bound.
    pub fn parse(text: &str, path: &Path) -> Result<Experiment, ExperimentError> {
        let error = |message: String, at: Option<std::ops::Range<usize>>, help: Option<String>| {
            let text = NamedSource::new(path.display().to_string(), text.to_string());
            ExperimentError(Box::new(Wrong { message, text, at: at.map(SourceSpan::from), help }))
        };
        let file: File = toml::from_str(text).map_err(|e| {
            let (message, _, help) = unknown(e.message());
            error(message, e.span(), help)
        })?;
        let mut experiment = Experiment {
            name: file.name,
            title: file.title,
            source: file.source,
            refused: file.refused,
            fluid: file.fluid,
            ranges: file.ranges,
            live: file.live,
            folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
            ..Experiment::default()
        };
        if let Some(neighbourhood) = file.neighbourhood {
            if let Some(mistake) = neighbourhood.as_ref().mistake() {
                return Err(error(mistake, Some(neighbourhood.span()), None));
            }
            experiment.neighbourhood = Some(neighbourhood.into_inner());
        }
        for random in file.random {
            let span = random.span();
            let random = random.into_inner();
            if let Err(wrong) = Verify::law(&random.law, random.networks, random.seed, 1) {
                let help = wrong.help().map(|help| help.to_string());
                return Err(error(wrong.to_string(), Some(span), help));
            }
            experiment.random.push(random);
        }
        let axes: Vec<&str> = file.grid.keys().map(String::as_str).collect();
        for plot in file.plot {
            let span = plot.span();
            let mut plot = plot.into_inner();
            plot.folder.clone_from(&experiment.folder);
            if let Some(reference) = &mut plot.reference {
                reference.folder.clone_from(&experiment.folder);
            }
            check_plot(&plot, &axes)
                .map_err(|e| error(e.message.clone(), Some(e.place(text, span.clone())), e.help))?;
            let over_time = plot.metric.is_none() && plot.by.is_none();
            if over_time && !plottable(&plot).any(|column| column == plot.y) {
                let kind = match (&plot.link, &plot.hop) {
                    (Some(_), _) => "links",
                    (None, Some(_)) => "hops",
                    (None, None) => "flows",
                };
                let complaint =
                    Complaint::about(&plot.y, format!("the table of {kind} has no number `{}`", plot.y));
                let help = suggestion(&plot.y, plottable(&plot));
                return Err(error(complaint.message.clone(), Some(complaint.place(text, span)), help));
            }
            experiment.plots.push(plot);
        }
        for table in file.claim {
            let span = table.span();
            let claim = Claim::from_table(table.into_inner())
                .map_err(|e| error(e.message.clone(), Some(e.place(text, span.clone())), e.help))?;
            let parts = claim.bounds.iter().filter_map(|b| match b.side() {
                Side::Other { measurement, .. } => measurement.part.as_ref(),
                _ => None,
            });
            for axis in parts.chain(&claim.measurement.part).flat_map(|part| part.axes()) {
                check_axis(axis, &axes)
                    .map_err(|e| error(e.message.clone(), Some(e.place(text, span.clone())), e.help))?;
            }
            if experiment.claims.iter().any(|c| c.id == claim.id) {
                return Err(error(format!("two claims are called `{}`", claim.id), Some(span), None));
            }
            experiment.claims.push(claim);
        }
        Ok(experiment)
    }

    /// The context for checking the claims. `missing` lists the peer programs that are not
    /// installed.
    pub fn context(&self, missing: Vec<String>) -> Context {
        Context {
            folder: self.folder.clone(),
            source: self.source.clone(),
            missing,
            cells: self.cells.clone(),
        }
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    claim: Vec<Spanned<Table>>,
    #[serde(default)]
    plot: Vec<Spanned<PlotSpec>>,
    #[serde(default)]
    random: Vec<Spanned<RandomNetworks>>,
    #[serde(default)]
    refused: Vec<Refused>,
    #[serde(default)]
    fluid: Vec<Fluid>,
    #[serde(default)]
    ranges: Vec<Ranges>,
    #[serde(default)]
    live: Vec<LiveClaim>,
    neighbourhood: Option<Spanned<Neighbourhood>>,
}

/// A mistake in a claim or plot, with the word at fault.
struct Complaint {
    message: String,
    word: String,
    help: Option<String>,
}

impl Complaint {
    fn about(word: &str, message: String) -> Complaint {
        Complaint { message, word: word.to_string(), help: None }
    }

    /// The range of the word within the claim, or of the whole claim.
    fn place(&self, text: &str, span: std::ops::Range<usize>) -> std::ops::Range<usize> {
        // The span of a table in an array may cover only its header, so the search extends to the
        // next header.
        let next = text[span.start..].find("\n[").map_or(text.len(), |i| span.start + i + 1);
        let end = if next > span.start + 2 { next.max(span.end) } else { span.end };
        match text[span.start..end].find(&self.word).filter(|_| !self.word.is_empty()) {
            Some(i) => span.start + i..span.start + i + self.word.len(),
            None => span,
        }
    }
}

impl Claim {
    fn from_table(mut table: Table) -> Result<Claim, Complaint> {
        let mut text = |key: &str| match table.remove(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(_) => Err(Complaint::about(key, format!("`{key}` must be a string"))),
        };
        let id = text("id")?.ok_or_else(|| Complaint::about("", "a claim needs an `id`".into()))?;
        let (says, source, needs) = (text("says")?.unwrap_or_default(), text("source")?, text("needs")?);
        let bounds: Vec<(&str, Value)> =
            BOUNDS.iter().filter_map(|&key| Some((key, table.remove(key)?))).collect();
        if bounds.is_empty() {
            let message = format!("claim `{id}` has no bound");
            let help = Some(format!("give it one of {}", BOUNDS.join(", ")));
            return Err(Complaint { message, word: id, help });
        }
        let measurement = measurement(&table, &id)?;
        let bounds = bounds
            .into_iter()
            .map(|(key, value)| bound(key, value, &table, &id))
            .collect::<Result<_, _>>()?;
        Ok(Claim { id, says, source, needs, measurement, bounds })
    }
}

/// Checks that a plot names either a column over time or a metric over the grid.
fn check_plot(plot: &PlotSpec, axes: &[&str]) -> Result<(), Complaint> {
    let of_grid = [&plot.x, &plot.series, &plot.panels].into_iter().flatten().map(String::as_str);
    for axis in of_grid.clone().chain(plot.part.iter().flat_map(|part| part.axes())) {
        check_axis(axis, axes)?;
    }
    let complaint = |word: &str, message: String, help: &str| {
        Err(Complaint { message, word: word.into(), help: Some(help.into()) })
    };
    if let Some(by) = &plot.by {
        for column in [by, &plot.y] {
            if !data::is_summary_number(column) {
                let help = suggestion(column, data::summary_numbers());
                let message = format!("the summary of flows has no number `{column}`");
                return Err(Complaint { help, ..Complaint::about(column, message) });
            }
        }
        if plot.metric.is_some() || of_grid.count() > 0 {
            return complaint("by", "a plot has either a column or a metric".into(), PLOT_HELP);
        }
        return Ok(());
    }
    if plot.theory && !matches!(plot.metric, Some(Metric::Rate | Metric::TotalRate)) {
        let help = "only `rate` and `total-rate` have a theory";
        return complaint("theory", "theory has no value for this plot".into(), help);
    }
    match (&plot.metric, plot.y.is_empty()) {
        (Some(_), true) if plot.x.is_none() => complaint(
            "metric",
            "a plot of a metric needs the axis of the grid to draw it over".into(),
            "name it in `x`",
        ),
        (Some(_), false) => complaint("metric", "a plot has a `y` or a `metric`, not both".into(), PLOT_HELP),
        (None, true) => complaint("", "a plot needs a `y`".into(), PLOT_HELP),
        (None, false) if of_grid.count() > 0 || plot.log_x || plot.log_y || plot.part.is_some() => {
            let word = match (plot.log_x, plot.log_y) {
                (true, _) => "log-x",
                (_, true) => "log-y",
                _ => "y",
            };
            complaint(word, "a plot of a column has time as its x axis".into(), PLOT_HELP)
        }
        _ => Ok(()),
    }
}

fn check_axis(axis: &str, axes: &[&str]) -> Result<(), Complaint> {
    if axes.contains(&axis) {
        return Ok(());
    }
    let help =
        suggestion(axis, axes.iter().copied()).or_else(|| Some("the file has no `[grid.AXIS]`".to_string()));
    Err(Complaint { help, ..Complaint::about(axis, format!("the grid has no axis `{axis}`")) })
}

fn measurement(table: &Table, id: &str) -> Result<Measurement, Complaint> {
    let parsed: Result<Measurement, _> = Value::Table(table.clone()).try_into();
    parsed.map_err(|e: toml::de::Error| {
        let (message, word, help) = unknown(e.message());
        Complaint { message: format!("claim `{id}`: {message}"), word, help }
    })
}

/// Shortens an error message of serde: the message without the list of known words, the word at
/// fault, and the nearest known word.
fn unknown(message: &str) -> (String, String, Option<String>) {
    // The message names the word at fault first, in backquotes.
    let word = message.split('`').nth(1).unwrap_or("").to_string();
    let (message, word, help) = match message.split_once(", expected ") {
        Some((what, known)) => {
            let help = suggestion(&word, known.split('`').skip(1).step_by(2));
            (what.to_string(), word, help)
        }
        None => (message.to_string(), word, None),
    };
    (message.replacen(" field `", " key `", 1), word, help)
}

fn bound(key: &str, value: Value, base: &Table, id: &str) -> Result<Bound, Complaint> {
    Ok(match key {
        "at-least" => Bound::AtLeast(side(key, value, base, id)?),
        "at-most" => Bound::AtMost(side(key, value, base, id)?),
        "more-than" => Bound::MoreThan(side(key, value, base, id)?),
        "less-than" => Bound::LessThan(side(key, value, base, id)?),
        "equals" => Bound::Equals(side(key, value, base, id)?),
        _ => within(value, base, id)?,
    })
}

fn within(value: Value, base: &Table, id: &str) -> Result<Bound, Complaint> {
    let wrong = || {
        Complaint::about(
            "within",
            format!(
                "claim `{id}`: write `within = {{ of = 2.5, percent = 3 }}` or `{{ of = 2.5, absolute = 0.1 }}`"
            ),
        )
    };
    let Value::Table(mut table) = value else { return Err(wrong()) };
    let of = table.remove("of").ok_or_else(wrong)?;
    let percent = table.remove("percent").map(|v| float(&v).ok_or_else(wrong)).transpose()?;
    let absolute = table.remove("absolute").map(|v| float(&v).ok_or_else(wrong)).transpose()?;
    let distance = match (percent, absolute) {
        (Some(p), None) if p >= 0.0 => Distance::Relative(p / 100.0),
        (None, Some(a)) if a >= 0.0 => Distance::Absolute(a),
        _ => return Err(wrong()),
    };
    if !table.is_empty() {
        return Err(wrong());
    }
    Ok(Bound::Within { of: side("within", of, base, id)?, distance })
}

/// A number, or the claim's own measurement with some keys changed.
fn side(key: &str, value: Value, base: &Table, id: &str) -> Result<Side, Complaint> {
    if let Some(number) = float(&value) {
        return Ok(Side::Number(number));
    }
    let Value::Table(mut changes) = value else {
        let message = format!("claim `{id}`: `{key}` must be a number, or `{{ variant = … }}`");
        return Err(Complaint::about(key, message));
    };
    if let Some(numbers) = changes.remove("by-variant") {
        let wrong = || {
            let message =
                format!("claim `{id}`: `by-variant` must have a number for each variant, and no other key");
            Complaint::about("by-variant", message)
        };
        let Value::Table(numbers) = numbers else { return Err(wrong()) };
        if !changes.is_empty() {
            return Err(wrong());
        }
        let number = |(name, value): (&String, &Value)| Some((name.clone(), float(value)?));
        return Ok(Side::ByVariant(numbers.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)?));
    }
    let mut factor = |name: &str, usual: f64| match changes.remove(name) {
        None => Ok(usual),
        Some(v) => float(&v)
            .ok_or_else(|| Complaint::about(name, format!("claim `{id}`: `{name}` must be a number"))),
    };
    let (times, plus) = (factor("times", 1.0)?, factor("plus", 0.0)?);
    let mut table = base.clone();
    // A counterpart is found from the variant's cell, not from the part.
    table.remove("where");
    if changes.contains_key("flow") || changes.contains_key("flows") {
        table.remove("flow");
        table.remove("flows");
    }
    table.extend(changes);
    Ok(Side::Other { measurement: Box::new(measurement(&table, id)?), times, plus })
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(i) => Some(*i as f64),
        Value::Float(f) => Some(*f),
        _ => None,
    }
}

const PLOT_HELP: &str =
    "give it a column of a table in `y`, drawn over time, or a `metric` with an axis of the grid in `x`";
/// The keys of bounds.
const BOUNDS: [&str; 6] = ["at-least", "at-most", "more-than", "less-than", "equals", "within"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Experiment, ExperimentError> {
        Experiment::parse(text, Path::new("papers/x/y.toml"))
    }

    #[test]
    fn the_validation_experiment_reads() {
        let text = include_str!("../../../papers/xcp/validation.toml");
        let e = parse(text).unwrap();
        assert_eq!(e.name, "xcp/validation");
        assert!(e.claims.len() >= 5 && e.plots.len() >= 3);
    }

    #[test]
    fn a_mistyped_key_is_shown_with_what_was_meant() {
        let text = "duration = \"1 s\"\n\n[[claim]]\nid = \"a.b\"\nmetric = \"utilisation\"\nlnk = \"x\"\nequals = 1\n";
        let e = parse(text).unwrap_err().0;
        assert_eq!(e.message, "claim `a.b`: unknown key `lnk`");
        assert!(e.help.as_deref().unwrap_or("").starts_with("did you mean `link`?"), "{:?}", e.help);
        let at = e.at.unwrap();
        assert_eq!(&text[at.offset()..at.offset() + at.len()], "lnk");
    }

    #[test]
    fn an_unknown_word_names_the_three_nearest() {
        let help = |text: &str| parse(text).unwrap_err().0.help.unwrap_or_default();
        let claim = |rest: &str| help(&format!("[[claim]]\nid = \"a\"\nequals = 1\n{rest}\n"));
        for said in [
            help("[[plot]]\ntitle = \"x\"\ny = \"xyzzy\"\n"),
            help("[[plot]]\ntitle = \"x\"\ny = \"rate_mbps\"\nxyzzy = 1\n"),
            help("[[plot]]\ntitle = \"x\"\ny = \"fct_s\"\nby = \"xyzzy\"\n"),
            claim("metric = \"xyzzy\""),
            claim("metric = \"rate\"\nxyzzy = 1"),
        ] {
            assert!(said.contains("there are, the nearest are") && said.matches('`').count() == 6, "{said}");
        }
        assert_eq!(help("[[plot]]\ntitel = \"x\"\n"), "did you mean `title`?");
    }

    #[test]
    fn a_claim_must_be_sound() {
        let claim = |rest: &str| parse(&format!("[[claim]]\nid = \"a\"\nmetric = \"rate\"\n{rest}\n"));
        assert!(claim("equals = 1").is_ok());
        assert!(claim("").unwrap_err().0.message.contains("has no bound"));
        assert!(claim("at-least = \"x\"").unwrap_err().0.message.contains("must be a number"));
        assert!(claim("within = { of = 1 }").unwrap_err().0.message.contains("percent"));
        assert!(claim("at-least = 1\nfrom = \"3\"").unwrap_err().0.message.contains("no unit"));
        assert!(claim("at-least = { variant = \"b\", metric = \"rat\" }").is_err());
        assert!(
            parse("[[plot]]\ntitle = \"x\"\ny = \"rate_mpbs\"\n")
                .unwrap_err()
                .0
                .help
                .unwrap()
                .contains("`rate_mbps`")
        );
        let twice = "[[claim]]\nid = \"a\"\nmetric = \"rate\"\nequals = 1\n".repeat(2);
        assert!(parse(&twice).unwrap_err().0.message.contains("two claims"));
    }

    #[test]
    fn random_networks_must_be_there() {
        let random = |law: &str, seed: u64| {
            parse(&format!("[[random]]\nlaw = \"{law}\"\nnetworks = 2\nseed = {seed}\n")).map_err(|e| e.0)
        };
        assert_eq!(random("fcp", 7).unwrap().random[0].seed, 7);
        let wrong = random("cubic", 7).unwrap_err();
        assert!(wrong.at.is_some() && wrong.help.unwrap().contains("`fcp`"), "{}", wrong.message);
        assert!(random("fcp", i64::MAX as u64).unwrap_err().message.contains("fewer than 2 seeds"));
    }

    #[test]
    fn a_plot_must_be_sound() {
        let plot = |rest: &str| parse(&format!("[[plot]]\ntitle = \"x\"\n{rest}\n")).map_err(|e| e.0);
        assert!(plot("y = \"fct_s\"\nby = \"size_bytes\"\nlog-x = true").is_ok());
        let wrong = plot("y = \"fct_s\"\nby = \"size_byte\"").unwrap_err();
        assert!(wrong.help.unwrap().starts_with("did you mean `size_bytes`?"));
        assert!(
            plot("y = \"drops\"\nby = \"size_bytes\"").unwrap_err().message.contains("no number `drops`")
        );
        assert!(plot("metric = \"rate\"\ny = \"fct_s\"\nby = \"size_bytes\"").is_err());
        assert!(
            plot("y = \"rate_mbps\"\ntheory = true").unwrap_err().message.contains("theory has no value")
        );
    }

    #[test]
    fn a_bound_is_the_measurement_with_keys_set_otherwise() {
        let e = parse(
            "[[claim]]\nid = \"a\"\nmetric = \"rate\"\nvariant = \"x\"\nflow = \"f.1\"\nfrom = \"1 s\"\n\
             at-least = { variant = \"y\", flows = \"g\", times = 2, plus = -0.5 }\n",
        )
        .unwrap();
        let Side::Other { measurement, times, plus } = e.claims[0].bounds[0].side() else { panic!() };
        assert_eq!((*times, *plus, measurement.variant.as_str()), (2.0, -0.5, "y"));
        assert_eq!(measurement.flows.as_deref(), Some("g"));
        assert_eq!(measurement.from, e.claims[0].measurement.from);
    }
}
