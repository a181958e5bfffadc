//! Programs over a scenario's network: links in a few words or a whole file, made into what
//! [`tollway_net::exec`] carries packets over.
//!
//! A file's own flows do not run: the traffic is the programs'.

mod mahimahi;
mod profiles;
mod words;

use tollway_law::Time;
use tollway_net::exec::MeshSpec;

pub use mahimahi::chain;
pub use profiles::{PROFILES, Profile};
pub use tollway_net::clean_names;
pub use tollway_net::exec::{
    Ended, FiveTuple, FlowMoment, FlowRecord, KernelFlow, KernelOutcome, LinkMoment, LinkRecord, Mesh,
    MeshChange, Moment, Outcome, Panel, Privilege, Publish, Record, Remote, Sample, Setting, Signals, Spec,
    Strays, address, clean, panel, run, run_kernel,
};
pub use tollway_net::{Error, Lateness, LinkStats, random};
pub use words::{WordError, two_nodes};

use crate::file::Router;
use crate::plan::{Event, NodeId, Plan, What};
use crate::run::{Unsupported, link_specs};

/// The node at which a program runs, if links are all that is given.
pub const PROGRAM: &str = "program";
/// The node at the other end of them.
pub const SERVER: &str = "server";

/// The network of `plan`, for programs.
///
/// # Errors
/// [`Unsupported`] names the first key that programs' packets can't be subject to.
pub fn mesh(plan: &Plan) -> Result<MeshSpec, Unsupported> {
    let unsupported = |key: String, why: &str| {
        Err(Unsupported { key, why: why.into(), remedy: "leave it out, or run the file with `tollway run`" })
    };
    if let Some(medium) = plan.media.first() {
        return unsupported(format!("medium.{}", medium.name), "has no shared media");
    }
    if let Some(cbr) = plan.cbrs.first() {
        return unsupported(format!("cbr.{}", cbr.section), "carries the traffic of programs only");
    }
    if let Some(link) = plan.links.iter().find(|link| link.meter.is_some()) {
        return unsupported(format!("link.{}.meter", link.section), "has no meters");
    }
    if plan.nodes.len() > MOST_NODES {
        return unsupported("node".into(), "makes a network namespace of every node, and takes at most 200");
    }
    let nodes = plan.nodes.len() as u32;
    let pairs: Vec<(NodeId, NodeId)> =
        (0..nodes).flat_map(|from| (0..nodes).map(move |to| (NodeId(from), NodeId(to)))).collect();
    let routes = Router::new(plan.nodes.len(), &plan.links).routes(&pairs);
    Ok(MeshSpec {
        nodes: plan.nodes.iter().map(|node| node.name.clone()).collect(),
        links: link_specs(plan),
        losses: plan.own_losses().collect(),
        impairments: plan.links.iter().map(|link| link.impairments.as_deref().copied()).collect(),
        changes: plan.timeline().into_iter().filter_map(of_link).collect(),
        next: routes.iter().map(|route| route.first().map(|link| link.0)).collect(),
        seed: plan.seed,
        outside: None,
    })
}

/// The change of a link, if an event is one: of flows and hosts there are none here.
fn of_link(event: Event) -> Option<MeshChange> {
    match event.what {
        What::Link(link, what) => Some(MeshChange { at: event.at, link: link.0, what }),
        _ => None,
    }
}

/// The flows of `plan`, to be run by the kernel's own TCP over its [`mesh`].
///
/// # Errors
/// [`Unsupported`] names the first flow that the kernel has no TCP for.
pub fn kernel_flows(plan: &Plan) -> Result<Vec<KernelFlow>, Unsupported> {
    let flow = |flow: &crate::plan::Flow| {
        let unsupported = |key: &str, remedy| Unsupported {
            key: format!("flow.{}.{key}", flow.section),
            why: "is nothing that the kernel's TCP does".into(),
            remedy,
        };
        let Some(law) = plan.transports[flow.transport.0 as usize].law.descriptor().kernel else {
            return Err(unsupported("law", "use a law that Linux has, such as newreno, cubic, dctcp or bbr"));
        };
        if !flow.data.is_endless() || flow.stop < Time::NEVER {
            return Err(unsupported("data", "let it send for as long as the run lasts"));
        }
        if flow.after.is_some() {
            return Err(unsupported("after", "give it a `start`"));
        }
        Ok(KernelFlow { from: flow.path.from.0, to: flow.path.to.0, start: flow.start, law: law.into() })
    };
    plan.flows.iter().map(flow).collect()
}

/// The links from one node to another, by index; empty if there is no way.
pub fn route(mesh: &MeshSpec, from: u32, to: u32) -> Vec<usize> {
    let mut links = Vec::new();
    let mut at = from;
    while at != to {
        let Some(link) = mesh.next[at as usize * mesh.nodes.len() + to as usize] else { return Vec::new() };
        links.push(link as usize);
        at = mesh.links[link as usize].to;
    }
    links
}

/// Bytes of the longest train of segments that may cross the links of `plan` as one packet; 0 is none.
///
/// It may where nothing wants to see each packet by itself (a plain queue with a limit in bytes, no loss, no trace) and where it takes
/// at most 0.2 ms to serialise.
pub fn longest_train(plan: &Plan) -> u32 {
    let whole = plan.links.iter().all(|link| {
        let untouched = link.loss == 0.0 && link.impairments.is_none() && link.trace.is_none();
        untouched && link.law.is_none() && link.limit.packets == u32::MAX
    });
    let whole = whole && plan.losses.is_empty() && plan.events.is_empty();
    let slowest = plan.links.iter().map(|link| link.rate.bytes_per_sec()).fold(f64::INFINITY, f64::min);
    let bytes = (slowest * TRAIN.as_secs_f64()).min(f64::from(LONGEST)) as u32;
    if whole && bytes >= SHORTEST { bytes } else { 0 }
}

