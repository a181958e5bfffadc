//! Tenants at a router: their rates, and what one of them costs the others.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Lab;
use super::network::await_it;
use crate::common;

/// The rates of the tenants, Mb/s.
const RATES: [f64; 4] = [4.0, 8.0, 12.0, 16.0];

#[test]
fn four_tenants_have_their_shares_of_tcp_udp_and_quic_up_and_down() {
    let _alone = common::alone();
    common::measured(|| {
        let Some(lab) = Lab::new("tenants") else { return };
        let Some(quic) = quic_client() else { return };
        let Some(ends) = Ends::count(&lab) else { return };
        let config = |borrow: bool| {
            let mut text = "device = \"sr\"\nup = \"42 Mbps\"\ndown = \"42 Mbps\"\n".to_owned();
            text += &format!("version = \"{borrow}\"\n");
            for (i, rate) in RATES.iter().enumerate() {
                text += &format!(
                    "[aggregate.t{i}]\nfrom = \"10.1.0.1{i}\"\nrate = \"{rate} Mbps\"\nborrow = {borrow}\n"
                );
            }
            text
        };
        let file = lab.file("router.toml", &config(false));
        let router = lab.router(&["--config", &file]);
        let tcp = |tenant: usize, how: &[&str]| {
            ["", "-R"].map(|way| {
                let port = format!("53{}{tenant}", way.len());
                let (server, from) = (lab.server(&port), format!("10.1.0.1{tenant}"));
                let words = ["iperf3", "-c", "10.2.0.2", "-B", &from, "-p", &port, "-t", "60"];
                let mut client = lab.command("c", &[&words, how].concat());
                client.args((!way.is_empty()).then_some(way)).stdout(Stdio::null()).stderr(Stdio::null());
                [Program(server), Program(client.spawn().expect("iperf3"))]
            })
        };
        let quic = |tenant: usize| {
            let (inside, outside) = (format!("10.1.0.1{tenant}:5390"), "10.2.0.2:0".to_owned());
            let back = ("s", outside, "c", inside.clone());
            [("c", inside.replace("5390", "0"), "s", format!("10.2.0.2:539{tenant}")), back].map(
                |(side, from, there, to)| {
                    let file = lab.file(&format!("{tenant}{there}.der"), "");
                    std::fs::remove_file(&file).unwrap();
                    let receiver =
                        lab.command(there, &[&quic, "receive", &to, &file]).spawn().expect("quic-client");
                    await_it("a QUIC receiver", || std::path::Path::new(&file).exists());
                    let sender =
                        lab.command(side, &[&quic, "send", &from, &to, &file]).spawn().expect("quic-client");
                    [Program(receiver), Program(sender)]
                },
            )
        };
        // The first tenant is idle at first. The last one has both.
        let _running = (tcp(1, &["-P", "2"]), quic(2), tcp(3, &[]), quic(3));
        let parts = |rates: [[f64; 4]; 2], of: [f64; 4], what: &str| {
            for (way, rates) in ["up", "down"].iter().zip(rates) {
                for (tenant, (rate, of)) in rates.iter().zip(of).enumerate() {
                    eprintln!("{what}, {way}, tenant {tenant}: {rate:.3} of {of:.3} Mb/s");
                    assert!(
                        (rate - of).abs() <= 0.03 * of + 0.01,
                        "{what}, {way}, tenant {tenant}: {rate} of {of}"
                    );
                }
            }
        };
        let busy = [0.0, RATES[1], RATES[2], RATES[3]];
        let quiet = ends.rates(6.0);
        parts(quiet, busy, "one idle");
        let flood = tcp(0, &["-u", "-b", "60M", "-l", "1400"]);
        let beside = ends.rates(6.0);
        parts(beside, RATES, "one floods");
        for (quiet, beside) in quiet.iter().flatten().zip(beside.iter().flatten()) {
            assert!(*beside > 0.97 * quiet, "a flood costs: {beside} after {quiet}");
        }
        let status = router.status(&lab);
        assert_eq!(status["tenants"].as_array().unwrap().len(), 8, "{status}");
        assert!(status["tenants"][0]["dropped"].as_u64().unwrap() > 10_000, "{status}");
        assert!(router.text(&lab).contains("t3"), "{}", router.text(&lab));
        drop(flood);
        lab.file("router.toml", &config(true));
        await_it("the new version, without the flood", || {
            let status = router.status(&lab);
            let queued = |i: usize| status["tenants"][i]["queued"].as_u64().unwrap();
            status["version"] == "true" && queued(0) + queued(4) == 0
        });
        parts(ends.rates(6.0), busy.map(|rate| rate * 40.0 / 36.0), "one lends");
        router.end();
    });
}

/// A program that is killed in the end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Counters of the firewall at both ends, by tenant.
struct Ends<'a> {
    lab: &'a Lab,
}

