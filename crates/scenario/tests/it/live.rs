//! Plans on real packets. No test here asserts the machine's punctuality or speed.

use std::net::UdpSocket;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use tollway_scenario::file::Scenario;
use tollway_scenario::run::{EngineKind, Finished, Options, RunError, run};
use tollway_scenario::tables::Outputs;

/// Returns true if this machine allows sockets; prints a warning if it does not.
fn sockets() -> bool {
    match UdpSocket::bind("127.0.0.1:0") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: no UDP socket on loopback here: {error}");
            false
        }
    }
}

fn finish(text: &str, engine: EngineKind) -> Result<Finished, RunError> {
    let scenario = Scenario::parse::<&str>("test.toml", text, &[]).unwrap();
    let options = Options { engine, outputs: Outputs::memory(), ..Options::default() };
    run(&scenario.variants()[0].plan, &options)
}

const DUMBBELL: &str = r#"
    name = "dumbbell"
    duration = "2 s"
    [measure]
    interval = "100 ms"
    [node.s]
    count = 2
    [node.r]
    [node.d]
    [link.access]
    from = "s"
    to = "r"
    rate = "50 Mbps"
    [link.bottleneck]
    from = "r"
    to = "d"
    rate = "5 Mbps"
    delay = "10 ms"
    limit = "2 BDP"
    law = "xcp"
    [flow.f]
    from = "s"
    to = "d"
    law = "xcp"
    [flow.f.xcp]
    pacing = true
"#;

/// A live run also fails if packets appear or vanish beyond those that wires duplicate and lose.
#[test]
fn wires_shake_packets_live_as_simulated() {
    if !sockets() {
        return;
    }
    let shaken = "delay = \"10 ms\"\njitter = \"4 ms\"\njitter-order = \"free\"\nreorder = 0.02\nduplicate = 0.1\ncorrupt = 0.05\n\
                  bursts = { to-bad = 0.01, to-good = 0.5 }";
    let text = DUMBBELL
        .replace("delay = \"10 ms\"", shaken)
        .replace("law = \"xcp\"\n    [flow.f.xcp]\n    pacing = true", "law = \"newreno\"");
    for engine in [EngineKind::Sim, EngineKind::Live] {
        let finished = finish(&text, engine).unwrap_or_else(|error| panic!("{engine:?}: {error}"));
        let links = &finished.result.link_summary[0];
        let names = links.column_by_name("link").unwrap();
        let drops = links.column_by_name("drops").unwrap().as_primitive::<UInt64Type>();
        let at = (0..links.num_rows()).find(|&i| names.as_string::<i32>().value(i) == "bottleneck").unwrap();
        assert!(drops.value(at) > 5, "{engine:?}: {}", drops.value(at));
        let goodput = finished.result.summary[0].column_by_name("goodput_mbps").unwrap();
        assert!(goodput.as_primitive::<Float64Type>().value(0) > 0.02, "{engine:?}");
    }
}

#[test]
fn a_live_run_leaves_the_same_tables() {
    if !sockets() {
        return;
    }
    let (sim, live) =
        (finish(DUMBBELL, EngineKind::Sim).unwrap(), finish(DUMBBELL, EngineKind::Live).unwrap());
    let rows = |finished: &Finished| -> Vec<usize> {
        let result = &finished.result;
        [&result.flows, &result.links, &result.summary, &result.link_summary]
            .map(|batches| batches.iter().map(|batch| batch.num_rows()).sum())
            .to_vec()
    };
    assert_eq!(rows(&sim), rows(&live));
    assert_eq!(sim.result.flows[0].schema(), live.result.flows[0].schema());
    assert!(sim.run.live.is_none());
    let info = live.run.live.unwrap();
    // 5 Mb/s for two seconds are 800 packets; they cross a socket on each of two links there and
    // two back.
    assert!(info.counters.sent > 800, "{:?}", info.counters);
    assert_eq!(info.punctuality.departures.count(), info.counters.sent + info.counters.unsent);
    assert!(live.run.census.is_conserved() && live.run.census.delivered > 400, "{:?}", live.run.census);
}

/// A client, a switch, and two servers.
const SESSION: &str = r#"
    name = "session"
    duration = "3 s"
    [node.client]
    [node.front]
    [node.server]
    count = 2
    [link.access]
    from = "client"
    to = "front"
    rate = "5 Mbps"
    delay = "5 ms"
    law = "xcp"
    symmetric = true
    [link.member]
    from = "front"
    to = "server"
    rate = "5 Mbps"
    delay = "5 ms"
    law = "xcp"
    symmetric = true
    loss = 0.002
    [switch.front]
    node = "front"
    [flow.any]
    from = "client"
    to = "server"
    session = "front"
    law = "xcp"
    frames = { size = "1 kB", count = 600 }
