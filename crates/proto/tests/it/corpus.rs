//! Replays the checked-in fuzz corpus (`fuzz/corpus`) through the functions that the fuzz targets
//! run.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/src/codecs.rs"]
#[allow(unreachable_pub)]
mod codecs;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is in the repository") {
        let path = entry.expect("the corpus can be listed").path();
        let data = fs::read(&path).expect("the corpus can be read");
        // Whole, and cut anywhere: what is not a header must be refused, not run past.
        for cut in 0..=data.len() {
            run(&data[..cut]);
        }
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs} inputs in {}", folder.display());
}

#[test]
fn tcp_option() {
    replay("tcp_option", codecs::tcp_option);
}

#[test]
fn draft20() {
    replay("draft20", codecs::draft20);
}

#[test]
fn anypoint() {
    replay("anypoint", codecs::anypoint);
}

#[test]
fn acp() {
    replay("acp", codecs::acp);
}

#[test]
fn framing() {
    replay("framing", codecs::framing);
}
