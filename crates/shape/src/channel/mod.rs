//! The messages between the agent, which has rights, and its worker, which reads policies and
//! serves readers: JSON, one message a line. The agent checks each.

#[cfg(test)]
mod tests;
mod wire;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policies::Policies;
use crate::{Regime, unprivileged};
use wire::PoliciesMessage;

/// A message of the worker.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// A request for the agent's state.
    State,
    /// New policies, to be in force from now on.
    Policies(Box<Regime>),
}

/// A message of the agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    /// The agent's state, in reply to a request.
    State(Value),
    /// The agent works; with a message on what failed at the last tick, if anything.
    Warning(Option<String>),
}

/// The form of a request in JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    State,
    Policies(Box<PoliciesMessage>),
}

/// The agent's end. It never waits: a thread without rights reads and checks, and another writes.
#[derive(Debug)]
pub(crate) struct AgentEnd {
    requests: Receiver<io::Result<WorkerMessage>>,
    replies: SyncSender<Reply>,
    stream: UnixStream,
}

impl AgentEnd {
    /// Starts the threads.
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub(crate) fn start(stream: UnixStream) -> io::Result<AgentEnd> {
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream.try_clone()?);
        let (request, requests) = sync_channel(4);
        let (replies, reply) = sync_channel::<Reply>(1);
        unprivileged(move || {
            let read = move || {
                loop {
                    let read = read_line(&mut reader, MOST).and_then(|line| parse(&line));
                    let failed = read.is_err();
                    if request.send(read).is_err() || failed {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("requests".into()).spawn(read)?;
            let write = move || while reply.recv().is_ok_and(|reply| write(&mut writer, &reply).is_ok()) {};
            std::thread::Builder::new().name("replies".into()).spawn(write).map(drop)
        })?;
        Ok(AgentEnd { requests, replies, stream })
    }

    /// Returns the next request received, if any.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`]: the worker has ended. [`io::ErrorKind::InvalidData`]: it
    /// sends something that is no request.
    pub(crate) fn poll(&self) -> io::Result<Option<WorkerMessage>> {
        match self.requests.try_recv() {
            Ok(request) => request.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// Those of [`AgentEnd::poll`].
    pub(crate) fn wait(&self) -> io::Result<WorkerMessage> {
        self.requests.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Queues a reply for writing. Returns false while the previous one is not written.
    pub(crate) fn send(&self, reply: Reply) -> bool {
        self.replies.try_send(reply).is_ok()
    }
}

impl Drop for AgentEnd {
    fn drop(&mut self) {
        // Both threads end, and so does the worker.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct WorkerEnd {
    stream: UnixStream,
    replies: Receiver<Reply>,
}

impl WorkerEnd {
    /// Starts the thread that reads.
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub(crate) fn start(stream: UnixStream) -> io::Result<WorkerEnd> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (next, replies) = sync_channel(4);
        let read = move || {
            while let Ok(line) = read_line(&mut reader, u64::MAX) {
                let Ok(reply) = serde_json::from_str(&line) else { return };
                if next.send(reply).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("replies".into()).spawn(read)?;
        Ok(WorkerEnd { stream, replies })
    }

    /// Returns the next reply received, if any.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`]: the agent has ended.
    pub(crate) fn poll(&self) -> io::Result<Option<Reply>> {
        match self.replies.try_recv() {
            Ok(reply) => Ok(Some(reply)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Requests the agent's state.
    ///
    /// # Errors
    /// The agent has ended.
    pub(crate) fn request_state(&mut self) -> io::Result<()> {
        write(&mut self.stream, &Line::State)
    }

    /// Sends policies to the agent.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: the policies are longer than the agent accepts. Other
    /// kinds: the agent has ended.
    pub(crate) fn send(&mut self, policies: &Policies) -> io::Result<()> {
        let wire = Box::new(PoliciesMessage::new(policies));
        let line = serde_json::to_string(&Line::Policies(wire))?;
        if line.len() as u64 >= MOST {
            let text = format!("policies are longer than {} MB", MOST >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.stream.write_all((line + "\n").as_bytes())
    }
}

fn parse(line: &str) -> io::Result<WorkerMessage> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    match serde_json::from_str(line).map_err(|error| wrong(error.to_string()))? {
        Line::State => Ok(WorkerMessage::State),
        Line::Policies(wire) => {
            wire.check().map(|regime| WorkerMessage::Policies(Box::new(regime))).map_err(wrong)
        }
    }
}

/// Reads a line of at most `most` bytes, and returns it without its end.
fn read_line(reader: &mut impl BufRead, most: u64) -> io::Result<String> {
    let mut line = String::new();
    reader.take(most).read_line(&mut line)?;
    match line.pop() {
        Some('\n') => Ok(line),
        Some(_) if line.len() as u64 + 1 >= most => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn write(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    stream.write_all((serde_json::to_string(message)? + "\n").as_bytes())
}

/// Upper bound of a request's length, in bytes.
const MOST: u64 = 1 << 26;
