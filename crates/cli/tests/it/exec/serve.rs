//! `--serve`: servers of a run, from their start to their end.

use super::*;

#[test]
fn servers_run_at_their_nodes_and_end_with_the_run() {
    if !namespaces() {
        return;
    }
    let dir = folder("serve");
    let pid = dir.join("pid");
    let server = format!("echo $$ > {}; sleep 600", pid.display());
    let output =
        tollway(&["exec", "--link", "10Mbps 1ms", "-q", "--serve", &server, "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the server is gone");
}

#[test]
fn a_server_that_fails_before_the_program_ends_the_run() {
    if !namespaces() {
        return;
    }
    let said = |server: &str| {
        let program = ["--", "echo", "started"];
        let exec = [&["exec", "--link", "10Mbps 1ms", "-q", "--serve", server], &program[..]].concat();
        let output = tollway(&exec).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, program, failed) = said("echo no such file; exit 3");
    assert_eq!((status, program.as_str()), (Some(125), ""));
    let error = "at `server` ended with exit status 3 before the program was started";
    let failed = unwrapped(&failed);
    assert!(failed.starts_with("[server] no such file ") && failed.contains(error), "{failed}");
    assert!(
        unwrapped(&said("kill -KILL $$").2).contains("at `server` was ended by signal 9 before the program")
    );
    // A server that goes into the background ends like this.
    assert_eq!(said("true"), (Some(0), "started\n".into(), String::new()));
}

#[test]
fn a_server_that_fails_while_the_program_runs_is_reported() {
    if !namespaces() {
        return;
    }
    let dir = folder("fails");
    let (me, go) = (std::env::current_exe().unwrap(), dir.join("go"));
    let server = format!("EXEC_ROLE='listen 8000 {}' exec {} --exact exec::role", go.display(), me.display());
    let program = format!("touch {}; while ! test -e {0}.done; do sleep 0.01; done; sleep 0.3", go.display());
    let exec = ["exec", "--link", "10Mbps 1ms", "-q", "--serve", &server, "--", "sh", "-c", &program];
    let output = tollway(&exec).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("at `server` ended with exit status 3, before the program ended"), "{said}");
}

#[test]
fn what_servers_print_is_marked_as_theirs() {
    if !namespaces() {
        return;
    }
    let servers = ["--serve", "echo one; echo two >&2", "--serve", "printf three"];
    let exec = [&["exec", "--link", "10Mbps 1ms", "-q"], &servers[..], &["--", "echo", "mine"]].concat();
    let output = tollway(&exec).output().unwrap();
    assert_eq!(text(&output.stdout), "mine\n");
    assert_eq!(text(&output.stderr), "[server 1] one\n[server 1] two\n[server 2] three\n");
}

#[test]
fn a_port_in_use_is_named_with_its_user() {
    if !namespaces() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let server = format!("EXEC_ROLE='listen 8000 none' exec {} --exact exec::role", me.display());
    let run = |more: [&str; 2]| {
        let network = ["exec", "--link", "10Mbps 1ms", "-q", "--serve", &server];
        let output = tollway(&[&network[..], &more, &["--", "echo", "started"]].concat()).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0));
        unwrapped(&text(&output.stderr))
    };
    let by = format!(
        "needs a port that is already in use at `server`: 8000 by `{server}`; give one of them another port"
    );
    let said = run(["--serve", &server]);
    assert!(said.contains(&by) && !said.contains("panicked"), "{said}");
    let said = run(["--publish", "8000"]);
    assert!(said.contains("`--publish 8000`") && said.contains(&by), "{said}");
}