/// Namespaces that a run makes at most.
const MOST_NODES: usize = 200;
/// How long a train may take to serialise.
const TRAIN: Time = Time::from_micros(200);
/// The longest train, bytes: with a header on the wire for each of its segments it is still under 64 KiB.
const LONGEST: u32 = 63_000;
/// A shorter one is not worth it.
const SHORTEST: u32 = 4_500;

#[cfg(test)]
mod tests {
    use tollway_proto::Change;

    use super::*;
    use crate::file::Scenario;

    fn plan(down: &str, up: Option<&str>) -> Plan {
        let text = two_nodes(down, up, 1).unwrap();
        Scenario::parse::<&str>("--link", &text, &[]).unwrap().variants()[0].plan.clone()
    }

    #[test]
    fn two_nodes_lead_to_each_other() {
        let mesh = mesh(&plan("20Mbps 40ms fq_codel loss=1%", Some("5Mbps"))).unwrap();
        assert_eq!(mesh.nodes, [PROGRAM, SERVER]);
        assert_eq!((route(&mesh, 1, 0), route(&mesh, 0, 1)), (vec![0], vec![1]));
        assert_eq!(mesh.links.iter().map(|link| link.rate.mbps()).collect::<Vec<_>>(), [20.0, 5.0]);
        assert!(mesh.links.iter().all(|link| link.delay == Time::from_millis(40)));
        assert_eq!(mesh.losses[0][0].probability, 0.01);
    }

    #[test]
    fn a_file_s_routers_are_passed_and_what_it_asks_beyond_is_named() {
        let text = r#"
            name = "row"
            duration = "1 s"
            [node.a]
            [node.r]
            [node.b]
            [link.one]
            from = "a"
            to = "r"
            rate = "10 Mbps"
            [link.two]
            from = "r"
            to = "b"
            rate = "10 Mbps"
            [flow.f]
            from = "a"
            to = "b"
            law = "cubic"
        "#;
        let plan = |more: &str| {
            let text = text.to_owned() + more;
            Scenario::parse::<&str>("row.toml", &text, &[]).unwrap().variants()[0].plan.clone()
        };
        let row = mesh(&plan("")).unwrap();
        assert_eq!((route(&row, 0, 2), route(&row, 2, 0)), (vec![0, 2], vec![3, 1]));
        let refused = mesh(&plan("[cbr.c]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbps\"\n")).unwrap_err();
        assert!(refused.to_string().contains("cbr.c"), "{refused}");
    }

    #[test]
    fn what_happens_to_links_happens_in_order() {
        let text = two_nodes("10Mbps loss=1%", None, 1).unwrap()
            + "[[change]]\nat = \"300 ms\"\nlink = \"down\"\nrate = \"1 Mbps\"\n\
               [[change]]\nat = \"500 ms\"\nlink = \"down\"\nloss = 0.5\n\
               [[loss]]\nlink = \"down\"\nprobability = 0.25\nfrom = \"200 ms\"\nuntil = \"400 ms\"\n";
        let plan = Scenario::parse::<&str>("--link", &text, &[]).unwrap().variants()[0].plan.clone();
        let changes = mesh(&plan).unwrap().changes;
        let at: Vec<f64> = changes.iter().map(|change| change.at.as_millis_f64()).collect();
        assert_eq!(at, [200.0, 300.0, 400.0, 500.0]);
        assert!(changes.iter().all(|change| change.link == 0));
        let lost = |i: usize| match &changes[i].what {
            Change::Losses(losses) => losses.iter().map(|loss| loss.probability).collect(),
            other => panic!("{other:?}"),
        };
        let (both, one, other): (Vec<f64>, Vec<f64>, Vec<f64>) = (lost(0), lost(2), lost(3));
        assert_eq!((both, one, other), (vec![0.01, 0.25], vec![0.01], vec![0.5]));
        assert!(matches!(changes[1].what, Change::Rate(rate) if rate.mbps() == 1.0));
    }

    #[test]
    fn blackouts_that_overlap_are_one() {
        let text = two_nodes("10Mbps", None, 1).unwrap()
            + "[[change]]\nat = \"100 ms\"\nlink = \"down\"\nblackout = \"500 ms\"\n\
               [[change]]\nat = \"200 ms\"\nlink = \"down\"\nblackout = \"100 ms\"\n\
               [[change]]\nat = \"250 ms\"\nlink = \"up\"\nblackout = \"100 ms\"\n\
               [[change]]\nat = \"600 ms\"\nlink = \"down\"\nblackout = \"200 ms\"\n";
        let plan = Scenario::parse::<&str>("--link", &text, &[]).unwrap().variants()[0].plan.clone();
        let ends: Vec<(f64, u32)> = mesh(&plan)
            .unwrap()
            .changes
            .iter()
            .filter(|change| matches!(change.what, Change::Blackout(false)))
            .map(|change| (change.at.as_millis_f64(), change.link))
            .collect();
        assert_eq!(ends, [(350.0, 1), (800.0, 0)]);
    }

    #[test]
    fn trains_pass_where_nobody_looks_at_single_packets() {
        let train = |down: &str| longest_train(&plan(down, None));
        assert_eq!(train("1Gbps 1ms"), 25_000);
        assert_eq!(train("100Gbps"), LONGEST);
        assert_eq!(train("100Mbps"), 0);
        assert_eq!(train("1Gbps fq_codel"), 0);
        assert_eq!(train("1Gbps loss=0.1%"), 0);
        assert_eq!(train("1Gbps jitter=1ms"), 0);
        assert_eq!(train("1Gbps limit=1000packets"), 0);
    }
}
