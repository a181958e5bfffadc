//! Faults of a router: death, stops, interfaces that go and come, reloads, mistakes.

use std::time::{Duration, Instant};

use super::Lab;
use super::network::await_it;
use crate::common::{self, text};

/// Sends UDP at 40 Mb/s for two seconds. Returns bit/s received then; the queue that a router has at
/// the end counts, too.
fn flood(lab: &Lab, port: &str) -> f64 {
    let mut server = lab.server(port);
    let words = ["iperf3", "-c", "10.2.0.2", "-p", port, "-J", "-u", "-b", "40M", "-t", "2", "-l", "1400"];
    let said = lab.says("c", &words);
    let _ = server.wait();
    let result: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let sum = &result["end"]["sum"];
    let [rate, lost] = ["bits_per_second", "lost_percent"].map(|key| sum[key].as_f64().unwrap());
    rate * (1.0 - lost / 100.0)
}

#[test]
fn a_killed_router_leaves_nothing_and_packets_pass() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("killed") else { return };
    let mut router = lab.router(&["--dev", "sr", "--up", "10Mbps", "--down", "10Mbps"]);
    let held = flood(&lab, "5211");
    assert!(held < QUEUED, "{held}");
    router.child.kill().unwrap();
    // Two seconds of pings: those of the first may be lost.
    let answered = lab.pings("10.2.0.2", 40, "0.05", 56, false);
    assert!(answered >= 20, "{answered} of 40");
    await_it("end of its interfaces", || lab.interfaces().is_empty());
    let free = flood(&lab, "5212");
    assert!(free > 1.5 * QUEUED, "{free} beside {held}");
    // Another one has its place.
    lab.router(&["--dev", "sr", "--up", "10Mbps"]).end();
}

#[test]
fn packets_pass_a_stopped_router_and_wait_for_it_again() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("stopped") else { return };
    let router = lab.router(&["--dev", "sr", "--up", "10Mbps", "--down", "10Mbps"]);
    router.signal("STOP");
    let stopped = Instant::now();
    lab.await_ping("10.2.0.2");
    assert!(stopped.elapsed() < Duration::from_secs(3), "{:?}", stopped.elapsed());
    assert!(flood(&lab, "5213") > 20e6);
    router.signal("CONT");
    await_it("packets on the links", || {
        let before = router.status(&lab)["ways"][0]["packets"].as_u64();
        lab.ping("10.2.0.2", 56, false) && router.status(&lab)["ways"][0]["packets"].as_u64() > before
    });
    let status = router.status(&lab);
    assert!(status["ways"][0]["passed"].as_u64().unwrap() > 1000, "{status}");
    assert!(flood(&lab, "5214") < QUEUED);
}

#[test]
fn a_limit_outlasts_its_router_until_it_is_removed() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("limit") else { return };
    let options = ["--dev", "sr", "--up", "10Mbps", "--on-failure", "limit"];
    let mut router = lab.router(&options);
    router.child.kill().unwrap();
    router.child.wait().unwrap();
    lab.await_ping("10.2.0.2");
    let held = flood(&lab, "5215");
    assert!((5e6..10.8e6).contains(&held), "{held}");
    // The next router takes over, and leaves nothing.
    lab.router(&options).end();
    assert!(!lab.says("r", &["ls", "/sys/fs/bpf"]).contains("tollway"));
    assert!(flood(&lab, "5216") > 20e6);
    let mut router = lab.router(&options);
    router.child.kill().unwrap();
    router.child.wait().unwrap();
    let said = lab.says("r", &[env!("CARGO_BIN_EXE_tollway"), "clean"]);
    assert!(said.contains("removed the limit of a router at sr, up"), "{said}");
    assert!(flood(&lab, "5217") > 20e6);
}

#[test]
fn an_interface_may_go_down_change_its_address_and_be_replaced() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("interface") else { return };
    let router = lab.router(&["--dev", "sr", "--up", "10Mbps", "--down", "10Mbps"]);
    let crosses = || {
        let before = router.status(&lab)["ways"][0]["packets"].as_u64();
        lab.ping("10.2.0.2", 56, false) && router.status(&lab)["ways"][0]["packets"].as_u64() > before
    };
    lab.ip("r", "link set sr down");
    assert!(!lab.ping("10.2.0.2", 56, false));
    lab.ip("r", "link set sr up");
    await_it("packets on the links", crosses);
    lab.ip("r", "addr add 10.2.0.9/24 dev sr");
    lab.ip("r", "addr del 10.2.0.9/24 dev sr");
    assert!(crosses());
    lab.ip("r", "link del sr");
    await_it("notice of the outage", || router.status(&lab)["trouble"] == "the interface is gone");
    lab.ip("r", "link add sr type veth peer name s0");
    lab.ip("r", "addr add 10.2.0.1/24 dev sr");
    lab.ip("r", "link set sr up");
    await_it("a router at the new interface", || router.status(&lab)["trouble"].is_null());
    router.end();
}

