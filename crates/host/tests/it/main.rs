//! The programs in this machine's kernel, and their arithmetic beside the laws'.
//!
//! They need root and a kernel with BTF; otherwise the tests print `SKIPPED`.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollway_host::{Law, LoadError, Programs, Settings};

mod arithmetic;
mod fallback;
mod forged;

/// The programs, if this machine can load them.
fn loaded(settings: &Settings) -> Option<Programs> {
    match Programs::load(settings) {
        Ok(programs) => Some(programs),
        Err(error @ (LoadError::NoTypes | LoadError::NoRight)) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A lock for tests that move this process into a control group.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bpf");
    std::fs::create_dir_all(&out).unwrap();
    let compiled = Command::new(sources.join("compile.sh")).arg(&out).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    if !version.contains("version 14.") {
        eprintln!("SKIPPED: the objects were made by clang 14, this is {}", version.lines().next().unwrap());
        return;
    }
    for object in std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()) {
        let here = std::fs::read(sources.join(&object)).unwrap();
        let same = here == std::fs::read(out.join(&object)).unwrap();
        assert!(same, "{} is not what its source makes: run `make bpf`", object.display());
    }
}

#[test]
fn a_congestion_control_is_registered_while_the_programs_live() {
    let Some(programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let known = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let name = programs.name().to_owned();
    assert!(known().contains(&name), "{name}: {}", known());
    drop(programs);
    assert!(!known().contains(&name), "{name}: {}", known());
}