"#;

/// The payload is checked: each frame states what it is.
#[test]
fn sessions_deliver_every_frame_once_live() {
    if !sockets() {
        return;
    }
    let outbound = SESSION
        .replace("from = \"client\"\n    to = \"server\"", "from = \"server\"\n    to = \"client\"")
        .replace("count = 600", "count = 300");
    // An application reads a frame every 2 ms.
    let read = SESSION.to_owned()
        + "    receive-buffer = \"50 kB\"\n    flow-control = \"soft\"\n    reader = { every = \"2 ms\" }\n    xcp = { pacing = true }\n";
    for (text, side) in [(SESSION.to_owned(), "received"), (outbound, "sent"), (read, "received")] {
        let live = finish(&text, EngineKind::Live).unwrap();
        let of = |server: u32| {
            live.result.systems.get(&format!("members.front.any.server.{server}.{side}_packets"))
        };
        assert_eq!([of(1), of(2)], [Some(300.0); 2], "{side}");
        let bytes: Vec<u64> = live
            .result
            .summary
            .iter()
            .flat_map(|batch| batch["delivered_bytes"].as_primitive::<UInt64Type>().values().to_vec())
            .collect();
        assert_eq!(bytes, [300_000; 2], "{side}");
        let forged = live.result.systems.get("switches.front.any.forged_acks");
        assert!(forged == Some(0.0) && live.run.census.is_conserved(), "{forged:?} {:?}", live.run.census);
    }
    let scenario = Scenario::parse::<&str>("test.toml", SESSION, &[]).unwrap();
    let options = Options {
        engine: EngineKind::Live,
        hosting: tollway_scenario::run::Hosting::Namespaces,
        outputs: Outputs::memory(),
        ..Options::default()
    };
    let error = run(&scenario.variants()[0].plan, &options).unwrap_err();
    assert!(error.to_string().contains("`flow.any.session`"), "{error}");
}

#[test]
fn workloads_changes_losses_and_both_directions_run_live() {
    if !sockets() {
        return;
    }
    let text = DUMBBELL.replace(
        "[flow.f.xcp]\n    pacing = true",
        "both-ways = true\n    receive-buffer = \"60 kB\"\n    stop = \"1 s\"",
    ) + r#"
        [workload.w]
        from = "s.1"
        to = "d"
        law = "newreno"
        arrivals = { interval = "200 ms" }
        sizes = "20 kB"
        [[change]]
        at = "500 ms"
        link = "bottleneck"
        delay = "5 ms"
        [[loss]]
        link = "bottleneck"
        probability = 0.01
        "#;
    let live = finish(&text, EngineKind::Live).unwrap();
    assert!(live.run.finished >= 3, "{} of {}", live.run.finished, live.run.flows);
    assert!(live.run.census.is_conserved());
}

#[test]
fn messages_come_back_past_a_counter_live() {
    if !sockets() {
        return;
    }
    let text = include_str!("../../../../scenarios/machines.toml").replace("10 s", "5 s");
    let text = text.replace("messages = 200", "messages = 20")
        + "[[loss]]\nlink = \"bottleneck\"\nprobability = 0.01\n";
    let live = finish(&text, EngineKind::Live).unwrap();
    let number = |path: &str| number(&live, path);
    assert_eq!(
        (number("machines.caller.answered"), number("machines.caller.wrong"), number("machines.echo.echoed")),
        (20.0, 0.0, 20.0)
    );
    assert!(number("machines.count.frames") >= 20.0 && number("machines.count.packets") > 20.0 * 28.0);
    assert!(live.run.census.is_conserved());
}

#[test]
fn a_trace_is_replayed_live() {
    if !sockets() {
        return;
    }
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Two packets every 5 ms: 4.8 Mb/s.
    std::fs::write(dir.join("five.trace"), "5\n5\n").unwrap();
    let text = DUMBBELL
        .replace("rate = \"5 Mbps\"", "trace = \"five.trace\"")
        .replace("law = \"xcp\"\n    [flow.f.xcp]\n    pacing = true", "law = \"cubic\"")
        .replace("law = \"xcp\"\n", "");
    let file = dir.join("replayed.toml").display().to_string();
    let scenario = Scenario::parse::<&str>(&file, &text, &[]).unwrap();
    let options = Options { engine: EngineKind::Live, outputs: Outputs::memory(), ..Options::default() };
    let finished = run(&scenario.variants()[0].plan, &options).unwrap();
    // 800 opportunities in two seconds; no packet leaves without one.
    let delivered = finished.run.census.delivered;
    assert!((400..=1700).contains(&delivered), "{delivered}");
}

