//! Machines in a file: their counters, and refused combinations.

use tollway_scenario::file::Scenario;
use tollway_scenario::run::DigestMode;

use crate::{finish, parse};

const FILE: &str = include_str!("../../../../scenarios/machines.toml");

#[test]
fn messages_come_back_past_a_counter() {
    for sets in [&[][..], &["flow.ask.law=newreno", "link.*.law=drop-tail", "link.*.limit=unlimited"]] {
        let scenario = parse(FILE, sets);
        let finished = finish(&scenario.variants()[0].plan, DigestMode::Packets);
        let number = |path: &str| finished.result.systems.get(path).unwrap();
        assert_eq!(
            (
                number("machines.caller.answered"),
                number("machines.caller.wrong"),
                number("machines.echo.echoed")
            ),
            (200.0, 0.0, 200.0)
        );
        // Of 200 messages in each direction, some have a last segment that was lost before the
        // counter and sent again.
        let frames = number("machines.count.frames");
        assert!((390.0..=400.0).contains(&frames), "{frames}");
        // 20 kB are fourteen packets each way.
        assert!(number("machines.count.packets") >= 200.0 * 28.0, "{}", number("machines.count.packets"));
        let again = finish(&scenario.variants()[0].plan, DigestMode::Packets);
        assert_eq!(finished.run.digest, again.run.digest);
    }
}

#[test]
fn a_counter_changes_no_packet_s_way() {
    let with = parse(FILE, &[]);
    let mut without = with.variants()[0].plan.clone();
    without.machines.retain(|machine| machine.kind.is_app);
    let digest = |plan| finish(plan, DigestMode::Packets).run.digest;
    assert_eq!(digest(&with.variants()[0].plan), digest(&without));
}

#[test]
fn messages_come_back_over_a_link_that_loses_some() {
    let scenario = parse(FILE, &["link.bottleneck.loss=0.02", "machine.caller.messages=50"]);
    let finished = finish(&scenario.variants()[0].plan, DigestMode::Packets);
    let number = |path: &str| finished.result.systems.get(path).unwrap();
    assert_eq!((number("machines.caller.answered"), number("machines.caller.wrong")), (50.0, 0.0));
}

#[test]
fn what_no_app_can_own_is_refused() {
    for (set, says) in [
        (&["machine.echo.flows=asks"][..], "there is no flow `asks`"),
        (&["machine.echo.node=router"], "neither begins nor ends at this node"),
        (&["machine.echo.node=client"], "already has another app"),
        (&["machine.count.flows=ask"], "has no flows"),
        (&["machine.count.kind=echo"], "an app needs `flows`"),
        (&["machine.echo.kind=reply"], "reply"),
        (&["flow.ask.both-ways=false"], "has apps at both ends"),
        (&["flow.ask.size=1 MB"], "the app sets the data"),
        (&["flow.ask.law=newreno", "flow.ask.transport=kernel"], "the kernel's TCP"),
    ] {
        let Err(error) = Scenario::parse("machines.toml", FILE, set) else { panic!("{set:?} is taken") };
        let mistakes = format!("{:?}", error.mistakes());
        assert!(mistakes.contains(says), "{set:?}: {mistakes}");
    }
}

#[test]
fn what_else_an_owned_flow_lacks_or_has_is_refused() {
    let other = "[flow.other]\nfrom = \"client\"\nto = \"server\"\nlaw = \"newreno\"\nboth-ways = true\n";
    let one = FILE.replace("flows = \"ask\"\nmessages", "flows = \"*\"\nmessages") + other;
    let policy = FILE.replace("law = \"xcp\"", "law = \"newreno\"");
    let policy = policy
        .replace("newreno\"\nlimit", "drop-tail\"\nlimit")
        .replace("newreno\"\nsymmetric", "drop-tail\"\nsymmetric")
        + "[aggregate.a]\nrate = \"1 Mbps\"\n";
    for (text, says) in [(one, "`other` has an app at one end only"), (policy, "`ask` matches a policy")] {
        let Err(error) = Scenario::parse::<&str>("machines.toml", &text, &[]) else { panic!("{says}") };
        let mistakes = format!("{:?}", error.mistakes());
        assert!(mistakes.contains(says), "{mistakes}");
    }
}
