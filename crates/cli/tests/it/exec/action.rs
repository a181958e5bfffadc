//! The composite action for GitHub: its script, and its inputs from action.yml. Also networks with
//! more than delay and loss.

use super::*;

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// Runs the script in this environment. Returns its exit status and output.
fn act(environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let command = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap().to_owned();
    let paths = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([command].into_iter().chain(std::env::split_paths(&paths))).unwrap();
    let mut script = Command::new("bash");
    script.arg(root().join("share/action/run.sh")).env("PATH", path).envs(environment.iter().copied());
    let output = script.output().expect("bash starts");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn the_action_fails_if_a_program_takes_longer_than_it_may() {
    if !namespaces() {
        return;
    }
    let network = ("LINK", "10Mbps 20ms");
    let (status, said) = act(&[network, ("PROGRAM", "echo in time"), ("LIMIT", "20s")]);
    assert!(status == Some(0) && said.contains("in time"), "{said}");
    let (status, said) = act(&[network, ("PROGRAM", "sleep 60"), ("LIMIT", "1s")]);
    assert_eq!(status, Some(124), "{said}");
    assert!(said.contains("::error title=tollway::the program took longer than 1s"), "{said}");
    let (status, said) = act(&[("PROFILE", "lte"), ("PROGRAM", "exit 7"), ("LIMIT", "20s")]);
    assert!(
        status == Some(7) && said.contains("failed with status 7") && said.contains("MobiSys 2012"),
        "{said}"
    );
    for (environment, missing) in [
        (&[network, ("LIMIT", "1s")][..], "`run`"),
        (&[network, ("PROGRAM", "true")], "`within`"),
        (&[("PROGRAM", "true"), ("LIMIT", "1s")], "`link`, `profile` or `scenario`"),
    ] {
        let (status, said) = act(environment);
        assert!(status == Some(2) && said.contains(missing), "{said}");
    }
}

#[test]
fn the_action_hands_its_inputs_to_the_script() {
    let action = fs::read_to_string(root().join("action.yml")).unwrap();
    let script = fs::read_to_string(root().join("share/action/run.sh")).unwrap();
    assert!(action.contains("run: '\"$GITHUB_ACTION_PATH/share/action/run.sh\"'"));
    let handed: Vec<(&str, &str)> =
        action.lines().filter_map(|line| line.trim().split_once(": ${{ inputs.")).collect();
    assert_eq!(handed.len(), 8, "{handed:?}");
    for (variable, input) in handed {
        let input = input.trim_end_matches(" }}");
        assert!(action.contains(&format!("\n  {input}:\n")), "there is no input {input}");
        assert!(script.contains(&format!("${{{variable}:-")), "the script does not read {variable}");
    }
}

#[test]
fn words_shake_damage_and_double_packets() {
    if !namespaces() || !programs::installed("python3") {
        return;
    }
    let program = "import socket,time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   for i in range(1500):\n    s.sendto(b'x' * 500, ('server', 9))\n    time.sleep(0.0005)\n";
    let words = "20Mbps 5ms jitter=3ms jitter-order=free reorder=2% duplicate=20% corrupt=10% bursts.to-bad=2% bursts.to-good=50%";
    let output = tollway(&[
        "exec",
        "--link",
        "20Mbps 5ms",
        "--link-up",
        words,
        "--json",
        "--publish",
        "none",
        "--",
        "python3",
        "-c",
        program,
    ])
    .output()
    .expect("the command starts");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let up = &report["links"].as_array().unwrap().iter().find(|link| link["link"] == "up").unwrap();
    let count = |value: &Value| value.as_u64().unwrap();
    let (sent, copies) = (count(&up["sent_packets"]), count(&up["copies"]));
    let (damaged, lost) = (count(&up["drops"]["corrupt"]), count(&up["drops"]["loss_on_wire"]));
    assert!(sent >= 1400 && (sent / 8..sent / 3).contains(&copies), "{sent} {copies}");
    assert!(damaged > sent / 20 && lost > sent / 100, "{damaged} {lost}");
}
