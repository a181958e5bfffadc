//! The programs in this machine's kernel, and their arithmetic beside the laws'.
//!
//! They need root and a kernel with BTF; otherwise the tests print `SKIPPED`.
#![cfg(target_os = "linux")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollway_agent::programs;
use tollway_host::{Law, LoadError, Programs, Settings};

mod arithmetic;
mod fallback;
mod forged;
mod tenants;

/// The programs, if this machine can load them.
fn loaded(settings: &Settings) -> Option<Programs> {
    match Programs::load(settings) {
        Ok(programs) => Some(programs),
        Err(error @ (LoadError::NoTypes | LoadError::Programs(programs::LoadError::NoRight))) => {
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

#[test]
fn a_congestion_control_is_registered_while_the_programs_live() {
    let Some(programs) = loaded(&Settings::new(Law::Xcp)) else { return };
    let known = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let name = programs.name().to_owned();
    assert!(known().contains(&name), "{name}: {}", known());
    drop(programs);
    assert!(!known().contains(&name), "{name}: {}", known());
}
