//! The status of a switch. Counters are since its start.

use std::collections::BTreeMap;

use tollway_agent::status::{
    Part, Product, Table, Unit, alert, by, count, gauge, info, label, part, rows, state, word,
};

tollway_agent::status! {
    /// The status of a switch at one instant.
    pub struct Status {
        /// Seconds since its start.
        time_s: f64 = gauge("s up").metric("uptime").unit(Unit::Seconds, 1.0);
        /// The version of the configuration in force.
        version: String = info();
        /// The origin of the configuration.
        source: String = info();
        /// The reason a newer configuration is not in force.
        trouble: Option<String> = alert("The new version is not in force");
        /// The addresses that clients connect to.
        listen: Vec<String> = info();
        /// The framing.
        frames_are: String = info();
        /// The routing module.
        policy: &'static str = info();
        /// Open sessions.
        sessions: usize = gauge("sessions");
        /// Bytes that sessions hold.
        memory: u64 = gauge("kB held by them").scaled(1e-3, 1).unit(Unit::Bytes, 1.0);
        /// Processor time of the event loop, seconds.
        cpu_s: f64 = count("s of processor time").scaled(1.0, 2).metric("cpu").unit(Unit::Seconds, 1.0);
        /// Connections accepted.
        accepted: u64 = count("connections accepted").metric("connections");
        /// Connections closed at once, above the limit.
        refused: u64 = count("connections refused: too many sessions").rare();
        /// Frames from clients.
        frames: u64 = count("frames arrived");
        /// Their bytes.
        bytes: u64 = count("MB of frames").scaled(1e-6, 1).metric("received").unit(Unit::Bytes, 1.0);
        /// Answers from members.
        answers: u64 = count("answers sent");
        /// Their bytes.
        answer_bytes: u64 = count("MB of answers").scaled(1e-6, 1).metric("answered").unit(Unit::Bytes, 1.0);
        /// Frames that the switch answered itself.
        answered_here: u64 = count("answers of the switch itself").rare();
        /// Frames received only in part.
        torn: u64 = count("frames incomplete when their clients closed").rare();
        /// Frames accepted and not done when their session broke.
        abandoned: u64 = count("frames unfinished when their sessions broke").rare();
        /// Sessions that ended, by reason.
        ends: BTreeMap<&'static str, u64> = by("sessions ended", "reason").metric("ended_sessions");
        /// The cluster.
        members: Vec<MemberStatus> = rows(&MEMBERS);
        /// Clients that have sessions, those with the most bytes first.
        clients: Vec<ClientStatus> = rows(&CLIENTS);
        /// The hops, for a part between sites.
        #[serde(skip_serializing_if = "Option::is_none")]
        sites: Option<SitesStatus> = part(&SITES);
    }
}

tollway_agent::status! {
    /// The hops of a part between sites.
    pub struct SitesStatus {
        /// `front`, `switch` or `back`.
        part: &'static str = info();
        /// The address of its UDP socket.
        bind: String = info();
        /// Its neighbours.
        neighbours: Vec<NeighbourStatus> = rows(&NEIGHBOURS);
        /// Datagrams received.
        received: u64 = count("datagrams received");
        /// Datagrams passed to the kernel.
        sent: u64 = count("sent");
        /// Datagrams that the kernel refused.
        unsent: u64 = count("refused by the kernel").rare();
        /// Packets dropped because the queue of a link was full.
        dropped: u64 = count("dropped at full queues").rare();
        /// Datagrams from unknown addresses.
        strangers: u64 = count("datagrams from unknown addresses").rare();
        /// Handshakes of unknown origin, or repeated ones.
        handshakes: u64 = count("handshakes refused").rare();
        /// Repeated datagrams.
        replayed: u64 = count("datagrams repeated and dropped").rare();
        /// Datagrams with a wrong or an expired key.
        forged: u64 = count("datagrams not encrypted by their neighbour, or with expired keys").rare();
        /// Datagrams without encryption.
        plain: u64 = count("datagrams not encrypted").rare();
        /// Packets dropped because no keys were agreed and the waiting room was full.
        unsealed: u64 = count("packets dropped for lack of keys").rare();
        /// Encrypted datagrams whose content is not a packet.
        senseless: u64 = count("datagrams that contain no packet").rare();
        /// For a switch: packets forwarded and not acknowledged.
        outstanding: u64 = gauge("packets outstanding").rare();
        /// Packets repeated although their receiver had them.
        duplicates: u64 = count("packets repeated in vain").rare();
        /// Packets outside the ring or the receiver's window, or without a member to go to.
        out_of_window: u64 = count("packets outside the window").rare();
        /// Acknowledgements of packets that were not sent.
        forged_acks: u64 = count("acknowledgements of data that was never sent").rare();
        /// Packets of a failed member that were sent to another.
        rerouted: u64 = count("packets of a failed member sent to another").rare();
        /// Packets lost with a failed member.
        lost: u64 = count("packets lost with a failed member").rare();
        /// Members that failed in a session.
        failures: u64 = count("failures of members").rare();
    }
}