#[test]
fn a_run_can_be_ended_early() {
    if !sockets() {
        return;
    }
    let scenario = Scenario::parse::<&str>("test.toml", DUMBBELL, &[]).unwrap();
    let options = Options {
        engine: EngineKind::Live,
        outputs: Outputs::memory(),
        progress: Some(&|share| share < 0.2),
        ..Options::default()
    };
    let finished = run(&scenario.variants()[0].plan, &options).unwrap();
    assert!(finished.run.stopped && finished.run.duration < scenario.variants()[0].plan.duration);
}

#[test]
fn what_cannot_run_live_is_named() {
    let refused = |text: &str| finish(text, EngineKind::Live).unwrap_err().to_string();
    let text = DUMBBELL.replace(
        "law = \"xcp\"\n    [flow.f.xcp]\n    pacing = true",
        "law = \"xcp\"\n    packet-size = \"80 B\"\n    header = \"40 B\"",
    );
    let error = refused(&text);
    assert!(error.contains("flow.f.packet-size") && error.contains("80 B"), "{error}");
    let kernel = DUMBBELL.replace(
        "law = \"xcp\"\n    [flow.f.xcp]\n    pacing = true",
        "law = \"cubic\"\n    transport = \"kernel\"",
    ) + "[aggregate.a]\nrate = \"1 Mbps\"\n";
    let error = refused(&kernel);
    assert!(error.contains("`aggregate.a`") && error.contains("tollway shape"), "{error}");
}

/// A number of the run's system tables.
fn number(finished: &Finished, path: &str) -> f64 {
    finished.result.systems.get(path).unwrap_or_else(|| panic!("{path}: {:?}", finished.result.systems))
}

#[test]
fn cross_traffic_is_sent_and_arrives_live() {
    if !sockets() {
        return;
    }
    let text = DUMBBELL.to_owned()
        + r#"
        [cbr.c]
        from = "s.2"
        to = "d"
        rate = "1 Mbps"
        packet-size = 500
        start = "500 ms"
        stop = "1.5 s"
        "#;
    let [sim, live] = [EngineKind::Sim, EngineKind::Live].map(|engine| finish(&text, engine).unwrap());
    assert_eq!(number(&live, "sources.c.sent_packets"), number(&sim, "sources.c.sent_packets"));
    assert!(number(&live, "sources.c.sent_packets") == 250.0 && live.run.census.is_conserved());
    let small = finish(&text.replace("packet-size = 500", "packet-size = 60"), EngineKind::Live).unwrap_err();
    assert!(small.to_string().contains("`cbr.c.packet-size`"), "{small}");
}

#[test]
fn classes_have_queues_of_their_own_live() {
    if !sockets() {
        return;
    }
    let text =
        DUMBBELL.replace("law = \"xcp\"", "law = \"fcp\"").replace("[flow.f.xcp]\n    pacing = true", "")
            + r#"
        class = "first"
        [class.first]
        pricing = "priority"
        times = 2
        "#;
    let live = finish(&text, EngineKind::Live).unwrap();
    // Packets without a class are acknowledgements: only the class's queue was used at the
    // bottleneck.
    assert!(
        live.result.systems.get("queues.bottleneck.first.delay_ms").is_some(),
        "{:?}",
        live.result.systems
    );
    assert!(live.run.census.is_conserved());
}

#[test]
fn a_meter_finds_who_cheats_live() {
    if !sockets() {
        return;
    }
    let text = DUMBBELL
        .replace("rate = \"50 Mbps\"", "rate = \"50 Mbps\"\n    meter = {}")
        .replace("pacing = true", "cheat = { trick = \"understate-window\", factor = 2 }");
    let [sim, live] = [EngineKind::Sim, EngineKind::Live].map(|engine| finish(&text, engine).unwrap());
    for found in [sim, live] {
        assert_eq!((number(&found, "meters.flows"), number(&found, "meters.accused")), (2.0, 2.0));
    }
}

