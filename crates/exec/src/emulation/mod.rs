//! Emulated networks for the tests of an application.

mod helper;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use miette::Diagnostic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tollway_net::sys::clean::MARK;
use tollway_net::sys::join::join;

pub use helper::helper;

use crate::address;
use crate::change::LinkChange;
use crate::options::{Options, RequestError};
use helper::{Answer, Refusal, Request};

/// A network of namespaces with emulated links, for programs and sockets of this process.
///
/// ```no_run
/// use std::process::Command;
/// use tollway_exec::Emulation;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let net = Emulation::new("10Mbps 40ms loss=1%")?;
/// net.serve("server", Command::new("python3").args(["-m", "http.server", "8000"]))?;
/// let page = net.run("program", Command::new("curl").args(["-sf", "http://server:8000/"]))?;
/// assert!(page.status.success());
/// assert_eq!(net.report()?["links"][0]["link"], "down");
/// # Ok(())
/// # }
/// ```
///
/// The networks of a process are independent of each other, and can be used by several threads.
/// With the value, the network and the programs in it end; so they do if this process is killed.
///
/// A helper process holds the network, for two reasons. A user namespace, by which ordinary users
/// get networks, is closed to a process with threads, such as a test. And a helper survives a
/// killed test, so that it can end the programs. The helper is this executable, started again: it
/// enters [`helper`] before `main`, because tests have no `main` of their own. Programs are this
/// process's children and enter their node between fork and exec.
#[derive(Debug)]
pub struct Emulation {
    process: Child,
    wire: Mutex<UnixStream>,
    nodes: Vec<String>,
    /// The run's mark, by which `tollway clean` finds programs of a killed helper.
    mark: String,
    servers: Mutex<Vec<Child>>,
}

