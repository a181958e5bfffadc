//! The sans-I/O machines of Tollway: packet, encodings, transport, output port, shaper.
//!
//! A machine here never opens a socket, spawns, sleeps or reads a clock: time is an argument, randomness is handed
//! in, and what it wants to send is asked for. One machine behaves the same in the simulator and on real packets,
//! and a test drives it by hand.

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
pub use host::Host;
pub use lateness::Lateness;
pub use link::Link;
pub use machine::{Answer, Machine, NodeMachine};
pub use medium::Medium;
pub use meters::Meters;
pub use middle::{Gate, Middle, Passed, Wire};
pub use packet::{Flags, Packet, SackRanges};
pub use port::{Pool, Port};
pub use shaper::Shaper;
pub use stamp::Stamp;
pub use switch::Switch;
pub use transport::Connection;
