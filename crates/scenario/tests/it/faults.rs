//! Random scenarios with many faults: no panic, conservation of packets, complete delivery by
//! finished flows, and an equal second run.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;
use tollway_law::Time;
use tollway_scenario::run::{DigestMode, Finished, Options, RunError, run};

use tollway_scenario::tables::Outputs;

use crate::{finish, parse};

/// A line of two to six nodes with flows between any two of them.
#[derive(Clone, Debug)]
struct Scene {
    seed: u64,
    links: Vec<LinkOf>,
    flows: Vec<FlowOf>,
    losses: Vec<(usize, f64, bool, u8, u8)>,
    changes: Vec<(usize, u32, u8, f64)>,
    medium: bool,
    cbr: Option<f64>,
    workload: Option<(u8, f64)>,
}

#[derive(Clone, Debug)]
struct LinkOf {
    mbps: f64,
    delay_ms: f64,
    packets: u32,
    law: u8,
    reverse_law: u8,
    overhead: u8,
}

#[derive(Clone, Debug)]
struct FlowOf {
    from: usize,
    to: usize,
    law: u8,
    data: u8,
    amount: u32,
    start_ms: u32,
    stop_ms: Option<u32>,
    detection: u8,
    delayed: bool,
    encoding: u8,
    both: bool,
    handshake: bool,
    buffer: Option<u32>,
    packet: u16,
    pacing: bool,
}

const LINK_LAWS: [&str; 5] = ["drop-tail", "red", "xcp", "xcp", "xcp"];
const FORMS: [&str; 5] = [
    "",
    "",
    "",
    "xcp = { form = \"window\", arithmetic = \"fixed32\" }",
    "xcp = { arithmetic = \"fixed128\" }",
];
const SENDERS: [&str; 4] = ["newreno", "cubic", "xcp", "scalable"];

