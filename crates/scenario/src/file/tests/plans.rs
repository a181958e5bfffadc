//! Plans of valid files.

use tollway_law::link::{CodelConfig, PieConfig, RedConfig, StepConfig, ThresholdUnit, XcpConfig};
use tollway_law::{Bytes, Rate, Time};
use tollway_proto::Change;
use tollway_proto::faults::{LossPlace, Only};
use tollway_proto::port::{FlowQueuesConfig, Limit};

use super::{BASE, parse, plan, show};
use crate::file::keys::families;
use crate::file::{Scenario, schema};
use crate::plan::*;

pub(super) fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_file_that_we_ship_is_right() {
    let mut files = 0;
    let mut folders = vec![repository().join("scenarios"), repository().join("papers")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") && !path.ends_with("papers/unmet.toml") {
                files += 1;
                // These networks are not in the repository.
                let sets = match path.file_name().and_then(|name| name.to_str()) {
                    Some("cogent-100k.toml") => &["topology.file=../abilene.graphml"][..],
                    Some("geant.toml") => &OVER_ABILENE,
                    _ => &[],
                };
                if let Err(e) = Scenario::load(&path, sets) {
                    panic!("{}", show(&e));
                }
                let text = std::fs::read_to_string(&path).unwrap();
                validate(&schema(), &toml::from_str(&text).unwrap(), &path.display().to_string());
            }
        }
    }
    assert!(files >= 2, "{files}");
}

/// `scenarios/geant.toml` over another network.
const OVER_ABILENE: [&str; 4] = [
    "topology.file=abilene.graphml",
    "overlay.group.*.at=*",
    "overlay.sender.*.at=Denver",
    "overlay.sender.*.count=11",
];

/// The values of `law` in a `section`.
fn laws(section: &str) -> Vec<String> {
    let words = &schema()["properties"][section]["additionalProperties"]["properties"]["law"]["enum"];
    words.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_word_for_a_law_is_a_law_of_its_own() {
    let text = format!("{BASE}[class.c]\n");
    let mut seen = Vec::new();
    for word in laws("link") {
        let plan = plan(&text, &[&format!("link.bottleneck.law={word}")]);
        let law = plan.links.iter().find(|link| link.name == "bottleneck").unwrap().law.clone();
        assert!(!seen.contains(&law), "link.NAME.law = {word:?} is {law:?}");
        seen.push(law);
    }
    for word in laws("flow") {
        let mut sets = vec![format!("flow.f.law={word}")];
        if laws("link").contains(&word) {
            sets.extend(["access", "bottleneck"].map(|link| format!("link.{link}.law={word}")));
        }
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert_eq!(plan(&text, &sets).transports[0].law.word(), word);
    }
}

/// Validates against the part of JSON Schema that the schema uses.
fn validate(schema: &serde_json::Value, value: &serde_json::Value, path: &str) {
    use serde_json::Value;
    let is = |t: &Value| match t.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        _ => false,
    };
    match &schema["type"] {
        Value::Null => {}
        Value::Array(types) => assert!(types.iter().any(is), "{path}: {value} is none of {types:?}"),
        one => assert!(is(one), "{path}: {value} is no {one}"),
    }
    if let Value::Array(words) = &schema["enum"] {
        assert!(words.contains(value), "{path}: {value}");
    }
    if let (Some(x), Some(least)) = (value.as_f64(), schema["minimum"].as_f64()) {
        assert!(x >= least, "{path}: {x}");
    }
    for must in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(must.as_str().unwrap()).is_some(), "{path} has no {must}");
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(known), _) => validate(known, inner, &path),
            (None, Value::Bool(false)) => panic!("{path} is not in the schema"),
            (None, Value::Null) => {}
            (None, other) => validate(other, inner, &path),
        }
    }
    for item in value.as_array().into_iter().flatten() {
        validate(&schema["items"], item, path);
    }
}

#[test]
fn frames_end_after_their_count_or_not_at_all() {
    let data = |frames: &str| plan(BASE, &[frames]).flows[0].data;
    let size = 1000;
    assert_eq!(data("flow.f.frames={count=3, size='1 kB'}"), Data::Frames { count: Some(3), size });
    let endless = data("flow.f.frames={size='1 kB'}");
    assert_eq!(endless, Data::Frames { count: None, size });
    assert!(endless.is_endless() && endless.bytes().is_none());
}

