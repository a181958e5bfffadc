//! The tenants of a direction: the packets of each, and the links' side of their policies.

use std::net::IpAddr;

use tollway_law::Time;
use tollway_proto::Flags;
use tollway_proto::shaper::{TenantConfig, TenantStats, Tenants};

use crate::buffers::Buffers;
use crate::sys::ip::{self, Header};
use crate::sys::prefix::{Ports, Prefix};

/// A tenant of a direction.
#[derive(Clone, Debug)]
pub struct TenantSpec {
    /// Its name.
    pub name: String,
    /// Its packets.
    pub filter: Filter,
    /// Its members.
    pub members: Members,
    /// Its policy, and the queue of each member.
    pub config: TenantConfig,
    /// Labels of its packets.
    pub labels: Labels,
}

/// Conditions on a packet; an empty list matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Networks of the source address.
    pub from: Vec<Prefix>,
    /// Networks of the destination address.
    pub to: Vec<Prefix>,
    /// Ranges of source ports.
    pub from_ports: Vec<Ports>,
    /// Ranges of destination ports.
    pub to_ports: Vec<Ports>,
    /// Differentiated-services codepoints.
    pub dscp: Vec<u8>,
    /// Marks and interfaces of arrival, as bits of conditions; zero for any. See
    /// [`WaySpec::labelled`].
    ///
    /// [`WaySpec::labelled`]: super::WaySpec::labelled
    pub sights: [u16; 2],
}

/// The members that share a tenant's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Flows.
    Flows,
    /// Source hosts.
    Sources,
    /// Destination hosts.
    Destinations,
}

/// Codepoints that are written into a tenant's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Codepoint of packets that conform.
    pub conforming: Option<u8>,
    /// Codepoint of those that do not.
    pub excess: Option<u8>,
    /// True if excess packets of a transport with ECN are marked as having met congestion.
    pub excess_ecn: bool,
}

/// The counters of a tenant.
#[derive(Clone, Debug)]
pub struct TenantMoment {
    /// Its name.
    pub name: String,
    /// Its totals and its queues.
    pub stats: TenantStats,
}

impl Filter {
    /// Returns how specific the match is: higher is more specific. `None` if the filter does not
    /// match.
    pub fn score(&self, header: &Header, dscp: u8, sights: u16) -> Option<u32> {
        let flow = &header.flow;
        let mut score = best(&self.from, |network| network.score(flow.source))?;
        score += best(&self.to, |network| network.score(flow.destination))?;
        score += best(&self.from_ports, |ports| ports.score(flow.source_port))?;
        score += best(&self.to_ports, |ports| ports.score(flow.destination_port))?;
        score += best(&self.dscp, |&value| (value == dscp).then_some(2))?;
        for wanted in self.sights.into_iter().filter(|&wanted| wanted > 0) {
            score += (wanted & sights > 0).then_some(2)?;
        }
        Some(score)
    }

    /// The filter of the same packets' answers.
    pub fn back(self) -> Filter {
        Filter {
            from: self.to,
            to: self.from,
            from_ports: self.to_ports,
            to_ports: self.from_ports,
            dscp: self.dscp,
            sights: self.sights,
        }
    }
}

impl Labels {
    /// Writes a packet's label; its IP header is at offset `at` of its frame.
    pub(super) fn write(&self, conforms: bool, handle: u32, at: usize, buffers: &mut Buffers) {
        if let Some(dscp) = if conforms { self.conforming } else { self.excess } {
            ip::set_dscp(&mut buffers.bytes_mut(handle)[at..], dscp);
        }
        let packet = buffers.packet_mut(handle);
        if self.excess_ecn && !conforms && packet.flags.ecn_capable() {
            packet.flags.set(Flags::CE);
        }
    }
}

/// The best score of a list; 0 for an empty list.
fn best<T>(list: &[T], score: impl Fn(&T) -> Option<u32>) -> Option<u32> {
    if list.is_empty() { Some(0) } else { list.iter().filter_map(score).max() }
}

/// The tenants of a lane.
#[derive(Debug)]
pub(super) struct Policies {
    specs: Vec<TenantSpec>,
    pub(super) tenants: Tenants,
}

impl Policies {
    /// `None` without tenants.
    pub(super) fn new(now: Time, specs: &[TenantSpec]) -> Option<Policies> {
        let configs: Vec<TenantConfig> = specs.iter().map(|spec| spec.config.clone()).collect();
        let tenants = Tenants::new(now, &configs);
        (!specs.is_empty()).then(|| Policies { specs: specs.to_vec(), tenants })
    }

    /// The tenant of the IP packet in `bytes`: the one with the most specific filter, of equal ones
    /// the first.
    pub(super) fn tenant_of(&self, header: &Header, bytes: &[u8], sights: u16) -> Option<usize> {
        let dscp = ip::dscp(bytes);
        let mut best: Option<(u32, usize)> = None;
        for (at, spec) in self.specs.iter().enumerate() {
            if let Some(score) = spec.filter.score(header, dscp, sights)
                && best.is_none_or(|(most, _)| score > most)
            {
                best = Some((score, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// The host that is a member of a tenant; `None` if flows are.
    pub(super) fn host_of(&self, tenant: usize, header: &Header) -> Option<IpAddr> {
        match self.specs[tenant].members {
            Members::Flows => None,
            Members::Sources => Some(header.flow.source),
            Members::Destinations => Some(header.flow.destination),
        }
    }

    pub(super) fn labels(&self, tenant: usize) -> Labels {
        self.specs[tenant].labels
    }

    /// The counters of each tenant.
    pub(super) fn moments(&self) -> Vec<TenantMoment> {
        let named = self.specs.iter().zip(self.tenants.stats());
        named.map(|(spec, stats)| TenantMoment { name: spec.name.clone(), stats }).collect()
    }
}