#[test]
fn a_host_holds_its_flows_to_a_profile_live() {
    if !sockets() {
        return;
    }
    let text = DUMBBELL.replace("law = \"xcp\"", "law = \"newreno\"").replacen(
        "law = \"newreno\"",
        "law = \"drop-tail\"",
        1,
    );
    let text = text.replace("[flow.f.xcp]\n    pacing = true", "")
        + r#"
        [cbr.c]
        from = "s.1"
        to = "d"
        rate = "1 Mbps"
        packet-size = 500
        [aggregate.a]
        from = "s.1"
        rate = "2 Mbps"
        depth = "20 kB"
        action = "shape"
        "#;
    for action in ["shape", "mark", "drop"] {
        let text = text.replace("\"shape\"", &format!("\"{action}\""));
        let [sim, live] = [EngineKind::Sim, EngineKind::Live].map(|engine| finish(&text, engine).unwrap());
        for found in [&sim, &live] {
            // Even on a late machine, packets released at an instant conform at that instant.
            assert!(
                number(found, "policies.a.burst_bytes") <= 20_000.0,
                "{action}: {:?}",
                found.result.systems
            );
            assert!(
                number(found, "policies.a.conforming_packets") > 100.0,
                "{action}: {:?}",
                found.result.systems
            );
            assert_eq!(number(found, "policies.a.most_members"), 2.0);
            assert_eq!(
                number(found, "policies.a.excess_mbps") > 0.0,
                action == "mark",
                "{:?}",
                found.result.systems
            );
            assert!(found.run.census.is_conserved());
        }
        let [sim, live] = [sim, live].map(|found| number(&found, "policies.a.drops"));
        assert_eq!((sim > 0.0, live > 0.0), (action == "drop", action == "drop"), "{action}: {sim} {live}");
    }
}

#[test]
fn every_receiver_of_a_tree_has_all_of_it_live() {
    if !sockets() {
        return;
    }
    // Two routers that copy, losses on the path to one of three receivers, and one class, which
    // includes copies.
    let text = r#"
        name = "tree"
        duration = "6 s"
        seed = 5
        [measure]
        interval = "100 ms"
        [node.s]
        [node.p]
        [node.q]
        [node.d]
        count = 3
        [class.dear]
        pricing = "priority"
        times = 2
        [link.up]
        from = "s"
        to = "p"
        rate = "20 Mbps"
        delay = "1 ms"
        law = "fcp"
        [link.across]
        from = "p"
        to = "q"
        rate = "10 Mbps"
        delay = "3 ms"
        law = "fcp"
        [link.one]
        from = "p"
        to = "d.1"
        rate = "5 Mbps"
        delay = "8 ms"
        law = "fcp"
        [link.two]
        from = "q"
        to = "d.2"
        rate = "8 Mbps"
        delay = "1 ms"
        law = "fcp"
        loss = 0.01
        [link.three]
        from = "q"
        to = "d.3"
        rate = "8 Mbps"
        delay = "2 ms"
        law = "fcp"
        [flow.m]
        from = "s"
        to = "d"
        law = "fcp"
        class = "dear"
        multicast = true
        size = "300 kB"
        "#;
    let [sim, live] = [EngineKind::Sim, EngineKind::Live].map(|engine| finish(text, engine).unwrap());
    // A damaged payload, or a packet that appeared or vanished, would have ended the run with an
    // error.
    for found in [&sim, &live] {
        let mut ends = Vec::new();
        for batch in &found.result.summary {
            let column = |name: &str| batch.column_by_name(name).expect("a column");
            let took = column("fct_s").as_primitive::<Float64Type>();
            ends.extend(column("delivered_bytes").as_primitive::<UInt64Type>().iter().zip(took));
        }
        let whole = ends.iter().filter(|(bytes, took)| *bytes == Some(300_000) && took.is_some());
        assert_eq!(whole.count(), 3, "{ends:?}");
    }
    let copies = 2 * 300_000 / 1460;
    assert!(live.run.census.absorbed > copies, "{:?}", live.run.census);
    // The flow's packets keep their class on every link, also those that a middle made.
    assert!(
        number(&live, "queues.two.dear.delay_ms") >= 0.0
            && live.result.systems.get("queues.two.none.delay_ms").is_none()
    );
}

#[test]
fn one_sends_at_a_time_on_a_medium_live() {
    if !sockets() {
        return;
    }
    let text = DUMBBELL.replace("rate = \"5 Mbps\"", "medium = \"air\"\n    overhead = \"100 B\"")
        + "[medium.air]\nrate = \"5 Mbps\"\n";
    let [sim, live] = [EngineKind::Sim, EngineKind::Live].map(|engine| finish(&text, engine).unwrap());
    for found in [sim, live] {
        let mut busy = 0.0;
        for batch in &found.result.link_summary {
            let column = |name: &str| batch.column_by_name(name).expect("a column");
            let (links, used) =
                (column("link").as_string::<i32>(), column("utilisation").as_primitive::<Float64Type>());
            let both = links
                .iter()
                .zip(used)
                .filter(|(link, _)| link.is_some_and(|link| link.starts_with("bottleneck")));
            busy += both.filter_map(|(_, used)| used).sum::<f64>();
        }
        // Both directions together send like one transmitter; a packet counts fully once it starts
        // to leave.
        assert!((0.3..=1.01).contains(&busy), "{busy}");
        assert!(found.run.census.is_conserved());
    }
}