#[test]
fn a_setting_that_beats_a_variant_s_own_is_noted() {
    let text =
        format!("{BASE}\n[variant.short]\n\"link.bottleneck.limit\" = \"9 packets\"\n[variant.plain]\n");
    let notes = |set: &str| Scenario::parse("x", &text, &[set]).unwrap().notes().to_vec();
    let noted = notes("link.bottleneck.limit=20 packets");
    assert!(
        noted.iter().any(|note| note.starts_with("`--set link.bottleneck.limit` overrides what variant `short` sets")),
        "{noted:?}"
    );
    assert!(!notes("link.bottleneck.delay=20 ms").iter().any(|note| note.contains("overrides")));
}

/// The schema that the examples' first lines name, for editors.
#[test]
fn the_manual_has_the_schema_beside_the_examples() {
    let folder = repository().join("scenarios");
    let path = folder.join("tollway.schema.json");
    let text = format!("{:#}\n", schema());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|committed| committed == text),
        "{} is out of date: run `UPDATE_DOCS=1 cargo test -p tollway-scenario manual`",
        path.display()
    );
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let first = std::fs::read_to_string(&path).unwrap().lines().next().unwrap().to_owned();
            let named = first.strip_prefix("#:schema ").unwrap_or_else(|| panic!("{}", path.display()));
            assert!(folder.join(named).exists(), "{}: {first}", path.display());
        }
    }
}

#[test]
fn the_schema_knows_what_the_reader_knows() {
    let schema = schema();
    assert_eq!(schema["additionalProperties"], false);
    let link = &schema["properties"]["link"]["additionalProperties"];
    assert_eq!(link["properties"]["law"]["enum"][2], "xcp");
    assert_eq!(link["properties"]["duplex"]["default"], true);
    assert_eq!(link["required"], serde_json::json!(["from", "to"]));
    for section in families().into_iter().flat_map(|(_, _, sections)| sections) {
        for key in section.keys() {
            assert!(!key.says.is_empty() && !key.says.contains('|'), "{} {}", section.header, key.name);
            // A default must be a valid value of its key.
            if let crate::file::keys::Default::Is(_) = key.default {
                let reader = crate::file::reader::Reader::new(section, None, Default::default());
                assert!(reader.default_is_right(key.name), "{} {}", section.header, key.name);
            }
        }
    }
}

#[test]
fn quickstart_is_what_it_says() {
    let s = Scenario::load::<&str>(&repository().join("scenarios/quickstart.toml"), &[]).unwrap();
    let names: Vec<_> = s.variants().iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["xcp", "fifo", "red"]);
    let xcp = &s.variant("xcp").unwrap().plan;
    assert_eq!((xcp.nodes.len(), xcp.links.len(), xcp.flows.len()), (6, 10, 4));
    assert_eq!(xcp.flows[3].name, "f.4");
    assert_eq!((xcp.flows[3].start, xcp.flows[3].stop), (Time::from_secs(30), Time::from_secs(70)));
    assert_eq!(xcp.flows[0].path.base_rtt, Time::from_millis(100));
    // 10 Mbps × 100 ms.
    let bottleneck = &xcp.links[8];
    assert_eq!(bottleneck.name, "bottleneck");
    assert_eq!(bottleneck.law.limit, Limit { packets: u32::MAX, bytes: 125_000 });
    assert!(bottleneck.law.get::<XcpConfig>().is_some());
    assert_eq!(xcp.flows[2].path.route[..], [LinkId(4), LinkId(8)]);
    assert_eq!(xcp.flows[2].path.back[..], [LinkId(9), LinkId(5)]);
    let fifo = &s.variant("fifo").unwrap().plan;
    assert!(fifo.links[8].law.is_none());
    assert_eq!(fifo.transports[0].law.word(), "newreno");
    let link = &s.variant("red").unwrap().plan.links[8];
    let red: &RedConfig = link.law.get().unwrap();
    assert_eq!(red.min_threshold.under(link.law.limit), (31_250.0, ThresholdUnit::Bytes));
}

