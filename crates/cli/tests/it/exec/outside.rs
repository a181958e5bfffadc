//! The way to the outside. In these tests the outside is a network of namespaces, in which a host
//! has an address, a web server and a resolver, and runs `tollway exec --outside`. No packet leaves
//! this machine.

use std::io::Write;
use std::net::Ipv6Addr;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use super::*;

/// The addresses of the outside.
const WORLD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const WORLD_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The path of an installed program.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[test]
fn the_world_is_reached_by_whichever_helper_there_is() {
    if !namespaces() {
        return;
    }
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    for helper in ["passt", "slirp4netns"] {
        let dir = folder(&format!("outside-{helper}"));
        let (Some(found), Some(_), Some(_)) = (find(helper), find("unshare"), find("ip")) else {
            eprintln!("SKIPPED: {helper}, unshare or ip is not installed");
            continue;
        };
        // The only program on the path of `tollway`.
        fs::create_dir(dir.join("bin")).unwrap();
        symlink(found, dir.join("bin").join(helper)).unwrap();
        fs::write(dir.join("resolv.conf"), format!("nameserver {WORLD}\n")).unwrap();
        let world = format!(
            "ip link set lo up && ip link add world type veth peer name peer && ip addr add {WORLD}/24 dev world && \
             ip link set world up && ip link set peer up && ip route add default via 198.51.100.254 dev world && \
             (ip addr add {WORLD_V6}/64 dev world nodad; ip route add default via 2001:db8::fe dev world; true) && \
             mount --bind {}/resolv.conf /etc/resolv.conf && touch {0}/ready && exec \"$@\"",
            dir.display()
        );
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(if root { &["-nm"][..] } else { &["-rnm"] }).args(["sh", "-c", &world, "sh"]).arg(me);
        command
            .args(["--exact", "exec::role", "--nocapture"])
            .env("EXEC_ROLE", "outside")
            .env("EXEC_BIN", &dir);
        let output = command.env("EXEC_SAYS", dir.join("said")).output().unwrap();
        if !dir.join("ready").exists() {
            eprintln!("SKIPPED: no world can be made here: {}", text(&output.stderr));
            return;
        }
        assert!(output.status.success(), "{helper}: {}", text(&output.stderr));
        let report: Value =
            serde_json::from_str(&fs::read_to_string(dir.join("said")).unwrap()).expect("a report");
        assert_eq!(report["outside"], "server");
        let flows = report["flows"].as_array().unwrap();
        let download =
            flows.iter().find(|flow| flow["source"] == WORLD.to_string() && flow["protocol"] == "tcp");
        let download = download.unwrap_or_else(|| panic!("{report:#}"));
        assert!(download["payload_bytes"].as_u64().unwrap() >= 1_000_000, "{download:#}");
        assert!(download["delay_min_ms"].as_f64().unwrap() >= 10.0, "it came over the link");
        if helper != "passt" || !ipv6::has_ipv6() {
            continue;
        }
        let answer = flows.iter().find(|flow| flow["source"] == WORLD_V6.to_string());
        let answer = answer.unwrap_or_else(|| panic!("{report:#}"));
        assert!(answer["payload_bytes"].as_u64().unwrap() >= 1_000_000, "{answer:#}");
        assert!(answer["delay_min_ms"].as_f64().unwrap() >= 10.0, "{answer:#}");
    }
}

/// The host in the outside network: starts servers, and runs a program inside an emulated network.
pub(super) fn host() -> String {
    let dir = PathBuf::from(std::env::var_os("EXEC_BIN").unwrap());
    let v6 = dir.join("bin/passt").exists() && Path::new("/proc/net/if_inet6").exists();
    let (port, port_v6) = (serve(WORLD), if v6 { serve(WORLD_V6) } else { 0 });
    serve_names(WORLD, 53);
    let me = std::env::current_exe().unwrap();
    let mut command = tollway(&["exec", "--link", "20Mbps 10ms", "--outside", "--json", "--"]);
    command.arg(me).args(["--exact", "exec::role", "--nocapture"]).env("PATH", dir.join("bin"));
    command.env("EXEC_ROLE", format!("abroad {port} {port_v6}")).env("EXEC_SAYS", dir.join("abroad"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), text(&output.stdout));
    text(&output.stdout)
}

/// The program in the network: finds an outside server by its name, and another by its address
/// unless `port_v6` is 0.
pub(super) fn abroad(port: u16, port_v6: u16) -> String {
    if port_v6 > 0 {
        programs::download(&format!("[{WORLD_V6}]:{port_v6}"), 1_000_000);
    }
    programs::download(&format!("far.example:{port}"), 1_000_000)
}

#[test]
fn the_world_is_behind_a_node() {
    if !namespaces() {
        return;
    }
    let help = |arguments: &[&str]| -> String {
        let output = tollway(&[&["exec"], arguments, &["--", "true"]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(help(&["--link", "1Mbps", "--outside=program"]).contains("names the program's node"));
    assert!(help(&["--link", "1Mbps", "--outside=nowhere"]).contains("there is no node `nowhere`"));
    // Without a helper, the message says what to install.
    let output = tollway(&["exec", "--link", "1Mbps", "--outside", "--", "/bin/true"])
        .env("PATH", "/nonexistent")
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("install one of them"), "{}", text(&output.stderr));
}

#[test]
fn a_helper_that_ends_on_the_way_is_told_of() {
    let outside = |script: &str| {
        tollway(&["exec", "-q", "--link", "10Mbps", "--outside", "--", "sh", "-c", script]).output()
    };
    if find("pgrep").is_none() || !outside("true").is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no `--outside` or no pgrep here");
        return;
    }
    let told = |script: &str| text(&outside(script).unwrap().stderr).contains("helper of `--outside` ended");
    assert!(told("kill -9 $(pgrep -P $PPID 'passt|slirp4netns'); sleep 0.2"));
    assert!(!told("true"));
}

#[test]
fn the_terminal_s_interrupt_leaves_the_helper_to_a_program_that_goes_on() {
    let dir = folder("outside-terminal");
    // A helper that received the interrupt with the program would have time to end.
    let script = format!(
        "trap 'pressed=1' INT; touch {0}/ready; while [ -z $pressed ]; do sleep 0.05; done; sleep 0.2; touch {0}/on",
        dir.display()
    );
    fs::write(dir.join("script"), script).unwrap();
    let me = env!("CARGO_BIN_EXE_tollway");
    let exec = format!("{me} exec --link 10Mbps --outside -- sh {}/script", dir.display());
    let mut command = Command::new("script");
    command.args(["-qec", &exec, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let able = tollway(&["exec", "-q", "--link", "10Mbps", "--outside", "--", "true"]).output();
    let (true, Ok(mut child)) = (able.is_ok_and(|output| output.status.success()), command.spawn()) else {
        eprintln!("SKIPPED: no `--outside` or `script` here");
        return;
    };
    while !dir.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    let ended = said.contains("helper of `--outside` ended");
    assert!(dir.join("on").exists() && !ended, "{}\n{said}", output.status);
}