/// The reason why an emulated network can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// The description of the network has mistakes.
    #[error("{}", mistakes(.0))]
    Request(#[from] RequestError),
    /// This system does not allow the user to make networks. The text names the remedy.
    #[error("{0}")]
    NotAllowed(String),
    /// The network has no such node.
    #[error("there is no node `{name}`; there are {known}")]
    Node {
        /// The node asked for.
        name: String,
        /// The nodes of the network.
        known: String,
    },
    /// A server ended before it served.
    #[error("the server `{program}` at `{node}` ended with {status} before it served")]
    Server {
        /// The server's program.
        program: String,
        /// Its node.
        node: String,
        /// Its exit status or signal.
        status: std::process::ExitStatus,
    },
    /// The network could not be set up or changed.
    #[error("{0}")]
    Network(String),
    /// The system refused a process or a socket.
    #[error("cannot {action}: {source}")]
    System {
        /// `start the helper`, …
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Emulation {
    /// A network of the nodes `program` and `server`, with the links `down` and `up` in the words
    /// of `tollway exec --link`.
    ///
    /// # Errors
    /// The words are wrong ([`EmulationError::Request`]), or the system does not allow networks
    /// ([`EmulationError::NotAllowed`]).
    pub fn new(link: &str) -> Result<Emulation, EmulationError> {
        Emulation::open(&Options { link: Some(link.to_owned()), ..Options::default() })
    }

    /// The network of a scenario's text, in TOML. Each node is a namespace. Flows and workloads of
    /// the scenario do not run, and its duration has no effect.
    ///
    /// # Errors
    /// As those of [`Emulation::new`].
    pub fn parse(scenario: &str) -> Result<Emulation, EmulationError> {
        let (file, text) = (Some("scenario.toml".into()), Some(scenario.to_owned()));
        Emulation::open(&Options { file, text, ..Options::default() })
    }

    /// The network that options of `tollway exec` describe. No port of this machine is published,
    /// except those in [`Options::publish`]. The options of the program have no effect: `serve`,
    /// `tls`, `timeout`, `aside`.
    ///
    /// # Errors
    /// As those of [`Emulation::new`].
    pub fn open(options: &Options) -> Result<Emulation, EmulationError> {
        let mut helper = Command::new("/proc/self/exe");
        helper.arg0("tollway-emulation").env(ROLE, "1");
        // The reference makes the linker keep the entry.
        std::hint::black_box(&ENTRY);
        Emulation::launch(options, helper)
    }

    /// Like [`Emulation::open`], with the command of a process that calls [`helper`]. It is for
    /// libraries in the executable of another language.
    ///
    /// # Errors
    /// As those of [`Emulation::new`].
    pub fn launch(options: &Options, mut helper: Command) -> Result<Emulation, EmulationError> {
        let mut options =
            Options { serve: Vec::new(), tls: Vec::new(), timeout: None, view: true, ..options.clone() };
        if options.publish.is_empty() {
            options.publish.push("none".into());
        }
        let scenario = options.network()?;
        let nodes = options.spec(&options.variant(&scenario)?.plan, &[])?.mesh.nodes;
        let (ours, theirs) = UnixStream::pair().map_err(system("make a socket"))?;
        helper.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let process = helper.spawn().map_err(system("start the helper"))?;
        // It holds the other end of the socket.
        drop(helper);
        let (wire, servers) = (Mutex::new(ours), Mutex::default());
        let mut net = Emulation { process, wire, nodes, mark: String::new(), servers };
        net.mark = net.ask(&options)?.0.as_str().unwrap_or_default().to_owned();
        Ok(net)
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The address of a node, which programs in the network also find by its name.
    ///
    /// # Errors
    /// [`EmulationError::Node`].
    pub fn address(&self, node: &str) -> Result<Ipv4Addr, EmulationError> {
        self.number(node).map(address)
    }

    /// Makes `command` run at `node`, where it must be started before this network ends. A command
    /// can enter only one node.
    ///
    /// The first command or socket starts the report. Times of `[[change]]` count from then.
    ///
    /// # Errors
    /// [`EmulationError::Node`]; [`EmulationError::Network`] if the helper has ended.
    pub fn enter(&self, node: &str, command: &mut Command) -> Result<(), EmulationError> {
        self.enter_as(node, command, false)
    }

    fn enter_as(&self, node: &str, command: &mut Command, server: bool) -> Result<(), EmulationError> {
        join(command, self.namespaces(node, server)?);
        command.env(MARK, &self.mark);
        Ok(())
    }

    /// The namespaces that a process of `node` enters, in this order. A process that is no
    /// `server` starts the report.
    ///
    /// # Errors
    /// As those of [`Emulation::enter`].
    pub fn namespaces(&self, node: &str, server: bool) -> Result<Vec<OwnedFd>, EmulationError> {
        Ok(self.ask(&Request::Join { node: self.number(node)?, server })?.1)
    }

    /// The run's mark, for the variable [`MARK`] in a program's environment.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Starts a program at `node`.
    ///
    /// # Errors
    /// As those of [`Emulation::enter`], and [`EmulationError::System`] if it can't be started.
    pub fn spawn(&self, node: &str, command: &mut Command) -> Result<Child, EmulationError> {
        self.enter(node, command)?;
        command.spawn().map_err(|source| not_started(command, source))
    }

    /// Runs a program at `node` to its end, and returns its output.
    ///
    /// # Errors
    /// As those of [`Emulation::spawn`].
    pub fn run(&self, node: &str, command: &mut Command) -> Result<Output, EmulationError> {
        self.enter(node, command)?;
        command.output().map_err(|source| not_started(command, source))
    }

    /// Starts a server at `node`, and waits until it serves a TCP or UDP port; at most 5 s. The
    /// server runs until the network ends. It does not start the report.
    ///
    /// # Errors
    /// As those of [`Emulation::spawn`], and [`EmulationError::Server`].
    pub fn serve(&self, node: &str, command: &mut Command) -> Result<(), EmulationError> {
        self.enter_as(node, command, true)?;
        let mut server = command.spawn().map_err(|source| not_started(command, source))?;
        self.await_server(node, server.id())?;
        let ended = server.try_wait().map_err(system("wait for a server"))?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let program = command.get_program().to_string_lossy().into_owned();
            return Err(EmulationError::Server { program, node: node.to_owned(), status });
        }
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).push(server);
        Ok(())
    }

    /// Waits until a port serves at a node that did not when its last server joined, or until
    /// `process` has ended; at most 5 s.
    ///
    /// # Errors
    /// As those of [`Emulation::enter`].
    pub fn await_server(&self, node: &str, process: u32) -> Result<(), EmulationError> {
        let process = process as i32;
        self.ask(&Request::AwaitServer { node: self.number(node)?, process }).map(drop)
    }

    /// Opens a socket of `node` in this process, which may bind, listen and connect as a program
    /// there. Names of nodes do not resolve in this process: use [`Emulation::address`].
    ///
    /// # Errors
    /// As those of [`Emulation::enter`].
    pub fn socket(&self, node: &str, domain: Domain, kind: Type) -> Result<Socket, EmulationError> {
        let node = self.number(node)?;
        let (_, files) = self.ask(&Request::Socket { node, domain: domain.into(), kind: kind.into() })?;
        let file = files.into_iter().next();
        file.map(Socket::from).ok_or_else(|| EmulationError::Network("the helper sent no socket".into()))
    }

    /// Changes a link from now on, as the page of `tollway exec --view` does.
    ///
    /// # Errors
    /// [`EmulationError::Network`]: there is no such link, or a value is out of its range.
    pub fn change(&self, change: &LinkChange) -> Result<(), EmulationError> {
        let text = serde_json::to_string(change).map_err(|e| EmulationError::Network(e.to_string()))?;
        self.ask(&Request::Change(text)).map(drop)
    }

    /// The report so far: links, flows and more, in the fields of `tollway exec --json` except
    /// those of its program. Rates are in Mb/s, delays in ms, times in s from the report's start.
    ///
    /// # Errors
    /// [`EmulationError::Network`]: the emulator has ended.
    pub fn report(&self) -> Result<Value, EmulationError> {
        self.ask(&Request::Report).map(|(report, _)| report)
    }

    fn number(&self, node: &str) -> Result<u32, EmulationError> {
        let at = self.nodes.iter().position(|name| name == node).map(|at| at as u32);
        at.ok_or_else(|| EmulationError::Node { name: node.to_owned(), known: self.nodes.join(", ") })
    }

    /// Sends a message to the helper, and returns its answer.
    fn ask(&self, message: &impl serde::Serialize) -> Result<(Value, Vec<OwnedFd>), EmulationError> {
        let wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || {
            EmulationError::Network(
                "the helper of the network has ended; standard error has its message".into(),
            )
        };
        helper::send(&wire, message, &[]).map_err(|_| ended())?;
        let (answer, files) = helper::receive::<Answer>(&wire).ok().flatten().ok_or_else(ended)?;
        match answer {
            Ok(value) => Ok((value, files)),
            Err(Refusal { denied: true, message }) => Err(EmulationError::NotAllowed(message)),
            Err(Refusal { message, .. }) => Err(EmulationError::Network(message)),
        }
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let servers = self.servers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for server in &mut *servers {
            // The helper waits for programs that are about to end.
            let _ = kill_process(Pid::from_child(server), Signal::TERM);
        }
        let wire = self.wire.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = wire.shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait();
        // None is left, unless the helper was killed.
        servers.iter_mut().for_each(|server| drop(server.kill().and_then(|()| server.wait())));
    }
}

/// All mistakes of a description, on one line.
fn mistakes(error: &RequestError) -> String {
    match error {
        RequestError::Scenario(error) => match error.related() {
            Some(mistakes) => mistakes.map(ToString::to_string).collect::<Vec<_>>().join("; "),
            None => error.to_string(),
        },
        RequestError::Option(error) => error.to_string(),
    }
}

fn system(action: &str) -> impl Fn(io::Error) -> EmulationError {
    move |source| EmulationError::System { action: action.to_owned(), source }
}

fn not_started(command: &Command, source: io::Error) -> EmulationError {
    system(&format!("run `{}`", command.get_program().to_string_lossy()))(source)
}

/// Environment variable that makes a process of this executable a helper.
const ROLE: &str = "TOLLWAY_EMULATION_HELPER";

/// The system calls it before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
#[expect(unsafe_code, reason = "a test's executable has no other place for a second role")]
static ENTRY: extern "C" fn() = {
    extern "C" fn enter() {
        if std::env::var_os(ROLE).is_some() {
            helper()
        }
    }
    enter
};
