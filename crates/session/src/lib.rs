//! Message sockets over ACP: sessions with one program, or with a cluster behind a switch.
//!
//! A [`Node`] has a UDP socket, keys, and neighbours. A program [connects](Node::connect) to a
//! neighbour, or [accepts](Node::accept) sessions of neighbours. Both get a [`Session`]: frames in
//! both directions, encrypted, each delivered once. If the neighbour is a `tollway switch`, it
//! spreads the frames of the session over its members, and merges theirs, without ending it.
//!
//! | | promise |
//! |---|---|
//! | delivery | an acknowledged frame is at the other *program's* node, not at a proxy |
//! | order | frames of one source to one sink arrive in order; there is no order between members |
//! | credit | [`Session::send`] blocks while the other side's window, or the buffer here, is full |
//! | shares | the sender law of the node: one session has one share of a link, over any members |
//! | close | each side [finishes](Session::finish) its direction; the other reads to the end |
//!
//! A client's frames are *requests*, with a number. A server may answer a request once or in
//! pieces, and may send other frames at any time. Front and back of `tollway switch` speak the same
//! format, so either side may also be a TCP program behind one of them.
//!
//! When a member of a cluster fails, its frames that were not acknowledged go to another. Requests
//! that it had acknowledged and not answered stay unanswered ([`Session::unanswered`]): the client
//! decides whether to repeat them.
//!
//! ```
//! use std::time::Duration;
//!
//! use tollway_session::{KeyFile, Node, Options};
//!
//! let keys = KeyFile::mesh(&["client".into(), "server".into()])?;
//! let patience = Duration::from_secs(20);
//! let server = Node::open(&Options::new("127.0.0.1:0".parse()?, keys[1].clone()).listening())?;
//! let client = Node::open(&Options::new("127.0.0.1:0".parse()?, keys[0].clone()))?;
//! server.add("client", client.address())?;
//! client.add("server", server.address())?;
//!
//! let session = client.connect("server", patience)?;
//! let number = session.send(b"ping")?;
//! let served = server.accept(patience)?;
//! let request = served.receive(patience)?.expect("a request");
//! served.reply(&request, &request.bytes)?;
//! let answer = session.receive(patience)?.expect("an answer");
//! assert_eq!((answer.number, &answer.bytes[..]), (Some(number), &b"ping"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(target_os = "linux")]

pub mod end;
pub mod label;
mod laws;
mod node;
mod notifier;
mod session;

pub use laws::{law, link_law, untolled};
pub use node::{Node, NodeError, Options};
pub use session::{Message, Session, SessionError};
pub use tollway_net::secure::{KeyFile, KeyFileError};

use tollway_law::Time;
use tollway_net::secure;
use tollway_proto::SackRanges;
use tollway_proto::encoding::acp;
use tollway_proto::transport::{Config as Transport, Detection, Rto};

/// Headers of a packet, bytes: IP, UDP, ACP with the maximum of SACK ranges.
pub const HEADER: u16 = (acp::OVERHEAD + acp::header_len(SackRanges::MAX)) as u16;
/// A full packet, bytes; with encryption it fits a link of 1500.
pub const SEGMENT: u16 = 1500 - secure::OVERHEAD as u16;
/// Payload of a full packet, bytes.
pub const PAYLOAD: usize = (SEGMENT - HEADER) as usize;

/// The transport of all connections. `buffer` bounds the bytes under way in each direction.
pub fn transport(buffer: usize) -> Transport {
    let segments = (buffer / PAYLOAD).max(16);
    Transport {
        segment: SEGMENT,
        header: HEADER,
        ack_size: HEADER,
        send_buffer: segments as u32,
        receive_buffer: (segments * PAYLOAD) as u64,
        detection: Detection::Rack { tail_probe: true },
        // Six packets without an answer are the least that tell a switch of a member's death.
        rto: Rto { initial: Time::from_millis(500), max: Time::from_secs(1), widens: true, ..Rto::default() },
        ..Transport::default()
    }
}
