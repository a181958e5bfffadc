//! Identifiers of the parts of a network.

/// The identifier of a flow: two machines and the routes between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// The identifier of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteId(pub(crate) u32);

/// The identifier of a machine at a node, or of a host's shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// The identifier of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// One of the two machines of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The machine that opens.
    Client,
    /// The machine that answers.
    Server,
}

/// The identifier of a source of cross-traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);