#[test]
fn claims_and_plots_are_kept_with_their_places() {
    let s = Scenario::load::<&str>(&repository().join("papers/xcp/validation.toml"), &[]).unwrap();
    let claims = s.raw("claim");
    assert_eq!(claims[0].get_ref()["id"].as_str(), Some("xcp.validation.utilisation"));
    assert!(s.text()[claims[0].span()].starts_with("[[claim]]"), "{}", &s.text()[claims[0].span()]);
    assert_eq!(s.raw("plot").len(), s.text().matches("\n[[plot]]").count());
    assert_eq!(claims.len(), s.text().matches("\n[[claim]]").count());
    assert!(s.raw("reference").is_empty());
}

#[test]
fn a_grid_is_every_combination() {
    let text = format!(
        "{BASE}\n[variant.alone]\n\
         [grid.rate]\nset = [\"link.bottleneck.rate\", \"link.access.rate\"]\nto = [\"1.5 Mbps\", \"2 Mbps\"]\n\
         [grid.sender.plain]\n[grid.sender.cubic]\n\"flow.f.law\" = \"cubic\"\nseed = 7\n\
         [grid.loss]\nset = \"link.bottleneck.loss\"\nto = [0, 0.0001]\n"
    );
    let s = parse(&text, &["duration=3s"]).unwrap();
    let names: Vec<_> = s.variants().iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names[..4], ["alone", "1.5Mbps-plain-0", "1.5Mbps-plain-0.0001", "1.5Mbps-cubic-0"]);
    assert_eq!(names.len(), 9);
    assert!(s.variant("alone").unwrap().cell.is_empty());
    let last = s.variant("2Mbps-cubic-0.0001").unwrap();
    let at: Vec<_> = last.cell.iter().map(|c| (c.axis.as_str(), c.point.as_str(), c.value)).collect();
    assert_eq!(
        at,
        [("rate", "2Mbps", Some(2.0)), ("sender", "cubic", None), ("loss", "0.0001", Some(0.0001))]
    );
    assert_eq!(
        (last.plan.links[8].rate, last.plan.links[0].rate),
        (Rate::from_mbps(2.0), Rate::from_mbps(2.0))
    );
    assert_eq!((last.plan.transports[0].law.word(), last.plan.seed), ("cubic", 7));
    assert_eq!(last.plan.duration, Time::from_secs(3));
}

#[test]
fn a_set_goes_over_every_variant() {
    let text = format!(
        "{BASE}\n[variant.a]\n\"link.bottleneck.rate\" = \"1 Mbps\"\n[variant.b]\nflow.f.law = \"cubic\"\n"
    );
    let s = parse(&text, &["link.bottleneck.rate=20Mbps", "flow.*.start={first='1 s', last='4 s'}"]).unwrap();
    for v in s.variants() {
        assert_eq!(v.plan.links[8].rate, Rate::from_mbps(20.0));
        assert_eq!(v.plan.flows[3].start, Time::from_secs(4));
    }
    assert_eq!(s.variant("b").unwrap().plan.transports[0].law.word(), "cubic");
    assert_eq!(s.variant("a").unwrap().plan.transports[0].law.word(), "newreno");
}

#[test]
fn sets_reach_into_tables_lists_and_values() {
    let text = format!("{BASE}\n[[change]]\nat = \"1 s\"\nlink = \"access\"\nrate = \"5 Mbps\"\n");
    let p = plan(
        &text,
        &[
            "link.bottleneck.law=xcp",
            "link.bottleneck.xcp.alpha=0.5",
            "link.bottleneck.reverse.delay=30ms",
            "change.0.at=2 s",
            "link.access.delay.last=7 ms",
            "seed=7",
            "title=two words",
        ],
    );
    let xcp: &XcpConfig = p.links[8].law.get().unwrap();
    assert_eq!((xcp.alpha, xcp.beta), (0.5, 0.226));
    assert_eq!(p.links[9].delay, Time::from_millis(30));
    assert_eq!(p.links[6].delay, Time::from_millis(7));
    assert_eq!((p.seed, p.title.as_str()), (7, "two words"));
    // Both directions of the four links.
    assert_eq!(p.events.len(), 8);
    assert_eq!(p.events[0].at, Time::from_secs(2));
}

#[test]
fn a_variant_may_add_a_section() {
    let text = format!(
        "{BASE}\n[variant.plain]\n[variant.cross.cbr.noise]\nfrom = \"r\"\nto = \"d\"\nrate = \"4 Mbps\"\n"
    );
    let s = parse(&text, &[]).unwrap();
    assert_eq!(s.variants()[0].plan.cbrs.len(), 0);
    assert_eq!(s.variants()[1].plan.cbrs[0].route, [LinkId(8)]);
}

