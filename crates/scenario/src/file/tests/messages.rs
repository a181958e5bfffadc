//! Messages on mistakes in a scenario, in the form of a terminal.

use super::{BASE, parse, show};

/// The message on the base scenario with `from` replaced by `to`.
fn answer(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    answer_to(&BASE.replacen(from, to, 1), &[])
}

fn answer_to(text: &str, sets: &[&str]) -> String {
    match parse(text, sets) {
        Ok(_) => "it is right".to_owned(),
        Err(e) => show(&e),
    }
}

macro_rules! answers {
    ($($name:ident: $answer:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!($answer);
        }
    )*};
}

answers! {
    unknown_key: answer("rate = \"10 Mbps\"", "rat = \"10 Mbps\"");
    unknown_section: answer("[flow.f]", "[flows.f]");
    unknown_node: answer("to = \"d\"\nlaw", "to = \"dd\"\nlaw");
    no_such_member: answer("from = \"s\"\nto = \"d\"", "from = \"s.5\"\nto = \"d\"");
    unknown_unit: answer("\"10 Mbps\"", "\"10 Mpbs\"");
    no_unit: answer("\"10 ms\"", "10");
    unknown_law: answer("law = \"newreno\"", "law = \"newrno\"");
    missing_keys: answer("from = \"r\"\nto = \"d\"\n", "");
    name_forgotten: answer("[flow.f]", "[flow]");
    wrong_type: answer("delay = \"10 ms\"", "delay = [\"10 ms\"]");
    out_of_range: answer("delay = \"10 ms\"", "loss = 1.5");
    packet_too_small: answer("law = \"newreno\"", "law = \"newreno\"\npacket-size = 50");
    syntax: answer("[node.r]", "[node.r");
    duplicate_name: answer("[node.d]", "[node.r]");
    stop_before_start: answer("law = \"newreno\"", "law = \"newreno\"\nstart = \"5 s\"\nstop = { first = \"8 s\", last = \"2 s\" }");
    unreachable: answer("from = \"r\"\nto = \"d\"\nrate = \"10 Mbps\"", "from = \"r\"\nto = \"d\"\nduplex = false\nrate = \"10 Mbps\"");
    too_far_away: answer("delay = \"10 ms\"", "delay = \"70 s\"");
    too_slow: answer_to(&format!("{BASE}[[change]]\nat = \"1 s\"\nlink = \"bottleneck\"\nrate = \"999 bps\"\n"), &["link.bottleneck.rate=900 bps"]);
    no_bdp: answer("delay = \"10 ms\"", "limit = \"1 BDP\"\n[node.e]\n[link.idle]\nfrom = \"r\"\nto = \"e\"\nrate = \"1 Mbps\"\nlimit = \"1 BDP\"");
    groups_do_not_pair: answer("[node.d]", "[node.d]\ncount = 3");
    rate_below_zero: answer("\"10 Mbps\"", "\"-5 Mbps\"");
    rate_of_no_wire: answer("\"10 Mbps\"", "\"100000000 Gbps\"");
    prefix_unknown: answer("\"10 Mbps\"", "\"10 Pbps\"");
    percent_out_of_range: answer("delay = \"10 ms\"", "loss = \"120 %\"");
    time_out_of_range: answer("duration = \"10 s\"", "duration = \"0 s\"");
    bandwidth: answer("rate = \"10 Mbps\"", "bandwidth = \"10 Mbps\"");
    latency: answer("delay = \"10 ms\"", "latency = \"10 ms\"");
    queue: answer("delay = \"10 ms\"", "queue = \"100 packets\"");
    nothing_like_it: answer("delay = \"10 ms\"", "foobar = 1");
    table_twice: answer("[flow.f]", "[link.access]\nfrom = \"s\"\nto = \"r\"\n[flow.f]");
    key_twice: answer("rate = \"10 Mbps\"", "rate = \"10 Mbps\"\nrate = \"20 Mbps\"");
    set_of_no_such_links: answer_to(BASE, &["link.x*.law=xcp"]);
    several: answer_to(&BASE.replace("duration", "duratoin").replace("Mbps", "Mbsp").replace("\"newreno\"", "\"cubik\""), &[]);
    change_of_nothing: answer_to(&format!("{BASE}[[change]]\nat = \"1 s\"\nlink = \"botleneck\"\nrate = \"1 Mbps\"\n[[change]]\nat = \"2 s\"\nlink = \"access\"\n"), &[]);
    only_in_a_variant: answer_to(&format!("{BASE}[variant.a]\n[variant.b]\n\"link.botleneck.rate\" = \"1 Mbps\"\n\"flow.f.law\" = \"cubiq\"\n"), &[]);
    grid_of_nothing: answer_to(&format!("{BASE}[grid.a]\n[grid.b]\nset = \"seed\"\n[grid.c]\nset = 3\nto = [1]\n"), &[]);
    grid_without_names: answer_to(&format!("{BASE}[grid.a]\nset = \"seed\"\nto = [1, [2]]\nbot = 3\n"), &[]);
    grid_of_twins: answer_to(&format!("{BASE}[grid.a]\nset = \"seed\"\nto = [1, 1]\n"), &[]);
    grid_of_wrong_values: answer_to(&format!("{BASE}[grid.a]\nset = \"link.botleneck.rate\"\nto = [\"1 Mbps\"]\n[grid.b]\nset = \"seed\"\nto = [1, \"two\"]\n"), &[]);
    grid_too_large: answer_to(&format!("{BASE}{}", (0..10).map(|i| format!("[grid.g{i}]\nset = \"seed\"\nto = [1, 2, 3]\n")).collect::<String>()), &[]);
    grid_is_no_table: answer_to(&format!("grid = 3\n{BASE}"), &[]);
    set_of_unknown_link: answer_to(BASE, &["link.botleneck.rate=20Mbps"]);
    set_of_unknown_unit: answer_to(BASE, &["seed=2", "link.bottleneck.rate=20Mps"]);
    set_of_nothing: answer_to(BASE, &["link.bottleneck.rate"]);
    red_without_limit: answer_to(BASE, &["link.bottleneck.law=red", "link.bottleneck.limit=unlimited"]);
    interval_too_short: answer_to(BASE, &["measure.interval=1 ns"]);
    nobody_answers: answer("law = \"newreno\"", "law = \"xcp\"");
    nobody_answers_back: answer_to(&BASE.replace("law = \"newreno\"", "law = \"xcp\"\nboth-ways = true"), &["link.bottleneck.law=xcp"]);
    held_by_its_buffer: answer_to(&BASE.replace("law = \"newreno\"", "law = \"xcp\""), &["flow.f.receive-buffer=20 packets"]);
    sizes_file_missing: answer_to(&format!("{BASE}[workload.w]\nfrom = \"s\"\nto = \"d\"\nlaw = \"xcp\"\narrivals = {{ poisson = 5 }}\nsizes = {{ empirical = \"none.txt\" }}\n"), &[]);
    policy_for_nobody: answer_to(&policy("flows = \"g*\""), &[]);
    policies_as_close: answer_to(&format!("{}[aggregate.b]\nrate = \"2 Mbps\"\nflows = \"?\"\n", policy("to = \"d*\"")), &[]);
    policy_for_smaller_packets: answer_to(&policy("largest = \"1000 B\""), &[]);
    policy_with_a_shallow_bucket: answer_to(&policy("depth = \"1 kB\""), &[]);
    policy_marks_a_toll: answer_to(&policy("action = \"mark\""), &["flow.f.law=xcp", "link.bottleneck.law=xcp"]);
    newton_beside_groups: answer_to(&format!("{BASE}[class.c]\npricing = \"group\"\n"), &["link.bottleneck.law=fcp", "link.bottleneck.fcp.newton=0.5", "flow.f.law=fcp"]);
    policy_goes_before_it_comes: answer_to(&policy("install = \"4 s\"\nremove = \"3 s\""), &[]);
}

