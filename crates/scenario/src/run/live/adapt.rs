//! What of a plan runs on real packets, and why not where it doesn't.

use tollway_proto::encoding::acp;

use crate::plan::{Data, Plan, SenderLaw};
use crate::run::Hosting;

/// Something in a plan that the live engine cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: the live engine {why}; {remedy}")]
pub struct Unsupported {
    /// The key in the file.
    pub key: String,
    /// Why not.
    pub why: String,
    /// What to do instead.
    pub remedy: &'static str,
}

/// The plan as the live engine runs it: packets have room for the header that they really carry.
///
/// `packet-size` stays what it is, so that links see the same packets; what the header takes is missing in the payload.
///
/// # Errors
/// [`Unsupported`] names the first key of which the live engine makes nothing.
pub(in crate::run) fn adapt(plan: &Plan, hosting: &Hosting) -> Result<Plan, Unsupported> {
    let unsupported = |key: String, why: &str, remedy| Unsupported { key, why: why.into(), remedy };
    const SIM: &str = "run it with `--engine sim`";
    if let Some(medium) = plan.media.first() {
        let key = format!("medium.{}", medium.name);
        return Err(unsupported(key, "has no shared media", SIM));
    }
    if let Some(tree) = plan.trees.first() {
        let section = &plan.flows[tree.first.0 as usize].section;
        return Err(unsupported(format!("flow.{section}.multicast"), "makes no copies of packets yet", SIM));
    }
    if let Some(aggregate) = plan.aggregates.first() {
        let key = format!("aggregate.{}", aggregate.name);
        return Err(unsupported(key, "has no shapers yet", SIM));
    }
    let flows = plan.flows.iter().map(|flow| (format!("flow.{}", flow.section), &flow.path));
    let workloads = plan.workloads.iter().flat_map(|workload| {
        workload.paths.iter().map(move |path| (format!("workload.{}", workload.name), path))
    });
    let both_ways =
        flows.chain(workloads).flat_map(|(key, path)| [(key.clone(), &path.route), (key, &path.back)]);
    let cbrs = plan.cbrs.iter().map(|cbr| (format!("cbr.{}", cbr.section), &cbr.route));
    for (key, route) in both_ways.chain(cbrs) {
        let mut nodes: Vec<_> = route.iter().map(|link| plan.links[link.0 as usize].from).collect();
        nodes.sort();
        if nodes.windows(2).any(|pair| pair[0] == pair[1]) || nodes.is_empty() {
            let why = "needs a route over at least one link that passes no node twice";
            return Err(unsupported(key, why, "give it another route"));
        }
    }
    let bare = acp::OVERHEAD + acp::header_len(0);
    if let Some(cbr) = plan.cbrs.iter().find(|cbr| usize::from(cbr.packet_size) < bare) {
        let key = format!("cbr.{}.packet-size", cbr.section);
        let why = format!("puts {bare} B of IP, UDP and ACP header into every packet");
        return Err(unsupported(key, &why, "make packets larger"));
    }
    if let Hosting::Processes(_) = hosting {
        apart(plan)?;
    }
    kernels(plan)?;
    let mut plan = plan.clone();
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
            continue; // Its packets have the headers that they have.
        }
        // Between processes that come and go, only who was opened knows what it has.
        transport.handshake |= matches!(hosting, Hosting::Processes(_));
        let ranges = usize::from(transport.sack_blocks).min(tollway_proto::SackRanges::MAX);
        let bare = (acp::OVERHEAD + acp::header_len(0)) as u16;
        let full = (acp::OVERHEAD + acp::header_len(ranges)) as u16;
        transport.header = transport.header.max(if transport.both_ways { full } else { bare });
        transport.ack_size = transport.ack_size.max(full);
        if transport.packet_size <= transport.header {
            let key = format!("{}.packet-size", section.unwrap_or_default());
            let why = format!("puts {} B of IP, UDP and ACP header into every packet", transport.header);
            return Err(unsupported(key, &why, "make packets larger"));
        }
    }
    Ok(plan)
}

