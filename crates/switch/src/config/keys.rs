//! The sections of a switch's configuration and their keys.

use tollway_scenario::file::reading::{Key, Kind};
use tollway_scenario::{keys, section};

section! {
    /// A switch before TCP servers.
    SWITCH = "" {
        /// Name of this version in `status`.
        "version": Kind::Line, else "computed from the text";
        /// Address for clients, or an array: `"127.0.0.1:5000"`, `":5000"` for every address.
        "listen": ADDRESSES;
        /// Framing of both directions.
        "frames": Kind::Text;
        /// Choice of the member for a frame.
        "policy": POLICY, else "`by-key` with `resp`, else `least-loaded`";
        /// Position of a frame's key: `"4..20"` for bytes, `"field=3"` for a word.
        "key": Kind::Text, optional;
        /// Order of the members' answers.
        "answers": ANSWERS, else "from the framing";
        /// Frames of a failed member that are sent to another.
        "retry": Kind::Word(&["never", "idempotent"]), default "never";
        /// Frames whose member is down, with `by-key`: an error, so that each key stays at its member,
        /// or to another.
        "on-failure": ON_FAILURE, else "`error` with `resp`, else `move`";
        /// File of 16 bytes, the secret of the keyed hash; without it the hash is public.
        "secret": Kind::Text, optional;
        /// The cluster.
        "member": Kind::Named(&MEMBER), optional;
        /// Named clients; others are identified by their addresses.
        "client": Kind::Named(&CLIENT), optional;
        /// Bounds of memory, number and time.
        "limits": Kind::Table(&LIMITS), optional;
        /// Checks of members that are up; those that are down are always checked.
        "health": Kind::Table(&HEALTH), optional;
        /// TLS towards clients.
        "tls": Kind::Table(&TLS), optional;
        /// The connections to members.
        "upstream": Kind::Table(&UPSTREAM), optional;
    }
}

section! {
    /// A member of the cluster.
    MEMBER = "[member.\"NAME\"]": [
        keys! {
            /// The address it listens at, or a name, which is resolved again every 5 s.
            "address": Kind::Text;
        },
        MEMBER_KEYS,
    ]
}

section! {
    /// A named client.
    CLIENT = "[client.\"NAME\"]" {
        /// Its addresses: one, a network such as `"10.1.0.0/16"`, or an array.
        "from": Kind::Match("an address, such as \"10.1.0.0/16\", or an array of such"), optional;
        /// The user that it authenticates as (RESP).
        "user": Kind::Text, optional;
        /// A DNS name in its certificate.
        "tls-name": Kind::Text, optional;
        /// Its weight where members' windows are contended.
        "weight": Kind::Over { over: 0.0, most: f64::MAX }, default "1";
    }
}

section! {
    /// Bounds of memory, number and time.
    LIMITS = "[limits]" {
        /// The longest frame.
        "frame": Kind::Bytes { least: 16, most: MOST }, else "1 MiB; with `resp` 513 MiB";
        /// Simultaneous sessions.
        "sessions": NUMBER, default "10000";
        /// Simultaneous sessions of one client.
        "sessions-per-client": NUMBER, default "10000";
        /// Bytes that may wait per session and direction.
        "session-buffer": Kind::Bytes { least: 1, most: MOST }, else "256 KiB; between sites 2 MiB";
        /// Bytes of all sessions, above which incomplete frames of more than 64 KiB are given up.
        "memory": Kind::Bytes { least: 0, most: u64::MAX }, default "2 GiB";
        /// B of the soft law: bytes that may be outstanding at a member.
        "member-buffer": Kind::Bytes { least: 16, most: MOST }, else "4 MiB, or `frame`";
        /// Time limit from a frame's first byte to its last.
        "frame-time": SPAN, default "10 s";
        /// Time limit for a member's answer.
        "answer-time": SPAN, default "10 s";
        /// Time limit for opening a connection to a member.
        "connect-time": SPAN, default "2 s";
        /// Time limit for a session without traffic.
        "idle-time": SPAN, default "3600 s";
        /// Time for which sessions may continue after the command to end.
        "grace": SPAN, default "5 s";
    }
}

section! {
    /// Checks of members.
    HEALTH = "[health]" {
        /// Interval between checks of a member.
        "every": Kind::Time { least: 10_000_000 }, default "2 s";
        /// A frame that members must answer.
        "send": Kind::Text, else "a `PING` with `resp`; otherwise a connection suffices";
    }
}