#[test]
fn a_quantity_is_read_however_it_is_spelt() {
    let read = |text: &str, sets: &[&str]| super::plan(text, sets);
    let expected =
        read(BASE, &["link.bottleneck.law=fq-codel", "link.bottleneck.loss=0.05", "flow.f.packet-size=1000"]);
    for (law, loss, size) in [("fq_codel", "5%", "packet_size"), ("FQ-CoDel", "5 %", "packet-size")] {
        let sets = [
            format!("link.bottleneck.law={law}"),
            format!("link.b*.loss={loss}"),
            format!("flow.f.{size}=1000"),
        ];
        let plan = read(BASE, &sets.each_ref().map(String::as_str));
        assert_eq!(plan, expected);
        let inside =
            BASE.replace("[flow.f]", &format!("law = \"{law}\"\nloss = \"{loss}\"\n[flow.f]\n{size} = 1000"));
        assert_eq!(read(&inside, &[]), expected, "{inside}");
    }
    assert_eq!(read(&BASE.replace("newreno", "reno"), &[]), read(BASE, &[]));
    assert_eq!(read(BASE, &["link.*.law=fifo"]), read(BASE, &[]));
    assert_eq!(read(BASE, &["link.?ccess.rate=5Mbps"]).links[0].rate.mbps(), 5.0);
}

