//! `exec --tcp`: unmodified programs whose connections speak the link's law in the kernel's TCP.

use super::*;

/// Runs a shell command over a network with its connections under a law. Returns the report;
/// `None` if this machine can't.
fn under(law: &str, network: &[&str], program: &str) -> Option<Value> {
    let arguments = [&["exec", "--json", "--tcp", law], network, &["--", "sh", "-c", program]].concat();
    let output = tollway(&arguments).output().unwrap();
    let said = unwrapped(&text(&output.stderr));
    if said.contains("no right to load programs") || said.contains("has no /sys/kernel/btf") {
        eprintln!("SKIPPED: {said}");
        return None;
    }
    assert!(output.status.success(), "{program}: {said}\n{}", text(&output.stdout));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Asserts that connections of the report were under the law until their end, and lost nothing.
fn kept(name: &str, report: &Value) {
    let tcp = &report["tcp"];
    assert!(tcp["opened"].as_u64().unwrap() >= 2, "{name}: {tcp}");
    for cause in ["peer", "path", "queue", "agent", "program"] {
        assert_eq!(tcp["fallen"][cause], 0, "{name}: {tcp}");
    }
    assert_eq!(tcp["forged"], 0, "{name}: {tcp}");
    for link in report["links"].as_array().unwrap() {
        assert_eq!(link["drops"]["queue_full"], 0, "{name}: {link:#}");
    }
}

#[test]
fn unmodified_programs_speak_each_law_in_the_kernel() {
    let dir = folder("kernel-tcp");
    fs::write(dir.join("file"), vec![7; 2_000_000]).unwrap();
    fs::write(dir.join("main.go"), GO).unwrap();
    let at = dir.display();
    // The first word is the program looked for.
    let cases = [
        ("curl", format!("python3 -m http.server 8000 --directory {at}"), GET.replace("PORT", "8000/file")),
        (
            "redis-benchmark",
            "redis-server --port 6399 --save '' --appendonly no --protected-mode no".into(),
            "until redis-cli -h server -p 6399 ping; do sleep 0.1; done; \
             redis-benchmark -h server -p 6399 -n 2000 -c 10 -q -t get,set"
                .into(),
        ),
        ("iperf3", "iperf3 -s".into(), "until iperf3 -c server -R -n 2M; do sleep 0.2; done".into()),
        (
            "node",
            "node -e 'require(\"http\").createServer((q,s)=>s.end(Buffer.alloc(2000000))).listen(8001)'"
                .into(),
            GET.replace("PORT", "8001/"),
        ),
        ("go", format!("{at}/server"), GET.replace("PORT", "8002/")),
        ("nginx", format!("nginx -p {at} -c {at}/nginx.conf"), GET.replace("PORT", "8003/file")),
    ];
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr; events {{}} \
         http {{ access_log off; server {{ listen 8003; root {at}; }} }}"
    );
    fs::write(dir.join("nginx.conf"), conf).unwrap();
    for (program, serve, command) in cases {
        let version = if matches!(program, "go") { "version" } else { "--version" };
        if Command::new(program).arg(version).output().is_err() {
            eprintln!("SKIPPED: {program} is not installed");
            continue;
        }
        if program == "go" {
            let mut build = Command::new("go");
            build.args(["build", "-o", "server", "main.go"]).current_dir(&dir).env("GO111MODULE", "off");
            let built = build.output().unwrap();
            assert!(built.status.success(), "{}", text(&built.stderr));
        }
        for law in ["xcp", "fcp"] {
            let link = format!("20Mbps 10ms {law} limit=200packets");
            let network = ["--link", &link, "--timeout", "60s", "--serve", &serve];
            let Some(report) = under(law, &network, &command) else { return };
            kept(&format!("{program} {law}"), &report);
        }
    }
}

#[test]
fn a_link_without_the_law_leaves_the_kernel_s_own() {
    if !programs::installed("iperf3") {
        return;
    }
    let program = "until iperf3 -c server -R -t 3 >/dev/null; do sleep 0.2; done";
    let network = ["--link", "20Mbps 10ms", "--serve", "iperf3 -s"];
    let Some(report) = under("xcp", &network, program) else { return };
    let (tcp, down) = (&report["tcp"], &report["links"][0]);
    assert!(tcp["fallen"]["path"].as_u64().unwrap() >= 1, "{tcp}");
    let utilisation = down["utilisation"].as_f64().unwrap();
    assert!(utilisation > 0.6, "stuck at a window: {down:#}");
}

/// With more than two gaps in its data a receiver sends three SACK blocks, which leave no
/// room for an option. That is not the silence of a peer.
#[test]
fn acknowledgements_full_of_sack_blocks_are_no_silence() {
    if !programs::installed("iperf3") {
        return;
    }
    for law in ["xcp", "fcp"] {
        let link = format!("20Mbps 40ms {law} loss=10%");
        let program = "until iperf3 -c server -R -t 4 >/dev/null; do sleep 0.2; done";
        let Some(report) = under(law, &["--link", &link, "--serve", "iperf3 -s"], program) else { return };
        let fallen = &report["tcp"]["fallen"];
        eprintln!("a tenth lost, {law}: {}", report["tcp"]);
        assert_eq!((&fallen["peer"], &fallen["path"]), (&0.into(), &0.into()), "{law}: {}", report["tcp"]);
    }
}

