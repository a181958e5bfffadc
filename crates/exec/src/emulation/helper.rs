//! The process that holds an emulated network, and its conversation with the library.
//!
//! Each message is a line of JSON on a Unix socket, which can carry descriptors. The helper reads
//! [`Options`], then requests, and answers each. It ends with the socket.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tollway_scenario::plan::Plan;

use crate::account::Account;
use crate::change::{LinkFace, changes};
use crate::options::{Options, RequestError};
use crate::program::Shared;
use crate::{Error, Privilege, Remote, Signals, Spec, panel};

/// A request of the library.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The namespaces that a process of a node enters: a server, or a program, which starts the
    /// record.
    Join { node: u32, server: bool },
    /// Waits until more ports serve at a node than when its last server joined, or `process` has
    /// ended.
    AwaitServer { node: u32, process: i32 },
    /// A socket of a node.
    Socket { node: u32, domain: i32, kind: i32 },
    /// Changes a link; the text is a [`LinkChange`](crate::LinkChange) in JSON.
    Change(String),
    /// The report so far.
    Report,
}

/// The reason why a request failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// The system does not allow the network.
    pub(super) denied: bool,
    pub(super) message: String,
}

/// The answer to [`Options`] is the run's mark; the answer to a request depends on it.
pub(super) type Answer = Result<Value, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        use io::ErrorKind::{NotFound, PermissionDenied};
        let denied = match &error {
            Error::NotAllowed { .. } => true,
            // `/dev/net/tun` is missing in containers, or open to root only.
            Error::Namespace { source, .. } => matches!(source.kind(), NotFound | PermissionDenied),
            _ => false,
        };
        Refusal { denied, message: error.to_string() }
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Refusal {
        Refusal { denied: false, message: error.to_string() }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal { denied: false, message: error.to_string() }
    }
}

/// Holds a network for the process at the other end of standard input, and ends this process with
/// the network.
///
/// It is the whole work of a command for
/// [`Emulation::launch`](super::Emulation::launch). Call it before the first thread is started,
/// since a process with threads can't enter a user namespace.
pub fn helper() -> ! {
    let signals = Signals::hold();
    let served = io::stdin().as_fd().try_clone_to_owned().and_then(|wire| serve(&wire.into(), &signals));
    if let Err(error) = &served {
        eprintln!("tollway: the helper of an emulated network failed: {error}");
    }
    std::process::exit(i32::from(served.is_err()))
}

/// Answers until the library closes `wire`.
fn serve(wire: &UnixStream, signals: &Signals) -> io::Result<()> {
    let Some((options, _)) = receive::<Options>(wire)? else { return Ok(()) };
    let refuse = |refusal: Refusal| send(wire, &Answer::Err(refusal), &[]);
    let described = || {
        let scenario = options.network()?;
        let plan = options.variant(&scenario)?.plan.clone();
        let spec = options.spec(&plan, &[])?;
        Ok::<_, RequestError>((plan, spec))
    };
    let (plan, spec) = match described() {
        Ok(described) => described,
        Err(error) => return refuse(error.into()),
    };
    let mut network = match Network::open(&plan, &spec, signals) {
        Ok(network) => network,
        Err(error) => return refuse(error.into()),
    };
    send(wire, &Answer::Ok(tollway_net::sys::clean::mark().into()), &[])?;
    // An error of the socket means that the library is gone.
    while let Ok(Some((request, _))) = receive::<Request>(wire) {
        let (answer, files) = match network.answer(&request) {
            Ok((value, files)) => (Ok(value), files),
            Err(refusal) => (Err(refusal), Vec::new()),
        };
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        if send(wire, &answer, &files).is_err() {
            break;
        }
    }
    network.shared.close().map_err(io::Error::other)
}