#[test]
fn what_is_right_and_may_not_be_meant_is_noted() {
    let notes = |text: &str| parse(text, &[]).unwrap().notes().join("\n");
    let late = "[[change]]\nat = \"10 s\"\nlink = \"access\"\nrate = \"1 Mbps\"\n";
    let all = [notes(&BASE.replace("10 Mbps", "10 MBps")), notes(&format!("{BASE}{late}"))];
    insta::assert_snapshot!(all.join("\n"));
    assert_eq!(notes(&BASE.replace("10 Mbps", "10 MB/s")), "");
    for (rate, says) in [
        ("10 kbps", "`bottleneck` (10 kbps, 1.2 s for a packet of 1500 B) and 1 more"),
        ("10 Mbps", ""),
        ("10 Tbps", ""),
        ("20 Tbps", "`bottleneck` (20 Tbps, 1 ns for a packet of 1500 B) and 1 more"),
    ] {
        let said = notes(&BASE.replace("10 Mbps", rate));
        assert!(said.is_empty() == says.is_empty() && said.ends_with(says), "{rate}: {said}");
    }
    let silent = "name = \"t\"\nduration = \"1 s\"\nnode = { a = {}, b = {} }\nlink.l = { from = \"a\", to = \"b\", rate = \"1 Mbps\" }\n";
    assert!(notes(silent).starts_with("nothing is sent"), "{}", notes(silent));
}