/// A link that speaks XCP rewrites the option, and the queue is at the next one, which does not.
#[test]
fn a_bottleneck_without_the_law_behind_one_with_it_ends_the_law() {
    if !programs::installed("iperf3") {
        return;
    }
    let _alone = common::alone();
    common::measured(|| {
        let dir = folder("kernel-queue");
        let file = dir.join("two.toml");
        let text = "name = \"two\"\nduration = \"1 s\"\nnode = { server = {}, r = {}, program = {} }\n\
        link.a = { from = \"server\", to = \"r\", rate = \"100 Mbps\", delay = \"5 ms\", law = \"xcp\", limit = \"500 packets\" }\n\
        link.b = { from = \"r\", to = \"program\", rate = \"10 Mbps\", delay = \"10 ms\", limit = \"60 packets\" }\n";
        fs::write(&file, text).unwrap();
        let serve = format!("server={IPERF} -s");
        let program = format!("sleep 0.5; {IPERF} -c server -R -t 9 > /dev/null");
        let mut rates = Vec::new();
        for law in [Some("xcp"), None] {
            let out = dir.join(law.unwrap_or("ordinary"));
            let network = [
                file.to_str().unwrap(),
                "--node",
                "program",
                "--out",
                out.to_str().unwrap(),
                "--serve",
                &serve,
            ];
            match law {
                Some(law) => {
                    let Some(report) = under(law, &network, &program) else { return };
                    eprintln!("behind another queue: {}", report["tcp"]);
                    assert!(report["tcp"]["fallen"]["queue"].as_u64().unwrap() >= 1, "{}", report["tcp"]);
                }
                None => {
                    let arguments = [&["exec", "-q"], &network[..], &["--", "sh", "-c", &program]].concat();
                    assert!(tollway(&arguments).output().unwrap().status.success());
                }
            }
            // From 3 s after the start on.
            rates.push(mean(&out, "links.csv", "b", "rate_mbps", (4.0, 9.0)));
        }
        assert!(rates[0] > 0.9 * rates[1], "Mb/s after the fallback, and without: {rates:?}");
    });
}

/// `iperf3` as a real-time program: on a busy machine it would be late with data, and its connection
/// limited by that.
const IPERF: &str = "chrt -f 1 iperf3";

/// The mean of a column over some seconds, from a table of the run: of a link or flow, or of all flows
/// whose name begins with `what`, if that ends with a colon.
fn mean(dir: &Path, table: &str, what: &str, column: &str, (from, to): (f64, f64)) -> f64 {
    let text = fs::read_to_string(dir.join(table)).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let at = header.iter().position(|name| *name == column).unwrap();
    let sum: f64 = lines
        .filter(|row| row[1] == what || (what.ends_with(':') && row[1].starts_with(what)))
        .filter(|row| (from..to).contains(&row[0].parse().unwrap()))
        .map(|row| row[at].parse::<f64>().unwrap())
        .sum();
    // Rows are tenths of a second; an idle flow has no row.
    sum / ((to - from) * 10.0)
}

/// The warm-up is what the simulator needs for the same file: from 9 s on each rate stays within 5 % of its share.
#[test]
fn xcp_in_the_kernel_shares_a_link_whatever_the_round_trips() {
    if !programs::installed("iperf3") {
        return;
    }
    let _alone = common::alone();
    common::measured(|| {
        let dir = folder("kernel-rtts");
        let file = dir.join("rtts.toml");
        let mut text = "name = \"rtts\"\nduration = \"1 s\"\n\
         node = { server = {}, r = {}, p1 = {}, p2 = {}, p3 = {}, p4 = {} }\n\
         link.b = { from = \"server\", to = \"r\", rate = \"50 Mbps\", delay = \"10 ms\", law = \"xcp\", limit = \"1000 packets\" }\n"
        .to_owned();
        // Round trips of 30 to 300 ms.
        for (i, delay) in [5, 40, 90, 140].into_iter().enumerate() {
            let n = i + 1;
            text += &format!(
                "link.l{n} = {{ from = \"r\", to = \"p{n}\", rate = \"1 Gbps\", delay = \"{delay} ms\" }}\n"
            );
        }
        fs::write(&file, text).unwrap();
        let servers: Vec<String> = (1..=4).map(|n| format!("p{n}={IPERF} -s -p 520{n}")).collect();
        let out = dir.join("out");
        let mut network = vec![file.to_str().unwrap(), "--node", "server", "--out", out.to_str().unwrap()];
        network.extend(servers.iter().flat_map(|server| ["--serve", server.as_str()]));
        let program =
            format!("sleep 0.5; for n in 1 2 3 4; do {IPERF} -c p$n -p 520$n -t 19 > /dev/null & done; wait");
        let Some(report) = under("xcp", &network, &program) else { return };
        kept("four flows", &report);
        let steady = (9.0, 18.0);
        let rates: Vec<f64> = (1..=4)
            .map(|n| {
                let data = report["flows"].as_array().unwrap().iter();
                let data =
                    data.filter(|flow| flow["flow"].as_str().unwrap().ends_with(&format!("> p{n}:520{n}")));
                let bytes = |flow: &&Value| flow["delivered_bytes"].as_u64();
                // The other one controls.
                let flow = data.max_by_key(bytes).unwrap()["flow"].as_str().unwrap();
                mean(&out, "flows.csv", flow, "rate_mbps", steady)
            })
            .collect();
        let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
        let jain = sum * sum / (4.0 * squares);
        let queue = mean(&out, "links.csv", "b", "queue_mean_ms", steady);
        eprintln!("four flows: {rates:.2?} Mb/s, Jain {jain:.4}, queue {queue:.2} ms");
        let ran = Ran { said: HashMap::new(), report };
        if ran.punctual("four flows") {
            assert!(jain > 0.99 && sum > 0.95 * 50.0 && queue < 3.0, "{rates:?} {jain} {queue}");
            // The simulator's: 12.6, 12.5, 12.4, 12.4.
            assert!(rates.iter().all(|rate| (rate / 12.5 - 1.0).abs() < 0.05), "{rates:?}");
        }
    });
}