#[test]
fn a_reload_loses_no_packet() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("reload") else { return };
    let config = |rate: u32, law: &str| {
        format!(
            "version = \"{rate}\"\ndevice = \"sr\"\nup = \"{rate} Mbps\"\ndown = \"20 Mbps\"\nlaw = \"{law}\"\n"
        )
    };
    let file = lab.file("router.toml", &config(20, "fq_codel"));
    let router = lab.router(&["--config", &file]);
    let answered = std::thread::scope(|scope| {
        let pings = scope.spawn(|| lab.pings("10.2.0.2", 250, "0.01", 1000, false));
        for (rate, law) in (21..40).zip(["codel", "fq_codel", "xcp", "dualpi2"].iter().cycle()) {
            lab.file("router.toml", &config(rate, law));
            std::thread::sleep(Duration::from_millis(100));
        }
        pings.join().unwrap()
    });
    assert_eq!(answered, 250);
    lab.file("router.toml", &config(50, "pie"));
    await_it("the last version", || router.status(&lab)["version"] == "50");
    assert_eq!(router.status(&lab)["ways"][0]["limit_bps"], 50e6);
    // A mistake is reported, and changes nothing.
    lab.file("router.toml", &config(60, "pye"));
    await_it("a refusal", || router.status(&lab)["trouble"].is_string());
    assert_eq!(router.status(&lab)["version"], "50");
    router.end();
}

/// `make soak SOAK=600` sends 10⁹ bytes.
#[test]
fn damaged_frames_end_no_router() {
    let _alone = common::alone();
    let Some(lab) = Lab::new("damaged") else { return };
    let soak = std::env::var("TOLLWAY_SOAK_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let bytes = if soak.is_some_and(|seconds| seconds >= 600) { 250_000_000 } else { 5_000_000 };
    let link = lab.says("r", &["ip", "-o", "link", "show", "sr"]);
    let interface =
        link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).expect("an address");
    let tenants = "[aggregate.near]\nto = \"10.1.0.0/16\"\nrate = \"1 Gbps\"\n\
        [aggregate.ports]\nfrom-port = 5001\nrate = \"1 Gbps\"\naction = \"mark\"\n";
    for (seed, law) in ["fq_codel", "xcp", "fcp", "dualpi2"].iter().enumerate() {
        let meter = if matches!(*law, "xcp" | "fcp") { "meter = \"down\"\n" } else { "" };
        let text =
            format!("device = \"sr\"\nup = \"9 Gbps\"\ndown = \"9 Gbps\"\nlaw = \"{law}\"\n{meter}{tenants}");
        let file = lab.file(&format!("{law}.toml"), &text);
        let router = lab.router(&["--config", &file]);
        let (bytes, seed) = (bytes.to_string(), seed.to_string());
        let sent = lab.says("s", &["python3", FUZZ, "s0", interface, &bytes, &seed]);
        let sent: u64 = sent.trim().parse().expect("a number");
        await_it("frames on the link", || {
            router.status(&lab)["ways"][1]["packets"].as_u64().is_some_and(|packets| packets > sent / 2)
        });
        lab.await_ping("10.2.0.2");
        router.end();
    }
}

#[test]
fn what_cannot_be_done_is_reported_with_its_remedy() {
    let Some(lab) = Lab::new("refusals") else { return };
    let refuses = |code: i32, options: &[&str], says: &str| {
        let output = lab.try_router(options);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(says), "{options:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    };
    refuses(2, &["--dev", "eth7", "--up", "9Mbps"], "there is no interface `eth7`; there are cr, sr");
    refuses(2, &["--dev", "sr", "--up", "9Mbps", "--law", "fqcodel"], "did you mean `fq-codel`?");
    refuses(2, &["--dev", "sr", "--up", "9"], "9");
    refuses(2, &["--dev", "sr"], "--up");
    let router = lab.router(&["--dev", "sr", "--up", "10Mbps"]);
    refuses(2, &["--dev", "sr", "--up", "9Mbps"], "another router runs at `sr`");
    router.end();
    let output = lab.try_router(&["--dev", "sr", "--up", "9Mbps", "--dry-run"]);
    assert!(text(&output.stdout).contains("out of sr: 9 Mbps fq-codel\ninto sr: packets pass"), "{output:?}");
    let mut command = lab.command("r", &["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    command.args(["--reuid=12345", "--clear-groups", env!("CARGO_BIN_EXE_tollway"), "router", "--dev", "sr"]);
    let output = command.args(["--up", "9Mbps", "--socket", "/tmp/none/x.sock"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && (said.contains("root") || said.contains("denied")), "{said}");
}

const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/router/fuzz.py");

/// Upper bound of [`flood`] through a link of 10 Mb/s whose queue holds a second.
const QUEUED: f64 = 20e6;
