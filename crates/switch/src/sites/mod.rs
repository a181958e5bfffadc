//! Sessions between sites: ACP over encrypted UDP, spread over members without termination.
//!
//! ```text
//! client ==TCP== front ==ACP== switch ==ACP== back ==TCP== server
//!                                     ==ACP== back ==TCP== server
//! ```
//!
//! A *front* splits the bytes of each client's connection into frames, and opens an ACP connection
//! to its peer for it. A *switch* spreads each such session over the backs of its members, with
//! [`tollway_proto::Switch`]. A *back* ends ACP and has a TCP connection to its server for each
//! session. Sequence numbers, windows, tolls and acknowledgements are those of the front and the
//! backs.
//!
//! | module | contents |
//! |---|---|
//! | `config` | the file and its checks |
//! | `engine`, `core` | the event loop of each part, the state that all parts share |
//! | `front`, `middle`, `back` | the three parts |
//! | `message` | labels of frames, which match answers with requests |
//! | `end`, `tcp` | an end of an ACP connection, and of a TCP connection |

mod back;
mod config;
mod core;
mod end;
mod engine;
mod front;
mod message;
mod middle;
mod snapshot;
mod tcp;

pub use config::{CommandLine, Neighbour, Part, Sites, sites_reference_markdown};

pub(crate) use engine::start;

use tollway_law::Time;
use tollway_net::secure;
use tollway_proto::SackRanges;
use tollway_proto::encoding::acp;
use tollway_proto::transport::{Config as Transport, Detection, Rto};

/// Headers of a packet, bytes: IP, UDP, ACP with the maximum of SACK ranges.
pub(crate) const HEADER: u16 = (acp::OVERHEAD + acp::header_len(SackRanges::MAX)) as u16;
/// A full packet, bytes; with encryption it fits a link of 1500.
pub(crate) const SEGMENT: u16 = 1500 - secure::OVERHEAD as u16;
/// Payload of a full packet, bytes.
pub(crate) const PAYLOAD: usize = (SEGMENT - HEADER) as usize;

/// The transport of all connections. `buffer` bounds the bytes under way in each direction.
pub(crate) fn transport(buffer: usize) -> Transport {
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
