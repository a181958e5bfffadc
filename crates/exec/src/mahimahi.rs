//! Mahimahi's shells (Netravali and others, USENIX ATC 2015) as a chain of links:
//! `mm-delay 40 mm-link up.trace down.trace`.
//!
//! Each shell is a hop. The last one is nearest to the program, as when shells are started inside
//! one another.

use tollway_scenario::words::{LinkWords, WordError, preamble, quoted};

use super::{PROGRAM, SERVER};

const CHAIN: &str = "--mahimahi";
const SHELLS: &str = "write it like `mm-delay 40 mm-link up.trace down.trace mm-loss uplink 0.01`";

/// A shell: its link towards the program, and its link away from it.
struct Shell {
    down: LinkWords,
    up: LinkWords,
}

/// Builds the scenario of a chain of Mahimahi's shells, outermost first, with a node between each
/// two.
///
/// `mm-delay MS` delays each way. `mm-link UP DOWN` replays traces, with `--uplink-queue`,
/// `--downlink-queue` and their `-args`. `mm-loss uplink|downlink P` loses packets at random.
///
/// # Errors
/// [`WordError`]: a word is no shell, or no option of one.
pub fn chain(words: &str, seed: u64) -> Result<String, WordError> {
    let mut shells = Vec::new();
    let refused = |word: &str, why: String| WordError {
        option: CHAIN,
        word: word.into(),
        words: words.into(),
        why,
        help: SHELLS,
    };
    let parts =
        split(words).map_err(|word| refused(word, "has an opening quote without a closing one".into()))?;
    let mut rest = parts.iter().map(String::as_str).peekable();
    while let Some(name) = rest.next() {
        let mut arguments = Vec::new();
        while let Some(argument) = rest.next_if(|next| !next.starts_with("mm-")) {
            arguments.push(argument);
        }
        shells.push(shell(name, &arguments).map_err(|why| refused(name, why))?);
    }
    if shells.is_empty() {
        return Err(refused(words, "contains no Mahimahi shell".into()));
    }
    let between: Vec<String> = (1..shells.len()).map(|i| format!("shell-{i}")).collect();
    let mut nodes = vec![PROGRAM];
    nodes.extend(between.iter().map(String::as_str));
    nodes.push(SERVER);
    let mut text = preamble("mahimahi", seed, &nodes);
    for (i, shell) in shells.into_iter().rev().enumerate() {
        let number = i + 1;
        shell.down.completed().write(&mut text, &format!("down-{number}"), nodes[i + 1], nodes[i]);
        shell.up.completed().write(&mut text, &format!("up-{number}"), nodes[i], nodes[i + 1]);
    }
    Ok(text)
}

/// Splits words as a shell does: a space within quotes splits nothing.
///
/// # Errors
/// The text after a quote without an end.
fn split(words: &str) -> Result<Vec<String>, &str> {
    let (mut parts, mut part, mut quote) = (Vec::new(), None::<String>, None);
    for (i, c) in words.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => {
                quote = Some((c, i));
                part.get_or_insert_default();
            }
            (Some((open, _)), c) if c == open => quote = None,
            (None, c) if c.is_whitespace() => parts.extend(part.take()),
            (_, c) => part.get_or_insert_default().push(c),
        }
    }
    parts.extend(part);
    match quote {
        Some((_, start)) => Err(&words[start..]),
        None => Ok(parts),
    }
}

fn shell(name: &str, arguments: &[&str]) -> Result<Shell, String> {
    let mut shell = Shell { down: LinkWords::default(), up: LinkWords::default() };
    match (name, arguments) {
        ("mm-delay", [millis]) => {
            let millis: u32 = millis.parse().map_err(|_| "needs a whole number of milliseconds")?;
            for way in [&mut shell.down, &mut shell.up] {
                way.set("delay", quoted(&format!("{millis} ms")))?;
                way.set("limit", quoted("unlimited"))?;
            }
        }
        ("mm-loss", [way, share]) => {
            let share: f64 = share.parse().unwrap_or(f64::NAN);
            if !share.is_finite() {
                return Err("needs a probability, such as 0.01".into());
            }
            let lossy = match *way {
                "uplink" => &mut shell.up,
                "downlink" => &mut shell.down,
                _ => return Err("needs `uplink` or `downlink` and a probability".into()),
            };
            lossy.set("loss", share.to_string())?;
            for way in [&mut shell.down, &mut shell.up] {
                way.set("limit", quoted("unlimited"))?;
            }
        }
        ("mm-link", arguments) => link(&mut shell, arguments)?,
        ("mm-delay", _) => return Err("needs one number of milliseconds".into()),
        ("mm-loss", _) => return Err("needs `uplink` or `downlink` and a probability".into()),
        _ => return Err("is not a supported shell: use mm-delay, mm-link or mm-loss".into()),
    }
    Ok(shell)
}

