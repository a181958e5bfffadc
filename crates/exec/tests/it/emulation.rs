//! Networks for the tests of an application. Programs are shell commands and this executable;
//! figures are counts of the report, not times.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Type};
use tollway_exec::options::Options;
use tollway_exec::{Emulation, EmulationError, LinkChange};

type Done = Result<(), Box<dyn Error>>;

const THREE: &str = r#"
    name = "row"
    duration = "1 s"
    node = { client = {}, router = {}, server = {} }
    link.access = { from = "client", to = "router", rate = "50 Mbps", delay = "5 ms" }
    link.uplink = { from = "router", to = "server", rate = "10 Mbps", delay = "20 ms" }"#;

/// A network; `None` with a message if this system allows none.
fn network(made: Result<Emulation, EmulationError>) -> Option<Emulation> {
    match made {
        Ok(net) => Some(net),
        Err(EmulationError::NotAllowed(why)) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The entry of `list` in a report whose `key` is `name`.
fn entry<'a>(report: &'a Value, list: &str, key: &str, name: &str) -> &'a Value {
    let entries = report[list].as_array().unwrap();
    entries.iter().find(|entry| entry[key] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// A connection from `from` to a listener at `to`, both sockets of this process.
fn connection(
    net: &Emulation,
    from: &str,
    to: &str,
    port: u16,
) -> Result<(TcpStream, TcpStream), Box<dyn Error>> {
    let at: SocketAddr = (net.address(to)?, port).into();
    let listening = net.socket(to, Domain::IPV4, Type::STREAM)?;
    listening.bind(&at.into())?;
    listening.listen(1)?;
    let client = net.socket(from, Domain::IPV4, Type::STREAM)?;
    client.connect(&at.into())?;
    Ok((client.into(), TcpListener::from(listening).accept()?.0))
}

/// Sends `len` bytes from one end to the other.
fn transfer((mut from, mut to): (TcpStream, TcpStream), len: usize) {
    let sender = std::thread::spawn(move || from.write_all(&vec![7; len]).unwrap());
    let mut received = Vec::new();
    to.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert_eq!(received.len(), len);
}

/// Processes with this mark in their environment, zombies excepted.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("TOLLWAY_RUN={mark}\0").into_bytes();
    let is = |folder: &Path| fs::read(folder.join("environ")).is_ok_and(|all| contains(&all, &mark));
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    entries.filter(|folder| is(folder)).map(|folder| folder.display().to_string()).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Waits at most 10 s for a condition.
fn comes(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn three_nodes_take_five_lines() -> Done {
    let Some(net) = network(Emulation::parse(THREE)) else { return Ok(()) };
    let said = net.run("client", Command::new("getent").args(["ahostsv4", "server"]))?;
    assert!(said.stdout.starts_with(b"10.77.0.3 "), "{said:?}");
    assert_eq!((net.nodes().len(), net.address("server")?.to_string()), (3, "10.77.0.3".into()));
    transfer(connection(&net, "client", "server", 7000)?, 1000);
    let report = net.report()?;
    for link in ["access", "access.reverse", "uplink", "uplink.reverse"] {
        assert!(entry(&report, "links", "link", link)["sent_packets"].as_u64() >= Some(1), "{report:#}");
    }
    let flow = &report["flows"][0];
    assert!(flow["flow"].as_str().unwrap().ends_with("> server:7000"), "{flow:#}");
    assert!(flow["delay_min_ms"].as_f64() >= Some(25.0), "{flow:#}");
    assert!(report.get("command").is_none() && report["kept_up"].is_boolean());
    assert!(report["rootless"] == true || std::env::var_os("EMULATION_ORDINARY").is_none());
    Ok(())
}

#[test]
fn a_link_holds_a_transfer_to_its_rate() -> Done {
    let Some(net) = network(Emulation::new("8Mbps 5ms")) else { return Ok(()) };
    let net = &net;
    // Bytes on the wire over the time in which they crossed it, in Mb/s.
    let rate = |flow: &Value| {
        let [bytes, first, last] =
            ["delivered_bytes", "first_s", "last_s"].map(|of| flow[of].as_f64().unwrap());
        bytes * 8e-6 / (last - first)
    };
    transfer(connection(net, "program", "server", 7000)?, 1_500_000);
    let report = net.report()?;
    let held = rate(&report["flows"][0]);
    assert!((7.2..=8.05).contains(&held), "{held} Mb/s: {report:#}");
    let link = entry(&report, "links", "link", "up");
    assert!(link["best_second_mbps"].as_f64() <= Some(8.1), "{link:#}");
    // A change applies to what follows, and the report goes on.
    net.change(&LinkChange { link: "up".into(), rate_mbps: Some(4.0), ..LinkChange::default() })?;
    transfer(connection(net, "program", "server", 7001)?, 1_000_000);
    let later = net.report()?;
    let held = rate(&later["flows"][1]);
    assert!((3.6..=4.03).contains(&held), "{held} Mb/s: {later:#}");
    assert!(later["duration_s"].as_f64() > report["duration_s"].as_f64());
    let refused = |change: LinkChange| net.change(&change).unwrap_err().to_string();
    let unknown = refused(LinkChange { link: "sideways".into(), ..LinkChange::default() });
    assert_eq!(unknown, "there is no link `sideways`; there are down, up");
    let beyond = refused(LinkChange { link: "up".into(), loss: Some(2.0), ..LinkChange::default() });
    assert_eq!(beyond, "`loss` is 2; it must be from 0 to 1");
    Ok(())
}

#[test]
fn networks_of_one_process_are_independent() -> Done {
    let Some(one) = network(Emulation::new("100Mbps 1ms")) else { return Ok(()) };
    let two = Emulation::new("50Mbps 1ms")?;
    // The same ports of the same addresses, at once.
    let (first, second) =
        (connection(&one, "program", "server", 7000)?, connection(&two, "program", "server", 7000)?);
    std::thread::scope(|scope| {
        scope.spawn(|| transfer(first, 100_000));
        scope.spawn(|| transfer(second, 300_000));
    });
    let delivered = |net: &Emulation| net.report().unwrap()["flows"][0]["payload_bytes"].as_u64();
    assert_eq!((delivered(&one), delivered(&two)), (Some(100_000), Some(300_000)));
    drop(one);
    transfer(connection(&two, "server", "program", 7000)?, 1000);
    Ok(())
}

#[test]
fn servers_serve_before_the_report_starts_and_end_with_the_network() -> Done {
    let Some(net) = network(Emulation::new("100Mbps 1ms")) else { return Ok(()) };
    let python = |code: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", code]).stderr(Stdio::null());
        command
    };
    let listen = "import socket as s, time; l = s.create_server(('', 80)); time.sleep(60)";
    net.serve("server", &mut python(listen))?;
    let connect = "import socket as s; s.create_connection(('server', 80))";
    assert!(net.run("program", &mut python(connect))?.status.success());
    let failed = net.serve("server", &mut python("exit(3)")).unwrap_err().to_string();
    assert_eq!(failed, "the server `python3` at `server` ended with exit status: 3 before it served");
    assert!(net.spawn("server", &mut Command::new("nonsense")).is_err());
    let missing = net.serve("hq", &mut python("")).unwrap_err().to_string();
    assert_eq!(missing, "there is no node `hq`; there are program, server");
    let mark = net.mark().to_owned();
    assert_eq!(marked(&mark).len(), 1);
    drop(net);
    assert_eq!(marked(&mark), Vec::<String>::new());
    Ok(())
}

/// Holds a network with programs, and fails. It is no test without its variable.
#[test]
fn fails_with_a_network() {
    let Some(said) = std::env::var_os("EMULATION_SAYS") else { return };
    let net = Emulation::new("10Mbps 1ms").unwrap();
    // One program leaves its process group, and one ignores SIGTERM.
    let line = "setsid sleep 600 & trap '' TERM; sleep 600 & wait";
    let mut program = net.spawn("server", Command::new("sh").args(["-c", line])).unwrap();
    comes("three programs", || marked(net.mark()).len() >= 3);
    fs::write(said, net.mark()).unwrap();
    if std::env::var_os("EMULATION_WAITS").is_none() {
        panic!("a test fails");
    }
    program.wait().unwrap();
}

#[test]
fn a_test_that_panics_or_is_killed_leaves_no_process() -> Done {
    if network(Emulation::new("10Mbps 1ms")).is_none() {
        return Ok(());
    }
    for killed in [false, true] {
        let says = std::env::temp_dir().join(format!("tollway-emulation-{}-{killed}", std::process::id()));
        let mut test = Command::new(std::env::current_exe()?);
        test.args(["--exact", "emulation::fails_with_a_network"]).env("EMULATION_SAYS", &says);
        if killed {
            test.env("EMULATION_WAITS", "1");
        }
        let mut test = test.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        comes("a mark", || fs::read(&says).is_ok_and(|mark| !mark.is_empty()));
        let mark = fs::read_to_string(&says)?;
        fs::remove_file(&says)?;
        let helper = Path::new("/proc").join(mark.split_once('.').unwrap().0);
        if killed {
            test.kill()?;
        }
        assert!(!test.wait()?.success());
        // The helper, and with it its namespaces; a panic has waited for it.
        assert!(killed || !helper.exists(), "the helper lives");
        comes("the helper ends", || !helper.exists());
        assert_eq!(marked(&mark), Vec::<String>::new());
    }
    Ok(())
}

/// The tests above, without the right to administer networks.
#[test]
fn ordinary_users_have_networks() -> Done {
    let ordinary = ["--bounding-set=-net_admin,-sys_admin", "--inh-caps=-net_admin,-sys_admin", "--"];
    let test = std::env::current_exe()?;
    let allowed = Command::new("setpriv").args(ordinary).args(["unshare", "-Ur", "true"]).status();
    if std::env::var_os("EMULATION_ORDINARY").is_some() || !allowed.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no user without rights, or no user namespaces, here");
        return Ok(());
    }
    let mut ordinary_test = Command::new("setpriv");
    ordinary_test.args(ordinary).arg(test).args(["emulation::three", "emulation::servers", "--nocapture"]);
    let output = ordinary_test.env("EMULATION_ORDINARY", "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("2 passed"), "{said}");
    Ok(())
}

#[test]
fn mistakes_in_a_network_are_named() {
    let said = Emulation::new("10Mbsp").unwrap_err();
    assert!(matches!(&said, EmulationError::Request(_)) && said.to_string().contains("`10Mbsp`"), "{said}");
    let said =
        Emulation::parse(&THREE.replace("delay = \"5 ms\"", "dealy = \"5 ms\"")).unwrap_err().to_string();
    assert_eq!(said, "there is no key `dealy` in `[link.access]`");
    let options = Options { link: Some("1Mbps".into()), node: Some("hq".into()), ..Options::default() };
    assert_eq!(Emulation::open(&options).unwrap_err().to_string(), "there is no node `hq`");
}

#[test]
fn the_chapter_shows_a_test_that_runs() {
    assert!(include_str!("../../../../docs/src/embedding.md").contains(include_str!("chapter.rs")));
}