#[test]
fn a_bdp_is_of_those_who_cross() {
    // Mean of the base RTTs 22, 24, 26 and 28 ms: 10 Mbps × 25 ms × 2.
    let p = plan(BASE, &["link.bottleneck.limit=2 BDP"]);
    assert_eq!(p.links[8].law.limit.bytes, 62_500);
    // One flow of 22 ms only.
    let p = plan(BASE, &["link.bottleneck.limit=1 BDP", "flow.f.from=s.1"]);
    assert_eq!(p.links[8].law.limit.bytes, 27_500);
    // Each access link has its own.
    let p = plan(BASE, &["link.access.limit=1 BDP"]);
    assert_eq!((p.links[0].law.limit.bytes, p.links[6].law.limit.bytes), (275_000, 350_000));
    // A receive buffer uses the path's BDP: 10 Mbps × 22 ms.
    let p = plan(BASE, &["flow.f.receive-buffer=2 BDP", "flow.f.send-buffer=10 packets"]);
    assert_eq!((p.flows[0].receive_buffer, p.flows[0].send_buffer), (36, 10));
    // Data both ways also cross the reverse direction.
    let p = plan(BASE, &["link.bottleneck.reverse.limit=1 BDP", "flow.f.both-ways=true"]);
    assert_eq!(p.links[9].law.limit.bytes, 31_250);
}

#[test]
fn a_bdp_of_a_change_is_of_the_rate_by_then() {
    let change = |at, what| format!("[[change]]\nat = \"{at} s\"\nlink = \"bottleneck\"\n{what}\n");
    let limit = |at| change(at, "limit = \"1 BDP\"");
    // By time, not by order in the file: 10, 2 and 4 Mbps × 25 ms.
    let changes = [
        limit(3),
        change(2, "rate = \"2 Mbps\""),
        limit(1),
        change(4, "rate = \"4 Mbps\"\nlimit = \"1 BDP\""),
    ];
    let p = plan(&format!("{BASE}{}", changes.concat()), &[]);
    let limits = p.events.iter().filter_map(|change| match change.what {
        What::Link(_, Change::Limit(limit)) => Some(limit.bytes),
        _ => None,
    });
    assert_eq!(limits.collect::<Vec<_>>(), [31_250, 6_250, 12_500]);
}

#[test]
fn nothing_is_left_to_be_guessed() {
    let p = plan(BASE, &[]);
    let t = &p.transports[0];
    assert_eq!((t.packet_size, t.header, t.ack_size, t.initial_window), (1500, 40, 40, 10));
    assert_eq!((t.sack_blocks, t.loss_detection), (3, Detection::Rfc6675));
    assert_eq!(t.rto.min, Time::from_millis(200));
    assert_eq!(p.links[8].law.limit, Limit { packets: 1000, bytes: u64::MAX });
    assert_eq!(p.links[9].law.limit, Limit::NONE);
    assert_eq!(p.measure.interval, Some(Time::from_millis(100)));
    let t = &plan(BASE, &["flow.f.sack=false"]).transports[0];
    assert_eq!((t.sack_blocks, t.loss_detection), (0, Detection::NewReno));
    let sets = [
        "flow.f.law=xcp",
        "flow.f.encoding=tcp-option",
        "flow.f.both-ways=true",
        "link.*.law=xcp",
        "link.*.reverse.law=xcp",
    ];
    assert_eq!(plan(BASE, &sets).transports[0].sack_blocks, 1);
    let sets = [sets[0], sets[1], sets[3]];
    assert_eq!(plan(BASE, &sets).transports[0].sack_blocks, 2);
}

#[test]
fn a_law_learns_of_a_new_rate_unless_it_is_told_otherwise() {
    let told = |more: &str, sets: &[&str]| -> Vec<Rate> {
        let text = format!(
            "{BASE}[[change]]\nat = \"1 s\"\nlink = \"bottleneck\"\ndirection = \"forward\"\nrate = \"4 Mbps\"\n{more}"
        );
        let told = |c: &Event| match c.what {
            What::Link(_, Change::Capacity(rate)) => Some(rate),
            _ => None,
        };
        let sets: Vec<&str> = ["link.bottleneck.law=xcp"].iter().chain(sets).copied().collect();
        plan(&text, &sets).events.iter().filter_map(told).collect()
    };
    assert_eq!(told("", &[]), [Rate::from_mbps(4.0)]);
    assert_eq!(told("capacity = \"9 Mbps\"\n", &[]), [Rate::from_mbps(9.0)]);
    assert_eq!(told("", &["link.bottleneck.capacity=11 Mbps"]), []);
}

