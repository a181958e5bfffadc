//! Switches on real sockets: messages, faults, attacks, sites, programs of others.

mod attacks;
mod common;
mod faults;
mod programs;
mod sites_attacks;
mod sites_traffic;
mod spread;
mod tls;
