//! The additional state of some loss detections, in one word of the sender.

use super::ns2::Ns2;
use super::rack::Rack;
use crate::transport::config::{Config, Detection};

/// The additional state of RACK or of ns-2's senders; other detections have none.
#[derive(Debug, Default)]
pub(in crate::transport) struct Extra(Option<Box<Kind>>);

#[derive(Debug)]
enum Kind {
    Rack(Rack),
    Ns2(Ns2),
}

impl Extra {
    pub(in crate::transport) fn new(config: &Config) -> Extra {
        Extra(match config.detects() {
            Detection::Rack { tail_probe } => Some(Box::new(Kind::Rack(Rack::new(tail_probe)))),
            Detection::Ns2 => Some(Box::new(Kind::Ns2(Ns2::new()))),
            _ => None,
        })
    }

    #[inline]
    pub(in crate::transport) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// True if losses are detected by time.
    #[inline]
    pub(in crate::transport) fn is_rack(&self) -> bool {
        self.rack().is_some()
    }

    /// True if the sender follows ns-2.
    #[inline]
    pub(in crate::transport) fn is_ns2(&self) -> bool {
        matches!(self.0.as_deref(), Some(Kind::Ns2(_)))
    }

    #[inline]
    pub(in crate::transport) fn rack(&self) -> Option<&Rack> {
        match self.0.as_deref() {
            Some(Kind::Rack(rack)) => Some(rack),
            _ => None,
        }
    }

    #[inline]
    pub(in crate::transport) fn rack_mut(&mut self) -> Option<&mut Rack> {
        match self.0.as_deref_mut() {
            Some(Kind::Rack(rack)) => Some(rack),
            _ => None,
        }
    }

    #[inline]
    pub(in crate::transport) fn ns2_mut(&mut self) -> Option<&mut Ns2> {
        match self.0.as_deref_mut() {
            Some(Kind::Ns2(ns2)) => Some(ns2),
            _ => None,
        }
    }
}
