//! Machines of the crate together, in virtual time.

mod corpus;
mod overlay;
mod quantise;
mod soak;
mod switch;
