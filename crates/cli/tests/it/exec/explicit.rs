//! XCP and FCP in the kernel's own TCP, through `tollway router` in an emulated network.
//!
//! ```text
//! a, b, c ─ gateway: tollway router at `wan` ─ node: NAT ─ emulated links ─ h0, h1, h2
//! ```

use super::*;

/// The one-way delays of the emulated links in ms, options of a second router in front of the last
/// host, and the time of a run.
struct Plan {
    delays: [u32; 3],
    second: Option<&'static str>,
    seconds: u32,
}

/// The hosts behind the gateway.
const HOSTS: [&str; 3] = ["a", "b", "c"];

/// Makes the namespaces of the gateway and its hosts in the node `server`.
const SETUP: &str = "set -e\n\
    room() { unshare -n sleep 1000 & pid=$!; until [ \"$(readlink /proc/$pid/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do :; done; }\n\
    at() { where=$1; shift; nsenter -t $where -n -- \"$@\"; }\n\
    room; gate=$pid; all=$gate\n\
    trap 'kill $all $router $loads 2>/dev/null' EXIT\n\
    ip link add lan type veth peer name wan netns $gate\n\
    ip addr add 10.88.0.1/24 dev lan; ip link set lan up; ip route add 10.88.0.0/16 via 10.88.0.2\n\
    at $gate ip addr add 10.88.0.2/24 dev wan; at $gate ip link set wan up; at $gate ip route add default via 10.88.0.1\n\
    echo 1 >/proc/sys/net/ipv4/ip_forward; at $gate sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'\n\
    printf 'table ip n { chain p {\\ntype nat hook postrouting priority 100; oifname tollway masquerade;\\n}\\n}\\n' | nft -f -\n\
    net=0\n\
    for name in a b c; do net=$((net + 1)); room; all=\"$all $pid\"; eval $name=$pid\n\
    at $gate ip link add r$name type veth peer name eth netns $pid\n\
    at $gate ip addr add 10.88.$net.1/24 dev r$name; at $gate ip link set r$name up\n\
    at $pid ip addr add 10.88.$net.2/24 dev eth; at $pid ip link set eth up; at $pid ip route add default via 10.88.$net.1\n\
    done\n";