/// A network with what its report needs.
struct Network<'a> {
    plan: &'a Plan,
    spec: &'a Spec,
    privilege: Privilege,
    links: Vec<LinkFace>,
    remote: Remote,
    shared: Shared,
    /// By node, the number of ports that served when a server joined: TCP, UDP.
    serving: HashMap<u32, (usize, usize)>,
}

impl Network<'_> {
    fn open<'a>(plan: &'a Plan, spec: &'a Spec, signals: &Signals) -> Result<Network<'a>, Error> {
        let privilege = Privilege::acquire()?;
        let (panel, remote) = panel()?;
        let shared = Shared::open(spec, privilege, signals, panel)?;
        let (links, serving) = (LinkFace::all(plan), HashMap::new());
        Ok(Network { plan, spec, privilege, links, remote, shared, serving })
    }

    /// Does what `request` asks. Returns the answer, and descriptors beside it.
    fn answer(&mut self, request: &Request) -> Result<(Value, Vec<OwnedFd>), Refusal> {
        // Only the page needs them.
        self.remote.moments().for_each(drop);
        if let Request::Join { server: false, .. } | Request::Socket { .. } | Request::Report = request {
            self.shared.start()?;
        }
        let value = match request {
            Request::Join { node, server } => {
                if *server {
                    self.serving.insert(*node, self.shared.node(*node)?.serving()?);
                }
                return Ok((Value::Null, self.shared.spaces(*node)?));
            }
            Request::Socket { node, domain, kind } => {
                let open = || Socket::new(Domain::from(*domain), Type::from(*kind), None);
                return Ok((Value::Null, vec![self.shared.node(*node)?.within(open)?.into()]));
            }
            Request::AwaitServer { node, process } => {
                let before = self.serving.get(node).copied().unwrap_or_default();
                self.shared.await_server(*node, before, *process)?;
                Value::Null
            }
            Request::Change(text) => {
                let (link, changes) = changes(&self.links, text).map_err(io::Error::other)?;
                changes.into_iter().for_each(|change| self.remote.change(link, change));
                if self.shared.has_started() {
                    // A record follows the changes before it.
                    self.remote.record();
                }
                Value::Null
            }
            Request::Report => self.report()?,
        };
        Ok((value, Vec::new()))
    }

    fn report(&mut self) -> io::Result<Value> {
        let record = self.remote.record().ok_or_else(|| io::Error::other("the emulator has ended"))?;
        let outcome = self.shared.outcome(record);
        let account = Account::new(self.plan, self.spec, &outcome, self.privilege);
        let mut report = serde_json::to_value(&account)?;
        if let Some(fields) = report.as_object_mut() {
            fields.retain(|field, _| !OF_PROGRAM.contains(&field.as_str()));
        }
        Ok(report)
    }
}

/// Sends `message` as a line, with copies of `files`.
pub(super) fn send(wire: &UnixStream, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut rest = &line[..];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many descriptors for a message"));
    }
    while !rest.is_empty() {
        let send = || sendmsg(wire, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL);
        rest = &rest[rustix::io::retry_on_intr(send)?..];
        control.clear();
    }
    Ok(())
}

/// Receives a message with its descriptors; `None` at the end.
pub(super) fn receive<T: DeserializeOwned>(wire: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let (mut line, mut files, mut chunk) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
    while line.last() != Some(&b'\n') {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let receive =
            || recvmsg(wire, &mut [IoSliceMut::new(&mut chunk)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let len = rustix::io::retry_on_intr(receive)?.bytes;
        if len == 0 {
            return Ok(None);
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                files.extend(descriptors);
            }
        }
        line.extend(&chunk[..len]);
    }
    Ok(Some((serde_json::from_slice(&line)?, files)))
}

/// Upper bound of descriptors in a message: a user, a network and a mount namespace.
const MOST_FILES: usize = 3;
/// Fields of the report that concern the program of `tollway exec`.
const OF_PROGRAM: [&str; 5] = ["command", "exit_status", "signal", "timed_out", "refused_at_localhost"];
