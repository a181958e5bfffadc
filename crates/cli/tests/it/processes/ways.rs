//! Paths between processes that fail for a while, or have a small MTU.

use super::*;

/// The path fails for half a second in mid-transfer, as when an interface is down. Packets sent
/// meanwhile are lost.
#[test]
fn a_way_that_is_gone_for_a_while_ends_nothing() {
    let before = "ip rule add pref 1 lookup local && ip rule del pref 0";
    let meanwhile = "sleep 1.5; ip rule add pref 0 unreachable; sleep 0.5; ip rule del pref 0";
    let Some([a, b]) = two_in_a_namespace("flap", "", "15s", before, meanwhile) else { return };
    let unsent = a.0["runs"][0]["live"]["datagrams_unsent"].as_u64().unwrap();
    assert!(unsent > 0 && a.1.contains(&format!("refused to send {unsent}")), "{}", a.1);
    assert_eq!(b.0["runs"][0]["live"]["broken"].as_array().unwrap().len(), 0);
}

/// An interface with an MTU below a flow's packets: the sending process reports it and the remedy,
/// and shorter packets pass.
#[test]
fn packets_longer_than_the_way_takes_are_lost_and_told() {
    let short = r#"
        [flow.short]
        from = "a"
        to = "b"
        law = "newreno"
        packet-size = "1000 B"
        size = "100 kB"
        "#;
    let Some([a, b]) = two_in_a_namespace("mtu", short, "6s", "ip link set lo mtu 1300", "") else { return };
    let live = &a.0["runs"][0]["live"];
    let too_long = live["datagrams_too_long"].as_u64().unwrap();
    assert!(too_long > 0 && live["datagrams_unsent"].as_u64() == Some(too_long), "{live}");
    let told = "error: link `wire`: packets from node `a` to node `b` have up to 1500 B, and the path's MTU is 1300 B";
    assert!(a.1.contains(told) && a.1.contains("flow `f`: no progress"), "{}", a.1);
    // Acknowledgements are short.
    assert!(!b.1.contains("the path's MTU is"), "{}", b.1);
    let flows = b.0["flows"].as_array().unwrap();
    let arrived =
        |name: &str| flows.iter().find(|flow| flow["flow"] == name).unwrap()["delivered_bytes"].as_u64();
    assert_eq!((arrived("f"), arrived("short")), (Some(0), Some(100_000)));
}

/// Runs two nodes in a new namespace, with a flow `f` of 2 MB and the scenario text `more`, and
/// shell commands `before` and `meanwhile`. Returns the JSON and the standard error of `a` and of
/// `b`; `None`, with `SKIPPED`, if there are no such namespaces.
fn two_in_a_namespace(
    name: &str,
    more: &str,
    patience: &str,
    before: &str,
    meanwhile: &str,
) -> Option<[(Value, String); 2]> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("processes-{name}"));
    std::fs::create_dir_all(&dir).unwrap();
    let two = r#"
        name = "two"
        duration = "30 s"
        [node.a]
        [node.b]
        [link.wire]
        from = "a"
        to = "b"
        rate = "4 Mbps"
        delay = "5 ms"
        limit = "2 BDP"
        [flow.f]
        from = "a"
        to = "b"
        law = "newreno"
        size = "2 MB"
        "#;
    std::fs::write(dir.join("two.toml"), format!("{two}{more}")).unwrap();
    let script = format!(
        r#"
        ip link set lo up && {before} || exit 77
        for node in a b; do
            "$0" run two.toml --engine live --node $node --ports 7000 --patience {patience} --json > $node.json 2> $node.err &
        done
        {meanwhile}
        wait"#
    );
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", &script, env!("CARGO_BIN_EXE_tollway")]).current_dir(&dir);
    if !command.output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no network of one's own here");
        return None;
    }
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    Some(["a", "b"].map(|node| {
        let (told, err) = (read(&format!("{node}.json")), read(&format!("{node}.err")));
        (serde_json::from_str(&told).unwrap_or_else(|_| panic!("{node}: {err}")), err)
    }))
}