impl Scene {
    /// An XCP sender needs a link of its law; others run on any link.
    fn law(&self, flow: &FlowOf) -> &'static str {
        let (low, high) = (flow.from.min(flow.to), flow.from.max(flow.to));
        let forward = flow.from < flow.to;
        let answered = |forward: bool| {
            self.links[low..high].iter().any(|l| if forward { l.law >= 2 } else { l.reverse_law >= 2 })
        };
        match flow.law {
            2 if !answered(forward) || flow.both && !answered(!forward) => "newreno",
            law => SENDERS[usize::from(law)],
        }
    }

    fn toml(&self) -> String {
        self.write().expect("text grows")
    }

    fn write_flows(&self, t: &mut String) -> std::fmt::Result {
        for (i, f) in self.flows.iter().enumerate() {
            writeln!(
                t,
                "[flow.f{i}]\nfrom = \"n{}\"\nto = \"n{}\"\nlaw = \"{}\"",
                f.from,
                f.to,
                self.law(f)
            )?;
            writeln!(
                t,
                "start = \"{} ms\"\npacket-size = {}\nhandshake = {}\nboth-ways = {}",
                f.start_ms, f.packet, f.handshake, f.both
            )?;
            match f.data {
                0 => {}
                1 => writeln!(t, "size = {}", f.amount)?,
                _ => writeln!(
                    t,
                    "frames = {{ count = {}, size = {} }}",
                    1 + f.amount % 50,
                    1 + f.amount % 9000
                )?,
            }
            if let Some(after) = f.stop_ms {
                writeln!(t, "stop = \"{} ms\"", f.start_ms + 1 + after)?;
            }
            match f.detection {
                0 => writeln!(t, "sack = false")?,
                1 => writeln!(t, "loss-detection = \"rack\"")?,
                2 => writeln!(t, "loss-detection = \"newreno\"")?,
                _ => {}
            }
            if f.delayed {
                writeln!(t, "delayed-ack = \"40 ms\"")?;
            }
            writeln!(
                t,
                "encoding = \"{}\"",
                ["acp", "tcp-option", "draft-2", "draft-3"][usize::from(f.encoding)]
            )?;
            if let Some(buffer) = f.buffer {
                writeln!(t, "receive-buffer = \"{buffer} packets\"")?;
            }
            if !f.pacing {
                writeln!(t, "xcp = {{ pacing = false }}")?;
            }
        }
        Ok(())
    }

    fn write(&self) -> Result<String, std::fmt::Error> {
        let mut t = format!(
            "name = \"faults\"\nduration = \"8 s\"\nseed = {}\n[measure]\ninterval = \"500 ms\"\nwarmup = \"1 s\"\n",
            self.seed
        );
        for i in 0..=self.links.len() {
            writeln!(t, "[node.n{i}]")?;
        }
        if self.medium {
            writeln!(t, "[medium.air]")?;
        }
        for (i, l) in self.links.iter().enumerate() {
            writeln!(
                t,
                "[link.l{i}]\nfrom = \"n{i}\"\nto = \"n{}\"\nrate = \"{} Mbps\"\ndelay = \"{} ms\"",
                i + 1,
                l.mbps,
                l.delay_ms
            )?;
            writeln!(
                t,
                "limit = \"{} packets\"\noverhead = {}\nlaw = \"{}\"",
                l.packets,
                l.overhead,
                LINK_LAWS[usize::from(l.law)]
            )?;
            if l.law >= 2 {
                writeln!(t, "{}", FORMS[usize::from(l.law)])?;
            }
            if self.medium && i == 0 {
                writeln!(t, "medium = \"air\"")?;
            }
            writeln!(
                t,
                "[link.l{i}.reverse]\nlaw = \"{}\"\nlimit = \"{} packets\"",
                LINK_LAWS[usize::from(l.reverse_law)],
                l.packets
            )?;
        }
        self.write_flows(&mut t)?;
        if let Some(mbps) = self.cbr {
            writeln!(
                t,
                "[cbr.c]\nfrom = \"n0\"\nto = \"n1\"\nrate = \"{mbps} Mbps\"\non = \"70 ms\"\noff = \"30 ms\""
            )?;
        }
        if let Some((law, per_sec)) = self.workload {
            writeln!(
                t,
                "[workload.w]\nfrom = \"n0\"\nto = \"n1\"\nlaw = \"{}\"\narrivals = {{ poisson = {per_sec} }}",
                SENDERS[usize::from(law)]
            )?;
            writeln!(t, "sizes = {{ pareto = {{ mean = \"20 kB\", shape = 1.2 }} }}")?;
        }
        for &(link, p, before, direction, only) in &self.losses {
            let link = link % self.links.len();
            let place = if before { "before" } else { "after" };
            let direction = ["forward", "reverse", "both"][usize::from(direction)];
            let only = ["all", "data", "ack"][usize::from(only)];
            writeln!(
                t,
                "[[loss]]\nlink = \"l{link}\"\nprobability = {p}\nplace = \"{place}\"\ndirection = \"{direction}\"\nonly = \"{only}\""
            )?;
        }
        for &(link, at, what, x) in &self.changes {
            let link = link % self.links.len();
            writeln!(t, "[[change]]\nat = \"{at} ms\"\nlink = \"l{link}\"")?;
            match what {
                0 => writeln!(t, "rate = \"{} Mbps\"", 0.05 + x * 20.0)?,
                1 => writeln!(t, "delay = \"{} ms\"", x * 200.0)?,
                2 => writeln!(t, "blackout = \"{} ms\"", 1.0 + x * 1500.0)?,
                3 => writeln!(t, "limit = \"{} packets\"", 1 + (x * 40.0) as u32)?,
                4 => writeln!(t, "capacity = \"{} Mbps\"", 0.01 + x * 50.0)?,
                _ => writeln!(t, "loss = {x}")?,
            }
        }
        Ok(t)
    }
}

fn link() -> impl Strategy<Value = LinkOf> {
    (0.2f64..30.0, 0.0f64..60.0, 1u32..60, 0u8..5, 0u8..5, any::<u8>()).prop_map(
        |(mbps, delay_ms, packets, law, reverse_law, overhead)| LinkOf {
            mbps,
            delay_ms,
            packets,
            law,
            reverse_law,
            overhead,
        },
    )
}