#[test]
fn what_is_of_no_use_in_a_flow_is_said() {
    for (sets, says) in [
        (
            &["flow.f.size=3 kB", "flow.f.frames={count=3, size='1 kB'}"][..],
            "either `size` bytes or `frames`",
        ),
        (
            &["flow.f.law=xcp", "flow.f.size=2 GB"],
            "requests unlimited feedback, and no link on its path there has a law that answers",
        ),
        (
            &["flow.f.law=xcp", "flow.f.receive-buffer=4 GB"],
            "requests unlimited feedback, and no link on its path there",
        ),
        (
            &["flow.f.flow-control=soft", "flow.f.receive-buffer=200 kB"],
            "uses XCP's feedback, which the law `newreno` ignores",
        ),
        (&["flow.f.law=xcp", "flow.f.flow-control=soft"], "needs a limited buffer"),
        (&["flow.f.reader={every='1 ms', then='2 ms'}"], "`then` needs `period`"),
        (&["flow.f.reader={every='1 ms', period='2 s'}"], "`period` needs `then`"),
        (
            &["flow.f.reader.every=1 ms", "flow.f.receive-window.growth=per-packet"],
            "a growing window does not work with `reader`",
        ),
        (
            &["flow.f.reader.every=1 ms", "flow.f.transport=kernel"],
            "is for Tollway's receivers, and this flow uses the kernel's TCP",
        ),
        (&["flow.f.law=rcp", "flow.f.transport=kernel"], "the kernel's TCP has no law `rcp`"),
        (
            &["flow.f.law=xcp", "flow.f.transport=kernel", "flow.f.encoding=draft-3"],
            "carries XCP's header in TCP options only",
        ),
        (
            &["flow.f.law=xcp", "flow.f.transport=kernel", "flow.f.xcp.on-loss=halve"],
            "the law's program for the kernel's TCP",
        ),
        (
            &["flow.f.law=fcp", "flow.f.transport=kernel", "flow.f.fcp.max-preload=1"],
            "the law's program for the kernel's TCP",
        ),
        (&["flow.f.header=1500 B"], "a header of 1500 B leaves no room for data in a packet of 1500 B"),
        (&["flow.f.stop=0 s"], "`f.1` stops at 0 s, but starts only at 0 s"),
        (&["flow.f.from=s.1", "flow.f.stop=0 s"], "`f` stops at 0 s"),
        (&["flow.f.pairs=2"], "`pairs` needs `between`"),
        (&["flow.f.between=*"], "a flow has either `from` or `between`"),
        (
            &["flow.f.law=cubic", "flow.f.growth-per-ack=2"],
            "needs the law `newreno`, and this flow has `cubic`",
        ),
        (&["flow.f.feedback=integer"], "needs the encoding `tcp-option`"),
        (&["flow.f.sack=false", "flow.f.sack-blocks=2"], "`sack-blocks` needs SACK"),
        (&["flow.f.sack=false", "flow.f.loss-detection=rack"], "needs SACK"),
        (&["flow.f.law=cubic", "flow.f.loss-detection=ns-2"], "`ns-2` needs the law `newreno`"),
        (&["flow.f.ecn=true", "flow.f.loss-detection=ns-2"], "`ns-2` needs the law `newreno`, without ECN"),
        (&["flow.f.loss-detection=ns-2", "flow.f.rto.impatient=true"], "in place of `impatient`"),
        (&["flow.f.loss-detection=ns-2", "flow.f.growth-per-ack=1"], "in place of `growth-per-ack`"),
        (&["flow.f.repair-copies=2"], "needs the loss detection `rack`"),
        (&["flow.f.rto={min='3 s', max='1 s'}"], "`min`, 3 s, is over its `max`, 1 s"),
        (
            &["link.*.law=fcp", "flow.f.law=fcp", "flow.f.encoding=draft-2"],
            "XCP's header has no room for the tolls",
        ),
        (
            &["link.*.law=xcp", "flow.f.law=xcp", "flow.f.encoding=draft-3", "flow.f.xcp.every=2"],
            "no field for the number of packets",
        ),
        (
            &["link.*.law=xcp", "flow.f.law=xcp", "flow.f.encoding=draft-3", "flow.f.xcp.fallback=cubic"],
            "no field for the number of routers",
        ),
        (&["flow.f.law=fcp"], "no link from `s.1` to `d` has the law `fcp`"),
        (&["flow.f.receive-buffer=1459 B"], "`receive-buffer` holds less than one packet"),
        (&["flow.f.send-buffer=1459 B"], "`send-buffer` holds less than one packet"),
        (&["cbr.c={from='s', to='d', rate='1 Mbps', on='1 s'}"], "`on` needs `off`"),
        (&["cbr.c={from='s', to='d', rate='1 Mbps', off='1 s'}"], "`off` needs `on`"),
        (
            &[
                "workload.w={from='s', to='d', law='cubic', arrivals={poisson=5}, sizes='1 kB', start='1 s', stop='1 s'}",
            ],
            "workload `w` stops at 1 s, before it starts at 1 s",
        ),
    ] {
        let answer = answer_to(BASE, sets);
        assert!(answer.contains(says), "{sets:?}: {answer}");
    }
    // One full packet is enough, and so is one byte of data.
    for set in ["flow.f.receive-buffer=1460 B", "flow.f.header=1499 B", "flow.f.stop=1 ns"] {
        assert_eq!(answer_to(BASE, &[set]), "it is right", "{set}");
    }
}