section! {
    /// TLS towards clients: PEM files.
    TLS = "[tls]" {
        /// The switch's certificate chain.
        "certificate": Kind::Text;
        /// Its private key.
        "key": Kind::Text;
        /// The authority that must have signed clients' certificates.
        "client-ca": Kind::Text, optional;
    }
}

section! {
    /// The connections to members.
    UPSTREAM = "[upstream]" {
        /// The authority that must have signed members' certificates; enables TLS.
        "ca": Kind::Text, optional;
        /// The name in members' certificates, instead of the address.
        "name": Kind::Text, optional;
        /// The switch's certificate for members.
        "certificate": Kind::Text, optional;
        /// Its private key.
        "key": Kind::Text, optional;
        /// Connections begin with a PROXY header, version 2.
        "proxy-protocol": Kind::Truth, default "false";
    }
}

section! {
    /// A part between sites.
    PART = "" {
        /// Name of this version in `status`.
        "version": Kind::Line, else "computed from the text";
        /// Address of its UDP socket.
        "bind": Kind::Text;
        /// The key file, made by `tollway switch keygen`.
        "keys": Kind::Text, optional;
        /// Of a front: address for clients, or an array.
        "listen": ADDRESSES, optional;
        /// Of a front and a back: the framing of the TCP bytes.
        "frames": Kind::Text, optional;
        /// Of a front and a back: order of the servers' answers; with `stream`, servers send frames
        /// at any time.
        "answers": Kind::Word(&["any", "in-order", "none", "stream"]), else "from the framing";
        /// Of a switch: choice of the member for a frame.
        "policy": POLICY, else "`least-loaded`";
        /// Of a front: position of a frame's key.
        "key": Kind::Text, optional;
        /// Of a switch, with `by-key`: frames of a member that is down wait for it, or move.
        "on-failure": ON_FAILURE, default "move";
        /// Of a switch: a file of 16 bytes, the secret of the keyed hash. Takes effect at a start.
        "secret": Kind::Text, optional;
        /// Of a switch: division of a peer's window over the members, by what each uses or equally.
        "flow-control": Kind::Word(&["credit", "strict"]), default "credit";
        /// Law of its sessions' senders.
        "law": Kind::Text, default "newreno";
        /// Budget of each session under `fcp`, $/s.
        "budget": Kind::Number { least: LEAST_BUDGET, most: MOST_BUDGET }, optional;
        /// Of a back: address of its TCP server.
        "to": Kind::Text, optional;
        /// Neighbours on the clients' side; of a front, its switch.
        "peer": Kind::Named(&PEER), optional;
        /// Of a switch: the backs of the cluster.
        "member": Kind::Named(&NEIGHBOUR), optional;
        /// Bounds of memory, number and time.
        "limits": Kind::Table(&LIMITS), optional;
    }
}

section! {
    /// A neighbour on the clients' side.
    PEER = "[peer.\"NAME\"]": [NEIGHBOUR_KEYS]
}

section! {
    /// A back of the cluster.
    NEIGHBOUR = "[member.\"NAME\"]": [NEIGHBOUR_KEYS, MEMBER_KEYS]
}

const NEIGHBOUR_KEYS: &[Key] = keys! {
    /// Address of its UDP socket.
    "address": Kind::Text;
    /// Rate of packets to it; required by a law that depends on links.
    "rate": Kind::WireRate, optional;
};

const MEMBER_KEYS: &[Key] = keys! {
    /// It gets no new frames.
    "drain": Kind::Truth, default "false";
    /// Its share of keys, sessions and turns.
    "weight": Kind::Count { least: 1, most: MOST_WEIGHT as u64 }, default "1";
};

const ADDRESSES: Kind = Kind::Match("an address, such as \"127.0.0.1:5000\", or an array of such");
const POLICY: Kind = Kind::Word(&["round-robin", "by-key", "least-loaded", "sticky"]);
const ANSWERS: Kind = Kind::Word(&["any", "in-order", "none"]);
const ON_FAILURE: Kind = Kind::Word(&["error", "move"]);
const NUMBER: Kind = Kind::Count { least: 0, most: i64::MAX as u64 };
const SPAN: Kind = Kind::Time { least: 0 };
/// The greatest weight of a member.
pub(crate) const MOST_WEIGHT: u32 = 100;
/// Upper bound on sizes, bytes.
const MOST: u64 = 1 << 31;
/// The least and the greatest budget, $/s. A session that may spend nothing would never end.
const LEAST_BUDGET: f64 = 1e-6;
const MOST_BUDGET: f64 = 1e12;
