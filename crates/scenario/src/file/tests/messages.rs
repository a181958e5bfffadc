//! What a slip of the pen is answered with, as a terminal shows it.

use super::{BASE, parse, show};

/// The answer to the base scenario with `from` replaced by `to`.
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

/// The base scenario with a policy.
fn policy(more: &str) -> String {
    format!("{BASE}[aggregate.a]\nrate = \"1 Mbps\"\n{more}\n")
}