#[test]
fn random_starts_depend_on_seed_and_flow_only() {
    let starts = |sets: &[&str]| -> Vec<Time> {
        let text = format!("{BASE}start = {{ random = \"2 s\", after = \"1 s\" }}\n");
        plan(&text, sets).flows.iter().map(|f| f.start).collect()
    };
    let some = starts(&[]);
    assert_eq!(some, starts(&["duration=20 s"]));
    assert_ne!(some, starts(&["seed=2"]));
    assert!(some.iter().all(|t| (Time::from_secs(1)..Time::from_secs(3)).contains(t)), "{some:?}");
    assert!(some.windows(2).all(|w| w[0] != w[1]));
    let many = starts(&["node.s.count=1000"]);
    assert_eq!(some, many[..4]);
    let mean = many.iter().map(|t| t.as_secs_f64()).sum::<f64>() / 1000.0;
    assert!((mean - 2.0).abs() < 0.1, "{mean}");
}

#[test]
fn media_changes_and_losses_find_their_links() {
    let text = format!(
        "{BASE}
        [medium.air]
        rate = \"2 Mbps\"
        [link.wave]
        from = \"d\"
        to = \"e\"
        medium = \"air\"
        [node.e]
        [[change]]
        at = \"3 s\"
        link = \"bottle*\"
        blackout = \"2 s\"
        limit = \"50 packets\"
        [[change]]
        at = \"1 s\"
        flow = \"f.2\"
        receive-buffer = \"64 KiB\"
        [[change]]
        at = \"2 s\"
        flow = \"f.1\"
        paused = true
        [[loss]]
        link = \"bottleneck.reverse\"
        probability = 0.01
        only = \"ack\"
        [[loss]]
        link = \"access.?\"
        direction = \"both\"
        place = \"before\"
        probability = 1
        "
    );
    let p = plan(&text, &[]);
    assert_eq!(p.media[0].links, [LinkId(10), LinkId(11)]);
    assert_eq!(p.links[11].rate, Rate::from_mbps(2.0));
    let limit = Limit { packets: 50, bytes: u64::MAX };
    let what: Vec<What> = p.events.iter().map(|c| c.what.clone()).collect();
    assert_eq!(
        what,
        [
            What::Flow(FlowId(1), Change::ReceiveBuffer(44)),
            What::Flow(FlowId(0), Change::Paused(true)),
            What::Blackout(LinkId(8), Time::from_secs(5)),
            What::Blackout(LinkId(9), Time::from_secs(5)),
            What::Link(LinkId(8), Change::Limit(limit)),
        ]
    );
    assert_eq!(p.losses.len(), 9);
    let first = p.losses[0];
    assert_eq!((first.link, first.loss.only, first.loss.place), (LinkId(9), Only::Ack, LossPlace::After));
}

