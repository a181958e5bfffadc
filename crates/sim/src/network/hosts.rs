//! The hosts of flows, for ports that share among hosts.

use super::*;

impl<M: Machine> Network<M> {
    /// Notes the hosts that a flow comes from and goes to.
    pub fn set_hosts(&mut self, flow: FlowId, hosts: [u32; 2]) {
        self.slab.hosts.set(flow.0, false, hosts);
    }

    /// Notes the hosts that a source's packets come from and go to.
    pub fn set_source_hosts(&mut self, source: SourceId, hosts: [u32; 2]) {
        self.slab.hosts.set(source.0, true, hosts);
    }
}