/// Uploads from each host at once through the gateway with the configuration `router`, after the
/// script `lies`. Returns Mb/s of IP packets of each in the last six tenths of the time, and the
/// router's status; `None` if this machine can't.
fn through(name: &str, law: &str, router: &str, lies: &str, plan: &Plan) -> Option<(Vec<f64>, Value)> {
    if !namespaces() || !programs::installed("iperf3") {
        return None;
    }
    let dir = folder(name);
    let at = dir.display();
    let file = dir.join("star.toml");
    let mut star = "name = \"star\"\nduration = \"40 s\"\n[node.server]\n".to_owned();
    for (host, delay) in plan.delays.iter().enumerate() {
        star += &format!(
            "[node.h{host}]\n[link.h{host}]\nfrom = \"server\"\nto = \"h{host}\"\nrate = \"400 Mbps\"\n\
             delay = \"{delay} ms\"\nlimit = \"8 MiB\"\n"
        );
    }
    fs::write(&file, star).unwrap();
    fs::write(dir.join("router.toml"), format!("device = \"wan\"\nlaw = \"{law}\"\n{router}")).unwrap();
    let tollway = env!("CARGO_BIN_EXE_tollway");
    let program = format!(
        "cd {at}\n{SETUP}{lies}\n\
         nsenter -t $gate -n -- {tollway} router --config router.toml --socket {at}/up.sock 2>log & router=$!\n\
         until [ -S up.sock ]; do kill -0 $router; sleep 0.1; done\n\
         host=0\nfor pid in $a $b $c; do\n\
         [ $pid != $c ] || own=$greed\n\
         (until nsenter -t $pid -n -- {tollway} host --law {law} -q $own -- iperf3 -c $(getent ahostsv4 h$host | sed 's/ .*//;q') -t {} -O {} -J >h$host.json 2>>log; do sleep 0.2; done) &\n\
         loads=\"$loads $!\"; host=$((host + 1)); done\n\
         wait $loads; {tollway} router status --json --socket {at}/up.sock >status.json",
        plan.seconds,
        plan.seconds * 4 / 10,
    );
    fs::write(dir.join("program.sh"), program).unwrap();
    let mut servers = Vec::new();
    for host in 0..HOSTS.len() {
        let second = plan.second.filter(|_| host == HOSTS.len() - 1);
        let second = second.map_or(String::new(), |options| {
            format!("{tollway} router --dev tollway {options} --law {law} --socket {at}/down.sock &\n")
        });
        let script = dir.join(format!("h{host}.sh"));
        fs::write(&script, format!("{second}exec {tollway} host --law {law} -q -- iperf3 -s\n")).unwrap();
        servers.push(format!("h{host}=sh {}", script.display()));
    }
    let mut arguments =
        vec!["exec", "--json", file.to_str().unwrap(), "--node", "server", "--timeout", "120s"];
    servers.iter().for_each(|server| arguments.extend(["--serve", server]));
    let script = dir.join("program.sh").display().to_string();
    arguments.extend(["--", "bash", &script]);
    let output = super::tollway(&arguments).output().unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let said = unwrapped(&(text(&output.stderr) + &read("log")));
    if said.contains("no right to load programs") || said.contains("has no /sys/kernel/btf") {
        eprintln!("SKIPPED: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    // Headers, timestamps and the law's option, for which a segment leaves 12 or 16 bytes.
    let whole = if law == "xcp" { 1500.0 / 1436.0 } else { 1496.0 / 1432.0 };
    let rates = (0..HOSTS.len()).map(|host| {
        let result: Value = serde_json::from_str(&read(&format!("h{host}.json"))).expect("JSON");
        result["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate") * 1e-6 * whole
    });
    Some((rates.collect(), serde_json::from_str(&read("status.json")).expect("JSON")))
}

/// Makes the firewall of `c` change the round trip that its kernel states to 160 ms.
const STATES_LONGER: &str = "printf 'table ip lie { chain o {\\ntype filter hook output priority 0;\\n\
    tcp option @14,32,16 set 160\\n}\\n}\\n' | at $c nft -f -";

/// Makes `c` spend three times its budget.
const OVERSPENDS: &str = "greed='--budget 3'";

#[test]
fn a_host_that_lies_is_held_by_the_router_s_meter() {
    if !programs::installed("nft") {
        return;
    }
    let _measures = common::beside();
    common::measured(|| {
        for (law, lies, offence) in
            [("xcp", STATES_LONGER, "rtt-overstated"), ("fcp", OVERSPENDS, "overspent")]
        {
            let run = |name: &str, keys: &str, lies: &str| {
                let keys = format!("up = \"20 Mbps\"\ndown = \"20 Mbps\"\nordinary = 0.1\n{keys}");
                let (rates, status) = through(&format!("{name}-{law}"), law, &keys, lies, &NEAR)?;
                eprintln!("{law}, {name}: {rates:.2?}, held {}", status["held"]);
                Some((rates, status["held"].clone()))
            };
            let meter = "meter = \"up\"\nbudget = 1\n";
            let Some((honest, accused)) = run("honest", meter, "") else { return };
            let part = |rates: &[f64]| rates[2] / rates.iter().sum::<f64>();
            assert_eq!(accused, serde_json::json!([]), "{law}");
            assert!((part(&honest) - 1.0 / 3.0).abs() < 0.03, "{law}: {honest:?}");
            let Some((free, _)) = run("free", "", lies) else { return };
            let Some((held, found)) = run("held", meter, lies) else { return };
            assert!(part(&free) > 0.4, "the lie does not pay: {free:?}");
            // No more than its share.
            assert!(part(&held) < 0.36, "{held:?} beside {free:?}");
            let found = found.as_array().unwrap();
            assert!(found.iter().any(|one| one["offence"] == offence), "{found:?}");
            for one in found {
                assert!(one["sender"].as_str().unwrap().contains("10.88.3.2"), "{found:?}");
            }
        }
    });
}

const NEAR: Plan = Plan { delays: [20; 3], second: None, seconds: 15 };

/// A gateway of 20 Mb/s, and one of 4 Mb/s in front of the last host.
#[test]
fn hosts_through_two_routers_in_a_row_have_the_rates_of_the_simulation() {
    let plan = Plan { delays: [50, 150, 100], second: Some("--down 4Mbps --up 100Mbps"), seconds: 40 };
    let _measures = common::beside();
    common::measured(|| {
        for law in ["xcp", "fcp"] {
            let keys = "up = \"20 Mbps\"\ndown = \"100 Mbps\"\n";
            let Some((rates, status)) = through(&format!("row-{law}"), law, keys, "", &plan) else { return };
            let mut text =
            "name = \"row\"\nduration = \"40 s\"\n[measure]\nwarmup = \"16 s\"\n[node.gate]\n[node.net]\n[node.door]\n[link.up]\n\
            from = \"gate\"\nto = \"net\"\nrate = \"20 Mbps\"\nlaw = \"LAW\"\n[link.down]\nfrom = \"door\"\n\
            to = \"h2\"\nrate = \"4 Mbps\"\nlaw = \"LAW\"\n"
                .replace("LAW", law);
            for (host, delay) in plan.delays.iter().enumerate() {
                let far = if host == 2 { "door".to_owned() } else { format!("h{host}") };
                text += &format!(
                    "[node.a{host}]\n[node.h{host}]\n[link.a{host}]\nfrom = \"a{host}\"\nto = \"gate\"\n\
                 rate = \"1 Gbps\"\n[link.h{host}]\nfrom = \"net\"\nto = \"{far}\"\nrate = \"400 Mbps\"\n\
                 delay = \"{delay} ms\"\n[flow.f{host}]\nfrom = \"a{host}\"\nto = \"h{host}\"\nlaw = \"{law}\"\n"
                );
            }
            let file = folder(&format!("row-{law}-simulated")).join("row.toml");
            fs::write(&file, text).unwrap();
            let output =
                super::tollway(&["run", file.to_str().unwrap(), "--json", "--quiet"]).output().unwrap();
            assert!(output.status.success(), "{}", super::text(&output.stderr));
            let simulated: Value = serde_json::from_slice(&output.stdout).unwrap();
            let flows = simulated["flows"].as_array().unwrap();
            let simulated: Vec<f64> = flows.iter().map(|flow| flow["rate_mbps"].as_f64().unwrap()).collect();
            eprintln!(
                "{law}: {rates:.2?}, simulated {simulated:.2?}, waits {}",
                status["ways"][0]["wait_ms"]
            );
            for (rate, simulated) in rates.iter().zip(&simulated) {
                assert!((rate / simulated - 1.0).abs() < 0.05, "{law}: {rates:?} beside {simulated}");
            }
        }
    });
}