fn flow(nodes: usize) -> impl Strategy<Value = FlowOf> {
    let ends = (0..nodes, 1..nodes).prop_map(move |(from, step)| (from, (from + step) % nodes));
    let data = (0u8..3, 1u32..400_000);
    let life = (0u32..4000, proptest::option::weighted(0.3, 0u32..4000));
    let how =
        (0u8..4, 0u8..4, any::<bool>(), 0u8..4, proptest::bool::weighted(0.3), proptest::bool::weighted(0.8));
    let more = (proptest::option::weighted(0.3, 1u32..40), 60u16..3000, any::<bool>());
    (ends, data, life, how, more).prop_map(
        |(
            (from, to),
            (data, amount),
            (start_ms, stop_ms),
            (law, detection, delayed, encoding, both, handshake),
            (buffer, packet, pacing),
        )| FlowOf {
            from,
            to,
            law,
            data,
            amount,
            start_ms,
            stop_ms,
            detection,
            delayed,
            encoding,
            both,
            handshake,
            buffer,
            packet,
            pacing,
        },
    )
}

fn scene() -> impl Strategy<Value = Scene> {
    (1usize..6).prop_flat_map(|n| {
        let loss = (0..n, 0.0f64..0.3, any::<bool>(), 0u8..3, 0u8..3);
        let change = (0..n, 0u32..8000, 0u8..6, 0.0f64..1.0);
        (
            any::<u32>(),
            proptest::collection::vec(link(), n),
            proptest::collection::vec(flow(n + 1), 1..6),
            proptest::collection::vec(loss, 0..3),
            proptest::collection::vec(change, 0..5),
            any::<bool>(),
            proptest::option::of(0.1f64..20.0),
            proptest::option::of((0u8..2, 0.5f64..20.0)),
        )
            .prop_map(|(seed, links, flows, losses, changes, medium, cbr, workload)| Scene {
                seed: u64::from(seed),
                links,
                flows,
                losses,
                changes,
                medium,
                cbr,
                workload,
            })
    })
}

/// Checks that all numbers of the tables are finite and not negative.
pub(crate) fn assert_finite(finished: &Finished) {
    let result = &finished.result;
    for batch in [&result.flows, &result.links, &result.summary, &result.link_summary].into_iter().flatten() {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            if let Some(numbers) = column.as_primitive_opt::<Float64Type>() {
                for x in numbers.iter().flatten() {
                    assert!(x.is_finite() && x >= 0.0, "{} is {x}", field.name());
                }
            }
        }
    }
}

