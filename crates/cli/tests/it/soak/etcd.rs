//! A store on loopback.

use super::*;

/// Debian's `etcd`, with its own folder.
pub(super) struct Etcd {
    folder: std::path::PathBuf,
    port: u16,
    server: Running,
}

impl Etcd {
    /// Starts a server. Returns none, and prints `SKIPPED`, if `etcd` is not installed.
    pub(super) fn start(folder: &Path) -> Option<Etcd> {
        for program in ["etcd", "etcdctl"] {
            let mut command = Command::new(program);
            command.arg("--help").stdout(Stdio::null()).stderr(Stdio::null());
            if !cfg!(feature = "etcd") || command.status().is_err() {
                eprintln!("SKIPPED: no `{program}` here (Debian: etcd-server, etcd-client)");
                return None;
            }
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = folder.join("etcd");
        Some(Etcd { server: serve(&folder, port), folder, port })
    }

    pub(super) fn address(&self) -> String {
        format!("etcd://127.0.0.1:{}/soak", self.port)
    }

    /// Sets the policies as soon as the server answers.
    pub(super) fn put(&self, policies: &str) {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        traffic::wait("the store", || {
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "put", "--", "/soak", policies]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success().then_some(())
        });
    }

    /// Kills the server, and restarts it with the same folder.
    pub(super) fn fail(&mut self) {
        let _ = self.server.0.kill();
        let _ = self.server.0.wait();
        self.server = serve(&self.folder, self.port);
    }
}

fn serve(folder: &Path, port: u16) -> Running {
    let client = format!("http://127.0.0.1:{port}");
    let mut command = Command::new("etcd");
    command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--listen-client-urls", &client]);
    command.args(["--advertise-client-urls", &client]).arg("--data-dir").arg(folder);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}
