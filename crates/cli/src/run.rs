//! `tollway run`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tollway_law::{Bytes, Time};
use tollway_report::folder::{Folder, tables_of};
use tollway_report::grid::Cells;
use tollway_report::reproduce::draw_runs;
use tollway_report::runner::{Account, Ran, Runner, lateness_table, notes};
use tollway_report::{Experiment, Overview};
use tollway_scenario::file::{Scenario, Variant};
use tollway_scenario::run::{
    Capture, DigestMode, Hosting, KernelLaws, KeyFile, LiveInfo, NodeProcess, Watch, variant_path,
};
use tollway_scenario::tables::RunResult;

use crate::args::{Digest, Engine, Format, Hosts, Run, address};
use crate::fail::Failure;
use crate::terminal::{self, Bars, say};
use crate::watch::Watching;

pub(crate) fn run(args: &Run) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let scenario = load(args)?;
    let load_s = begun.elapsed().as_secs_f64();
    let plan = &scenario.variants()[0].plan;
    let mut experiment = Experiment::parse(scenario.text(), &args.file).map_err(Failure::input)?;
    experiment.cells = Cells::of(&scenario);
    say_notes(args, &scenario);
    refuse(args)?;
    #[cfg(target_os = "linux")]
    if args.engine.is_live()
        && let Some(wants) = wants_namespaces(args, &scenario)
    {
        // Must precede the first thread.
        tollway_scenario::run::Privilege::acquire()
            .map_err(|error| Failure::with_code(miette::miette!("`{wants}`: {error}"), 1))?;
    }
    let hosting = hosting(args, &scenario)?;
    let capture =
        args.pcap.clone().map(|path| Capture { links: args.pcap_link.clone(), ..Capture::new(path) });
    if let Some(capture) = &capture {
        for variant in scenario.variants() {
            capture
                .chosen(&variant.plan)
                .map_err(|error| Failure::input(miette::miette!("`--pcap-link`: {error}")))?;
        }
    }

    let interrupted = terminal::interrupt_flag();
    let watching = Watching::start(args, &scenario, &interrupted)?;
    let (csv, parquet) = (args.format.contains(&Format::Csv), args.format.contains(&Format::Parquet));
    // Locked until all tables are read back and drawn.
    let written = tables_of(&scenario, csv, parquet);
    let folder = args.out.as_ref().map(|out| Folder::take(out, &written)).transpose()?;
    if let Some(note) = folder.as_ref().and_then(Folder::note)
        && !args.quiet
        && !args.json
        && !watching.has_terminal()
    {
        terminal::tell(note);
    }
    let runner = Runner {
        out: args.out.clone(),
        csv,
        parquet,
        jobs: args.jobs,
        engine: args.engine.into(),
        hosting,
        kernel_laws: kernel_laws(),
        digest: match args.digest {
            Digest::Results => DigestMode::Results,
            Digest::Packets => DigestMode::Packets,
        },
        memory: args.memory.map(Bytes::get),
        capture,
        watch: watching.scene.clone().map(|scene| scene as Arc<dyn Watch>),
        rates_only: true,
        slowdowns: true,
        ..Runner::default()
    };
    let bars = Bars::new(&plan.name, scenario.variants(), !args.quiet && !watching.has_terminal());
    let tell = |i: usize, share: f64| {
        bars.set(i, share);
        !interrupted.load(Ordering::Relaxed)
    };
    let runs = runner.run(&scenario, Some(&tell))?;
    bars.clear();
    drop(watching);

    let mut lost: Vec<String> = runs.iter().filter_map(unwritten).collect();
    let pictures = args.pictures.options();
    let drawn = args.out.as_ref().map(|out| draw_runs(plan, experiment, &runs, out, &pictures));
    let drawn = drawn.transpose().unwrap_or_else(|error| {
        lost.push(error.to_string());
        None
    });
    drop(folder);
    if args.json {
        terminal::say_json(&Account {
            scenario: &scenario,
            runs: &runs,
            load_s,
            peak_rss_bytes: terminal::peak_memory(),
        });
    } else if !args.quiet {
        print_tables(&plan.title, &runs);
    }
    if !args.quiet && !args.json {
        say_written(args, &scenario, &runs, drawn.iter().flatten());
    }
    warn_if_late(&runs);
    let broken = runs.iter().filter_map(|ran| ran.info.live.as_ref()).flat_map(|live| &live.broken);
    let broken = broken.chain(&lost);
    let broken = broken.inspect(|broken| terminal::tell(format_args!("error: {broken}"))).count();
    if interrupted.load(Ordering::Relaxed) {
        terminal::tell("interrupted: these are the results so far");
        return Ok(ExitCode::from(130));
    }
    Ok(if broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the file; for the engine `kernel`, with that transport everywhere.
fn load(args: &Run) -> Result<Scenario, Failure> {
    let mut sets = args.sets.clone();
    sets.extend(args.seed.map(|seed| format!("seed={seed}")));
    let scenario = Scenario::load(&args.file, &sets)?;
    if args.engine != Engine::Kernel {
        return Ok(scenario);
    }
    sets.extend(scenario.kernel_sets());
    Ok(Scenario::load(&args.file, &sets)?)
}

/// Prints notes on the file that matter for its results.
fn say_notes(args: &Run, scenario: &Scenario) {
    let plan = &scenario.variants()[0].plan;
    // With `--json` the notes are part of the output.
    if !args.quiet && !args.json {
        notes(scenario).iter().for_each(|note| terminal::tell(format_args!("note: {note}")));
        if plan.flows.is_empty() && plan.workloads.is_empty() && plan.cbrs.is_empty() {
            let keys = "`[flow.NAME]`, `[workload.NAME]` or `[cbr.NAME]`";
            terminal::tell(format_args!("note: nothing is sent: the file has no {keys}"));
        }
    }
}

/// Refuses options that this build lacks or that exclude each other.
fn refuse(args: &Run) -> Result<(), Failure> {
    if cfg!(not(feature = "parquet")) && args.format.contains(&Format::Parquet) {
        return Err(Failure::input(miette::miette!(
            help = "build it with `--features parquet`, or leave out `--format parquet`",
            "this build of tollway cannot write Parquet"
        )));
    }
    if args.engine.is_live() && args.digest == Digest::Packets {
        return Err(Failure::input(miette::miette!(
            help = "leave out `--digest packets`, or run it with `--engine sim`",
            "a live run has no digest of its packets: its times differ from run to run"
        )));
    }
    if args.engine.is_live() && args.jobs > 1 {
        return Err(Failure::input(miette::miette!(
            help = "leave out `--jobs`",
            "live variants run one at a time: in parallel they would delay each other"
        )));
    }
    Ok(())
}

/// Prints the paths of all files written.
fn say_written<'a>(args: &Run, scenario: &Scenario, runs: &[Ran], drawn: impl Iterator<Item = &'a PathBuf>) {
    if let Some(path) = &args.pcap {
        for (variant, ran) in scenario.variants().iter().zip(runs) {
            let name = if scenario.variants().len() > 1 { variant.name.as_str() } else { "" };
            let path = variant_path(path, name);
            if ran.result.unwritten.iter().all(|lost| lost.path != path) {
                say(format_args!("wrote {}\n", path.display()));
            }
        }
    }
    for path in drawn {
        say(format_args!("wrote {}\n", path.display()));
    }
    if let Some(out) = &args.out {
        say(format_args!("tables: {}\n", tables(out, scenario.variants(), &args.format)));
    }
    if runs.iter().any(|ran| ran.undrawn) {
        say("(the interval tables are too large to draw; a longer `measure.interval` makes them smaller)\n");
    }
    if args.out.is_none() {
        say("(--out DIR also writes a page, a picture and the tables)\n");
    }
}