/// Size and delivered bytes of each finished flow.
pub(crate) fn finished_flows(batches: &[RecordBatch]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for batch in batches {
        let counts =
            |name: &str| batch.column_by_name(name).expect("a column").as_primitive::<UInt64Type>().clone();
        let (size, delivered) = (counts("size_bytes"), counts("delivered_bytes"));
        let fct = batch.column_by_name("fct_s").expect("a column");
        all.extend(
            (0..batch.num_rows()).filter(|&i| fct.is_valid(i)).map(|i| (size.value(i), delivered.value(i))),
        );
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn trouble_breaks_nothing(scene in scene()) {
        let stopped = scene.flows.iter().any(|flow| flow.stop_ms.is_some());
        let scenario = parse(&scene.toml(), &[]);
        let plan = &scenario.variants()[0].plan;
        // The run itself checks conservation.
        let once = finish(plan, DigestMode::Packets);
        assert_finite(&once);
        prop_assert_eq!(once.run.digest, finish(plan, DigestMode::Packets).run.digest);
        if !stopped {
            for (size, delivered) in finished_flows(&once.result.summary) {
                prop_assert_eq!(size, delivered);
            }
        }
    }
}

/// A flow that has sent all data once but lost some is not finished.
///
/// With an announcement of its end at that point, the links' laws gave it one packet in a quarter
/// of a second for the retransmissions.
#[test]
fn who_has_lost_data_at_its_end_does_not_take_its_leave() {
    // The first case takes 0.88 s; 1.41 s with the early announcement.
    for (kb, at, blackout, within) in [
        (500, 230, 30, 1000),
        (300, 100, 30, 4000),
        (500, 300, 100, 4000),
        (1000, 150, 60, 4000),
        (1000, 400, 60, 4000),
    ] {
        let text = format!(
            r#"
            name = "leave"
            duration = "{within} ms"
            [node.a]
            [node.r]
            [node.b]
            [link.access]
            from = "a"
            to = "r"
            rate = "50 Mbps"
            law = "fcp"
            [link.bottleneck]
            from = "r"
            to = "b"
            rate = "10 Mbps"
            delay = "10 ms"
            limit = "2 BDP"
            law = "fcp"
            [flow.f]
            from = "a"
            to = "b"
            law = "fcp"
            size = "{kb} kB"
            [[change]]
            at = "{at} ms"
            link = "bottleneck"
            blackout = "{blackout} ms"
            "#
        );
        let finished = finish(&parse(&text, &[]).variants()[0].plan, DigestMode::Results);
        let whole = finished_flows(&finished.result.summary);
        assert_eq!(whole.len(), 1, "{kb} kB without {blackout} ms at {at} ms");
    }
}

/// Of two overlapping blackouts, each lasts as long as the file says: 6 s of 2 Mb/s in packets of
/// 1500 bytes.
#[test]
fn the_end_of_a_blackout_ends_no_other() {
    for (first, second) in [(2, 5), (6, 1)] {
        let text = format!(
            r#"
            name = "dark"
            duration = "10 s"
            node = {{ a = {{}}, b = {{}} }}
            link.w = {{ from = "a", to = "b", rate = "10 Mbps", delay = "1 ms" }}
            cbr.c = {{ from = "a", to = "b", rate = "2 Mbps" }}
            change = [
                {{ at = "2 s", link = "w", blackout = "{first} s" }},
                {{ at = "3 s", link = "w", blackout = "{second} s" }},
            ]
            "#
        );
        let finished = finish(&parse(&text, &[]).variants()[0].plan, DigestMode::Results);
        let lost = finished.result.systems.get("losses.w.packets").unwrap();
        assert!((lost - 1000.0).abs() <= 1.0, "{lost} lost in {first} s from 2 s and {second} s from 3 s");
    }
}

/// Each doubling of the number of flows shortens the horizon a little. Flows that arrive during the
/// run must not drop events silently.
#[test]
fn flows_that_come_on_the_way_can_make_a_run_too_long() {
    let text = r#"
        name = "long"
        duration = "20000000 s"
        node = { a = {}, b = {} }
        link.w = { from = "a", to = "b", rate = "100 Mbps", delay = "1 ms" }
        workload.w = { from = "a", to = "b", law = "newreno", arrivals = { interval = "1 us" }, sizes = "1 MB", max-flows = 600 }
        measure = { interval = "none" }
    "#;
    let parsed = parse(text, &[]);
    let options = Options { outputs: Outputs::memory(), ..Options::default() };
    match run(&parsed.variants()[0].plan, &options) {
        Err(RunError::TooLong { horizon, .. }) => assert!(horizon < Time::from_secs(20_000_000)),
        other => panic!("{other:?}"),
    }
}

/// Twelve megabytes queued for an hour exceed 64 bits of byte-nanoseconds. With no interval, the
/// counter is read only at the end.
#[test]
fn a_long_queue_for_long_is_measured_in_one_piece() {
    let text = r#"
        name = "standing"
        duration = "3600 s"
        node = { a = {}, b = {} }
        link.w = { from = "a", to = "b", rate = "1 kbps", limit = "unlimited" }
        cbr.c = { from = "a", to = "b", rate = "1 Mbps", stop = "100 s" }
        measure = { interval = "none" }
    "#;
    let finished = finish(&parse(text, &[]).variants()[0].plan, DigestMode::Results);
    let summary = &finished.result.link_summary[0];
    let mean = summary.column_by_name("queue_mean_bytes").expect("a column").as_primitive::<Float64Type>();
    // The queue grows for 100 s to 12.5 MB less the transmitted bytes, and then shrinks by 450 kB
    // an hour.
    assert!((11.9e6..12.2e6).contains(&mean.value(0)), "{}", mean.value(0));
}
