//! Sites on real sockets and in virtual time: clients, attacks, faults.

mod attacks;
mod clients;
mod common;
mod corpus;
mod sites;
mod soak;
