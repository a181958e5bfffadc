//! Links in a few words: whatever is written is read or refused with a message.

use tollway_scenario::file::Scenario;
use tollway_scenario::run::mesh::mesh;

/// The words of `--link`, those of `--link-up` in a second line, and the same as `--mahimahi`. They
/// make a file of one plan, or its mistakes lie in the words.
pub fn words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A hundred thousand nodes are right, and slow.
    if text.split(|c: char| !c.is_ascii_digit() && c != '_').any(|run| run.len() > 4) {
        return;
    }
    let (down, up) = text.split_once('\n').map_or((text, None), |(down, up)| (down, Some(up)));
    for file in [tollway_exec::two_nodes(down, up, 1), tollway_exec::chain(text, 1)].into_iter().flatten() {
        match Scenario::parse::<&str>("words", &file, &[]) {
            Ok(scenario) => {
                let _ = mesh(&scenario.variants()[0].plan);
            }
            Err(error) => {
                let shown =
                    error.in_words("words", &[("--link", down), ("--link-up", up.unwrap_or_default())]);
                assert!(!shown.mistakes().is_empty());
            }
        }
    }
}
