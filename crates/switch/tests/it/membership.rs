//! Members that are added, removed, weighted and drained while sessions run, and the choice among
//! them by content.

use std::collections::HashMap;
use std::net::TcpStream;

use tollway_proto::route::{Candidate, Item, Modules, Route};
use tollway_switch::agent::{Agent, Events};
use tollway_switch::config::Config;
use tollway_switch::setup::Edit;
use tollway_switch::sites::Sites;

use crate::common::mesh::{Faults, Mesh, Plan, await_hops, keys, site};
use crate::common::{Server, connect, dial, eventually, member, status, switch};
use crate::sites_traffic::{bodies, check_servers, echoed, ends};

/// A switch of the backs in `members` out of those of a plan.
fn switch_of(plan: &Plan, members: &[(usize, u32)]) -> String {
    let mut text = format!(
        "bind = \"{}\"\nkeys = \"b.key\"\npolicy = \"round-robin\"\n[peer.a]\naddress = \"{}\"\n",
        plan.bound[1], plan.front_seen
    );
    for (k, weight) in members {
        text += &format!("[member.m{k}]\naddress = \"{}\"\nweight = {weight}\n", plan.backs_seen[*k]);
    }
    text
}

/// A front, a switch of the first two backs, and all backs.
fn parts(name: &str, servers: &[Server]) -> (Mesh, Plan) {
    let folder = keys(name, servers.len());
    let (plan, relays) = Plan::new(servers.len(), &Faults::None);
    let front = site(&folder, &plan.front("u16", "in-order", ""));
    let switch = site(&folder, &switch_of(&plan, &[(0, 1), (1, 1)]));
    let backs = servers.iter().enumerate();
    let backs =
        backs.map(|(k, server)| site(&folder, &plan.back(k, server, "u16", "in-order", ""))).collect();
    let mesh = Mesh { front, switch, backs, folder, plan: plan.clone(), relays };
    await_hops([&mesh.front, &mesh.switch]);
    (mesh, plan)
}

fn edit(agent: &Agent, command: &str) {
    agent.teller().edit(&Edit::parse(command).unwrap()).unwrap();
}

/// Frames that each server got more than `before`.
fn more(servers: &[Server], before: &mut Vec<usize>) -> Vec<usize> {
    let now: Vec<usize> = servers.iter().map(|server| server.frames().len()).collect();
    let more = now.iter().zip(before.iter().chain(std::iter::repeat(&0))).map(|(now, before)| now - before);
    let more = more.collect();
    *before = now;
    more
}

#[test]
fn members_come_and_go_under_an_open_session_between_sites() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let (mesh, plan) = parts("members", &servers);
    let client = dial(mesh.front.listen()[0]);
    let all = bodies(1, 1200, 300);
    let (mut rounds, mut seen) = (all.chunks(300), vec![0; 3]);
    let mut round = || {
        let sent = rounds.next().unwrap();
        assert!(echoed(&client, sent) == sent, "the answers, in the order of requests");
    };
    round();
    assert_eq!(more(&servers, &mut seen), [150, 150, 0]);
    edit(&mesh.switch, &format!("add {} 2 m2", plan.backs_seen[2]));
    eventually("the session has it", || member(&status(&mesh.switch), "m2").connections == 1);
    round();
    assert_eq!(more(&servers, &mut seen), [75, 75, 150]);
    edit(&mesh.switch, "remove m0");
    eventually("its back is done", || ends(&mesh.backs[0], "done") == 1);
    edit(&mesh.switch, "weight 1 m2");
    round();
    assert_eq!(more(&servers, &mut seen), [0, 150, 150]);
    eventually("it has left", || status(&mesh.switch).members.len() == 2);
    mesh.switch.teller().drain("m2", true).unwrap();
    eventually("its back is done", || ends(&mesh.backs[2], "done") == 1);
    round();
    assert_eq!(more(&servers, &mut seen), [0, 300, 0]);
    check_servers(&servers, 1, 1200);
    // It comes back, and so does the one that left, in its place.
    mesh.switch.teller().drain("m2", false).unwrap();
    edit(&mesh.switch, &format!("add {} 1 m0", plan.backs_seen[0]));
    let connected = |name| member(&status(&mesh.switch), name).connections == 1;
    eventually("all are back", || ["m0", "m1", "m2"].into_iter().all(connected));
    assert_eq!(echoed(&client, &bodies(2, 300, 300)).len(), 300);
    assert_eq!(more(&servers, &mut seen), [100; 3]);
    let sites = status(&mesh.switch).sites.unwrap();
    assert_eq!((sites.failures, sites.lost, sites.rerouted), (0, 0, 0));
    assert_eq!(mesh.switch.teller().drain("m9", true).unwrap_err().len(), 3);
}

