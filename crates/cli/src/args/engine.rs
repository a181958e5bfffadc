//! The engine of a run, and the form of its nodes.

use clap::ValueEnum;
use tollway_scenario::run::{EngineKind, Hosting};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Virtual time; a seed always gives the same results.
    Sim,
    /// Real datagrams between sockets on loopback, in real time.
    Live,
    /// The same with every flow over the kernel's own TCP; laws with a program in the kernel need
    /// root. Linux only.
    Kernel,
}

impl Engine {
    /// True for real packets.
    pub(crate) fn is_live(self) -> bool {
        self != Engine::Sim
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hosts {
    /// Each node is a UDP socket on loopback; no privilege is needed.
    Loopback,
    /// Each node is a network namespace: of root, or of any user if the kernel allows user
    /// namespaces. Linux only.
    Namespaces,
}

impl From<Hosts> for Hosting {
    fn from(hosts: Hosts) -> Hosting {
        match hosts {
            Hosts::Loopback => Hosting::Loopback,
            Hosts::Namespaces => Hosting::Namespaces,
        }
    }
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> EngineKind {
        match engine {
            Engine::Sim => EngineKind::Sim,
            Engine::Live | Engine::Kernel => EngineKind::Live,
        }
    }
}
