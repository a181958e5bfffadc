//! Restrictions of the live engine, and the changes to a plan for it.

use std::collections::BTreeSet;

use tollway_law::sender::Ecn;
use tollway_proto::encoding::acp;

use crate::plan::switch::Session;
use crate::plan::{Data, EqualCost, Plan};
use crate::run::Hosting;

/// A feature of a plan that the live engine lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: the live engine {why}; {remedy}")]
pub struct Unsupported {
    /// The key in the file.
    pub key: String,
    /// The reason.
    pub why: String,
    /// A change that removes the obstacle.
    pub remedy: &'static str,
}

/// Returns the plan with room in packets for the headers of real packets.
///
/// `packet-size` stays the same, so that links carry the same packets. The header reduces the
/// payload.
///
/// # Errors
/// [`Unsupported`] names the first key that the live engine cannot apply.
pub(in crate::run) fn adapt(plan: &Plan, hosting: &Hosting) -> Result<Plan, Unsupported> {
    let unsupported = |key: String, why: &str, remedy| Unsupported { key, why: why.into(), remedy };
    let flows = plan.flows.iter().map(|flow| (format!("flow.{}", flow.section), &flow.path));
    let workloads = plan.workloads.iter().flat_map(|workload| {
        workload.paths.iter().map(move |path| (format!("workload.{}", workload.name), path))
    });
    let both_ways = flows
        .chain(workloads)
        .flat_map(|(key, path)| [(key.clone(), &path.route[..]), (key, &path.back[..])]);
    let cbrs = plan.cbrs.iter().map(|cbr| (format!("cbr.{}", cbr.section), &cbr.route[..]));
    for (key, route) in both_ways.chain(cbrs) {
        let mut nodes: Vec<_> = route.iter().map(|link| plan.links[link.0 as usize].from).collect();
        nodes.sort();
        if nodes.windows(2).any(|pair| pair[0] == pair[1]) || nodes.is_empty() {
            let why = "needs a route with at least one link, and without a node twice";
            return Err(unsupported(key, why, "give it another route"));
        }
    }
    if matches!(plan.equal_cost, EqualCost::Packet | EqualCost::Flowlet(_)) {
        let why = "supports only one route for all packets of a flow";
        return Err(unsupported("routing.equal-cost".into(), why, "set it to `ecmp` or `first`"));
    }
    if let Some(flow) = plan.flows.iter().find(|flow| flow.after.is_some()) {
        let key = format!("flow.{}.after", flow.section);
        return Err(unsupported(key, "does not support `after`", "give a `start` instead"));
    }
    if let (Some(session), Hosting::Namespaces) = (plan.sessions.first(), hosting) {
        let why = "does not support switches between namespaces, where the kernel forwards packets";
        let key = format!("flow.{}.session", session.name);
        return Err(unsupported(key, why, "leave out `--hosts namespaces`"));
    }
    let bare = acp::OVERHEAD + acp::header_len(0);
    if let Some(cbr) = plan.cbrs.iter().find(|cbr| usize::from(cbr.packet_size) < bare) {
        let key = format!("cbr.{}.packet-size", cbr.section);
        let why = format!("adds {bare} B of IP, UDP and ACP header to every packet");
        return Err(unsupported(key, &why, "make packets larger"));
    }
    if let Hosting::Processes(_) = hosting {
        apart(plan)?;
    }
    if let (Hosting::Namespaces, Some(machine)) = (hosting, plan.machines.iter().find(|m| !m.kind.is_app)) {
        let why = "does not support machines between namespaces, where the kernel forwards packets";
        return Err(unsupported(format!("machine.{}", machine.name), why, "leave out `--hosts namespaces`"));
    }
    kernels(plan)?;
    let mut plan = plan.clone();
    let of_session = |session: &Session| plan.flows[session.first.0 as usize].transport.0 as usize;
    let sessions: Vec<usize> = plan.sessions.iter().map(of_session).collect();
    for i in 0..plan.transports.len() {
        let section = plan
            .flows
            .iter()
            .find(|flow| flow.transport.0 as usize == i)
            .map(|flow| format!("flow.{}", flow.section))
            .or_else(|| {
                let workload = plan.workloads.iter().find(|workload| workload.transport.0 as usize == i);
                workload.map(|workload| format!("workload.{}", workload.name))
            });
        let transport = &mut plan.transports[i];
        if transport.kernel {
            continue; // The kernel's packets have their own headers.
        }
        // Processes start and stop: only a handshake shows that the other end exists.
        transport.handshake |= matches!(hosting, Hosting::Processes(_));
        let merged = sessions.contains(&i);
        let most = tollway_proto::SackRanges::MAX;
        // A switch states the ranges of all members together.
        let ranges = if merged { most } else { usize::from(transport.sack_blocks).min(most) };
        let bare = (acp::OVERHEAD + acp::header_len(0)) as u16;
        let full = (acp::OVERHEAD + acp::header_len(ranges)) as u16;
        transport.header = transport.header.max(if transport.both_ways { full } else { bare });
        transport.ack_size = transport.ack_size.max(full);
        if transport.packet_size <= transport.header {
            let key = format!("{}.packet-size", section.unwrap_or_default());
            let why = format!("adds {} B of IP, UDP and ACP header to every packet", transport.header);
            return Err(unsupported(key, &why, "make packets larger"));
        }
    }
    // A session's frame is a packet, whatever its header.
    for session in &plan.sessions {
        for flow in &mut plan.flows[session.flows()] {
            let transport = &plan.transports[flow.transport.0 as usize];
            if let Data::Frames { size, .. } = &mut flow.data {
                *size = (*size).min(u64::from(transport.packet_size - transport.header));
            }
        }
    }
    Ok(plan)
}

