//! `--localhost`: connections of a program to its own loopback interface, which cross the links.

use super::*;

#[test]
fn connections_to_localhost_cross_the_links() {
    if !namespaces() {
        return;
    }
    let port = serve(Ipv4Addr::LOCALHOST).to_string();
    // At the program's node, the port may be another.
    let other = format!("8000=server:{port}");
    let network = ["--link", "50Mbps 20ms", "--publish", &port, "--localhost", &port, "--localhost", &other];
    let mut addresses = vec![(format!("localhost:{port}"), 0), ("127.0.0.1:8000".to_owned(), 1)];
    addresses.extend(ipv6::has_ipv6().then(|| ("[::1]:8000".to_owned(), 1)));
    for (at, door) in addresses {
        let ran = exec("localhost", &network, &format!("download {at} 100000"));
        assert_eq!(ran.said["bytes"], 1e5);
        let listened = &ran.report["listened"][door];
        let address = ["localhost:8000", &format!("localhost:{port}")][usize::from(door == 0)].to_owned();
        assert_eq!((&listened["address"], &listened["connections"]), (&address.into(), &1.into()), "{at}");
        let flows = ran.report["flows"].as_array().unwrap();
        let answer = flows.iter().find(|flow| flow["source_port"].as_u64() == port.parse().ok()).unwrap();
        assert!(answer["payload_bytes"].as_u64().unwrap() >= 100_000, "{answer:#}");
        assert!(answer["delay_min_ms"].as_f64().unwrap() >= 20.0, "{answer:#}");
        assert_eq!(ran.report["refused_at_localhost"], serde_json::json!([]));
    }
}

#[test]
fn refusals_of_the_program_s_own_node_are_reported_with_the_remedy() {
    if !namespaces() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let said = |at: &str| {
        let exec = ["exec", "--link", "10Mbps 1ms", "--publish", "none", "--", me.to_str().unwrap()];
        let mut command = tollway(&exec);
        command.args(["--exact", "exec::role"]).env("EXEC_ROLE", format!("download {at} 1"));
        unwrapped(&text(&command.output().unwrap().stderr))
    };
    let refused = "The program's own node, its `localhost`, refused connections at port 8123: the other end \
                   is `server`, and `--localhost 8123` leads there.";
    let own = said("localhost:8123");
    assert!(own.contains(refused), "{own}");
    let other = said("server:8123");
    assert!(!other.contains("localhost"), "{other}");
}

#[test]
fn a_port_in_use_at_the_program_s_node_is_named() {
    if !namespaces() {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let server = format!("EXEC_ROLE='listen 8000 none' exec {} --exact exec::role", me.display());
    let at_program = format!("program={server}");
    let exec = ["exec", "--link", "10Mbps", "-q", "--localhost", "8000", "--serve", &at_program];
    let output = tollway(&[&exec[..], &["--", "echo", "started"]].concat()).output().unwrap();
    let said = unwrapped(&text(&output.stderr));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{said}");
    let by = format!("already in use at `program`: 8000 by `{server}`");
    assert!(said.contains("`--localhost 8000`") && said.contains(&by), "{said}");
}