/// The option or key of a run that needs the right to make namespaces, if any.
#[cfg(target_os = "linux")]
fn wants_namespaces(args: &Run, scenario: &Scenario) -> Option<&'static str> {
    let kernel = || scenario.variants().iter().any(|v| v.plan.transports.iter().any(|t| t.kernel));
    match args.hosts {
        Hosts::Namespaces => Some("--hosts namespaces"),
        Hosts::Loopback => kernel().then_some("transport = \"kernel\""),
    }
}

/// The loader of laws into the kernel's TCP, where there is one.
pub(crate) fn kernel_laws() -> Option<Arc<dyn KernelLaws>> {
    #[cfg(target_os = "linux")]
    return Some(Arc::new(tollway_host::Laws::default()));
    #[cfg(not(target_os = "linux"))]
    None
}

/// The error if namespaces are requested without real packets.
pub(crate) fn needs_live() -> Failure {
    let help = "add `--engine live`";
    Failure::input(miette::miette!(help = help, "`--hosts namespaces` needs the live engine"))
}

/// The processes that run the nodes, by the options.
fn hosting(args: &Run, scenario: &Scenario) -> Result<Hosting, Failure> {
    if args.hosts == Hosts::Namespaces && !args.engine.is_live() {
        return Err(needs_live());
    }
    let Some(name) = &args.node else { return Ok(args.hosts.into()) };
    let plan = &scenario.variants()[0].plan;
    let input = |help: String, message: String| Failure::input(miette::miette!(help = help, "{message}"));
    if !args.engine.is_live() {
        return Err(input("add `--engine live`".into(), "`--node` needs the live engine".into()));
    }
    let find = |name: &str| {
        let known = || plan.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let at = plan.nodes.iter().position(|node| node.name == name);
        at.ok_or_else(|| input(format!("there are {}", known()), format!("there is no node `{name}`")))
    };
    let mut at: Vec<Option<SocketAddr>> = vec![None; plan.nodes.len()];
    if let Some(first) = args.ports {
        for (i, place) in at.iter_mut().enumerate() {
            let port = u16::try_from(usize::from(first) + i).ok();
            *place = port.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        }
    }
    for text in &args.at {
        let Some((name, addr)) = text.split_once('=') else {
            let help = "write it like `--at r=192.0.2.1:7000`";
            return Err(input(help.into(), format!("`--at {text}` does not have the form NODE=HOST:PORT")));
        };
        let addr = address(addr)
            .map_err(|why| miette::miette!("`--at {text}` has no valid address for node `{name}`: {why}"));
        at[find(name)?] = Some(addr.map_err(Failure::input)?);
    }
    let node = find(name)?;
    let placed: Vec<SocketAddr> = at.iter().flatten().copied().collect();
    if placed.len() < at.len() {
        let missing = at.iter().zip(&plan.nodes).find(|(at, _)| at.is_none());
        let name = missing.map_or("", |(_, node)| node.name.as_str());
        let help = format!("add `--at {name}=HOST:PORT`, or `--ports 7000` if all nodes are on this machine");
        return Err(input(help, format!("the address of node `{name}` is missing")));
    }
    let keys = args.key.as_deref().map(|path| keys(path, name)).transpose()?;
    if let Some(i) = placed.iter().position(|at| !at.ip().is_loopback()).filter(|_| keys.is_none()) {
        terminal::tell(format_args!(
            "WARNING: node `{}` is at {}, outside this machine: datagrams between nodes are neither \
            encrypted nor authenticated, so anyone who reaches their ports can read, change or end the \
            flows; make keys with `tollway keys`, and start each node with its own `--key`",
            plan.nodes[i].name, placed[i]
        ));
    }
    let patience = args.patience.parse();
    let patience = patience
        .map_err(|error| input("write it like `--patience 10s`".into(), format!("`--patience`: {error}")))?;
    if scenario.variants().len() > 1 {
        return Err(Failure::input(miette::miette!(
            help = "use a file with one variant, or none",
            "the file has {} variants, and `--node` runs only one",
            scenario.variants().len()
        )));
    }
    Ok(Hosting::Processes(NodeProcess { node, at: placed, patience, keys }))
}

