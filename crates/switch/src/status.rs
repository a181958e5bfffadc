//! The status of a switch, as text and as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollway_report::text::{Align, TextTable};

/// The status of a switch at one instant. Counters are since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Seconds since its start.
    pub time_s: f64,
    /// The version of the configuration in force.
    pub version: String,
    /// The origin of the configuration.
    pub source: String,
    /// The reason a newer configuration is not in force.
    pub trouble: Option<String>,
    /// The addresses that clients connect to.
    pub listen: Vec<String>,
    /// The framing.
    pub frames_are: String,
    /// The routing module.
    pub policy: &'static str,
    /// Open sessions.
    pub sessions: usize,
    /// Bytes that sessions hold.
    pub memory: u64,
    /// Processor time of the event loop, seconds.
    pub cpu_s: f64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed at once, above the limit.
    pub refused: u64,
    /// Frames from clients.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Answers from members.
    pub answers: u64,
    /// Their bytes.
    pub answer_bytes: u64,
    /// Frames that the switch answered itself.
    pub answered_here: u64,
    /// Frames received only in part.
    pub torn: u64,
    /// Frames accepted and not done when their session broke.
    pub abandoned: u64,
    /// Sessions that ended, by reason.
    pub ends: BTreeMap<&'static str, u64>,
    /// The cluster.
    pub members: Vec<MemberStatus>,
    /// Clients that have sessions, those with the most bytes first.
    pub clients: Vec<ClientStatus>,
    /// The hops, for a part between sites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<SitesStatus>,
}

/// The hops of a part between sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SitesStatus {
    /// `front`, `switch` or `back`.
    pub part: &'static str,
    /// The address of its UDP socket.
    pub bind: String,
    /// Its neighbours.
    pub neighbours: Vec<NeighbourStatus>,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams passed to the kernel.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
    /// Packets dropped because the queue of a link was full.
    pub dropped: u64,
    /// Datagrams from unknown addresses.
    pub strangers: u64,
    /// Handshakes of unknown origin, or repeated ones.
    pub handshakes: u64,
    /// Repeated datagrams.
    pub replayed: u64,
    /// Datagrams with a wrong or an expired key.
    pub forged: u64,
    /// Datagrams without encryption.
    pub plain: u64,
    /// Packets dropped because no keys were agreed and the waiting room was full.
    pub unsealed: u64,
    /// Encrypted datagrams whose content is not a packet.
    pub senseless: u64,
    /// For a switch: packets forwarded and not acknowledged.
    pub outstanding: u64,
    /// Packets repeated although their receiver had them.
    pub duplicates: u64,
    /// Packets outside the ring or the receiver's window, or without a member to go to.
    pub out_of_window: u64,
    /// Acknowledgements of packets that were not sent.
    pub forged_acks: u64,
    /// Packets of a failed member that were sent to another.
    pub rerouted: u64,
    /// Packets lost with a failed member.
    pub lost: u64,
    /// Members that failed in a session.
    pub failures: u64,
}

/// A neighbour by ACP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NeighbourStatus {
    /// Its name in the key file.
    pub name: String,
    /// Its address.
    pub address: String,
    /// State of the hop: `up`, `silent`, `no keys`, `wrong key` or `not sealed`.
    pub state: &'static str,
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// `up`, `down`, `draining` or `removed`.
    pub state: &'static str,
    /// Connections to it.
    pub connections: usize,
    /// Bytes of frames written to it.
    pub bytes: u64,
    /// Answers from it.
    pub answers: u64,
    /// Bytes of frames sent to it and not answered.
    pub outstanding: u64,
    /// Upper bound on outstanding bytes.
    pub window: u64,
    /// Its mean response time.
    pub response_ms: Option<f64>,
    /// Sessions that wait for room in its window.
    pub waiting: usize,
    /// Connection failures and hangs.
    pub failures: u64,
    /// Frames of this member that were sent to another.
    pub retried: u64,
    /// Frames that it did not answer, and that were sent to no other member: their clients got an
    /// error.
    pub unanswered: u64,
    /// One-way frames that it had acknowledged and may not have executed when it failed: an upper
    /// bound.
    pub perhaps_lost: u64,
    /// Answers without a request.
    pub unrequested: u64,
    /// The reason of its last failure.
    pub last_failure: Option<String>,
}

/// A client and its sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its name in the configuration, or its address, user or certificate.
    pub name: String,
    /// Its weight.
    pub weight: f64,
    /// Its sessions.
    pub sessions: usize,
    /// Frames from it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that it has outstanding at members.
    pub outstanding: u64,
}

impl Status {
    /// The tables, in `width` columns where names allow, with no more than `most` clients.
    pub fn to_text(&self, width: usize, most: usize) -> String {
        serde_json::to_value(self).ok().and_then(|value| text(&value, width, most)).unwrap_or_default()
    }
}

/// The tables from the JSON of another process; `None` if it is not such JSON.
pub fn told(json: &str, width: usize, most: usize) -> Option<String> {
    text(&serde_json::from_str(json).ok()?, width, most)
}

