//! The parts that every long-running product has once: `router`, `shape`, `switch`, `overlay`.
//!
//! | module | contents |
//! |---|---|
//! | [`control`] | the control socket, with a lock against a second agent |
//! | [`events`] | the event log: time, level, text or JSON, limited in rate |
//! | [`file`](mod@file) | the watch on a configuration file |
//! | [`listeners`] | listening sockets that the service manager keeps |
//! | [`notify`] | the service manager: readiness and watchdog |
//! | [`output`] | output to readers that may be slow |
//! | [`programs`] | programs in the kernel: errors with remedies |
//! | [`serve`] | metrics for Prometheus, a page for browsers of this machine |
//! | [`status`](mod@status) | one list of fields for text, JSON, metrics and page |
//! | [`tls`] | certificates and keys from PEM files |
#![cfg(target_os = "linux")]

pub mod control;
pub mod events;
pub mod file;
pub mod listeners;
pub mod notify;
pub mod output;
#[cfg(feature = "programs")]
pub mod programs;
pub mod serve;
pub mod status;
#[cfg(feature = "tls")]
pub mod tls;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit. To be called at an agent's start.
///
/// A login shell's soft limit is often 1024; an agent has a descriptor for each connection.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the soft limit, with which the agent can work.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_limit_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let low = rustix::process::Rlimit { current: Some(256), ..before };
        setrlimit(Resource::Nofile, low).unwrap();
        raise_file_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
