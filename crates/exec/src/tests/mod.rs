//! Tests of networks from words and from files.

use tollway_law::Time;
use tollway_proto::Change;
use tollway_scenario::file::Scenario;
use tollway_scenario::plan::Plan;
use tollway_scenario::run::mesh::{mesh, route};

use super::*;

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
fn ports_and_servers_of_more_than_two_nodes_need_a_node() {
    let text = "name = \"row\"\nduration = \"1 s\"\n[node.a]\n[node.b]\n[node.c]\n\
                [link.one]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbps\"\n\
                [link.two]\nfrom = \"b\"\nto = \"c\"\nrate = \"1 Mbps\"\n";
    let file = Scenario::parse::<&str>("row", text, &[]).unwrap();
    let error =
        |options: options::Options| options.spec(&file.variants()[0].plan, &[]).unwrap_err().to_string();
    let options = || options::Options { file: Some("row".into()), ..Default::default() };
    let published = options::Options { publish: vec!["80".into()], ..options() };
    assert_eq!(error(published), "`--publish 80` does not begin with a node of the file");
    let served = options::Options { serve: vec!["cat".into()], ..options() };
    assert_eq!(error(served), "`--serve cat` does not begin with a node of the file");
    let localhost = options::Options { localhost: vec!["8000".into()], ..options() };
    assert_eq!(error(localhost), "`--localhost 8000`: it does not name a node of the file");
    let outside = options::Options { outside: Some(String::new()), ..options() };
    assert!(error(outside).starts_with("`--outside` needs the node"));
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
fn nodes_may_have_more_names() {
    let spec = |name: &str| {
        let options =
            options::Options { link: Some("1Mbps".into()), names: vec![name.into()], ..Default::default() };
        options.spec(&plan("1Mbps", None), &["true".into()])
    };
    let aliases = spec("server=api.example.com").unwrap().aliases;
    assert!(aliases.contains(&("api.example.com".to_owned(), 1)), "{aliases:?}");
    for (name, why) in [
        ("api.example.com", "does not have the form NODE=NAME"),
        ("server=two words", "does not have the form NODE=NAME"),
        ("nobody=api.example.com", "there is no node `nobody`"),
    ] {
        let error = spec(name).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn ports_of_this_machine_lead_into_the_network() {
    let listen = |text: &str| {
        let options =
            options::Options { link: Some("1Mbps".into()), listen: vec![text.into()], ..Default::default() };
        options.spec(&plan("1Mbps", None), &[]).map(|spec| spec.listen[0])
    };
    for (text, at, from, node) in [
        ("9000=server:80", "127.0.0.1:9000", 0, 1),
        ("0.0.0.0:0=server:80", "0.0.0.0:0", 0, 1),
        ("[::1]:9000=server:80@program", "[::1]:9000", 0, 1),
        // A connection to the program's node comes from the other one.
        ("9000=program:80", "127.0.0.1:9000", 1, 0),
    ] {
        let expected = Listen { at: at.parse().unwrap(), inside: false, from, node, port: 80 };
        assert_eq!(listen(text).unwrap(), expected, "{text}");
    }
    for (text, why) in [
        ("9000", "it has no `=`"),
        ("localhost=server:80", "`localhost` is no address with a port, and no port"),
        ("70000=server:80", "`70000` is no address with a port, and no port"),
        ("9000=server", "`server` is not NODE:PORT"),
        ("9000=server:http", "`http` is no port"),
        ("9000=server:0", "`0` is no port"),
        ("9000=nowhere:80", "there is no node `nowhere`"),
        ("9000=server:80@phone", "there is no node `phone`"),
        ("9000=server:80@server", "connections would cross no link"),
    ] {
        let error = listen(text).unwrap_err();
        assert_eq!(error.to_string(), format!("`--listen {text}`: {why}"));
    }
}

#[test]
fn ports_of_localhost_lead_over_the_network() {
    let localhost = |text: &str| {
        let options = options::Options {
            link: Some("1Mbps".into()),
            localhost: vec![text.into()],
            ..Default::default()
        };
        options.spec(&plan("1Mbps", None), &[]).map(|spec| spec.listen[0])
    };
    for (text, here, from, node, port) in [
        ("8000", 8000, 0, 1, 8000),
        ("8000=server:80", 8000, 0, 1, 80),
        ("8000=program:80", 8000, 1, 0, 80),
        ("8000=program:80@server", 8000, 1, 0, 80),
    ] {
        let expected = Listen { at: ([127, 0, 0, 1], here).into(), inside: true, from, node, port };
        assert_eq!(localhost(text).unwrap(), expected, "{text}");
    }
    for (text, why) in [
        ("http", "`http` is no port"),
        ("0", "`0` is no port"),
        ("8000=80", "`80` is not NODE:PORT"),
        ("8000=server:80@server", "connections would cross no link"),
    ] {
        assert_eq!(localhost(text).unwrap_err().to_string(), format!("`--localhost {text}`: {why}"));
    }
}

#[test]
fn ports_with_tls_are_of_the_other_node_unless_named() {
    let tls = |text: &str| {
        let options =
            options::Options { link: Some("1Mbps".into()), tls: vec![text.into()], ..Default::default() };
        options.spec(&plan("1Mbps", None), &[]).map(|spec| spec.tls[0])
    };
    assert_eq!(tls("443:8000").unwrap(), Tls { node: 1, port: 443, to: 8000 });
    assert_eq!(tls("program:443:8000").unwrap(), Tls { node: 0, port: 443, to: 8000 });
    for (text, why) in [("443", "it is not two ports"), ("443:http", "`http` is no port")] {
        assert_eq!(tls(text).unwrap_err().to_string(), format!("`--tls {text}`: {why}"));
    }
}

#[test]
fn trains_pass_where_nobody_looks_at_single_packets() {
    let train = |down: &str| crate::options::longest_train(&plan(down, None));
    assert_eq!(train("1Gbps 1ms"), 25_000);
    assert_eq!(train("100Gbps"), 63_000);
    assert_eq!(train("100Mbps"), 0);
    assert_eq!(train("1Gbps fq_codel"), 0);
    assert_eq!(train("1Gbps loss=0.1%"), 0);
    assert_eq!(train("1Gbps jitter=1ms"), 0);
    assert_eq!(train("1Gbps limit=1000packets"), 0);
}