#[test]
fn a_new_file_changes_the_members_and_what_needs_a_restart_is_refused() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let (mesh, plan) = parts("members-file", &servers);
    let client = dial(mesh.front.listen()[0]);
    assert_eq!(echoed(&client, &bodies(1, 100, 100)).len(), 100);
    let install = |text: &str| {
        let config = Sites::parse("test", text, &mesh.folder).unwrap();
        mesh.switch.install(config)
    };
    let text = switch_of(&plan, &[(1, 1), (2, 3)]);
    for (from, to, part) in [
        (plan.bound[1].to_string(), "127.0.0.1:1".to_owned(), "another `bind` takes effect at a restart"),
        ("[peer.a]".to_owned(), "law = \"cubic\"\n[peer.a]".to_owned(), "another `law`"),
        ("[member.m1]".to_owned(), "[member.m0]".to_owned(), "is in use by `m1`"),
    ] {
        let error = install(&text.replace(&from, &to)).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    install(&text).unwrap();
    eventually("the session has it", || member(&status(&mesh.switch), "m2").connections == 1);
    eventually("the other is done", || ends(&mesh.backs[0], "done") == 1);
    let mut seen = Vec::new();
    more(&servers, &mut seen);
    assert_eq!(echoed(&client, &bodies(2, 400, 100)).len(), 400);
    assert_eq!(more(&servers, &mut seen), [0, 100, 300]);
    let front = Sites::parse("test", &plan.front("u16", "in-order", "sessions = 1"), &mesh.folder).unwrap();
    mesh.front.install(front).unwrap();
    eventually("a second client is refused", || {
        drop(dial(mesh.front.listen()[0]));
        status(&mesh.front).refused > 0
    });
}

#[test]
fn members_come_and_go_under_an_open_session_of_a_switch() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let [a, b, c] = [0, 1, 2].map(|at| servers[at].address);
    let switch = switch("u16", "policy = \"round-robin\"\nanswers = \"in-order\"", &[("a", a), ("b", b)]);
    let (client, mut seen) = (connect(&switch), Vec::new());
    let mut round = |commands: &[String], expected: [usize; 3]| {
        commands.iter().for_each(|command| edit(&switch, command));
        let sent = bodies(1, 300, 100);
        assert!(echoed(&client, &sent) == sent);
        assert_eq!(more(&servers, &mut seen), expected);
    };
    round(&[], [150, 150, 0]);
    round(&[format!("add {c} 2 c")], [75, 75, 150]);
    round(&["remove a".into(), "weight 1 c".into()], [0, 150, 150]);
    eventually("it has left", || status(&switch).members.len() == 2);
    round(&[format!("add {a} 4 d")], [200, 50, 50]);
    let names: Vec<String> = status(&switch).members.into_iter().map(|member| member.name).collect();
    assert_eq!(names, ["d", "b", "c"], "it has the place of the one that left");
}

/// The servers that frames of each key are at: the byte after the length.
fn homes(servers: &[Server]) -> HashMap<u8, Vec<usize>> {
    let mut homes: HashMap<u8, Vec<usize>> = HashMap::new();
    for (at, server) in servers.iter().enumerate() {
        let frames = server.frames();
        frames.iter().for_each(|frame| homes.entry(frame[0]).or_default().push(at));
    }
    homes.values_mut().for_each(|at| at.dedup());
    homes
}

/// A front that sends keys, and a switch that routes by them.
fn keyed(name: &str, servers: &[Server], more: &str) -> Mesh {
    let folder = keys(name, servers.len());
    std::fs::write(folder.join("hash.secret"), [7; 16]).unwrap();
    let (plan, relays) = Plan::new(servers.len(), &Faults::None);
    let front = site(&folder, &format!("key = \"2..3\"\n{}", plan.front("u16", "in-order", "")));
    let switch = plan.switch(&format!("policy = \"by-key\"\nsecret = \"hash.secret\"\n{more}"), "");
    let switch = site(&folder, &switch);
    let backs = servers.iter().enumerate();
    let backs =
        backs.map(|(k, server)| site(&folder, &plan.back(k, server, "u16", "in-order", ""))).collect();
    let mesh = Mesh { front, switch, backs, folder, plan, relays };
    await_hops(mesh.all());
    mesh
}

