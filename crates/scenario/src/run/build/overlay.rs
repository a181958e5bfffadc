//! The overlay of a plan: a site at each daemon's node, and the report.

use std::sync::Arc;

use tollway_law::{Rate, Time};
use tollway_proto::NodeMachine;
use tollway_proto::overlay::wire::SharedValues;
use tollway_proto::overlay::{
    Config, DaemonId, Epoch, LinkConfig, SenderConfig, Site, SiteConfig, TenantConfig,
};
use tollway_sim::{End, MachineId};

use super::Built;
use crate::plan::overlay::{Hop, Overlay, Sender};
use crate::plan::{LinkId, NodeId, Plan};
use crate::run::digest::Digest;
use crate::run::engine::{Engine, Joint};
use crate::run::{RunError, Watch};
use crate::tables::{FlowRow, FlowSummary, HopRow, SystemTables, TableWriter};

/// The sites of a plan's overlay, by daemon, and each sender's site.
#[derive(Default)]
pub(in crate::run) struct Sites {
    machines: Vec<MachineId>,
    /// By site: the nodes at the far ends of its links.
    links: Vec<Vec<NodeId>>,
    /// By sender: its site, and its index there.
    senders: Vec<(usize, usize)>,
}

/// Adds a site at each daemon's node.
pub(in crate::run) fn place<E: Engine>(plan: &Plan, built: &mut Built<E>) -> Sites {
    let Some(overlay) = &plan.overlay else { return Sites::default() };
    let mut senders = vec![(0, 0); overlay.senders.len()];
    let pool = SharedValues::default();
    let (mut machines, mut links) = (Vec::with_capacity(overlay.daemons.len()), Vec::new());
    for (at, &node) in overlay.daemons.iter().enumerate() {
        let own = overlay.senders.iter().enumerate().filter(|(_, sender)| sender.at == node);
        for (place, (sender, _)) in own.enumerate() {
            senders[sender] = (at, place);
        }
        machines
            .push(built.network.add(node, NodeMachine::app(Site::new(config(plan, overlay, node, &pool)))));
        links.push(hops_of(plan, overlay, node).map(|(hop, client, _)| peer(plan, hop, client)).collect());
    }
    Sites { machines, links, senders }
}

/// Assigns ends of hops to sites, in the order of their links.
pub(in crate::run) fn attach<E: Engine>(plan: &Plan, built: &mut Built<E>) {
    let Some(overlay) = &plan.overlay else { return };
    for (at, &node) in overlay.daemons.iter().enumerate() {
        for (hop, client, _) in hops_of(plan, overlay, node) {
            let end = if client { End::Client } else { End::Server };
            let (flow, site) = (built.flows[hop.flow.0 as usize], built.sites.machines[at]);
            built.network.join(Joint::App(site, flow, end));
        }
    }
}

/// The hops that end at a node, true if the node is the client, and the links towards the peer.
fn hops_of<'a>(
    plan: &'a Plan,
    overlay: &'a Overlay,
    node: NodeId,
) -> impl Iterator<Item = (&'a Hop, bool, &'a [LinkId])> {
    overlay.hops.iter().filter_map(move |hop| {
        let path = &plan.flows[hop.flow.0 as usize].path;
        if path.from == node {
            Some((hop, true, &path.route[..]))
        } else {
            (path.to == node).then_some((hop, false, &path.back[..]))
        }
    })
}

/// The node at the far end of a hop.
fn peer(plan: &Plan, hop: &Hop, client: bool) -> NodeId {
    let path = &plan.flows[hop.flow.0 as usize].path;
    if client { path.to } else { path.from }
}

