use serde_json::json;

use super::*;

crate::status! {
    /// A member.
    struct Member {
        /// Its name.
        name: String = label("member").metric("member");
        /// `up` or `down`.
        state: &'static str = state("state", "up").metric("up");
        /// Bytes written to it.
        bytes: u64 = count("MB").scaled(1e-6, 1).metric("sent").unit(Unit::Bytes, 1.0);
        /// Its mean response time.
        response_ms: Option<f64> = gauge("response ms").scaled(1.0, 2).metric("response").unit(Unit::Seconds, 1e-3);
        /// Frames lost with it.
        lost: u64 = count("lost").rare();
        /// Its faults by cause.
        faults: std::collections::BTreeMap<&'static str, u64> = by("faults", "cause").rare();
        /// The reason of its last failure.
        last_failure: Option<String> = word("last failure").rare();
    }
}

crate::status! {
    /// A connection.
    struct Connection {
        /// The limit of its rate.
        limited_by: &'static str = word("held by").metric("held").tallied("by", &["idle", "share"]);
        /// The agent has no access to it.
        denied: bool = flag("denied", "yes", "no").rare();
    }
}

crate::status! {
    /// Hops.
    struct Hops {
        /// The address.
        bind: String = info();
        /// Datagrams that were forged.
        forged: u64 = count("forged").rare();
    }
}

crate::status! {
    /// A status with a field of each kind.
    struct Status {
        /// Version of the configuration.
        version: String = info();
        /// Addresses.
        listen: Vec<String> = info();
        /// A newer configuration is not in force.
        trouble: Option<String> = alert("Trouble");
        /// Open sessions.
        sessions: usize = gauge("sessions");
        /// Connections refused.
        refused: u64 = count("refused").rare();
        /// Sessions that ended, by reason.
        ends: std::collections::BTreeMap<&'static str, u64> = by("sessions ended", "reason").metric("ended");
        /// The hops.
        hops: Option<Hops> = part(&HOPS);
        /// The members.
        members: Vec<Member> = rows(&MEMBERS);
        /// The connections.
        connections: Vec<Connection> = rows(&CONNECTIONS);
    }
}

const HOPS: Part = Part::new("hop", "ACP at {bind}.", Hops::FIELDS);
const MEMBERS: Table = Table::new("member", Member::FIELDS).with_total(|status| {
    let bytes = status["members"].as_array()?.iter().filter_map(|one| one["bytes"].as_u64()).sum::<u64>();
    Some(json!({ "name": "all", "state": "", "bytes": bytes }))
});
const CONNECTIONS: Table = Table::long(Connection::FIELDS);
const PRODUCT: Product = Product::new("test", "Version {version} at {listen}.", Status::FIELDS);

fn status() -> Status {
    let member = |name: &str, state, bytes| Member { name: name.into(), state, bytes, ..Member::default() };
    Status {
        version: "7".into(),
        listen: vec!["a:1".into(), "b:2".into()],
        trouble: Some("no framing".into()),
        sessions: 2,
        ends: [("done", 4)].into(),
        hops: Some(Hops { bind: "c:3".into(), forged: 1 }),
        members: vec![
            Member { response_ms: Some(0.25), ..member("a", "up", 4_500_000) },
            Member {
                last_failure: Some("refused".into()),
                faults: [("reset", 2), ("timeout", 1)].into(),
                ..member("b", "down", 0)
            },
        ],
        connections: vec![
            Connection { limited_by: "share", denied: false },
            Connection { limited_by: "share", denied: true },
            Connection { limited_by: "idle", denied: false },
        ],
        ..Status::default()
    }
}

#[test]
fn the_text_has_each_field_that_differs_from_zero() {
    let json = serde_json::to_value(status()).unwrap();
    let text = PRODUCT.text(&json, 100, 2).unwrap();
    let wanted = "\
Version 7 at a:1, b:2.
Trouble: no framing
2 sessions, sessions ended (4 done).

ACP at c:3.
1 forged.

member  state   MB  response ms  faults  last failure
─────────────────────────────────────────────────────
a       up     4.5         0.25       0
b       down   0.0            –       3  refused
all            4.5            –

held by  denied
───────────────
share    no
share    yes
… and 1 more (`--json` has them all)
";
    assert_eq!(text, wanted);
    assert_eq!(PRODUCT.text_of(&json.to_string(), 100, 2).unwrap(), text);
    assert!(PRODUCT.text(&json, 20, 2).unwrap().contains("\n2 sessions,\nsessions ended"), "wrapped");
    for other in ["", "{}", "[]", "{\"version\": 7}"] {
        assert_eq!(PRODUCT.text_of(other, 80, 1), None, "{other}");
    }
}

#[test]
fn large_numbers_have_fewer_decimals() {
    let mut status = status();
    for (number, shown) in
        [(0.123, " 0.12 "), (825.154, " 825.15 "), (1432.37, " 1432.4 "), (98765.4, " 98765 ")]
    {
        status.members[0].response_ms = Some(number);
        let text = PRODUCT.text(&serde_json::to_value(&status).unwrap(), 100, 2).unwrap();
        assert!(text.contains(shown), "{text}");
    }
}

#[test]
fn the_schema_has_every_field() {
    let schema = PRODUCT.schema();
    let keys = |fields: &Value| -> Vec<String> {
        fields.as_array().unwrap().iter().map(|field| field["key"].as_str().unwrap().to_owned()).collect()
    };
    let json = serde_json::to_value(status()).unwrap();
    let of = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&schema["fields"]), of(&json));
    assert_eq!(keys(&schema["fields"][7]["fields"]), of(&json["members"][0]));
}

#[test]
fn a_head_that_lacks_a_text_is_refused() {
    assert!(has("at {bind}.", "bind") && !has("at {binds} bind", "bind") && !has("", "bind"));
    assert!(std::panic::catch_unwind(|| Product::new("x", "no version", Status::FIELDS)).is_err());
}

#[cfg(feature = "metrics")]
#[test]
fn each_number_state_and_fault_is_a_metric() {
    use std::io::{Read, Write};

    let served = PRODUCT.serve_metrics(([127, 0, 0, 1], 0).into(), || serde_json::to_value(status()).ok());
    let served = served.unwrap();
    let ask = |host: &str| {
        let mut stream = std::net::TcpStream::connect(served.address()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("localhost");
    for line in [
        r#"tollway_test_info{version="7",listen="a:1, b:2"} 1"#,
        "tollway_test_trouble 1",
        "tollway_test_sessions 2",
        "tollway_test_refused_total 0",
        r#"tollway_test_ended_total{reason="done"} 4"#,
        r#"tollway_test_hop_info{bind="c:3"} 1"#,
        "tollway_test_hop_forged_total 1",
        r#"tollway_test_member_up{member="a"} 1"#,
        r#"tollway_test_member_up{member="b"} 0"#,
        r#"tollway_test_member_sent_bytes_total{member="a"} 4500000"#,
        r#"tollway_test_member_response_seconds{member="a"} 0.00025"#,
        r#"tollway_test_held{by="share"} 2"#,
        r#"tollway_test_member_faults_total{member="b",cause="reset"} 2"#,
    ] {
        assert!(answer.contains(line), "no {line} in\n{answer}");
    }
    assert!(!answer.contains(r#"response_seconds{member="b"}"#), "unknown, not 0:\n{answer}");
    assert!(ask("evil.example").starts_with("HTTP/1.1 403"));
}
