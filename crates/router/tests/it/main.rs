//! The router's programs, on this machine's kernel.

use std::path::Path;
use std::process::Command;

/// The object in the tree is compiled from the source beside it. Another version of clang makes other
/// code, so that it compiles the source, and compares nothing.
#[test]
fn the_compiled_object_matches_its_source() {
    let version = Command::new("clang").arg("--version").output();
    let Ok(version) = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) else {
        eprintln!(
            "SKIPPED: no clang to compile the kernel's programs: `apt-get install clang llvm libbpf-dev`"
        );
        return;
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("router-bpf");
    std::fs::create_dir_all(&out).unwrap();
    let compiled = Command::new(sources.join("compile.sh")).arg(&out).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    if !version.contains("version 14.") {
        eprintln!("SKIPPED: the object was made by clang 14, this is {}", version.lines().next().unwrap());
        return;
    }
    let [here, there] = [&sources, &out].map(|folder| std::fs::read(folder.join("router.bpf.o")).unwrap());
    assert!(here == there, "router.bpf.o is not what its source makes: run `make bpf`");
}
