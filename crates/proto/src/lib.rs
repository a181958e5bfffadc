//! The sans-I/O machines of Tollway: packet, encodings, transport, output port, shaper.
//!
//! A machine here never opens a socket, spawns, sleeps or reads a clock: time is an argument, randomness is handed
//! in, and what it wants to send is asked for. One machine behaves the same in the simulator and on real packets,
//! and a test drives it by hand.

pub mod cbr;
pub mod encoding;
pub mod fifo;
pub mod host;
pub mod machine;
pub mod medium;
pub mod meters;
pub mod middle;
pub mod overlay;
pub mod packet;
pub mod port;
pub mod shaper;
pub mod stamp;
pub mod trace;
pub mod transport;

pub use cbr::Cbr;
pub use encoding::Encoding;
pub use fifo::Fifo;
pub use host::Host;
pub use machine::{Answer, Machine};
pub use medium::Medium;
pub use meters::{Meters, Watch};
pub use middle::{AnyMiddle, Gate, Middle};
pub use packet::{Flags, Packet, SackRanges};
pub use port::{Pool, Port};
pub use shaper::Shaper;
pub use stamp::Stamp;
pub use transport::Connection;
