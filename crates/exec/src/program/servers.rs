//! The servers of a run: started before its program, ended after it, with labels on their output.

use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollway_net::Error;
use tollway_net::sys::child::Running;
use tollway_net::sys::namespace::Namespace;
use tollway_net::sys::signals::Signals;
use tollway_net::sys::{clean, problem};

use super::tls::Authority;
use super::{Ended, Spec, ended};

/// Servers that run; dropping them ends them.
#[derive(Default)]
pub(super) struct Servers {
    running: Vec<Running>,
    outputs: Vec<Output>,
    /// By node and TCP port, the command that listens there.
    ports: Vec<(u32, u16, String)>,
}

impl Servers {
    /// Starts every server of `spec` in turn, each when the one before serves or has had
    /// [`SERVING`].
    ///
    /// # Errors
    /// One of them fails ([`Error::Server`], [`Error::PortInUse`]), or a signal comes
    /// ([`Error::Interrupted`]).
    pub(super) fn start(
        &mut self,
        spec: &Spec,
        namespaces: &[Namespace],
        names: &[(String, IpAddr)],
        resolver: Option<Ipv4Addr>,
        signals: &Signals,
        authority: Option<&Authority>,
    ) -> Result<(), Error> {
        for (i, (node, text)) in spec.servers.iter().enumerate() {
            let name = &spec.mesh.nodes[*node as usize];
            let (output, pipe) = Output::open(label(spec, i))?;
            let mut command = Command::new("sh");
            command.arg("-c").arg(text).env(clean::MARK, clean::mark()).stdin(Stdio::null()).process_group(0);
            if let Some(authority) = authority {
                authority.export(&mut command);
            }
            command.stdout(pipe.try_clone().map_err(problem("copy a descriptor"))?).stderr(pipe);
            let namespace = &namespaces[*node as usize];
            let before = namespace.serving().unwrap_or_default();
            let mut server = Running::start(namespace, names, resolver, text, command, signals, || ())?;
            let (process, mut interrupted) = (server.pid, None);
            let _ = namespace.await_server(before, process, SERVING, || {
                interrupted = interrupted.or_else(|| signals.has_come());
                server.ended().is_some() || interrupted.is_some()
            });
            let how = server.ended().map(ended);
            self.running.push(server);
            if let Some(signal) = interrupted {
                return Err(Error::Interrupted { signal });
            }
            if let Some(how) = how.filter(|how| *how != Ended::Exited(0)) {
                output.wait();
                if output.says_in_use() {
                    return Err(self.in_use(*node, name, format!("the server `{text}`")));
                }
                output.release();
                return Err(Error::Server {
                    command: text.clone(),
                    node: name.clone(),
                    how: how.to_string(),
                });
            }
            output.release();
            self.outputs.push(output);
            for port in namespace.listening().unwrap_or_default() {
                if !self.ports.iter().any(|known| (known.0, known.1) == (*node, port)) {
                    self.ports.push((*node, port, text.clone()));
                }
            }
        }
        Ok(())
    }

    /// The error of `what`, which needs a port that is in use at a node.
    pub(super) fn in_use(&self, node: u32, name: &str, what: String) -> Error {
        let held: Vec<String> = self
            .ports
            .iter()
            .filter(|entry| entry.0 == node)
            .map(|(_, port, text)| format!("{port} by `{text}`"))
            .collect();
        let held = if held.is_empty() { String::new() } else { format!(": {}", held.join(", ")) };
        Error::PortInUse { what, node: name.to_owned(), held }
    }

    /// Servers that have ended with a failure. One that went into the background has ended well.
    pub(super) fn failed(&mut self) -> Vec<(usize, Ended)> {
        let ended = |(i, server): (usize, &mut Running)| Some((i, ended(server.ended()?)));
        self.running
            .iter_mut()
            .enumerate()
            .filter_map(ended)
            .filter(|(_, how)| *how != Ended::Exited(0))
            .collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(Running::end_group);
        self.outputs.iter().for_each(Output::wait);
    }
}

/// The label of the `i`-th server's lines: its node, and its number where several serve there.
fn label(spec: &Spec, i: usize) -> String {
    let node = spec.servers[i].0;
    let name = &spec.mesh.nodes[node as usize];
    let of_node = |servers: &[(u32, String)]| servers.iter().filter(|server| server.0 == node).count();
    match of_node(&spec.servers) {
        1 => format!("[{name}] "),
        _ => format!("[{name} {}] ", of_node(&spec.servers[..=i])),
    }
}

/// A server's output, on its way to standard error line by line.
struct Output {
    label: Arc<str>,
    /// Lines kept back until it is known whether the server could start; `None` once they are
    /// printed.
    held: Arc<Mutex<Option<Vec<u8>>>>,
    /// Disconnected once nothing more comes.
    open: Receiver<()>,
}

impl Output {
    /// Reads from a new pipe from now on, and also returns the pipe's other end.
    fn open(label: String) -> Result<(Output, io::PipeWriter), Error> {
        let (reader, writer) = io::pipe().map_err(problem("make a pipe"))?;
        let (closed, open) = mpsc::channel::<()>();
        let (label, held) = (Arc::<str>::from(label), Arc::new(Mutex::new(Some(Vec::new()))));
        let (of_thread, held_too) = (Arc::clone(&label), Arc::clone(&held));
        let copy = move || {
            copy_lines(reader, &of_thread, &held_too);
            drop(closed);
        };
        let thread = std::thread::Builder::new().name("tollway-server".into());
        thread.spawn(copy).map_err(problem("start a thread"))?;
        Ok((Output { label, held, open }, writer))
    }

    /// Prints the lines kept back, and later ones at once.
    fn release(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let held = held.unwrap_or_default();
        held.split_inclusive(|&byte| byte == b'\n').for_each(|line| print(&self.label, line));
    }

    /// Waits at most [`LAST_WORDS`] for the end of the output.
    fn wait(&self) {
        let _ = self.open.recv_timeout(LAST_WORDS);
    }

    /// True if the lines kept back name a port in use (`EADDRINUSE`).
    fn says_in_use(&self) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(held.as_deref().unwrap_or_default()).to_lowercase();
        text.contains("address already in use") || text.contains("eaddrinuse")
    }
}

/// Prints each line behind `label`, or keeps it back.
fn copy_lines(reader: PipeReader, label: &str, held: &Mutex<Option<Vec<u8>>>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        match &mut *held.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(held) => held.extend(&line),
            None => print(label, &line),
        }
        line.clear();
    }
}

/// Prints a line in one write, so that the program's lines do not come in between. A failed write
/// does not end a server.
fn print(label: &str, line: &[u8]) {
    let _ = io::stderr().write_all(&[label.as_bytes(), line].concat());
}

/// Longest time that a runnable server takes to serve; the program is started then in any case.
pub(super) const SERVING: Duration = Duration::from_secs(5);
/// Longest wait for the last lines of a server that has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// A line longer than this is printed as several.
const LONGEST_LINE: u64 = 1 << 16;