/// Loads the key file of node `name`.
fn keys(path: &Path, name: &str) -> Result<KeyFile, Failure> {
    let file = KeyFile::load(path).map_err(|error| Failure::input(miette::miette!("`--key`: {error}")))?;
    if file.name != name {
        let (path, whose) = (path.display(), &file.name);
        return Err(Failure::input(miette::miette!(
            "`--key {path}` is the key of node `{whose}`, not of `{name}`"
        )));
    }
    Ok(file)
}

/// A message on the files of a run that could not be written, if any.
fn unwritten(ran: &Ran) -> Option<String> {
    let (first, more) = ran.result.unwritten.split_first()?;
    Some(match more.len() {
        0 => first.to_string(),
        1 => format!("{first}; one more file of this run is incomplete"),
        more => format!("{first}; {more} more files of this run are incomplete"),
    })
}

/// The paths of the result tables as a shell pattern: `out/{xcp,fifo}/*.{arrow,csv}`.
fn tables(out: &Path, variants: &[Variant], formats: &[Format]) -> String {
    let one_of = |names: Vec<&str>| match names.as_slice() {
        [name] => name.to_string(),
        names if names.len() > 6 => "*".to_string(),
        names => format!("{{{}}}", names.join(",")),
    };
    let mut endings = vec!["arrow"];
    endings.extend(formats.contains(&Format::Csv).then_some("csv"));
    endings.extend(formats.contains(&Format::Parquet).then_some("parquet"));
    let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).filter(|name| !name.is_empty()).collect();
    let folder = if names.is_empty() { out.to_owned() } else { out.join(one_of(names)) };
    folder.join(format!("*.{}", one_of(endings))).display().to_string()
}

