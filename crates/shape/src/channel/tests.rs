use super::*;

const POLICIES: &str = r#"
    version = "7"
    tick = "20 ms"
    [link]
    rate = "1 Gbps"
    peak = "1050 Mbps"
    overhead = "18 B"
    [aggregate.web]
    weight = 0.3
    rate = "33.3 Mbps"
    depth = "2 MB"
    user = ["root", 33]
    to = ["192.0.2.1", "10.0.*", "2001:db8::/32"]
    to-port = [443, "8000-8099"]
    cgroup = "/system.slice/*"
    [aggregate.web.class.bulk]
    weight = 0.1
    to = "198.51.100.*"
    container = "db-?"
    [aggregate.rest]
"#;

fn line(policies: &Policies) -> String {
    serde_json::to_string(&Line::Policies(Box::new(PoliciesMessage::new(policies)))).unwrap()
}

#[test]
fn policies_arrive_as_they_were_sent() {
    let policies = Policies::parse("x", POLICIES).unwrap();
    let WorkerMessage::Policies(arrived) = parse(&line(&policies)).unwrap() else { panic!("policies") };
    assert_eq!(format!("{arrived:?}"), format!("{:?}", policies.regime()));
    assert!(matches!(parse(r#""state""#), Ok(WorkerMessage::State)));
}

/// Messages from a worker that an attacker has taken over.
#[test]
fn what_no_file_could_say_is_refused() {
    let right = line(&Policies::parse("x", POLICIES).unwrap());
    let (nan, minus) = (f64::NAN.to_bits().to_string(), (-1.0f64).to_bits().to_string());
    let weight = 0.3f64.to_bits().to_string();
    for (from, to) in [
        (r#""version":"7""#, r#""version":"\u001b[2J""#),
        (r#""name":"web""#, r#""name":"a\nb""#),
        ("\"tick_ns\":20000000", "\"tick_ns\":0"),
        ("\"tick_ns\":20000000", "\"tick_ns\":18446744073709551615"),
        ("\"overhead\":18", "\"overhead\":4294967295"),
        (weight.as_str(), nan.as_str()),
        (weight.as_str(), minus.as_str()),
        (r#"["10.0.0.0",16]"#, r#"["10.0.0.0",33]"#),
        (r#"["2001:db8::",32]"#, r#"["2001:db8::",4294967295]"#),
        ("[443,443]", "[444,443]"),
        ("[443,443]", "[0,443]"),
        ("[443,443]", "[443,65536]"),
        (r#""db-?""#, r#""""#),
        (r#""classes":[["","#, r#""classes":[],"none":[["","#),
        (r#"{"policies":{"#, r#"{"policies":{"more":1,"#),
        (r#"{"policies":"#, r#"{"run":"#),
    ] {
        assert!(right.contains(from), "`{from}` is not in {right}");
        let wrong = right.replacen(from, to, 1);
        assert_eq!(parse(&wrong).unwrap_err().kind(), io::ErrorKind::InvalidData, "{to}");
    }
    let empty = right.replace(&right[right.find(r#""tenants":"#).unwrap()..], r#""tenants":[]}}"#);
    assert!(parse(&empty).is_ok());
    let without = empty.replace(
        "[]",
        r#"[{"name":"a","bucket":{"weight":0,"rate":null,"peak":null,"depth":null},"classes":[]}]"#,
    );
    assert!(parse(&without).unwrap_err().to_string().contains("has no class"));
    let deep = "[".repeat(100_000);
    for wrong in ["", "{}", "[]", "null", "\0", deep.as_str()] {
        assert_eq!(parse(wrong).unwrap_err().kind(), io::ErrorKind::InvalidData, "{wrong:.9}");
    }
}

#[test]
fn both_ends_hear_of_each_other_and_of_the_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let agent = AgentEnd::start(ours).unwrap();
    let mut worker = WorkerEnd::start(theirs).unwrap();
    worker.send(&Policies::parse("x", POLICIES).unwrap()).unwrap();
    worker.request_state().unwrap();
    let WorkerMessage::Policies(regime) = agent.wait().unwrap() else { panic!("policies") };
    assert_eq!(regime.version, "7");
    assert!(matches!(agent.wait().unwrap(), WorkerMessage::State));
    assert!(agent.poll().unwrap().is_none());
    let await_reply = || {
        loop {
            if let Some(reply) = worker.poll().unwrap() {
                return reply;
            }
            std::thread::yield_now();
        }
    };
    assert!(agent.send(Reply::Warning(Some("a".into()))));
    assert!(matches!(await_reply(), Reply::Warning(Some(text)) if text == "a"));
    assert!(agent.send(Reply::State(serde_json::json!({ "b": 1 }))));
    assert!(matches!(await_reply(), Reply::State(state) if state["b"] == 1));
    drop(agent);
    let gone = loop {
        if let Err(error) = worker.poll() {
            break error;
        }
    };
    assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);

    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let agent = AgentEnd::start(ours).unwrap();
    theirs.write_all(b"\"state\"\nnonsense\n\"state\"\n").unwrap();
    assert!(matches!(agent.wait().unwrap(), WorkerMessage::State));
    assert_eq!(agent.wait().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(agent.wait().unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "nothing more is read");
}

#[test]
fn a_line_without_an_end_is_not_kept() {
    let endless = io::repeat(b' ').take(1000);
    assert_eq!(read_line(&mut BufReader::new(endless), 64).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(read_line(&mut &b"torn"[..], 64).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(read_line(&mut &b"\n"[..], 64).unwrap(), "");
}
