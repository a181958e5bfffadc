//! Redis servers, and a client that reads each reply.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{dial, eventually};

/// True if all of these programs are installed; reports those that are not.
pub(crate) fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    programs.iter().all(|program| {
        let there = folders.iter().any(|folder| folder.join(program).exists());
        if !there {
            eprintln!("SKIPPED: there is no `{program}` (see .ci/run for the packages)");
        }
        there
    })
}

/// A `redis-server` whose data survive a kill.
pub(crate) struct RedisServer {
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl RedisServer {
    pub(crate) fn start(name: &str) -> RedisServer {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let server = RedisServer { child: RedisServer::run(&folder, port), folder, address };
        server.listens();
        server
    }

    fn run(folder: &PathBuf, port: u16) -> Child {
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
        ]);
        command.args(["--appendfsync", "no", "--enable-debug-command", "yes"]).current_dir(folder);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn listens(&self) {
        eventually("redis-server serves", || {
            TcpStream::connect(self.address).is_ok()
                && RespClient::to(self.address).call(&["PING"]).is("PONG")
        });
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the server again, with its data, after a [kill](RedisServer::kill).
    pub(crate) fn again(&mut self) {
        self.child = RedisServer::run(&self.folder, self.address.port());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A reply of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status, an error or a number, with its first byte.
    Line(String),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
    /// The connection has ended.
    End,
}

impl Reply {
    pub(crate) fn bulk(text: &str) -> Reply {
        Reply::Bulk(Some(text.as_bytes().to_vec()))
    }

    pub(crate) fn is(&self, status: &str) -> bool {
        matches!(self, Reply::Line(line) if line.strip_prefix('+') == Some(status))
    }

    /// The text of an error.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Reply::Line(line) => line.strip_prefix('-'),
            _ => None,
        }
    }

    pub(crate) fn array(&self) -> &[Reply] {
        match self {
            Reply::Array(Some(all)) => all,
            other => panic!("not an array: {other:?}"),
        }
    }
}

/// A client of Redis.
pub(crate) struct RespClient {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl RespClient {
    pub(crate) fn to(address: SocketAddr) -> RespClient {
        RespClient { stream: dial(address), buffer: Vec::new() }
    }

    pub(crate) fn frame<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
        let mut frame = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            frame.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
            frame.extend_from_slice(word.as_ref());
            frame.extend_from_slice(b"\r\n");
        }
        frame
    }

    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        // The other end may have closed; the reply tells.
        let _ = self.stream.write_all(&RespClient::frame(words));
    }

    pub(crate) fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.send(words);
        self.reply()
    }

    /// Sends the commands, words separated by spaces, in one write. Returns their replies.
    pub(crate) fn pipeline(&mut self, commands: &[&str]) -> Vec<Reply> {
        let all: Vec<u8> = commands
            .iter()
            .flat_map(|command| RespClient::frame(&command.split(' ').collect::<Vec<_>>()))
            .collect();
        let _ = self.stream.write_all(&all);
        commands.iter().map(|_| self.reply()).collect()
    }

    /// The replies up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<Reply> {
        let mut all = Vec::new();
        loop {
            match self.reply() {
                Reply::End => return all,
                reply => all.push(reply),
            }
        }
    }

    pub(crate) fn reply(&mut self) -> Reply {
        let Some(line) = self.line() else { return Reply::End };
        let count = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes()[0] {
            b'$' => match usize::try_from(count()) {
                Ok(len) => {
                    let Some(mut bytes) = self.bytes(len + 2) else { return Reply::End };
                    bytes.truncate(len);
                    Reply::Bulk(Some(bytes))
                }
                Err(_) => Reply::Bulk(None),
            },
            b'*' | b'>' | b'~' => {
                let count = usize::try_from(count()).ok();
                Reply::Array(count.map(|count| (0..count).map(|_| self.reply()).collect()))
            }
            _ => Reply::Line(line),
        }
    }

    /// True if nothing comes for some time.
    pub(crate) fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let silent = self.buffer.is_empty() && !self.fill();
        self.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        silent
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.bytes(end + 2)?;
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn bytes(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < len {
            if !self.fill() {
                return None;
            }
        }
        Some(self.buffer.drain(..len).collect())
    }

    fn fill(&mut self) -> bool {
        let mut bytes = vec![0; 1 << 16];
        match self.stream.read(&mut bytes) {
            Ok(len @ 1..) => {
                self.buffer.extend_from_slice(&bytes[..len]);
                true
            }
            _ => false,
        }
    }
}