fn print_tables(title: &str, runs: &[Ran]) {
    let results: Vec<RunResult> =
        runs.iter().filter(|ran| ran.began()).map(|ran| ran.result.clone()).collect();
    say(format_args!("{title}\n\n"));
    say(Overview::new(&results).to_text(terminal::width()));
    say("\n");
    for ran in runs {
        let whose = match ran.result.variant.as_str() {
            "" => String::new(),
            variant => format!("{variant}: "),
        };
        if !ran.began() {
            say(format_args!("{whose}not run: the command was stopped before\n"));
            continue;
        }
        match &ran.deviation {
            Ok(deviation) => say(format_args!("{whose}{deviation}\n")),
            // For flows that arrive at random, slowdowns are printed instead.
            Err(_) if !ran.slowdowns.is_empty() => {}
            Err(why) => say(format_args!("{whose}not compared with theory: {why}\n")),
        }
        ran.slowdowns.iter().for_each(|slowdown| say(format_args!("{whose}{slowdown}\n")));
    }
    let hops: u64 = runs.iter().map(|ran| ran.info.packet_hops).sum();
    let seconds: f64 = runs.iter().map(|ran| ran.info.run_cpu_s).sum();
    let simulated: f64 = runs.iter().map(|ran| ran.info.duration.as_secs_f64()).sum();
    let lives: Vec<&LiveInfo> = runs.iter().filter_map(|ran| ran.info.live.as_ref()).collect();
    if lives.is_empty() {
        say(format_args!(
            "\nsimulated {simulated:.0} s of network time in {seconds:.2} s of processor time: {:.1} million packet-hops, {:.1} million a second\n",
            hops as f64 * 1e-6,
            hops as f64 * 1e-6 / seconds.max(1e-9),
        ));
        return;
    }
    say(format_args!(
        "\nran live for {simulated:.0} s with {seconds:.2} s of processor time: {hops} datagrams from socket to socket\n"
    ));
    say(lateness_table(runs, terminal::width()));
}

/// Prints a note on connections that left their law, and a warning if the machine was too slow for
/// reliable results.
fn warn_if_late(runs: &[Ran]) {
    for fallen in runs.iter().filter_map(|ran| ran.info.live.as_ref()?.fallen.as_ref()) {
        terminal::tell(format_args!("note: connections fell back to Linux's own law: {fallen}"));
    }
    for ran in runs {
        let Some(live) = ran.info.live.as_ref().filter(|live| !live.kept_up()) else { continue };
        let name = match ran.result.variant.as_str() {
            "" => String::new(),
            name => format!("variant `{name}`: "),
        };
        let (late, paused) = (live.punctuality.departures.percentile(0.99), live.punctuality.longest_pause);
        let drops = live.kernel_drops.unwrap_or(0);
        let (what, helps) = match paused >= STOPPED {
            true => (
                format!(
                    "this process did not run for {:.1} s: it was stopped, or other programs used its \
                    processor",
                    paused.as_secs_f64()
                ),
                "run it again without such a pause",
            ),
            false if live.real_time => {
                ("this machine did not keep up".into(), "use slower links, fewer flows or an idle machine")
            }
            false => (
                "this machine did not keep up".into(),
                "use slower links, fewer flows, an idle machine, or root, which has real-time priority",
            ),
        };
        terminal::tell(format_args!(
            "WARNING: {name}{what}: 1 % of departures were {:.1} ms late or more, programs at the ends of \
            kernel flows waited {:.1} ms for a processor (mean), and the kernel dropped {drops} datagrams \
            and refused to send {}; the results are not more exact than that ({helps})",
            late.as_millis_f64(),
            live.punctuality.programs.mean().as_millis_f64(),
            live.counters.unsent - live.counters.too_long,
        ));
    }
}

/// A pause longer than load alone causes on a machine: the process was stopped.
const STOPPED: Time = Time::from_millis(500);
