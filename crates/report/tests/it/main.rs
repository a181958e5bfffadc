//! Claims, figures and pages from runs.

mod claims;
mod figures;
mod live;
mod mutations;
mod synthetic;
mod verify;
