//! The Anypoint switch between real endpoints, under seeded faults: what it promises, and what
//! attacks do.

mod attacks;
mod delivery;
mod failures;
pub(crate) mod net;
mod stalls;
mod tolls;
