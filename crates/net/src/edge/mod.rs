//! Links of ours at a real interface: packets of programs and of other machines cross them.
//!
//! ```text
//!  kernel ─ egress ─▶ program ─▶ tollway0 ─▶ [link: queue, law, rate] ─▶ packet socket ─▶ wire
//!  wire ─▶ ingress ─▶ program ─▶ tollway1 ─▶ [link: queue, law, rate] ─▶ tollway1 ─▶ ingress ─▶ kernel
//! ```
//!
//! A program in the kernel redirects packets to a bare interface ([`Tun::open_bare`]). A thread for
//! each direction reads them there, and offers each to the same [`Link`] as an emulated network has.
//! A packet that has left the link goes on: out of the interface through a packet socket, or back
//! into the kernel as if it had just arrived. A train of TCP segments stays a train if the link
//! allows it. Packets of tenants wait for their tokens before the link.
//!
//! | item | contents |
//! |---|---|
//! | [`WaySpec`], [`Way`] | a direction, and the thread that carries its packets |
//! | [`WayMoment`] | its counters |
//! | [`EdgeMeters`] | meters of senders that may lie, shared by both directions |
//! | [`Trips`] | round trips of TCP connections, for tenants' policies |
//! | [`TenantSpec`] | a tenant of a direction: its packets, its policy |
//!
//! [`Link`]: tollway_proto::link::Link
//! [`Tun::open_bare`]: crate::sys::tun::Tun::open_bare

mod frame;
mod lane;
mod meters;
mod tenants;
mod trips;
mod way;

#[cfg(test)]
mod tests;

pub use crate::hosts::wire::Wire;
pub use lane::{LaneMoment, TOLLED_CLASS, sees_packets};
pub use meters::{EdgeMeters, Held, MeterMoment};
pub use tenants::{Filter, Labels, Members, TenantMoment, TenantSpec};
pub use trips::Trips;
pub use way::{Way, WayMoment, WaySpec, longest_train};

#[cfg(any(test, fuzzing))]
pub(crate) use lane::Lane;
