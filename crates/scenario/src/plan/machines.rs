//! Machines that a scenario places at nodes.

use std::any::Any;

use tollway_proto::NodeMachine;
use tollway_proto::app::{Caller, Echo};
use tollway_proto::middle::Counter;

use super::*;

/// A machine at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// `m`, or `m.3` for the machine at the third member of a group.
    pub name: String,
    /// Its node.
    pub node: NodeId,
    /// Its kind.
    pub kind: &'static MachineKind,
    /// Messages on each connection, and bytes of each, for the kind `caller`.
    pub messages: (u64, u64),
    /// Ends that an app owns, in the order of its ports: the flow, and true for its client.
    pub ends: Vec<(FlowId, bool)>,
}

/// A kind of machine that a file can place.
#[derive(Debug)]
pub struct MachineKind {
    /// Its name in scenario files.
    pub word: &'static str,
    /// True for an app, which owns connections; false for a middle.
    pub is_app: bool,
    /// Builds a machine of this kind.
    pub build: fn(&Machine) -> NodeMachine,
    /// Reads its counters, with their names.
    pub counts: fn(&dyn Any) -> Vec<(&'static str, u64)>,
}

impl PartialEq for MachineKind {
    fn eq(&self, other: &MachineKind) -> bool {
        self.word == other.word
    }
}

impl MachineKind {
    /// The kind called `word`.
    pub fn of(word: &str) -> Option<&'static MachineKind> {
        MACHINES.iter().find(|kind| kind.word == word)
    }
}

/// Every kind of machine that a file can place.
pub static MACHINES: [MachineKind; 3] = [
    MachineKind {
        word: "counter",
        is_app: false,
        build: |_| NodeMachine::middle(Counter::default()),
        counts: |machine| {
            let counter = machine.downcast_ref::<Counter>();
            counter
                .map_or(Vec::new(), |counter| vec![("packets", counter.packets), ("frames", counter.frames)])
        },
    },
    MachineKind {
        word: "caller",
        is_app: true,
        build: |machine| NodeMachine::app(Caller::new(machine.messages.0, machine.messages.1 as usize)),
        counts: |machine| {
            let caller = machine.downcast_ref::<Caller>();
            caller.map_or(Vec::new(), |caller| vec![("answered", caller.answered), ("wrong", caller.wrong)])
        },
    },
    MachineKind {
        word: "echo",
        is_app: true,
        build: |_| NodeMachine::app(Echo::default()),
        counts: |machine| {
            machine.downcast_ref::<Echo>().map_or(Vec::new(), |echo| vec![("echoed", echo.echoed)])
        },
    },
];