#[test]
fn fifty_connections_of_a_host_buy_the_share_of_one_under_fcp() {
    if !programs::installed("iperf3") {
        return;
    }
    let _alone = common::alone();
    common::measured(|| {
        let dir = folder("kernel-hosts");
        let file = dir.join("hosts.toml");
        let text = "name = \"hosts\"\nduration = \"1 s\"\nnode = { a = {}, b = {}, r = {}, server = {} }\n\
        link.a = { from = \"a\", to = \"r\", rate = \"1 Gbps\", delay = \"5 ms\" }\n\
        link.b = { from = \"b\", to = \"r\", rate = \"1 Gbps\", delay = \"5 ms\" }\n\
        link.x = { from = \"r\", to = \"server\", rate = \"50 Mbps\", delay = \"10 ms\", law = \"fcp\", limit = \"1000 packets\", symmetric = true }\n";
        fs::write(&file, text).unwrap();
        let server = format!("server={IPERF} -s -p 5201 & {IPERF} -s -p 5202");
        // One connection has the link for 2 s; then fifty begin. The first waits for the program,
        // which begins with idle links.
        let go = dir.join("go");
        let one = format!(
            "b=until test -e {go}; do sleep 0.05; done; {IPERF} -c server -p 5202 -t 30",
            go = go.display()
        );
        let out = dir.join("out");
        let network = [
            file.to_str().unwrap(),
            "--node",
            "a",
            "--out",
            out.to_str().unwrap(),
            "--serve",
            &server,
            "--serve",
            &one,
        ];
        let program =
            format!("touch {}; sleep 2; {IPERF} -c server -p 5201 -t 14 -P 50 > /dev/null", go.display());
        let Some(report) = under("fcp", &network, &program) else { return };
        kept("fifty connections beside one", &report);
        let part = |span| {
            let of = |node: &str| mean(&out, "flows.csv", &format!("tcp {node}:"), "rate_mbps", span);
            of("a") / (of("a") + of("b"))
        };
        // `iperf3` opens fifty connections one after the other before they send.
        let flows = fs::read_to_string(out.join("flows.csv")).unwrap();
        let rows = flows.lines().filter_map(|row| row.split_once(",tcp a:"));
        let mut times: Vec<f64> = rows.map(|(time, _)| time.parse().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        let begun = times.windows(50).find(|times| times[0] == times[49]).expect("fifty at once")[0];
        // The simulator has both hosts within 5 % of their shares from 1 s after the fifty start.
        let (converged, steady) = (part((begun + 1.0, begun + 3.0)), part((begun + 3.0, begun + 11.0)));
        // Idle since their handshakes, each begins with the ten packets of a new connection.
        let queue = mean(&out, "links.csv", "x", "queue_mean_ms", (begun, begun + 0.3));
        eprintln!(
            "fifty connections from {begun} s on: {converged:.3} from 1 s later, then {steady:.3}; queue {queue:.1} ms"
        );
        let ran = Ran { said: HashMap::new(), report };
        if ran.punctual("fifty connections beside one") {
            assert!(
                (0.45..0.55).contains(&converged) && (0.45..0.55).contains(&steady),
                "{converged} {steady}"
            );
            assert!(queue < 45.0, "{queue} ms");
        }
    });
}

/// Waits for the server, and compares the size of what it sends.
const GET: &str = "until curl -sf -o /dev/null http://server:PORT; do sleep 0.1; done; \
                   test $(curl -s http://server:PORT | wc -c) = 2000000";
const GO: &str = "package main\n\nimport \"net/http\"\n\nfunc main() {\n\
                  \thttp.HandleFunc(\"/\", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 2000000)) })\n\
                  \tpanic(http.ListenAndServe(\":8002\", nil))\n}\n";
