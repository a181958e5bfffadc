//! The control laws of Tollway: pure arithmetic on explicit time.
//!
//! A **link** states a toll, a **packet** carries it, a **receiver** echoes it, and a **sender**
//! obeys it. Each has a trait in this crate, and each law is one file.
//!
//! A law has no access to a packet's bytes, a socket, a clock or an allocator. Time is an argument
//! ([`Time`]), and a law sees a packet's size, its [`Kind`] and its [`Toll`]. So the same laws run
//! in the simulator and on real packets. A new law implements [`SenderLaw`](sender::SenderLaw) or
//! [`LinkLaw`](link::LinkLaw); the book's chapter "A law of your own" adds one of each.
//!
//! | module | contents |
//! |---|---|
//! | [`link`] | link laws: the toll or signal of an output port |
//! | [`receiver`] | receiver laws: the echo to the sender |
//! | [`sender`] | sender laws: window and pace |
//! | [`meter`] | meters that check senders against their allotment |
//! | [`budget`] | strategies that divide an owner's budget over its flows |
//! | [`choice`] | the choice between two classes of traffic |
//! | [`shares`] | paces of many connections from weights, guarantees and limits |
//! | [`session`] | tolls where one connection splits over many members |
//! | [`overlay`] | costs and salaries of messages on the overlay |
//! | [`bucket`], [`aggregate`] | token buckets, for one connection and for many |
//! | [`param`] | constants of laws, with ranges and sources |
//! | [`units`], [`price`], [`time`] | units of quantities, prices and instants |
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
