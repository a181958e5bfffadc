//! Switches on real sockets: messages, faults, attacks, sites, programs of others.

mod attacks;
mod common;
mod faults;
mod foreign;
mod library;
mod membership;
mod programs;
mod redis;
mod sites_attacks;
mod sites_traffic;
mod soak;
mod spread;
mod tls;