impl Ends<'_> {
    /// Counts what arrives of four tenants; `None` without nftables.
    fn count(lab: &Lab) -> Option<Ends<'_>> {
        for (side, end) in [("s", "saddr"), ("c", "daddr")] {
            let mut rules = "table ip t {\n".to_owned();
            let mut chain = "chain i { type filter hook input priority 0;\n".to_owned();
            for i in 0..RATES.len() {
                rules += &format!("counter t{i} {{ }}\n");
                chain += &format!("ip {end} 10.1.0.1{i} counter name t{i};\n");
            }
            let file = lab.file(&format!("{side}.nft"), &format!("{rules}{chain}}}\n}}\n"));
            if !lab.command(side, &["nft", "-f", &file]).status().is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED: no nftables: `apt-get install nftables`");
                return None;
            }
        }
        for i in 0..RATES.len() {
            lab.ip("c", &format!("addr add 10.1.0.1{i}/24 dev c0"));
        }
        Some(Ends { lab })
    }

    /// Mb/s of IP packets up and down in `seconds`, after two to begin with.
    fn rates(&self, seconds: f64) -> [[f64; 4]; 2] {
        std::thread::sleep(Duration::from_secs(2));
        let (before, began) = (self.bytes(), Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (after, span) = (self.bytes(), began.elapsed().as_secs_f64());
        [0, 1].map(|way| [0, 1, 2, 3].map(|i| (after[way][i] - before[way][i]) * 8e-6 / span))
    }

    fn bytes(&self) -> [[f64; 4]; 2] {
        ["s", "c"].map(|side| {
            let said = self.lab.says(side, &["nft", "-j", "list", "counters"]);
            let said: Value = serde_json::from_str(&said).expect("JSON");
            let counters = said["nftables"].as_array().unwrap().iter().map(|entry| &entry["counter"]);
            let mut bytes = [0.0; 4];
            for counter in counters.filter(|counter| counter.is_object()) {
                let place: usize = counter["name"].as_str().unwrap()[1..].parse().unwrap();
                bytes[place] = counter["bytes"].as_f64().unwrap();
            }
            bytes
        })
    }
}

/// The program of `clients/quic`. Only its dependencies may be missing; with them it must build.
fn quic_client() -> Option<String> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/quic/Cargo.toml");
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/quic");
    let cargo = |words: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(words).args(["-q", "--locked", "--manifest-path", manifest]).output().expect("cargo")
    };
    if ![&["fetch", "--offline"][..], &["fetch"]].iter().any(|words| cargo(words).status.success()) {
        eprintln!("SKIPPED: no QUIC: its packages are not here, and no registry answers");
        return None;
    }
    let built = cargo(&["build", "--offline", "--target-dir", target]);
    assert!(built.status.success(), "{}", common::text(&built.stderr));
    Some(format!("{target}/debug/quic-client"))
}

#[test]
fn marks_and_interfaces_of_arrival_name_tenants() {
    let _alone = common::alone();
    common::measured(|| {
        let Some(lab) = Lab::new("marks") else { return };
        let rules = "table inet t { chain f { type filter hook forward priority 0; tcp dport 5291 meta mark set 0x17; }\n}\n";
        let rules = lab.file("marks.nft", rules);
        if !lab.command("r", &["nft", "-f", &rules]).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no nftables: `apt-get install nftables`");
            return;
        }
        let text = "device = \"sr\"\nup = \"40 Mbps\"\n\
        [aggregate.marked]\nmark = \"0x10/0xf0\"\nrate = \"5 Mbps\"\ndirection = \"up\"\n\
        [aggregate.inside]\ninterface = \"cr\"\nrate = \"10 Mbps\"\ndirection = \"up\"\n\
        [aggregate.none]\nmark = 9\ninterface = \"cr\"\nrate = \"1 Mbps\"\ndirection = \"up\"\n";
        let file = lab.file("router.toml", text);
        let router = lab.router(&["--config", &file]);
        for (port, mbps) in [("5291", 5.0), ("5292", 10.0)] {
            let rate = lab.iperf3(port, &["-t", "6", "-O", "1"]) * 1500.0 / 1448.0 * 1e-6;
            assert!((0.93 * mbps..1.03 * mbps).contains(&rate), "{port}: {rate}");
        }
        let status = router.status(&lab);
        assert_eq!(status["tenants"][2]["bytes"], 0, "{status}");
        router.end();
    });
}

#[test]
fn a_flooding_peer_of_a_hub_leaves_the_others_their_shares() {
    let _alone = common::alone();
    common::measured(|| {
        let Some(lab) = Lab::new("hub") else { return };
        // An interface without Ethernet.
        let hub = lab.command("r", &["python3", HUB, "hub", "hub0", "3"]).stdout(Stdio::piped()).spawn();
        let mut hub = hub.expect("python3");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(hub.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        lab.ip("r", "addr add 10.3.0.254/24 dev hub0");
        lab.ip("r", "link set hub0 up");
        let text = "device = \"hub0\"\nup = \"30 Mbps\"\n\
        [aggregate.peers]\nrate = \"20 Mbps\"\nto = \"10.3.0.0/24\"\nhosts = \"to\"\n";
        let file = lab.file("router.toml", text);
        let router = lab.router(&["--config", &file]);
        let rates: Vec<String> = (0..20).map(|i| if i == 7 { "40" } else { "1.1" }.to_owned()).collect();
        let words: Vec<&str> =
            ["python3", HUB, "send", "5"].into_iter().chain(rates.iter().map(String::as_str)).collect();
        lab.says("c", &words);
        let counts: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).expect("JSON");
        let _ = hub.wait();
        for i in 1..=20 {
            let mbps = counts[format!("10.3.0.{i}")].as_f64().unwrap_or(0.0) * 8e-6 / 3.0;
            assert!((0.95..1.05).contains(&mbps), "peer {i}: {mbps}: {counts}");
        }
        router.end();
    });
}

const HUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/router/hub.py");