fn config(plan: &Plan, overlay: &Overlay, node: NodeId, pool: &SharedValues) -> SiteConfig {
    let links = hops_of(plan, overlay, node).map(|(hop, client, route)| LinkConfig {
        peer: DaemonId(peer(plan, hop, client).0),
        weight: hop.length,
        rate: narrowest(plan, route),
    });
    let mut groups: [Vec<Arc<[u8]>>; 2] = Default::default();
    for (number, group) in overlay.groups.iter().enumerate() {
        let sends = || overlay.senders.iter().any(|sender| sender.at == node && sender.group == number);
        if group.members.binary_search(&node).is_ok() || (group.ordered && sends()) {
            groups[usize::from(group.ordered)].push(group.name.as_bytes().into());
        }
    }
    let [plain, ordered] = groups;
    let (mut tenants, mut names) = (Vec::new(), Vec::<Option<&str>>::new());
    let mut senders = Vec::new();
    let own = overlay.senders.iter().enumerate().filter(|(_, sender)| sender.at == node);
    for (number, sender) in own {
        let name = sender.tenant.as_deref();
        let known = names.iter().position(|other| name.is_some() && *other == name);
        let tenant = known.unwrap_or_else(|| {
            names.push(name);
            tenants.push(TenantConfig { weight: sender.salary, benefit: sender.benefit });
            tenants.len() - 1
        });
        senders.push(SenderConfig {
            number: number as u32,
            group: name_of(overlay, sender),
            ordered: overlay.groups[sender.group].ordered,
            tenant,
            bytes: frame(plan, overlay),
            start: sender.start,
            stop: sender.stop,
            demand: sender.demand,
            on_off: sender.on_off,
        });
    }
    SiteConfig {
        daemon: Config {
            id: DaemonId(node.0),
            epoch: Epoch(1),
            cost: overlay.cost,
            purse: overlay.purse,
            announce: overlay.announce,
            patience: overlay.patience,
            ..Config::default()
        },
        links: links.collect(),
        groups: plain,
        ordered,
        tenants,
        senders,
        measure_from: plan.measure.warmup,
        pool: pool.clone(),
        seed: plan.seed ^ (u64::from(node.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fn name_of(overlay: &Overlay, sender: &Sender) -> Arc<[u8]> {
    overlay.groups[sender.group].name.as_bytes().into()
}

fn narrowest(plan: &Plan, route: &[LinkId]) -> Rate {
    let rates = route.iter().map(|link| plan.links[link.0 as usize].rate.bytes_per_sec());
    Rate::from_bytes_per_sec(rates.fold(f64::INFINITY, f64::min))
}

/// Bytes of a message between daemons, without the headers of its packets.
fn frame(plan: &Plan, overlay: &Overlay) -> usize {
    let transports = overlay.hops.iter().map(|hop| {
        let flow = &plan.flows[hop.flow.0 as usize];
        &plan.transports[flow.transport.0 as usize]
    });
    let headers = transports.map(|transport| {
        overlay.message.div_ceil(u32::from(transport.packet_size)) * u32::from(transport.header)
    });
    overlay.message.saturating_sub(headers.max().unwrap_or(0)) as usize
}

/// Ends a measurement interval of each hop, and writes its row.
pub(in crate::run) fn hop_rows<E: Engine>(
    plan: &Plan,
    built: &mut Built<E>,
    writer: &mut TableWriter,
) -> Result<(), RunError> {
    let (now, Some(overlay)) = (built.network.now(), &plan.overlay) else { return Ok(()) };
    let mut measured = Vec::new();
    for (at, &node) in overlay.daemons.iter().enumerate() {
        let links = built.sites.links[at].len();
        built.network.with_machine(built.sites.machines[at], |machine| {
            let site = machine.downcast_mut::<Site>();
            measured.extend(site.into_iter().flat_map(|site| {
                (0..links).filter_map(move |place| Some((place, site.end_interval(now, place)?)))
            }));
        });
        for (place, interval) in measured.drain(..) {
            writer.hop(&HopRow {
                time_s: now.nearest_secs(),
                hop: &hop_name(plan, node, built.sites.links[at][place]),
                queue_mean_messages: interval.queue,
                queue_max_messages: interval.longest as f64,
                price: interval.price,
            })?;
        }
    }
    Ok(())
}

/// A hop's name, from the nodes of its sending daemon and the peer.
fn hop_name(plan: &Plan, from: NodeId, to: NodeId) -> String {
    let name = |node: NodeId| &*plan.nodes[node.0 as usize].name;
    format!("{}-{}", name(from), name(to))
}

/// Counts the accepted messages of each sender.
pub(in crate::run) struct Senders(Vec<Counts>);

/// Messages accepted until the last row, and until the end of the warm-up.
#[derive(Clone, Copy, Default)]
struct Counts {
    last: u64,
    at_warmup: u64,
}

impl Senders {
    pub(in crate::run) fn new(plan: &Plan) -> Senders {
        let senders = plan.overlay.iter().flat_map(|overlay| &overlay.senders);
        Senders(senders.map(|_| Counts::default()).collect())
    }

    /// Ends the warm-up.
    pub(in crate::run) fn warm<E: Engine>(&mut self, built: &Built<E>) {
        for (at, counts) in self.0.iter_mut().enumerate() {
            counts.at_warmup = accepted(built, at).unwrap_or_default();
        }
    }

    /// Writes the rows of started senders over a span.
    pub(in crate::run) fn rows<E: Engine>(
        &mut self,
        plan: &Plan,
        built: &Built<E>,
        span: (Time, Time),
        (writer, digest): (&mut TableWriter, &mut Digest),
        watch: Option<&dyn Watch>,
    ) -> Result<(), RunError> {
        let Some(overlay) = &plan.overlay else { return Ok(()) };
        let seconds = (span.1 - span.0).as_secs_f64();
        for ((at, sender), counts) in overlay.senders.iter().enumerate().zip(&mut self.0) {
            if sender.start >= span.1 || sender.stop <= span.0 {
                continue;
            }
            let Some(accepted) = accepted(built, at) else { continue };
            let rate_mbps = mbps(overlay, accepted - counts.last, seconds).unwrap_or(0.0);
            counts.last = accepted;
            digest.word(accepted);
            let row = FlowRow {
                time_s: span.1.nearest_secs(),
                flow: &sender.name,
                rate_mbps,
                goodput_mbps: rate_mbps,
                ..FlowRow::default()
            };
            writer.flow(&row)?;
            if let Some(watch) = watch {
                watch.flow(plan.variant.as_deref().unwrap_or_default(), &row);
            }
        }
        Ok(())
    }

    /// Writes the summaries of senders, with ideal rates if known.
    pub(in crate::run) fn finish<E: Engine>(
        &self,
        plan: &Plan,
        built: &Built<E>,
        (warmup, ideal_mbps): (Time, &[[Option<f64>; 2]]),
        (writer, digest): (&mut TableWriter, &mut Digest),
    ) -> Result<(), RunError> {
        let (end, Some(overlay)) = (built.network.now(), &plan.overlay) else { return Ok(()) };
        for ((at, sender), counts) in overlay.senders.iter().enumerate().zip(&self.0) {
            let Some(accepted) = accepted(built, at) else { continue };
            let last = sender.stop.min(end);
            // A sender that stopped during the warm-up is measured over its life.
            let (from, base) =
                if last > warmup { (sender.start.max(warmup), counts.at_warmup) } else { (sender.start, 0) };
            let seconds = last.saturating_sub(from).as_secs_f64();
            let rate_mbps = mbps(overlay, accepted - base, seconds);
            let bytes = accepted * u64::from(overlay.message);
            let ideal_mbps = ideal_mbps.get(at).and_then(|ways| ways[0]);
            digest.word(accepted);
            writer.flow_summary(&FlowSummary {
                flow: &sender.name,
                law: COST_BENEFIT,
                start_s: sender.start.nearest_secs(),
                from_s: from.nearest_secs(),
                finish_s: (last < end).then(|| last.nearest_secs()),
                sent_bytes: bytes,
                delivered_bytes: bytes,
                goodput_mbps: rate_mbps,
                rate_mbps,
                ideal_mbps,
                share_of_ideal: ideal_mbps
                    .filter(|&ideal| ideal > 0.0)
                    .zip(rate_mbps)
                    .map(|(i, rate)| rate / i),
                ..FlowSummary::default()
            })?;
        }
        Ok(())
    }
}

/// The rate of a number of messages in `seconds`, Mb/s on a link; `None` without any time.
fn mbps(overlay: &Overlay, messages: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| messages as f64 * f64::from(overlay.message) * 8e-6 / seconds)
}

/// Accepted messages of sender `at`; `None` if another process runs its site.
fn accepted<E: Engine>(built: &Built<E>, at: usize) -> Option<u64> {
    let (site, place) = built.sites.senders[at];
    Some(site_of(built, site)?.sent(place).messages)
}

fn site_of<E: Engine>(built: &Built<E>, at: usize) -> Option<&Site> {
    built.network.machine(built.sites.machines[at])?.downcast_ref::<Site>()
}

/// Reports hops, daemons and senders.
pub(in crate::run) fn report<E: Engine>(plan: &Plan, built: &Built<E>, tables: &mut SystemTables) {
    let Some(overlay) = &plan.overlay else { return };
    let now = built.network.now();
    let name = |node: NodeId| &*plan.nodes[node.0 as usize].name;
    for (at, &node) in overlay.daemons.iter().enumerate() {
        let Some(site) = site_of(built, at) else { continue };
        let snapshot = site.daemon().snapshot();
        let (mut control, mut header) = (0.0, 0);
        for (place, (hop, client, route)) in hops_of(plan, overlay, node).enumerate() {
            let flow = &plan.flows[hop.flow.0 as usize];
            let Some(measured) = site.measured(now, place) else { continue };
            let Some(port) = snapshot.ports.iter().find(|port| Some(port.port) == site.port(place)) else {
                continue;
            };
            header = plan.transports[flow.transport.0 as usize].header;
            let mbps = with_headers(measured.control, measured.control_frames, header, measured.seconds);
            control += mbps;
            let hop = hop_name(plan, node, peer(plan, hop, client));
            let mut set = |column, value| tables.set("hops", &[("hop", &hop)], column, value);
            set("queue_mean", measured.queue);
            set("queue_max", measured.longest as f64);
            set("price_mean", measured.price);
            set("rate_mbps", port.rate.mbps());
            set("data_bytes", port.data as f64);
            set("control_bytes", port.control as f64);
            set("control_mbps", mbps);
            set("control_share", mbps / narrowest(plan, route).mbps());
        }
        let (received, wrong) = site.received();
        let mut set = |column, value| tables.set("daemons", &[("daemon", name(node))], column, value);
        set(
            "announced_mbps",
            with_headers(snapshot.announced, snapshot.announcements, header, now.as_secs_f64()),
        );
        set("announcements", snapshot.announcements as f64);
        set("control_mbps", control);
        set("received", received as f64);
        set("wrong", wrong as f64);
        if overlay.groups.iter().any(|group| group.ordered) {
            let (views, unordered, _) = site.ordered();
            set("views", views as f64);
            set("unordered", unordered as f64);
        }
        set("resent", snapshot.resent as f64);
        set("expired", snapshot.expired as f64);
    }
    for (at, sender) in overlay.senders.iter().enumerate() {
        let (site, place) = built.sites.senders[at];
        let Some(sent) = site_of(built, site).map(|site| site.sent(place)) else { continue };
        let mut set = |column, value| tables.set("senders", &[("sender", &sender.name)], column, value);
        set("messages", sent.messages as f64);
        if let Some(waiting) = sent.waiting {
            set("waiting", waiting as f64);
        }
    }
}

/// The rate of frames with a packet header each, Mb/s.
fn with_headers(bytes: u64, frames: u64, header: u16, seconds: f64) -> f64 {
    (bytes as f64 + frames as f64 * f64::from(header)) * 8e-6 / seconds.max(1e-9)
}

/// The name of the senders' law in the summary.
const COST_BENEFIT: &str = "cost-benefit";
