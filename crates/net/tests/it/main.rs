//! Networks of real sockets: transfers, hosts, hops, machines, faults.

mod common;
mod corpus;
mod hop;
mod host;
mod loopback;
mod machines;
mod soak;
