//! The hosts of flows, for ports that share capacity among hosts.

use super::*;

impl<M: Machine> Network<M> {
    /// Sets the source and destination host of a flow.
    pub fn set_hosts(&mut self, flow: FlowId, hosts: [u32; 2]) {
        self.slab.hosts.set(flow.0, false, hosts);
    }

    /// Sets the source and destination host of a source of cross-traffic.
    pub fn set_source_hosts(&mut self, source: SourceId, hosts: [u32; 2]) {
        self.slab.hosts.set(source.0, true, hosts);
    }
}
