use miette::Diagnostic;

use tollway_proto::dispatch::Answers;

use super::*;
use crate::setup::Watched;

const GOOD: &str = r#"
listen = "127.0.0.1:5000"
frames = "u16"
[member.a]
address = "127.0.0.1:6001"
"#;

fn parse(text: &str) -> Result<Config, ScenarioError> {
    Config::parse("switch.toml", text, None)
}

#[test]
fn the_manual_lists_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/switch-reference.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, switch_reference_markdown()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == switch_reference_markdown(),
        "run `UPDATE_DOCS=1 cargo test -p tollway-switch manual`"
    );
    parse(EXAMPLE).unwrap();
}

#[test]
fn what_is_left_out_has_defaults_that_suit_the_framing() {
    let config = parse(GOOD).unwrap();
    assert_eq!((config.policy, config.rules.answers), (Policy::LeastLoaded, Answers::Any));
    assert_eq!(config.limits, Limits::default());
    let config = parse(&GOOD.replace("u16", "resp")).unwrap();
    assert_eq!((config.policy, config.rules.answers), (Policy::ByKey, Answers::InOrder));
    let config = parse(&GOOD.replace("u16", "octet-counting")).unwrap();
    assert_eq!(config.rules.answers, Answers::None);
    // A larger frame takes a larger buffer at members with it.
    let config = parse(&format!("{GOOD}[limits]\nframe = \"16 MiB\"\n")).unwrap();
    assert_eq!(config.limits.member_buffer, 16 << 20);
}

#[test]
fn members_have_weights_and_names() {
    let named = GOOD.replace("127.0.0.1:6001", "localhost:6001");
    let config = parse(
        &named
            .replace("[member", "policy = \"round-robin\"\n[member")
            .replace(":6001\"", ":6001\"\nweight = 3"),
    );
    let member = &config.unwrap().members[0];
    assert_eq!((member.weight, member.host.as_deref()), (3, Some("localhost:6001")));
    let member = &parse(GOOD).unwrap().members[0];
    assert_eq!((member.weight, member.host.as_deref()), (1, None));
    // This policy has its own measure.
    let error = parse(&GOOD.replace(":6001\"", ":6001\"\nweight = 3")).unwrap_err();
    assert!(error.to_string().contains("`least-loaded` measures"), "{error}");
}

#[test]
fn words_say_the_same_as_a_file() {
    let words = CommandLine {
        listen: vec![":5000".into()],
        frames: Some("lines".into()),
        policy: Some("round-robin".into()),
        to: vec!["127.0.0.1:6001".into(), "127.0.0.1:6002".into()],
        ..CommandLine::default()
    };
    let config = Config::from_words(&words).unwrap();
    assert_eq!(config.listen, ["0.0.0.0:5000".parse().unwrap()]);
    assert_eq!(config.members.len(), 2);
    assert_eq!(config.members[1].name, "127.0.0.1:6002");
    let error = Config::from_words(&CommandLine { frames: Some("line".into()), ..words }).unwrap_err();
    assert!(error.to_string().contains("`line` is not a framing"), "{error}");
}

#[test]
fn every_mistake_names_its_place_and_a_remedy() {
    for (from, to, message, help) in [
        ("u16", "u8", "`u8` is not a framing", Some("framing")),
        ("127.0.0.1:5000", "nowhere", "`nowhere` is not an address", Some(":5000")),
        ("127.0.0.1:6001", "127.0.0.1", "not an address of a member", Some("10.0.0.1:5000")),
        ("[member.a]", "colour = 1\n[member.a]", "there is no key `colour`", Some("nearest")),
        ("[member.a]", "policy = \"by-key\"\n[member.a]", "the position of a frame's key", Some("field=3")),
        (
            "[member.a]",
            "policy = \"best\"\n[member.a]",
            "`best` is not a value of `policy`",
            Some("round-robin"),
        ),
        ("[member.a]", "answers = \"some\"\n[member.a]", "`some` is not a value of `answers`", Some("any")),
        ("[member.a]", "retry = \"always\"\n[member.a]", "`always` is not a value of `retry`", Some("never")),
        ("[member.a]", "[client.x]\nweight = 0\n[member.a]", "`weight` must be over 0", None),
        (
            "[member.a]",
            "[client.x]\nfrom = \"here\"\n[member.a]",
            "`here` is not an address or a network",
            Some("/16"),
        ),
        ("[member.a]", "[limits]\nframe = \"1 B\"\n[member.a]", "`frame` must be from 16 to", None),
        (
            "[member.a]",
            "[tls]\ncertificate = \"no.pem\"\nkey = \"no.pem\"\n[member.a]",
            "no certificate in",
            Some("PEM"),
        ),
        ("[member.a]", "[upstream]\nname = \"x\"\n[member.a]", "a trusted authority", Some("ca =")),
        ("[member.a]\naddress = \"127.0.0.1:6001\"", "", "has no members", Some("[member.a]")),
    ] {
        let text = GOOD.replace(from, to);
        let error = parse(&text).expect_err(&text);
        assert!(error.to_string().contains(message), "{text}: {error}");
        assert_eq!(error.labels().unwrap().count(), 1);
        if let Some(part) = help {
            let help = error.help().expect("a remedy").to_string();
            assert!(help.contains(part), "{help}");
        }
    }
}

#[test]
fn all_mistakes_are_reported_in_place_with_the_probable_key() {
    let text = GOOD.replace("frames", "frmes").replace("[member.a]\naddress", "[member.a]\nadress");
    let error =
        parse(&format!("polcy = \"sticky\"\n{text}[limits]\nframe = \"1 MB\"\nsesions = 3\n")).unwrap_err();
    let found = error.mistakes().iter().map(|one| (one.place(), one.help.clone().unwrap_or_default()));
    let wanted = [("1", "policy"), ("4", "frames"), ("6", "address"), ("9", "sessions")];
    assert_eq!(error.mistakes().len(), wanted.len(), "{error:?}");
    for ((place, help), (line, key)) in found.zip(wanted) {
        assert_eq!(place, format!("switch.toml:{line}"));
        assert!(help.contains(&format!("`{key}`")), "{help}");
    }
}

#[test]
fn a_watched_file_is_read_again_and_a_wrong_one_is_said() {
    let path = std::env::temp_dir().join(format!("tollway-switch-{}.toml", std::process::id()));
    std::fs::write(&path, GOOD).unwrap();
    let (mut watched, first) = Watched::open(&path).unwrap();
    assert!(watched.poll().is_none());
    let mut next = || loop {
        if let Some(news) = watched.poll() {
            break news;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    std::fs::write(&path, GOOD.replace("u16", "u99")).unwrap();
    assert!(next().is_err());
    std::fs::write(&path, GOOD.replace("u16", "lines")).unwrap();
    assert_ne!(next().unwrap().version(), first.version());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(next(), Err(ScenarioError::Unreadable { .. })));
}
