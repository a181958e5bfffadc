//! Clients of one site, by hand.
use super::*;