#[test]
fn between_sites_frames_of_one_key_go_to_one_member_in_all_sessions() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let mesh = keyed("by-key", &servers, "");
    let sent: Vec<Vec<u8>> = (0..90).map(|at| vec![at % 30; 2000]).collect();
    for _ in 0..2 {
        assert!(echoed(&dial(mesh.front.listen()[0]), &sent) == sent);
    }
    let homes = homes(&servers);
    assert!(homes.len() == 30 && homes.values().all(|at| at.len() == 1), "{homes:?}");
    assert!(servers.iter().all(|server| server.frames().len() > 12), "all have some keys");
    // Another process of the same secret has the same members.
    let again = keyed("by-key-again", &servers, "");
    assert!(echoed(&dial(again.front.listen()[0]), &sent) == sent);
    assert_eq!(self::homes(&servers), homes);
}

#[test]
fn keys_of_a_member_that_is_down_move_or_end_their_session() {
    for (on_failure, moves) in [("move", true), ("error", false)] {
        let servers = [Server::start(), Server::start()];
        let mesh = keyed(on_failure, &servers, &format!("on-failure = \"{on_failure}\"\n"));
        let sent: Vec<Vec<u8>> = (0..40).map(|at| vec![at; 100]).collect();
        let client = dial(mesh.front.listen()[0]);
        assert!(echoed(&client, &sent) == sent);
        let own: Vec<Vec<u8>> = servers[0].frames();
        servers[0].kill();
        eventually("the switch has heard", || status(&mesh.switch).sites.unwrap().failures == 1);
        if moves {
            assert!(echoed(&client, &own) == own);
        } else {
            // Others are served; its own wait for it, until the session is over.
            let others: Vec<Vec<u8>> = servers[1].frames();
            assert!(echoed(&client, &others) == others);
            std::io::Write::write_all(&mut &client, &crate::common::framed(&own[0])).unwrap();
            crate::sites_traffic::broken(&client);
            assert_eq!(servers[1].frames().iter().filter(|frame| frame[0] == own[0][0]).count(), 0);
        }
    }
}

/// Frames by their first byte, even and odd.
struct Parity;

impl Route for Parity {
    fn pick(&mut self, item: &Item<'_>, members: &[Candidate]) -> Option<usize> {
        let at = usize::from(item.frame.get(2)? % 2);
        members.get(at)?.up.then_some(at)
    }
}

#[test]
fn modules_of_the_user_see_frames_in_both_products() {
    let sent: Vec<Vec<u8>> = (0..60).map(|at| vec![at; 3000]).collect();
    let check = |servers: &[Server], client: &TcpStream| {
        assert!(echoed(client, &sent) == sent);
        for (at, server) in servers.iter().enumerate() {
            let frames = server.frames();
            assert!(frames.len() == 30 && frames.iter().all(|frame| usize::from(frame[0] % 2) == at));
        }
    };
    let parity = || Modules::new("parity", |_| Box::new(Parity));
    let servers = [Server::start(), Server::start()];
    let folder = keys("modules", 2);
    let (plan, _relays) = Plan::new(2, &Faults::None);
    let front = site(&folder, &plan.front("u16", "in-order", ""));
    let config = Sites::parse("test", &plan.switch("", ""), &folder).unwrap().with_modules(parity());
    let middle = Agent::start(config, "test".into(), Events::default()).unwrap();
    let backs = servers.iter().enumerate();
    let backs: Vec<_> =
        backs.map(|(k, server)| site(&folder, &plan.back(k, server, "u16", "in-order", ""))).collect();
    await_hops([&front, &middle].into_iter().chain(&backs));
    check(&servers, &dial(front.listen()[0]));
    assert_eq!(status(&middle).policy, "parity");

    let servers = [Server::start(), Server::start()];
    let mut text = "listen = \"127.0.0.1:0\"\nframes = \"u16\"\nanswers = \"in-order\"\n".to_owned();
    for (at, server) in servers.iter().enumerate() {
        text += &format!("[member.m{at}]\naddress = \"{}\"\n", server.address);
    }
    let config = Config::parse("test", &text, None).unwrap().with_modules(parity());
    let one = Agent::start(config, "test".into(), Events::default()).unwrap();
    check(&servers, &connect(&one));
    assert_eq!(status(&one).policy, "parity");
}