fn text(status: &serde_json::Value, width: usize, most: usize) -> Option<String> {
    let word = |key: &str| status[key].as_str();
    let count = |key: &str| status[key].as_u64();
    let listen: Vec<_> = status["listen"].as_array()?.iter().filter_map(|at| at.as_str()).collect();
    let mut text = format!(
        "Configuration {} from {}: `{}` at {}, {}.\n",
        word("version")?,
        word("source")?,
        word("frames_are")?,
        listen.join(", "),
        word("policy")?,
    );
    if let Some(trouble) = word("trouble") {
        text += &format!("The new version is not in force: {trouble}\n");
    }
    if let Some(line) = site(&status["sites"]) {
        text += &line;
    }
    text += "\n";
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("member", Align::Left),
        ("state", Align::Left),
        ("connections", right),
        ("MB", right),
        ("answers", right),
        ("outstanding kB", right),
        ("window kB", right),
        ("response ms", right),
        ("failures", right),
        ("unanswered", right),
        ("perhaps lost", right),
    ]);
    let number = |value: &serde_json::Value, scale: f64, digits: usize| {
        value.as_f64().map_or_else(|| "–".to_owned(), |value| format!("{:.digits$}", value / scale))
    };
    for member in status["members"].as_array()? {
        table.row([
            member["name"].as_str()?.to_owned(),
            member["state"].as_str()?.to_owned(),
            member["connections"].to_string(),
            number(&member["bytes"], 1e6, 1),
            member["answers"].to_string(),
            number(&member["outstanding"], 1e3, 1),
            number(&member["window"], 1e3, 1),
            number(&member["response_ms"], 1.0, 2),
            member["failures"].to_string(),
            member["unanswered"].to_string(),
            member["perhaps_lost"].to_string(),
        ]);
    }
    text += &table.print(width);
    let clients = status["clients"].as_array()?;
    if !clients.is_empty() {
        let mut table = TextTable::new(&[
            ("client", Align::Left),
            ("weight", right),
            ("sessions", right),
            ("frames", right),
            ("MB", right),
            ("outstanding kB", right),
        ]);
        for client in clients.iter().take(most) {
            table.row([
                client["name"].as_str()?.to_owned(),
                number(&client["weight"], 1.0, 1),
                client["sessions"].to_string(),
                client["frames"].to_string(),
                number(&client["bytes"], 1e6, 1),
                number(&client["outstanding"], 1e3, 1),
            ]);
        }
        text += &format!("\n{}", table.print(width));
        if clients.len() > most {
            text += &format!("… and {} more (`--json` has them all)\n", clients.len() - most);
        }
    }
    text += &format!(
        "\n{} sessions use {:.1} kB; {} frames arrived, {} answers were sent.\n",
        count("sessions")?,
        status["memory"].as_f64()? / 1e3,
        count("frames")?,
        count("answers")? + count("answered_here")?,
    );
    for (key, what) in [
        ("refused", "connections were refused: too many sessions"),
        ("torn", "frames were incomplete when their clients closed"),
        ("abandoned", "frames were unfinished when their sessions broke"),
    ] {
        if let Some(count) = count(key).filter(|&count| count > 0) {
            text += &format!("{count} {what}.\n");
        }
    }
    Some(text)
}

/// The hops of a part between sites, one line each.
fn site(sites: &serde_json::Value) -> Option<String> {
    let mut text = format!("ACP at {}, {}.\n", sites["bind"].as_str()?, sites["part"].as_str()?);
    for neighbour in sites["neighbours"].as_array()? {
        let word = |key: &str| neighbour[key].as_str();
        text += &format!("  {} at {}: {}\n", word("name")?, word("address")?, word("state")?);
    }
    for (key, what) in [
        ("strangers", "datagrams came from unknown addresses"),
        ("handshakes", "handshakes were refused"),
        ("replayed", "datagrams were repeated and dropped"),
        ("forged", "datagrams were not encrypted by their neighbour, or with expired keys"),
        ("plain", "datagrams were not encrypted"),
        ("out_of_window", "packets were outside their receiver's window, or had no member to go to"),
        ("forged_acks", "acknowledgements were of data that was never sent"),
        ("rerouted", "packets of a failed member were sent to another"),
        ("lost", "packets were lost with a failed member"),
    ] {
        if let Some(count) = sites[key].as_u64().filter(|&count| count > 0) {
            text += &format!("{count} {what}.\n");
        }
    }
    Some(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn status() -> Status {
        Status {
            version: "7".into(),
            source: "switch.toml".into(),
            trouble: Some("`u8` is not a framing".into()),
            listen: vec!["0.0.0.0:5000".into()],
            frames_are: "u16".into(),
            policy: "by-key",
            sessions: 2,
            frames: 1000,
            bytes: 4_500_000,
            answers: 990,
            torn: 3,
            ends: [("done", 4)].into(),
            members: vec![MemberStatus {
                name: "a".into(),
                state: "up",
                bytes: 4_500_000,
                response_ms: Some(0.25),
                perhaps_lost: 17,
                ..MemberStatus::default()
            }],
            clients: vec![
                ClientStatus { name: "10.0.0.1".into(), weight: 1.0, ..ClientStatus::default() },
                ClientStatus { name: "user:b".into(), weight: 2.5, ..ClientStatus::default() },
            ],
            ..Status::default()
        }
    }

    #[test]
    fn what_a_switch_tells_reads_the_same_here_and_there() {
        let text = status().to_text(160, 1);
        for part in [
            "Configuration 7 from switch.toml: `u16` at 0.0.0.0:5000, by-key",
            "The new version is not in force: `u8`",
            "0.25",
            "17",
            "10.0.0.1",
            "1 more",
            "3 frames were incomplete",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("user:b"));
        let json = serde_json::to_string(&status()).unwrap();
        assert_eq!(told(&json, 160, 1), Some(text));
        for other in ["", "{}", "[]", "{\"version\": 7}"] {
            assert_eq!(told(other, 140, 1), None);
        }
    }
}
