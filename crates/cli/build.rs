//! Packs the command's relocations where this machine's C library supports it. Each start then
//! reads half a megabyte less, which also stays out of memory.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let here = set("TARGET") == set("HOST");
    if here && set("CARGO_CFG_TARGET_OS") == "linux" && set("CARGO_CFG_TARGET_ENV") == "gnu" && reads_packed()
    {
        // A linker without the option prints a note, and links as before.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// True for glibc 2.36 or later.
fn reads_packed() -> bool {
    let Ok(said) = Command::new("getconf").arg("GNU_LIBC_VERSION").output() else { return false };
    let said = String::from_utf8_lossy(&said.stdout);
    let mut numbers =
        said.trim().trim_start_matches("glibc ").split('.').map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(36))
}