/// Refuses features that flows of the kernel's TCP lack.
fn kernels(plan: &Plan) -> Result<(), Unsupported> {
    let refuse = |key: String, why: &str, remedy| Err(Unsupported { key, why: why.into(), remedy });
    const OURS: &str = "leave it out, or use Tollway's transport";
    let flows = plan.flows.iter().map(|flow| (format!("flow.{}", flow.section), flow.transport, flow.shaped));
    let workloads = plan.workloads.iter().map(|workload| {
        let shaped = workload.shaped.iter().copied().flatten().next();
        (format!("workload.{}", workload.name), workload.transport, shaped)
    });
    for (section, transport, shaped) in flows.chain(workloads) {
        let transport = &plan.transports[transport.0 as usize];
        if !transport.kernel {
            continue;
        }
        let key = |name: &str| format!("{section}.{name}");
        if cfg!(not(target_os = "linux")) {
            return refuse(key("transport"), "supports the kernel's TCP only on Linux", "leave it out");
        }
        if !(140..=1500).contains(&transport.packet_size) {
            let why = "supports the kernel's TCP with packets of 140 to 1500 B";
            return refuse(key("packet-size"), why, "choose another size");
        }
        if let Some(shaped) = shaped {
            let policies = &plan.shapers[shaped.shaper].classes[shaped.class as usize];
            let name = policies.first().map_or("", |&policy| plan.aggregates[policy].name.as_str());
            let why = format!(
                "applies policies only to Tollway's transport, and `{section}` uses the kernel's TCP"
            );
            let remedy = "exclude it with the aggregate's filters; `tollway shape` paces the kernel's TCP";
            return refuse(format!("aggregate.{name}"), &why, remedy);
        }
        if transport.ecn && transport.law.descriptor().ecn != Ecn::Needs {
            let why = "cannot set ECN for the kernel's TCP unless the law needs marks";
            return refuse(key("ecn"), why, OURS);
        }
    }
    Ok(())
}

/// Refuses features that cannot be divided among processes.
fn apart(plan: &Plan) -> Result<(), Unsupported> {
    let refuse = |key: String, why: &str| {
        let remedy = "run all nodes in one process, without `--node`";
        Err(Unsupported { key, why: why.into(), remedy })
    };
    if let Some(medium) = plan.media.first() {
        let why = "runs a medium in one process, and its stations are in several";
        return refuse(format!("medium.{}", medium.name), why);
    }
    for link in plan.links.iter().filter(|link| link.meter.is_some() || link.exchange.is_some()) {
        let beside = plan.links.iter().filter(|other| (other.from, other.to) == (link.from, link.to));
        if beside.count() > 1 {
            let key = if link.meter.is_some() { "meter" } else { "exchange" };
            let why = "identifies a link by its neighbour, and there are two links to this one";
            return refuse(format!("link.{}.{key}", link.section), why);
        }
    }
    let flows = plan.flows.iter().map(|flow| (format!("flow.{}", flow.section), flow.transport));
    let workloads = plan.workloads.iter().map(|w| (format!("workload.{}", w.name), w.transport));
    if let Some((section, _)) =
        flows.chain(workloads).find(|(_, transport)| plan.transports[transport.0 as usize].kernel)
    {
        let why = "needs both ends of the kernel's TCP in one process";
        return refuse(format!("{section}.transport"), why);
    }
    for host in &plan.hosts {
        let nodes: BTreeSet<_> = plan.senders_of(host).collect();
        if nodes.len() > 1 {
            let why = "divides a budget in one process, and these flows begin at several nodes";
            return refuse(format!("host.{}", host.name), why);
        }
    }
    Ok(())
}

/// The error for a capture of a live run.
pub(in crate::run) fn no_capture() -> Unsupported {
    Unsupported {
        key: "--pcap".into(),
        why: "writes no captures; use `tcpdump -i lo` for its packets".into(),
        remedy: "leave it out, or run it with `--engine sim`",
    }
}

/// The error for namespaces on systems without them.
#[cfg(not(target_os = "linux"))]
pub(in crate::run) fn no_namespaces() -> Unsupported {
    Unsupported {
        key: "--hosts namespaces".into(),
        why: "supports network namespaces only on Linux".into(),
        remedy: "leave it out: every node is then a socket on loopback",
    }
}
