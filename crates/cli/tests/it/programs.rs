//! The products' programs for the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The objects in the tree are compiled from the sources beside them. Another version of clang makes
/// other code, so that it compiles the sources, and compares nothing.
#[test]
fn compiled_objects_match_their_sources() {
    let version = Command::new("clang").arg("--version").output();
    let Ok(version) = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) else {
        eprintln!(
            "SKIPPED: no clang to compile the kernel's programs: `apt-get install clang llvm libbpf-dev`"
        );
        return;
    };
    for product in ["host", "router", "shape"] {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(product).join("bpf");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{product}-bpf"));
        fs::create_dir_all(&out).unwrap();
        let compiled = Command::new(sources.join("compile.sh")).arg(&out).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        if !version.contains("version 14.") {
            eprintln!(
                "SKIPPED: the objects were made by clang 14, this is {}",
                version.lines().next().unwrap()
            );
            continue;
        }
        for object in fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()) {
            let same = fs::read(sources.join(&object)).unwrap() == fs::read(out.join(&object)).unwrap();
            assert!(same, "{} is not what its source makes: run `make bpf`", object.display());
        }
    }
}