#[test]
fn workloads_have_paths_sizes_and_arrivals() {
    let text = format!(
        "{BASE}
        [workload.web]
        from = \"s\"
        to = \"d\"
        law = \"cubic\"
        arrivals = {{ poisson = 50 }}
        sizes = {{ empirical = [[\"1 kB\", 0.5], [\"1 MB\", 1.0]] }}
        "
    );
    let p = plan(&text, &[]);
    let w = &p.workloads[0];
    assert_eq!((w.paths.len(), w.receive_buffers.len(), w.max_flows), (4, 4, u64::MAX));
    assert_eq!(w.paths[3].base_rtt, Time::from_millis(28));
    assert_eq!(w.arrivals, Arrivals::Poisson { per_sec: 50.0 });
    let Sizes::Empirical(points) = &w.sizes else { panic!() };
    assert_eq!(points[1], CdfPoint { size: 1e6, cumulative: 1.0 });
    let p = plan(&text, &["workload.web.sizes={pareto={mean='30 kB', shape=1.5}}"]);
    assert_eq!(p.workloads[0].sizes, Sizes::Pareto { mean: 30_000.0, shape: 1.5 });
}

#[test]
fn the_constants_of_queue_laws_reach_the_plan() {
    let text = r#"
        name = "t"
        duration = "1 s"
        [node.a]
        [node.b]
        [link.l]
        from = "a"
        to = "b"
        rate = "10 Mbps"
        delay = "10 ms"
        limit = "100 packets"
        law = "fq-codel"
        codel.target = "2 ms"
        fq-codel.queues = 8
        step.threshold = 0.25
        pie.target = "30 ms"
        [link.l.reverse]
        law = "codel"
        codel.interval = "50 ms"
        [flow.f]
        from = "a"
        to = "b"
        law = "dctcp"
        [variant.one]
        [variant.step]
        "link.l.law" = "step"
        [variant.pie]
        "link.l.law" = "pie"
        "flow.f.law" = "newreno"
    "#;
    let s = Scenario::parse::<&str>("t.toml", text, &[]).unwrap();
    let plan = |name| s.variant(name).unwrap().plan.clone();
    let one = plan("one");
    let queues = one.links[0].law.queue.as_ref().unwrap();
    let codel: &CodelConfig = one.links[0].law.get().unwrap();
    assert_eq!((codel.target, codel.interval), (Time::from_millis(2), Time::from_millis(100)));
    let queues: &FlowQueuesConfig = queues.get().unwrap();
    assert_eq!((queues.queues, queues.quantum), (8, Bytes(1514)));
    let back: &CodelConfig = one.links[1].law.get().unwrap();
    assert_eq!((back.target, back.interval), (Time::from_millis(5), Time::from_millis(50)));
    let step = plan("step");
    let threshold = step.links[0].law.get::<StepConfig>().unwrap().threshold;
    assert_eq!(threshold.under(step.links[0].law.limit), (25.0, ThresholdUnit::Packets));
    let pie = *plan("pie").links[0].law.get::<PieConfig>().unwrap();
    assert_eq!((pie.target, pie.update), (Time::from_millis(30), Time::from_millis(15)));
    // DCTCP without ECN would be NewReno: it enables ECN.
    assert!(one.transports[0].ecn && !plan("pie").transports[0].ecn);
    assert!(Scenario::parse("t.toml", text, &["flow.f.ecn=false"]).is_err());
    let error = Scenario::parse("t.toml", text, &["flow.f.law=bbr", "flow.f.ecn=true"]).unwrap_err();
    assert!(error.mistakes()[0].message.contains("respond to marks"), "{:?}", error.mistakes());
    // L4S needs a law that responds to marks like DCTCP's; one of the variants has another.
    let error = Scenario::parse("t.toml", text, &["flow.f.l4s=true"]).unwrap_err();
    assert!(Scenario::parse("t.toml", &text.replace("newreno", "dctcp"), &["flow.f.l4s=true"]).is_ok());
    assert!(error.mistakes()[0].message.contains("RFC 9331"), "{:?}", error.mistakes());
}

#[test]
fn the_most_specific_policy_is_a_flows() {
    let text = format!(
        "{BASE}[aggregate.all]\nrate = \"5 Mbps\"\n[aggregate.one]\nrate = \"1 Mbps\"\nflows = \"f.1\"\n\
         [aggregate.some]\nrate = \"2 Mbps\"\nto = \"*\"\nflows = \"f*\"\n"
    );
    let plan = plan(&text, &["node.s.count=2"]);
    let classes: Vec<(String, Vec<&str>)> = plan
        .flows
        .iter()
        .map(|flow| {
            let shaped = flow.shaped.expect("all are under a policy");
            let class = &plan.shapers[shaped.shaper].classes[shaped.class as usize];
            (flow.name.to_string(), class.iter().map(|&i| plan.aggregates[i].name.as_str()).collect())
        })
        .collect();
    let expected = [("f.1".to_owned(), vec!["one", "some", "all"]), ("f.2".to_owned(), vec!["some", "all"])];
    assert_eq!(classes, expected);
    // One shaper a host.
    assert_eq!(plan.shapers.len(), 2);
    // B = r · rtt_av (§ 4.2.1): 5 Mb/s × 22 ms for the near sender, 28 for the far one.
    assert_eq!(plan.aggregates[0].policy.profile.depth.get(), 15_625);
}
