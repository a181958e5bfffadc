//! The command as seen by users and scripts: exit statuses, messages, files.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{self, run_in, succeeds, text, tollway};

const SCENARIO: &str = r#"name = "small"
duration = "2 s"

[node.a]
[node.b]

[link.wire]
from = "a"
to = "b"
rate = "10 Mbps"
delay = "10 ms"
limit = "20 packets"

[flow.f]
from = "a"
to = "b"
law = "newreno"
"#;

fn folder(name: &str) -> PathBuf {
    common::folder("cli", name)
}

/// Runs `scenario` with `more` arguments. It must end with `code` and without a panic. Returns its
/// standard error.
fn fails(name: &str, scenario: &str, more: &[&str], code: i32) -> String {
    let dir = folder(name);
    fs::write(dir.join("s.toml"), scenario).expect("written");
    let output = run_in(&dir, &[&["run", "s.toml"], more].concat());
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    said
}

/// A folder with the small scenario.
fn small(name: &str) -> PathBuf {
    let dir = folder(name);
    fs::write(dir.join("s.toml"), SCENARIO).expect("written");
    dir
}

#[test]
fn slips_of_the_pen_are_shown_in_place() {
    let key = fails("key", &SCENARIO.replace("delay =", "dealy ="), &[], 2);
    let unit = fails("unit", &SCENARIO.replace("10 Mbps", "10 Mbsp"), &[], 2);
    let node = fails("node", &SCENARIO.replace("to = \"b\"\nlaw", "to = \"bb\"\nlaw"), &[], 2);
    assert!(key.contains("did you mean `delay`?") && unit.contains("did you mean `Mbps`?"));
    insta::assert_snapshot!("slips", format!("{key}\n{unit}\n{node}"));
    for said in [key, unit, node] {
        assert!(said.contains("s.toml:") && said.contains("help: "), "{said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn help_lists_commands_by_what_they_are_for() {
    let [short, long] = ["-h", "--help"].map(|option| succeeds(Path::new("."), &[option]));
    assert!(long.lines().chain(short.lines()).all(|line| line.chars().count() <= 100), "{long}");
    insta::assert_snapshot!("help", short);
    let run = succeeds(Path::new("."), &["run", "-h"]);
    insta::assert_snapshot!("help_run", run);
}

#[cfg(target_os = "linux")]
#[test]
fn exec_without_dashes_or_network_says_what_to_type() {
    let lines = [
        &["--link", "20Mbps", "curl", "-o", "/dev/null", "http://server/a?b=1"][..],
        &["--link=20 Mbps 40 ms", "-q", "my program"],
        &["--", "curl", "http://server/"],
        &["curl", "http://server/"],
        &["office.toml", "--node", "hq", "curl"],
        &["--link", "20Mbps"],
        &["--lnk", "20Mbps", "--", "true"],
        &["--profile", "5g", "--", "true"],
        &["--link", "20 Mbps 40", "--", "true"],
        &["--link", "latency=40ms", "--", "true"],
        &["--link", "5Mbps reno", "--", "true"],
        &["--link", "-5Mbps", "--", "true"],
        &["--link=-5Mbps", "--", "true"],
        &["--link", "5Mbps", "--link-up", "-3 ms", "--", "true"],
        &["--link", "--", "true"],
        &["--listen", "9000=server:8000"],
    ];
    let said: Vec<String> = lines
        .iter()
        .map(|line| {
            let output = tollway(&[&["exec"], *line].concat()).output().expect("the command starts");
            assert_eq!(output.status.code(), Some(2), "{line:?}");
            format!("$ tollway exec {}\n{}", line.join(" "), text(&output.stderr))
        })
        .collect();
    insta::assert_snapshot!("exec_slips", said.join("\n"));
}

#[test]
fn files_that_are_none() {
    let dir = folder("none");
    fs::write(dir.join("empty.toml"), "").expect("written");
    fs::write(dir.join("latin.toml"), b"# here\nname = \"caf\xe9\"").expect("written");
    let wide: Vec<u8> = SCENARIO.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(dir.join("wide.toml"), [b"\xff\xfe", &wide[..]].concat()).expect("written");
    fs::write(dir.join("unmarked.toml"), &wide).expect("written");
    let other: Vec<u8> = SCENARIO.encode_utf16().flat_map(u16::to_be_bytes).collect();
    fs::write(dir.join("other.toml"), other).expect("written");
    for (file, word) in [
        ("missing.toml", "missing.toml"),
        (".", "cannot be read"),
        ("empty.toml", "needs `name`"),
        ("latin.toml", "`latin.toml` cannot be read: line 2 is not UTF-8 (byte E9); save it as UTF-8"),
        ("wide.toml", "`wide.toml` cannot be read: it is UTF-16; save it as UTF-8"),
        ("unmarked.toml", "`unmarked.toml` cannot be read: it is UTF-16; save it as UTF-8"),
        ("other.toml", "`other.toml` cannot be read: it is UTF-16; save it as UTF-8"),
    ] {
        let output = run_in(&dir, &["run", file]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(said.contains(word), "{file}: {said}");
    }
}

#[test]
fn a_mark_before_the_text_is_no_text() {
    let dir = folder("marked");
    let marked = |text: &str| format!("\u{feff}{text}");
    let scenario = SCENARIO.replace("rate = \"10 Mbps\"", "trace = \"s.trace\"");
    fs::write(dir.join("s.toml"), marked(&scenario)).expect("written");
    fs::write(dir.join("s.trace"), marked("1\n2\n")).expect("written");
    let output = run_in(&dir, &["run", "s.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_set_or_is_absurd() {
    for (i, (set, word)) in [
        ("nonsense", "sets nothing"),
        ("link.wires.rate=5Mbps", "did you mean `wire`"),
        ("link.wire.rate=5", "unit"),
        ("link.wire.rate.x=5", "rate"),
        ("variant.x=1", "cannot be set"),
        ("flow.f.count=1000000000", "from 1 to 1000000"),
        ("node.a.count=1000000000", "from 1 to 1000000"),
        ("flow.f.law=xcp", "no link on its path there has a law that answers"),
        ("duration=900000h", "100 years"),
        ("=", "="),
        ("", "sets nothing"),
    ]
    .into_iter()
    .enumerate()
    {
        let said = fails(&format!("set{i}"), SCENARIO, &["--set", set], 2);
        assert!(said.contains(word), "{set}: {said}");
    }
}

#[test]
fn more_flows_than_memory_has_room_for_are_refused() {
    let dir = folder("many");
    let workload = |arrivals: &str| {
        let ends = "from = \"a\"\nto = \"b\"\nlaw = \"cubic\"\nsizes = \"1 kB\"";
        let file = format!("{SCENARIO}\n[workload.w]\n{ends}\narrivals = {arrivals}\n");
        fs::write(dir.join("s.toml"), file).expect("written");
    };
    for arrivals in ["{ poisson = 1e12 }", "{ interval = \"1 ns\" }"] {
        workload(arrivals);
        // A command that reads the file and runs nothing.
        let said = text(&run_in(&dir, &["theory", "s.toml"]).stderr);
        assert!(said.contains("flows; the limit is 100000000") && said.contains("max-flows"), "{said}");
    }
    workload("{ poisson = 1e12 }\nmax-flows = 3");
    succeeds(&dir, &["run", "s.toml"]);
}

#[test]
fn a_seed_is_a_whole_number_of_files() {
    let said = fails("seed", SCENARIO, &["--seed", "9223372036854775808"], 2);
    assert!(said.contains("--seed") && said.contains("9223372036854775807"), "{said}");
    succeeds(&small("last-seed"), &["run", "s.toml", "--seed", "9223372036854775807"]);
}

#[test]
fn a_run_beyond_the_horizon_says_so() {
    let more = ["--set", "duration=800000h", "--set", "flow.f.count=1000", "--set", "measure.interval=none"];
    let said = fails("horizon", SCENARIO, &more, 2);
    assert!(said.contains("too long") && said.contains("shorten `duration`"), "{said}");
}

#[test]
fn json_is_one_object_with_everything() {
    let dir = small("json");
    let out = succeeds(&dir, &["run", "s.toml", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("one object");
    for key in
        ["scenario", "seed", "engine", "duration_s", "flows", "links", "events", "packet_hops", "digest"]
    {
        assert!(!json[key].is_null(), "{key} is missing");
    }
    assert_eq!((&json["scenario"], &json["engine"]), (&"small".into(), &"sim".into()));
    assert!(json["flows"][0]["rate_mbps"].as_f64().is_some_and(|rate| rate > 5.0));
    // The seed is the requested one, and the digest belongs to it.
    let other = succeeds(&dir, &["run", "s.toml", "--json", "--quiet", "--seed", "9", "--jobs", "2"]);
    let other: serde_json::Value = serde_json::from_str(&other).expect("one object");
    assert_eq!(other["seed"], 9);
    assert_eq!(other["digest"], json["digest"], "nothing in it is random");
}

#[test]
fn events_are_written_where_they_are_asked_for() {
    let dir = small("log");
    fs::write(dir.join("lost.toml"), format!("{SCENARIO}[[loss]]\nlink = \"wire\"\nprobability = 1.0\n"))
        .unwrap();
    let run = |filter: &str, file: &str| {
        let mut command = tollway(&["run", file, "--quiet", "--out", "out"]);
        command.current_dir(&dir).env("TOLLWAY_LOG", filter).output().expect("the command starts")
    };
    let said = text(&run("transport=debug", "s.toml").stderr);
    assert!(said.lines().all(|line| line.starts_with("DEBUG transport: ")), "{said}");
    assert!(said.contains("connection open now=") && said.contains("recovery begins now="), "{said}");
    assert!(run("overlay=trace,transport=info", "s.toml").stderr.is_empty());
    let lost = text(&run("debug", "lost.toml").stderr);
    assert!(lost.contains("retransmission timeout now="), "{lost}");
    for (filter, why) in
        [("transprt=debug", "`transprt` is not a part"), ("transport=much", "TOLLWAY_LOG=transport=much")]
    {
        let output = run(filter, "s.toml");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.contains("transport=debug,hop=trace"), "{said}");
    }
}

#[test]
fn quiet_is_quiet() {
    let dir = small("quiet");
    let output = run_in(&dir, &["run", "s.toml", "--quiet", "--out", "out"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn files_are_what_their_names_say() {
    let dir = small("out");
    succeeds(&dir, &["run", "s.toml", "--out", "out"]);
    let read = |name: &str| fs::read(dir.join("out").join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read("small.png").starts_with(b"\x89PNG\r\n\x1a\n"));
    assert!(
        read("small.html").starts_with(b"<!doctype html>")
            || read("small.html").starts_with(b"<!DOCTYPE html>")
    );
    for (table, columns) in [
        ("flows", "time_s,flow,rate_mbps,goodput_mbps,cwnd_packets,rtt_ms"),
        ("links", "time_s,link,utilisation,queue_mean_bytes,queue_max_bytes"),
        ("summary", "flow,law,start_s,from_s,finish_s,fct_s"),
        ("link_summary", "link,capacity_mbps,from_s,utilisation"),
    ] {
        let csv = text(&read(&format!("{table}.csv")));
        assert!(csv.starts_with(columns), "{csv}");
        let rows = csv.lines().count() - 1;
        let file = fs::File::open(dir.join(format!("out/{table}.arrow"))).expect("it is there");
        let reader = arrow_ipc::reader::FileReader::try_new(file, None).expect("an Arrow file");
        assert_eq!(reader.map(|batch| batch.expect("a batch").num_rows()).sum::<usize>(), rows, "{table}");
    }
}

#[test]
fn nothing_is_written_outside_the_folder() {
    let said = fails("variant", &format!("{SCENARIO}[variant.\"../../x\"]\n"), &["--out", "out"], 2);
    assert!(said.contains("is not a valid name"), "{said}");
    let dir = folder("escape");
    let inner = dir.join("inner");
    fs::create_dir_all(&inner).expect("a folder");
    for name in ["../../x", "/tmp/tollway-x", "..", "a/../../b"] {
        fs::write(inner.join("s.toml"), SCENARIO.replace("\"small\"", &format!("\"{name}\"")))
            .expect("written");
        succeeds(&inner, &["run", "s.toml", "--out", "out", "--quiet"]);
    }
    let there: Vec<_> =
        fs::read_dir(&dir).expect("listed").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(there, ["inner"]);
    assert_eq!(fs::read_dir(&inner).expect("listed").count(), 2, "the scenario and `out`");
    assert!(!Path::new("/tmp/tollway-x.html").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    // A file in place of the folder is an error for every user, root included.
    let dir = small("unwritable");
    fs::write(dir.join("taken"), "").expect("written");
    let output = run_in(&dir, &["run", "s.toml", "--out", "taken/out"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot create") && said.contains("taken"), "{said}");
}

#[test]
fn the_default_build_has_every_feature() {
    let manifest =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("it is there");
    let features =
        manifest.split_once("[features]").expect("features").1.split("\n[").next().expect("a section");
    let names = features.lines().filter_map(|line| Some(line.split_once(" = [")?.0));
    let default = features.lines().find(|line| line.starts_with("default = [")).expect("a default");
    // `etcd-tls` includes `etcd`.
    for name in names.filter(|name| !["default", "etcd"].contains(name)) {
        assert!(default.contains(&format!("\"{name}\"")), "{name} is not in `{default}`");
    }
}

#[test]
fn parquet_is_written_or_refused_before_the_run() {
    let dir = small("parquet");
    let output = run_in(&dir, &["run", "s.toml", "--out", "out", "--format", "parquet"]);
    let said = text(&output.stderr);
    if cfg!(feature = "parquet") {
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(fs::read(dir.join("out/flows.parquet")).expect("a table").starts_with(b"PAR1"));
    } else {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--features parquet") && !dir.join("out").exists(), "{said}");
    }
}

#[test]
fn no_flow_is_a_run_too() {
    let dir = folder("no-flow");
    let flowless = SCENARIO.split("[flow.f]").next().expect("a first part");
    fs::write(dir.join("s.toml"), flowless).expect("written");
    succeeds(&dir, &["run", "s.toml", "--out", "out"]);
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&dir, &["run", "s.toml", "--json"])).expect("one object");
    assert_eq!(json["packet_hops"], 0);
}

#[test]
fn a_group_has_its_rows_once() {
    let dir = small("both-ways");
    let out = succeeds(&dir, &["run", "s.toml", "--set", "flow.f.both-ways=true", "--set", "flow.f.count=8"]);
    for label in ["f least", "f median", "f greatest", "f.reverse least", "f.reverse greatest"] {
        let rows = out.lines().filter(|line| line.trim_start().starts_with(label)).count();
        assert_eq!(rows, 1, "{label}: {out}");
    }
}

/// `tollway … | head -0`: the reader closes its end before anything is written.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let dir = small("pipe");
    for arguments in [&["schema"][..], &["run", "s.toml"], &["run", "s.toml", "--json"], &["--help"]] {
        let mut child = tollway(arguments)
            .current_dir(&dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
        let status = child.wait().expect("it ends");
        assert!(!said.contains("panicked") && status.code() == Some(0), "{arguments:?}: {said}");
    }
}

/// `tollway … > file` on a full disk: an incomplete result is an error.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error() {
    let dir = small("full");
    for arguments in [&["schema"][..], &["run", "s.toml"], &["run", "s.toml", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("it opens");
        let output = tollway(arguments).current_dir(&dir).stdout(full).output().expect("the command starts");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.matches("cannot write to standard output: No space left").count(), 1, "{said}");
    }
}

/// If the disk is full, results are printed all the same, and the missing files are named.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_no_run() {
    let dir = small("disk");
    fs::create_dir(dir.join("out")).expect("made");
    // There is no room even for the first table.
    let script = "mount -t tmpfs -o size=16k,mode=700 none out || exit 77; exec \"$@\"";
    for arguments in [&["--json"][..], &["--jobs", "1"], &["--json", "--pcap", "out/c.pcapng", "--jobs", "1"]]
    {
        let mut command = std::process::Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_tollway"), "run", "s.toml"]);
        command.args(["--out", "out", "--set", "measure.interval=10 ms"]).args(arguments);
        let output = command.current_dir(&dir).env("NO_COLOR", "1").output();
        let Some(output) = output.ok().filter(|output| output.status.code() != Some(77)) else {
            eprintln!("SKIPPED: no namespace with a small file system here");
            return;
        };
        let (told, said) = (text(&output.stdout), text(&output.stderr));
        if said.contains("unshare") {
            eprintln!("SKIPPED: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("error: cannot write out/") && said.contains("No space left"), "{said}");
        assert!(said.contains("more files of this run are incomplete"), "{said}");
        if arguments.contains(&"--json") {
            let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
            let delivered = |flow: &serde_json::Value| flow["delivered_bytes"].as_u64() > Some(0);
            assert!(told["flows"].as_array().is_some_and(|flows| flows.iter().all(delivered)), "{told}");
            let lost = told["runs"][0]["unwritten"].as_array().expect("a list");
            assert!(
                lost.iter().any(|lost| lost.as_str().is_some_and(|lost| lost.contains("flows"))),
                "{told}"
            );
        } else {
            assert!(told.contains("of ideal") && told.contains("simulated"), "{told}");
        }
    }
}

/// A file limit (`ulimit -f`) acts like a full disk: the kernel's signal for it ends nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_files_ends_no_run() {
    let dir = small("file-limit");
    let limited = |script: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -f 8; {script}"), "sh", env!("CARGO_BIN_EXE_tollway")]);
        command.args(arguments).current_dir(&dir).env("NO_COLOR", "1").output().expect("the shell starts")
    };
    let run = ["run", "s.toml", "--out", "out", "--set", "measure.interval=10 ms"];
    let output = limited("exec \"$@\"", &run);
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains("error: cannot write out/") && said.contains("File too large"), "{said}");
    assert!(told.contains("of ideal") && told.contains("simulated"), "{told}");
    // Printed results too.
    let output = limited("exec \"$@\" > said", &["schema"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains("cannot write to standard output: File too large"), "{said}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_what_there_is_and_a_hang_up_that_is_ignored_ends_nothing() {
    let dir = small("ctrl-c");
    // As nohup(1) does.
    let child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tollway"), "run", "s.toml"])
        .args(["--set", "duration=100000s", "--out", "out"])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // Rows on disk show that the run is well under way.
    let rows = dir.join("out/flows.csv");
    let length = || fs::metadata(&rows).map_or(0, |file| file.len());
    let grows_beyond = |bytes: u64| {
        (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            length() > bytes
        })
    };
    assert!(grows_beyond(100_000));
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    };
    if cfg!(target_os = "linux") {
        signal("-HUP");
        assert!(grows_beyond(length() + 1_000_000), "it goes on");
    }
    // Not SIGINT: a shell ignores it for background commands.
    signal("-TERM");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("interrupted"));
    let file = fs::File::open(dir.join("out/summary.arrow")).expect("it is there");
    let reader = arrow_ipc::reader::FileReader::try_new(file, None).expect("a whole Arrow file");
    assert_eq!(reader.map(|batch| batch.expect("a batch").num_rows()).sum::<usize>(), 1);
}

#[cfg(unix)]
#[test]
fn two_runs_into_one_folder_are_one_too_many() {
    let dir = small("two");
    let first = tollway(&["run", "s.toml", "--set", "duration=100000s", "--out", "out"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let size = || fs::metadata(dir.join("out/flows.csv")).map_or(0, |file| file.len());
    for _ in 0..600 {
        if size() > 100_000 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = size();
    let second = run_in(&dir, &["run", "s.toml", "--out", "out"]);
    let after = size();
    let killed = Command::new("kill").args(["-TERM", &first.id().to_string()]).status().expect("kill runs");
    let ended = first.wait_with_output().expect("it ends").status.code();
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another tollway is writing to `out`") && second.stdout.is_empty(), "{said}");
    assert!(before > 100_000 && after >= before, "{before} {after}");
    assert!(killed.success());
    assert_eq!(ended, Some(130));
    succeeds(&dir, &["run", "s.toml", "--out", "out"]);
}

#[test]
fn what_this_build_leaves_out_is_said() {
    let dir = folder("watch");
    fs::write(dir.join("s.toml"), SCENARIO).expect("written");
    for (option, feature, there) in [
        ("--watch", "watch", cfg!(feature = "watch")),
        ("--metrics=127.0.0.1:0", "metrics", cfg!(feature = "metrics")),
    ] {
        let output = run_in(&dir, &["run", "s.toml", option]);
        let said = text(&output.stderr);
        if !there {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("--features {feature}")), "{said}");
        } else if feature == "watch" {
            // There is no terminal here.
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("standard error"), "{said}");
        } else {
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert!(said.contains("metrics at http://127.0.0.1:"), "{said}");
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn no_mathematics_but_our_own_is_loaded() {
    // The dynamic linker lists the libraries it would load. A static command prints something else,
    // or runs.
    let output =
        Command::new(env!("CARGO_BIN_EXE_tollway")).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let loaded = String::from_utf8(output.stdout).unwrap();
    assert!(
        !loaded.contains("libm.so"),
        "a dependency asks for a function that `mathematics.rs` lacks: {loaded}"
    );
}
