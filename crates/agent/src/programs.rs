//! Loaders of programs into the kernel: errors with remedies, libbpf's messages.

use std::io;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::PrintLevel;
use rustix::thread::CapabilitySet;
use rustix::time::ClockId;

/// The reason why programs are not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No right to load programs.
    #[error(
        "no right to load programs into the kernel: run it as root, or with CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and \
        CAP_PERFMON in the first user namespace"
    )]
    NoRight,
    /// Any other refusal.
    #[error("the kernel refuses to {action}: {source}{}; it needs {needs}", said(.log))]
    Refused {
        /// The action attempted.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The kernel that the programs need.
        needs: &'static str,
        /// The last line of the loader's log.
        log: String,
    },
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

/// A load of programs that need the kernel described.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    needs: &'static str,
}

impl Loading {
    /// Begins a load; libbpf's messages are kept for its errors.
    ///
    /// # Errors
    /// [`LoadError::NoRight`].
    pub fn begin(needs: &'static str) -> Result<Loading, LoadError> {
        if !may_load() {
            return Err(LoadError::NoRight);
        }
        LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
        Ok(Loading { needs })
    }

    /// The error of an `action` that libbpf could not do.
    pub fn refused(self, action: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
        move |error| self.error(action, io::Error::other(error))
    }

    /// The error of an `action` that the kernel refused.
    pub fn error(self, action: &'static str, source: io::Error) -> LoadError {
        let log = std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
        LoadError::Refused { action, source, needs: self.needs, log: log.last().cloned().unwrap_or_default() }
    }

    /// The error of a part that the object lacks.
    pub fn missing(self) -> LoadError {
        self.error("find a part of the programs", io::ErrorKind::NotFound.into())
    }
}

/// The monotonic clock in ns, which programs also read.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// An ELF file in memory, which libbpf reads in place.
#[derive(Debug)]
#[repr(align(8))]
pub struct Aligned<T>(pub T);

/// Keeps the loader's messages for an error.
fn keep(_: PrintLevel, line: String) {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).push(line.trim().to_owned());
}

/// True with the capability to load programs (CAP_BPF or CAP_SYS_ADMIN), which counts in the first
/// user namespace only.
fn may_load() -> bool {
    let sets = rustix::thread::capabilities(None);
    let able =
        sets.is_ok_and(|sets| sets.effective.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN));
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    able && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// libbpf's messages go to one function of the process.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