/// Parses the traces and queues of `mm-link`.
fn link(shell: &mut Shell, arguments: &[&str]) -> Result<(), String> {
    let (options, traces): (Vec<&str>, Vec<&str>) =
        arguments.iter().partition(|argument| argument.starts_with("--"));
    let [up, down] = traces[..] else {
        return Err("needs a trace for each direction, the uplink's first".into());
    };
    for (way, trace, prefix) in
        [(&mut shell.up, up, "--uplink-queue"), (&mut shell.down, down, "--downlink-queue")]
    {
        way.set("trace", quoted(trace))?;
        let option = |name: &str| {
            let name = format!("{prefix}{name}=");
            options.iter().find_map(|option| option.strip_prefix(name.as_str()))
        };
        let queue = option("").unwrap_or("infinite");
        match queue {
            "infinite" => {}
            "droptail" => {}
            "codel" => way.set("law", quoted("codel"))?,
            "pie" => way.set("law", quoted("pie"))?,
            other => {
                return Err(format!("has no queue `{other}` here: use infinite, droptail, codel or pie"));
            }
        }
        let arguments = option("-args").unwrap_or_default();
        for argument in arguments.split([',', ' ']).filter(|argument| !argument.is_empty()) {
            match argument.split_once('=') {
                Some(("packets", n)) if n.parse::<u32>().is_ok() => {
                    way.set("limit", quoted(&format!("{n} packets")))?;
                }
                Some(("bytes", n)) if n.parse::<u64>().is_ok() => {
                    way.set("limit", quoted(&format!("{n} B")))?
                }
                Some((key @ ("target" | "interval"), n)) if queue == "codel" && n.parse::<u32>().is_ok() => {
                    way.set(&format!("codel.{key}"), quoted(&format!("{n} ms")))?;
                }
                Some(("qdelay_ref", n)) if queue == "pie" && n.parse::<u32>().is_ok() => {
                    way.set("pie.target", quoted(&format!("{n} ms")))?;
                }
                _ => {
                    return Err(format!(
                        "has no `{argument}` for a queue `{queue}` here: use packets=N or bytes=N; with \
                        codel target=MS and interval=MS; with pie qdelay_ref=MS"
                    ));
                }
            }
        }
        if !way.has("limit") {
            way.set("limit", quoted("unlimited"))?;
        }
    }
    let known = ["--uplink-queue=", "--downlink-queue=", "--uplink-queue-args=", "--downlink-queue-args="];
    match options.iter().find(|option| !known.iter().any(|known| option.starts_with(known))) {
        Some(option) => Err(format!(
            "has no `{option}` here: use --uplink-queue, --uplink-queue-args, --downlink-queue or \
                --downlink-queue-args"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollway_law::Time;

    use super::*;
    use tollway_scenario::file::Scenario;
    use tollway_scenario::run::mesh::{mesh, route};

    #[test]
    fn shells_become_hops() {
        let text = chain("mm-delay 40 mm-loss uplink 0.1 mm-delay 5", 1).unwrap();
        let plan = Scenario::parse::<&str>("--mahimahi", &text, &[]).unwrap().variants()[0].plan.clone();
        let mesh = mesh(&plan).unwrap();
        assert_eq!(mesh.nodes, ["program", "shell-1", "shell-2", "server"]);
        let up = route(&mesh, 0, 3);
        let delays: Vec<Time> = up.iter().map(|&link| mesh.links[link].delay).collect();
        assert_eq!(delays, [Time::from_millis(5), Time::ZERO, Time::from_millis(40)]);
        assert_eq!(mesh.losses[up[1]][0].probability, 0.1);
        assert!(route(&mesh, 3, 0).iter().all(|&link| mesh.losses[link].is_empty()));
    }

    #[test]
    fn traces_and_queues_are_those_of_each_way() {
        let words = "mm-link a.up b.down --uplink-queue=droptail --uplink-queue-args=packets=50 --downlink-queue=codel";
        let text = chain(words, 1).unwrap();
        assert!(text.contains("trace = \"a.up\"\nlimit = \"50 packets\""), "{text}");
        assert!(text.contains("trace = \"b.down\"\nlaw = \"codel\"\nlimit = \"unlimited\""), "{text}");
        // As in Mahimahi's own examples.
        let quoted = "mm-link 'the up.trace' b.down --downlink-queue=codel --downlink-queue-args=\"packets=100, target=5, interval=90\"";
        let text = chain(quoted, 1).unwrap();
        assert!(text.contains("trace = \"the up.trace\"\n"), "{text}");
        let codel = "limit = \"100 packets\"\ncodel.target = \"5 ms\"\ncodel.interval = \"90 ms\"\n";
        assert!(text.contains(codel), "{text}");
        let text = chain("mm-link a b --uplink-queue=pie --uplink-queue-args=qdelay_ref=20", 1).unwrap();
        assert!(text.contains("law = \"pie\"\npie.target = \"20 ms\"\n"), "{text}");
    }

    #[test]
    fn what_mahimahi_would_not_know_is_named() {
        for (words, says) in [
            ("", "contains no Mahimahi shell"),
            ("mm-dealy 40", "is not a supported shell"),
            ("mm-delay fast", "milliseconds"),
            ("mm-loss sideways 0.1", "uplink"),
            ("mm-delay 4 5", "needs one number of milliseconds"),
            ("mm-loss uplink", "`uplink` or `downlink` and a probability"),
            ("mm-loss uplink nan", "needs a probability"),
            ("mm-link one.trace", "a trace for each direction"),
            ("mm-link a b --uplink-queue-args=interval=5", "has no `interval=5`"),
            ("mm-link a b --uplink-queue-args=packets=few", "has no `packets=few`"),
            ("mm-link a b --meter-all", "--meter-all"),
            ("mm-link a b --uplink-queue=wfq", "wfq"),
            ("mm-link a b --uplink-queue-args=\"packets=5", "`\"packets=5` in"),
            ("mm-link a b --uplink-queue=pie --uplink-queue-args=target=5", "`target=5` for a queue `pie`"),
            ("mm-link a 'b c", "has an opening quote"),
        ] {
            let error = chain(words, 1).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_chain_makes_it_panic(words in "(mm-(delay|link|loss)? ?|[a-z0-9.=\"'é-]{1,8} ?){0,8}") {
            if let Ok(text) = chain(&words, 1) {
                prop_assert!(toml::from_str::<toml::Value>(&text).is_ok(), "{text}");
            }
        }
    }
}
