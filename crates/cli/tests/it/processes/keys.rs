//! Nodes with keys.

use super::*;

/// Key files of the three nodes, made by `tollway keys`.
fn keys(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keys-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let made = make(&folder);
    assert!(made.status.success(), "{}", text(&made.stderr));
    folder
}

fn make(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
    command.args(["keys", "a", "r", "b", "--out"]).arg(folder).output().unwrap()
}

fn start(nodes: &Nodes, node: &str, folder: &Path) -> Process {
    nodes.start_with(node, &["--key", folder.join(format!("{node}.key")).to_str().unwrap()])
}

fn live(output: &Output) -> Value {
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    told["runs"][0]["live"].clone()
}

/// A transfer over three nodes with keys arrives whole, beside datagrams from another address,
/// and over a router that is killed and restarted.
#[test]
fn a_transfer_is_sealed_from_node_to_node() {
    let folder = keys("sealed");
    let Some(nodes) = Nodes::new("sealed") else { return };
    let (b, mut r) = (start(&nodes, "b", &folder), start(&nodes, "r", &folder));
    let a = start(&nodes, "a", &folder);
    let at_b = nodes.at[2].strip_prefix("b=").unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for kind in [0xa5, 0xc0, 0xc1, 0xc2, 0xc3] {
        stranger.send_to(&[kind; 130], at_b).unwrap();
    }
    pause(1500);
    r.kill();
    let r = start(&nodes, "r", &folder);
    let (a, b) = (a.output(), b.output());
    assert!(a.status.success() && b.status.success(), "{}{}", text(&a.stderr), text(&b.stderr));
    assert_eq!(delivered(&b), BYTES);
    assert_eq!(live(&b)["datagrams_from_strangers"], 5);
    Nodes::interrupt(&r);
    assert!(live(&r.output())["datagrams_sent"].as_u64() > Some(1000));
}

/// A node with the file of another mesh, and one without a file: the flow ends without an answer,
/// and its neighbours report the reason.
#[test]
fn keys_that_do_not_fit_are_named() {
    let (folder, other) = (keys("fit"), keys("other"));
    let Some(nodes) = Nodes::new("fit").map(Nodes::impatient) else { return };
    let r = start(&nodes, "r", &folder);
    let a = start(&nodes, "a", &other).output();
    let told = text(&a.stderr);
    let fits = "node `r` answers, but its key does not match that of node `a`: give all nodes files of the same call of `tollway keys`";
    assert!(a.status.code() == Some(1) && told.contains(fits), "{told}");
    let plain = nodes.start("a").output();
    assert_eq!(plain.status.code(), Some(1));
    Nodes::interrupt(&r);
    let told = text(&r.output().stderr);
    let plain =
        "node `a` sends without keys, and node `r` accepts only encrypted datagrams: start both with `--key`";
    assert!(told.contains(plain), "{told}");
}

#[test]
fn key_files_are_private_and_never_written_over() {
    use std::os::unix::fs::PermissionsExt;
    let folder = keys("private");
    let again = make(&folder);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("already exists"), "{}", text(&again.stderr));
    let file = folder.join("scenario.toml");
    std::fs::write(&file, THREE).unwrap();
    let run = |key: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
        command.arg("run").arg(&file).args(["--engine", "live", "--node", "a", "--ports", "7000"]);
        // With good keys, this option would end the run.
        let output =
            command.arg("--key").arg(folder.join(key)).args(more).args(["--patience", "x"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(run("r.key", &[]).contains("is the key of node `r`, not of `a`"));
    assert!(run("none.key", &[]).contains("cannot read the key file"));
    let said = run("a.key", &["--at", "b=192.0.2.1:7000"]);
    assert!(said.contains("--patience 10s") && !said.contains("WARNING"), "{said}");
    std::fs::set_permissions(folder.join("a.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(run("a.key", &[]).contains("other users can read the key file"));
}
