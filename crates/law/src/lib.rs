//! The control laws of Tollway: pure arithmetic on explicit time.
//!
//! A **link** states a toll, a **packet** carries it, a **receiver** echoes it, a **sender** obeys
//! it. Each of those has a trait here and a file a law beneath it. A law never knows a packet's
//! bytes, a socket, a clock or an allocator: time is an argument ([`Time`]), and what a law sees of
//! a packet is its size, its [`Kind`] and its [`Toll`]. The same laws run in the simulator and on
//! real packets. A law of your own is a [`SenderLaw`](sender::SenderLaw) or a
//! [`LinkLaw`](link::LinkLaw); the book's chapter of that name adds one of each.
//!
//! | module | question it answers |
//! |---|---|
//! | [`link`] | what does this link say? |
//! | [`receiver`] | what goes back? |
//! | [`sender`] | how fast may I go? |
//! | [`meter`] | does a sender do as it says, and as it is told? |
//! | [`budget`] | who of an owner's flows gets how much of its budget? |
//! | [`choice`] | which class of traffic is a sender better off in? |
//! | [`shares`] | how fast may each of many connections be paced? |
//! | [`session`] | what becomes of tolls where one connection splits over many ends? |
//! | [`overlay`] | what does a message cost on the overlay, and who can pay for it? |
//! | [`bucket`], [`aggregate`] | what may pass, and who of many connections may use it? |
//! | [`param`] | which constants has a law, and in what ranges? |
//! | [`units`], [`price`], [`time`] | in what units, and when? |
//!
//! ```
//! use tollway_law::sender::{Acked, Flight, NewRenoConfig, SenderLaw};
//! use tollway_law::Time;
//!
//! let mut law = NewRenoConfig::default().build();
//! let before = law.window();
//! let flight = Flight::of(Time::from_secs(1), Time::from_millis(40), before as u32);
//! law.on_ack(&flight, &Acked::of(2));
//! assert_eq!(law.window(), before + 2.0); // slow start
//! ```

pub mod aggregate;
mod aim;
pub mod bucket;
pub mod budget;
pub mod choice;
pub mod link;
pub mod meter;
pub mod overlay;
pub mod param;
pub mod price;
pub mod receiver;
pub mod sender;
pub mod session;
pub mod shares;
pub mod time;
pub mod toll;
pub mod units;

pub use aim::Aim;
pub use price::{Budget, Price};
pub use time::Time;
pub use toll::{Kind, Toll};
pub use units::{Bytes, Rate, UnitError};