/// What the kernel's TCP has no part in.
fn kernels(plan: &Plan) -> Result<(), Unsupported> {
    let refuse = |key: String, why: &str, remedy| Err(Unsupported { key, why: why.into(), remedy });
    const OURS: &str = "leave it out, or `transport` with it: Tollway's has it";
    if let Some(workload) =
        plan.workloads.iter().find(|workload| plan.transports[workload.transport.0 as usize].kernel)
    {
        let why = "has the kernel's TCP for flows known beforehand only";
        return refuse(format!("workload.{}.transport", workload.name), why, OURS);
    }
    for flow in &plan.flows {
        let transport = &plan.transports[flow.transport.0 as usize];
        if !transport.kernel {
            continue;
        }
        let key = |name: &str| format!("flow.{}.{name}", flow.section);
        if cfg!(not(target_os = "linux")) {
            return refuse(key("transport"), "has the kernel's TCP on Linux only", "leave it out");
        }
        if !(140..=1500).contains(&transport.packet_size) {
            let why = "has interfaces for packets of 140 to 1500 B";
            return refuse(key("packet-size"), why, "choose another size");
        }
        let wrong = [
            (transport.both_ways, "both-ways", "has data one way over the kernel's TCP"),
            (matches!(flow.data, Data::Frames { .. }), "frames", "has one stream over the kernel's TCP"),
            (flow.receive_buffer != u32::MAX, "receive-buffer", "leaves the kernel's buffers to the kernel"),
            (flow.send_buffer != u32::MAX, "send-buffer", "leaves the kernel's buffers to the kernel"),
            (
                transport.ecn && transport.law != SenderLaw::Dctcp,
                "ecn",
                "leaves it to the kernel which of its laws want marks: `dctcp` does",
            ),
        ];
        if let Some((_, name, why)) = wrong.into_iter().find(|wrong| wrong.0) {
            return refuse(key(name), why, OURS);
        }
    }
    Ok(())
}

/// What cannot be divided among processes.
fn apart(plan: &Plan) -> Result<(), Unsupported> {
    let refuse = |key: String, why: &str| {
        let remedy = "run all nodes in one process, without `--node`";
        Err(Unsupported { key, why: why.into(), remedy })
    };
    if let Some(workload) = plan.workloads.first() {
        let why = "starts flows that come by chance in one process only: others would not know their numbers";
        return refuse(format!("workload.{}", workload.name), why);
    }
    for link in &plan.links {
        let why = "has one account for both ways of a link, and its ends are two processes";
        if link.meter.is_some() {
            return refuse(format!("link.{}.meter", link.section), why);
        }
        if link.exchange.is_some() {
            return refuse(format!("link.{}.exchange", link.section), why);
        }
    }
    if let Some(flow) = plan.flows.iter().find(|flow| plan.transports[flow.transport.0 as usize].kernel) {
        let why = "has both ends of the kernel's TCP in one process";
        return refuse(format!("flow.{}.transport", flow.section), why);
    }
    match plan.hosts.first() {
        Some(host) => {
            let why = "divides a budget among flows of one process only";
            refuse(format!("host.{}", host.name), why)
        }
        None => Ok(()),
    }
}

/// A capture was asked for.
pub(in crate::run) fn no_capture() -> Unsupported {
    Unsupported {
        key: "--pcap".into(),
        why: "writes no captures: its packets are real, and `tcpdump -i lo` sees them".into(),
        remedy: "leave it out, or run it with `--engine sim`",
    }
}

/// Namespaces were asked for where there are none.
#[cfg(not(target_os = "linux"))]
pub(in crate::run) fn no_namespaces() -> Unsupported {
    Unsupported {
        key: "--hosts namespaces".into(),
        why: "has network namespaces on Linux only".into(),
        remedy: "leave it out: every node is a socket on loopback then",
    }
}