#[test]
fn what_a_change_or_loss_cannot_mean_is_said() {
    let hosts = format!(
        "{BASE}[flow.g]\nfrom = \"s\"\nto = \"d\"\nlaw = \"fcp\"\n[flow.h]\nfrom = \"s.1\"\nto = \"d\"\nlaw = \"fcp\"\n\
         [host.h]\nflows = \"g\"\n"
    );
    let sets = ["link.*.law=fcp", "link.*.limit=100 packets"];
    for (change, says) in [
        ("link = 'access.1'\nflow = 'f'\nrate = '1 Mbps'", "to links or to flows"),
        ("link = 'access.1'\nbudget = 2", "a link has no `budget`"),
        (
            "link = 'access.1'\nrate = '1 Mbps'\nreceive-buffer = '9 packets'",
            "a link has no `receive-buffer`",
        ),
        ("link = 'access.1'\nstrategy = 'fixed'", "`strategy` is a change of a host"),
        ("flow = 'f'\nloss = 0.5", "a flow has no `loss`"),
        ("link = 'access.1'\npaused = true", "a link has no `paused`"),
        ("flow = 'f'\npaused = true", "it is right"),
        ("paused = true", "`flow` is missing, so this changes nothing"),
        ("flow = 'f'", "`receive-buffer` is missing, so this changes nothing"),
        ("flow = 'k'\nreceive-buffer = '9 packets'", "there is no flow `k`"),
        ("flow = 'f'\nreceive-buffer = '9 B'", "`receive-buffer` holds less than one packet"),
        ("flow = 'k'\nbudget = 2", "there is no flow `k`"),
        ("flow = 'f'\nbudget = 2", "`f.1` has no budget: its law is not `fcp`"),
        ("flow = 'g.*'\nbudget = 2", "`g.1` uses the budget of its host"),
        ("receive-buffer = '9 packets'", "`flow` is missing, so this changes nothing"),
        ("rate = '1 Mbps'", "`link` is missing, so this changes nothing"),
        ("host = 'k'\nbudget = 2", "there is no host `k`"),
        ("host = 'h'", "this changes nothing"),
        ("host = 'h'\nbudget = 2\nlink = 'access.1'", "a change applies to links, to flows or to a host"),
        ("host = 'h'\nbudget = 2\nstrategy = 'background'", "it is right"),
        ("flow = 'h'\nbudget = 2\nreceive-buffer = '9 packets'", "it is right"),
        ("link = 'access.1'\nprice-error = 0.5", "it is right"),
    ] {
        let answer =
            answer_to(&format!("{hosts}[[change]]\nat = \"1 s\"\n{}\n", change.replace('\'', "\"")), &sets);
        assert!(answer.contains(says), "{change}: {answer}");
    }
    let priced = format!("{BASE}[[change]]\nat = \"1 s\"\nlink = \"bottleneck\"\nprice-error = 0.5\n");
    assert!(answer_to(&priced, &[]).contains("only links of the law `fcp` have a price"));
    let lossy = format!(
        "{BASE}[[loss]]\nlink = \"bottleneck\"\nprobability = 0.5\nfrom = \"2 s\"\nuntil = \"2 s\"\n"
    );
    assert!(answer_to(&lossy, &[]).contains("this ends at 2 s, before its start at 2 s"));
    let one_way =
        ["loss.0.until=3 s", "loss.0.direction=reverse", "link.bottleneck.duplex=false", "flow.f.to=r"];
    assert!(answer_to(&lossy, &one_way).contains("`bottleneck` has no reverse direction"));
}

/// The base scenario with a policy.
fn policy(more: &str) -> String {
    format!("{BASE}[aggregate.a]\nrate = \"1 Mbps\"\n{more}\n")
}
