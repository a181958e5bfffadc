//! The sans-I/O machines of Tollway: packet, encodings, transport, output port, shaper.
//!
//! A machine opens no socket, spawns no task, and reads no clock. Time is an argument, randomness
//! is passed in, and the caller polls the packets to send. A machine behaves the same in the
//! simulator and on real packets, and a test can drive it directly.
//!
//!
//! ```
//! use std::sync::Arc;
//!
//! use tollway_law::Time;
//! use tollway_law::sender::NewRenoConfig;
//! use tollway_proto::transport::{Config, Connection};
//! use tollway_proto::{Packet, SackRanges};
//!
//! let config = Arc::new(Config::default());
//! let law = || NewRenoConfig::default().build().into();
//! let mut client = Connection::client(&config, law(), 0);
//! let mut server = Connection::server(&config, law(), 0);
//! client.open(Time::ZERO);
//! client.write_stream(100_000);
//! client.finish();
//! let (mut now, mut packet, mut sack) = (Time::ZERO, Packet::default(), SackRanges::EMPTY);
//! while !client.is_finished() {
//!     now += Time::from_millis(10);
//!     while client.poll_transmit(now, &mut packet, &mut sack) {
//!         server.handle_packet(now, &packet, &sack);
//!     }
//!     while server.poll_transmit(now, &mut packet, &mut sack) {
//!         client.handle_packet(now, &packet, &sack);
//!     }
//!     client.handle_timeout(now);
//!     server.handle_timeout(now);
//! }
//! assert_eq!(server.stats().bytes_delivered, 100_000);
//! ```

pub mod app;
pub mod cbr;
pub mod change;
pub mod dispatch;
pub mod encoding;
pub mod faults;
pub mod fifo;
pub mod framing;
pub mod host;
pub mod lateness;
pub mod link;
pub mod machine;
pub mod medium;
pub mod meters;
pub mod middle;
pub mod one_way;
pub mod overlay;
pub mod packet;
pub mod port;
pub mod route;
pub mod shaper;
pub mod stamp;
pub mod switch;
pub mod trace;
pub mod transport;

pub use app::{App, MessagePort};
pub use cbr::Cbr;
pub use change::Change;
pub use encoding::Encoding;
pub use faults::Faults;
pub use fifo::Fifo;
pub use host::BudgetHost;
pub use lateness::Lateness;
pub use link::Link;
pub use machine::{Answer, Machine, NodeMachine};
pub use medium::Medium;
pub use meters::Meters;
pub use middle::{Gate, Middle, Passed, WireTimes};
pub use one_way::OneWay;
pub use packet::{Flags, Packet, SackRanges};
pub use port::{Pool, Port};
pub use shaper::Shaper;
pub use stamp::Stamp;
pub use switch::Switch;
pub use transport::Connection;