tollway_agent::status! {
    /// A neighbour by ACP.
    pub struct NeighbourStatus {
        /// Its name in the key file.
        name: String = label("neighbour").metric("neighbour");
        /// Its address.
        address: String = word("address");
        /// State of the hop: `up`, `silent`, `no keys`, `wrong key` or `not sealed`.
        state: &'static str = state("state", "up").metric("up");
    }
}

tollway_agent::status! {
    /// A member of the cluster.
    pub struct MemberStatus {
        /// Its name.
        name: String = label("member").metric("member");
        /// Its address.
        address: String = word("address");
        /// `up`, `down`, `draining` or `removed`.
        state: &'static str = state("state", "up").metric("up");
        /// Connections to it.
        connections: usize = gauge("connections");
        /// Bytes of frames written to it.
        bytes: u64 = count("MB").scaled(1e-6, 1).metric("sent").unit(Unit::Bytes, 1.0);
        /// Answers from it.
        answers: u64 = count("answers");
        /// Bytes of frames sent to it and not answered.
        outstanding: u64 = gauge("outstanding kB").scaled(1e-3, 1).unit(Unit::Bytes, 1.0);
        /// Upper bound on outstanding bytes.
        window: u64 = gauge("window kB").scaled(1e-3, 1).unit(Unit::Bytes, 1.0);
        /// Its mean response time.
        response_ms: Option<f64> = gauge("response ms").scaled(1.0, 2).metric("response").unit(Unit::Seconds, 1e-3);
        /// Sessions that wait for room in its window.
        waiting: usize = gauge("waiting").rare();
        /// Connection failures and hangs.
        failures: u64 = count("failures");
        /// Frames of this member that were sent to another.
        retried: u64 = count("retried").rare();
        /// Frames that it did not answer, and that were sent to no other member: their clients got an
        /// error.
        unanswered: u64 = count("unanswered").rare();
        /// One-way frames that it had acknowledged and may not have executed when it failed: an upper
        /// bound.
        perhaps_lost: u64 = count("perhaps lost").rare();
        /// Answers without a request.
        unrequested: u64 = count("unrequested").rare();
        /// The reason of its last failure.
        last_failure: Option<String> = word("last failure").rare();
    }
}

tollway_agent::status! {
    /// A client and its sessions.
    pub struct ClientStatus {
        /// Its name in the configuration, or its address, user or certificate.
        name: String = label("client");
        /// Its weight.
        weight: f64 = gauge("weight").scaled(1.0, 1);
        /// Its sessions.
        sessions: usize = gauge("sessions");
        /// Frames from it.
        frames: u64 = count("frames");
        /// Their bytes.
        bytes: u64 = count("MB").scaled(1e-6, 1);
        /// Bytes that it has outstanding at members.
        outstanding: u64 = gauge("outstanding kB").scaled(1e-3, 1);
    }
}

const SITES: Part = Part::new("sites", "ACP at {bind}, {part}.", SitesStatus::FIELDS);
const NEIGHBOURS: Table = Table::new("neighbour", NeighbourStatus::FIELDS);
const MEMBERS: Table = Table::new("member", MemberStatus::FIELDS);
const CLIENTS: Table = Table::long(ClientStatus::FIELDS);

/// The text, metrics and page of the status.
pub const SWITCH: Product = Product::new(
    "switch",
    "Configuration {version} from {source}: `{frames_are}` at {listen}, {policy}.",
    Status::FIELDS,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_text_of_its_json() {
        let status = Status {
            version: "7".into(),
            source: "switch.toml".into(),
            trouble: Some("`u8` is not a framing".into()),
            listen: vec!["0.0.0.0:5000".into()],
            frames_are: "u16".into(),
            policy: "by-key",
            sessions: 2,
            torn: 3,
            members: vec![MemberStatus {
                name: "a".into(),
                state: "up",
                response_ms: Some(0.25),
                perhaps_lost: 17,
                ..MemberStatus::default()
            }],
            ..Status::default()
        };
        let text = SWITCH.text_of(&serde_json::to_string(&status).unwrap(), 160, 1).unwrap();
        for part in [
            "Configuration 7 from switch.toml: `u16` at 0.0.0.0:5000, by-key.",
            "The new version is not in force: `u8`",
            "0.25",
            "perhaps lost",
            "17",
            "3 frames incomplete",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(!text.contains("unanswered"), "no member has one:\n{text}");
    }
}
