//! An agent, its traffic, and random faults.

use serde_json::Value;

use super::etcd::Etcd;
use super::traffic::{Traffic, is_gone, signal, status, wait};
use super::*;

pub(super) struct Round {
    mixer: Mixer,
    seed: u64,
    bpf: bool,
    folder: std::path::PathBuf,
    traffic: Traffic,
    etcd: Option<Etcd>,
    version: u64,
    mbps: u64,
    agent: Option<Running>,
    /// The faults so far, for the message of a failure.
    past: Vec<&'static str>,
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {}, bpf: {}, etcd: {}: {:?}",
                self.seed,
                self.bpf,
                self.etcd.is_some(),
                self.past
            );
        }
    }
}

impl Round {
    pub(super) fn new(seed: u64, root: bool) -> Round {
        let mut mixer = Mixer(seed);
        let folder = common::folder("soak", "shape");
        let (bpf, store) = (root && mixer.below(2) == 0, mixer.below(3) == 0);
        let etcd = if store { Etcd::start(&folder) } else { None };
        let traffic = Traffic::start(1 + mixer.below(6) as usize);
        Round { mixer, seed, bpf, folder, traffic, etcd, version: 0, mbps: 40, agent: None, past: Vec::new() }
    }

    pub(super) fn all(&mut self) {
        self.publish();
        self.start();
        for _ in 0..4 + self.mixer.below(8) {
            self.step();
            self.is_paced();
            for pid in [self.pid(), self.worker()] {
                let open = descriptors(pid);
                assert!(open < 80, "process {pid} has {open} descriptors");
            }
        }
        let (pid, worker, guardian) = (self.pid(), self.worker(), self.guardian());
        signal(pid, "TERM");
        let mut agent = self.agent.take().unwrap();
        assert!(wait("the agent's end", || agent.0.try_wait().unwrap()).success());
        self.is_free();
        wait("the others' end", || (is_gone(worker) && is_gone(guardian)).then_some(()));
        assert!(!self.socket().exists());
    }

    fn step(&mut self) {
        let (pid, guardian) = (self.pid(), self.guardian());
        match self.mixer.below(9) {
            0 | 1 => {
                self.past.push("policies");
                self.publish();
            }
            2 => {
                self.past.push("wrong policies");
                self.write("[link]\nrat = \"1 Mbps\"\n");
                self.answers(|status| status["trouble"].as_str().is_some_and(|why| why.contains("rat")));
                self.publish();
            }
            3 => {
                self.past.push("guardian killed");
                signal(guardian, "KILL");
                // With programs in the kernel, it only renews the lease, as the agent does.
                if !self.bpf {
                    wait("another guardian", || {
                        common::child_of(pid, "guard").filter(|&next| next != guardian)
                    });
                } else {
                    self.end_both();
                }
            }
            4 => {
                self.past.push("agent stopped");
                signal(pid, "STOP");
                std::thread::sleep(Duration::from_millis(self.mixer.below(2500)));
                signal(pid, "CONT");
            }
            5 => {
                self.past.push("agent killed");
                self.end("KILL");
                self.is_free();
                self.start();
            }
            6 => {
                self.past.push("both killed");
                signal(guardian, "KILL");
                self.end_both();
            }
            7 => {
                self.past.push("worker killed");
                signal(self.worker(), "KILL");
                let mut agent = self.agent.take().unwrap();
                assert_eq!(wait("the agent's end", || agent.0.try_wait().unwrap()).code(), Some(1));
                self.is_free();
                self.start();
            }
            _ => {
                self.past.push("worker stopped, store killed");
                let worker = self.worker();
                signal(worker, "STOP");
                self.is_paced_without_asking();
                if let Some(etcd) = &mut self.etcd {
                    etcd.fail();
                }
                signal(worker, "CONT");
                self.publish();
            }
        }
    }

    /// Publishes other policies.
    fn publish(&mut self) {
        (self.version, self.mbps) = (self.version + 1, 8 << self.mixer.below(4));
        let text = self.traffic.policies(&self.version.to_string(), self.mbps as u32);
        self.write(&text);
    }

    fn write(&self, policies: &str) {
        if let Some(etcd) = &self.etcd {
            return etcd.put(policies);
        }
        let new = self.folder.join("new.toml");
        fs::write(&new, policies).unwrap();
        fs::rename(new, self.folder.join("policies.toml")).unwrap();
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.join("run/shape.sock")
    }

    fn start(&mut self) {
        let file = self.folder.join("policies.toml");
        let policy = self.etcd.as_ref().map_or_else(|| file.to_str().unwrap().to_owned(), Etcd::address);
        let (socket, backend) = (self.socket(), if self.bpf { "bpf" } else { "inet-diag" });
        let words =
            ["shape", "--policy", &policy, "--backend", backend, "--socket", socket.to_str().unwrap()];
        let log = fs::File::options().append(true).create(true).open(self.folder.join("log")).unwrap();
        self.agent = Some(Running(tollway(&words).stdout(Stdio::null()).stderr(log).spawn().unwrap()));
    }

    /// Ends the agent and its worker by a signal.
    fn end(&mut self, name: &str) {
        let worker = self.worker();
        let mut agent = self.agent.take().unwrap();
        signal(agent.0.id(), name);
        agent.0.wait().unwrap();
        wait("the worker's end", || is_gone(worker).then_some(()));
    }

    /// Kills an agent that has no guardian, and starts another.
    fn end_both(&mut self) {
        self.end("KILL");
        self.start();
    }

    fn pid(&self) -> u32 {
        self.agent.as_ref().unwrap().0.id()
    }

    fn worker(&self) -> u32 {
        wait("a worker", || common::child_of(self.pid(), "--worker"))
    }

    fn guardian(&self) -> u32 {
        wait("a guardian", || common::child_of(self.pid(), "guard"))
    }

    fn answers(&self, is: impl Fn(&Value) -> bool) {
        wait("an answer", || status(&self.socket()).filter(&is));
    }

    /// Asserts that the newest policies are in force, and that no connection exceeds the link's
    /// rate.
    fn is_paced(&self) {
        let version = Value::from(self.version.to_string());
        self.answers(|status| status["version"] == version && status["trouble"].is_null());
        self.is_paced_without_asking();
    }

    fn is_paced_without_asking(&self) {
        let most = self.mbps * 125_000;
        wait("paces", || {
            self.traffic.limits().iter().all(|limit| limit.is_some_and(|limit| limit <= most)).then_some(())
        });
    }

    fn is_free(&self) {
        let begin = Instant::now();
        wait("freedom", || self.traffic.limits().iter().all(Option::is_none).then_some(()));
        // The promise is 2 s, on a machine that is not busy.
        assert!(begin.elapsed() < Duration::from_secs(10), "freed after {:?}", begin.elapsed());
    }
}
