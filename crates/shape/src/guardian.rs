//! The guardian: a process that only waits for the agent's end, and then frees the sockets.
//!
//! Before the agent paces a connection, it writes a record to a pipe. When the agent ends, by a
//! signal or a fault, the kernel closes the pipe. The guardian then restores every socket of its
//! list to the program's limit, and ends too. A guardian that stops reading, for example because it
//! was stopped, does not delay the agent. The agent waits only briefly for room in the pipe, and
//! replaces that guardian.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tollway_net::sys::signals::Signals;

use super::rights::{Needs, settle_as_guardian};
use super::ward::{self, RECORD, Record, Ward};
use super::{ByNumber, Concern, Seen, SockDiag};

/// A running guardian, as the agent sees it.
#[derive(Debug)]
pub struct Guardian {
    program: Vec<std::ffi::OsString>,
    child: Child,
    pipe: ChildStdin,
    claim: File,
    /// The file of paced connections, for an agent that starts after both were killed.
    record: RecordFile,
    /// Messages that wait for room in the pipe, by cookie.
    untold: ByNumber<u64, Option<Option<u64>>>,
    /// The last wait for room in the pipe was in vain, and there was none since.
    full: bool,
    /// Bytes written to the pipe, and bytes read from it at the last check.
    said: u64,
    heard: u64,
    /// Checks in a row at which nothing had been read though there was data.
    silent: u32,
    /// The reason why no successor could be started.
    alone: Option<io::Error>,
    /// The process that this one has replaced since it did not respond, until the next check.
    replaced: Option<u32>,
    /// Earlier guardians: killed, and kept until they have ended.
    fallen: Vec<Guardian>,
}

impl Guardian {
    /// Starts `program`, which must call [`keep`](Guardian::keep) and nothing else. While it runs
    /// it holds `claim` of [`ControlSocket`](super::ControlSocket), which reserves the agent's
    /// place.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start(program: &[std::ffi::OsString], claim: &File, record: &Path) -> io::Result<Guardian> {
        Guardian::start_with(program, claim, RecordFile::create(record)?)
    }

    fn start_with(program: &[std::ffi::OsString], claim: &File, record: RecordFile) -> io::Result<Guardian> {
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        let (held, claim) = (claim.try_clone()?, claim.try_clone()?);
        // Standard output holds the claim; nothing is written there. The guardian has a process
        // group of its own: signals of the agent's terminal do not reach it. If it is stopped when
        // the agent ends, the kernel wakes it, as it does for all orphaned groups.
        command.args(arguments).stdin(Stdio::piped()).stdout(held).process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // Only this end of the pipe does not block.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Guardian {
            program: program.to_vec(),
            child,
            pipe,
            claim,
            record,
            untold: ByNumber::default(),
            full: false,
            said: 0,
            heard: 0,
            silent: 0,
            alone: None,
            replaced: None,
            fallen: Vec::new(),
        })
    }

    /// The process number of the guardian.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells the guardian that a connection with the limit `own` is going to be paced.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: the guardian does not read, and the pipe is full. Other
    /// kinds: it has ended.
    pub(super) fn tell(&mut self, cookie: u64, own: Option<u64>) -> io::Result<()> {
        self.write(cookie, Some(own))?;
        self.untold.remove(&cookie);
        Ok(())
    }

    /// Tells the guardian that a known connection is free, or had the limit `own` all along.
    /// Without room the message waits for a later [`flush`](Guardian::flush).
    pub(super) fn note(&mut self, cookie: u64, own: Option<Option<u64>>) {
        match self.write(cookie, own) {
            Ok(()) => drop(self.untold.remove(&cookie)),
            Err(_) => drop(self.untold.insert(cookie, own)),
        }
    }

    /// Sends waiting messages, as far as there is room.
    pub(super) fn flush(&mut self) {
        let mut untold = std::mem::take(&mut self.untold);
        let mut room = true;
        untold.retain(|&cookie, own| {
            room = room && self.write(cookie, *own).is_ok();
            !room
        });
        self.untold = untold;
    }

    fn write(&mut self, cookie: u64, own: Option<Option<u64>>) -> io::Result<()> {
        let record = ward::record(cookie, own);
        if cookie != 0 {
            self.record.add(&record)?;
        }
        // A record is written as a whole or not at all: pipe(7).
        let mut done = self.pipe.write_all(&record);
        // The guardian may only be late. After one wait in vain there is no other until there is
        // room.
        if !self.full && done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            let _ = poll(&mut [PollFd::new(&self.pipe, PollFlags::OUT)], Some(&ROOM));
            done = self.pipe.write_all(&record);
        }
        self.full = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        done?;
        self.said += RECORD as u64;
        Ok(())
    }

    /// Checks the guardian, once per second. Returns true if it has to be replaced: it has ended,
    /// or has read nothing for two checks.
    pub(super) fn is_of_no_use(&mut self) -> bool {
        self.fallen.retain_mut(|guardian| !guardian.has_ended());
        self.replaced = None;
        let unread = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        let heard = self.said.saturating_sub(unread);
        self.silent = if unread > 0 && heard == self.heard { self.silent + 1 } else { 0 };
        self.heard = heard;
        // An empty record, so that there is data to read until the next check.
        let _ = self.write(0, None);
        let useless = self.silent >= SILENT || self.has_ended();
        if !useless {
            self.alone = None;
        }
        useless
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Starts a successor and sends it all connections, as far as there is room. If memory is
    /// missing, the next try is at the next check, not at the next connection.
    pub(super) fn again(&mut self, paced: &ByNumber<u64, Option<u64>>) -> io::Result<()> {
        let record = RecordFile::create(&self.record.path);
        let mut next =
            match record.and_then(|record| Guardian::start_with(&self.program, &self.claim, record)) {
                Ok(next) => next,
                Err(error) => {
                    let kind = error.kind();
                    self.alone = Some(error);
                    return Err(kind.into());
                }
            };
        next.replaced = (self.silent > 0).then(|| self.pid());
        // First, so that it does not take its pipe's close for the agent's end.
        let _ = self.child.kill();
        next.untold = paced.iter().map(|(&cookie, &own)| (cookie, Some(own))).collect();
        next.fallen = std::mem::take(&mut self.fallen);
        let before = std::mem::replace(self, next);
        self.fallen.push(before);
        self.flush();
        Ok(())
    }

    /// True if a guardian has ended and no successor could be started.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// A message on a problem with the guardian.
    pub(super) fn trouble(&self) -> Option<(Concern, String)> {
        if let Some(error) = &self.alone {
            let text = format!(
                "cannot start a guardian ({error}): new connections are not paced; if this agent is killed \
                too, `tollway shape clear` removes the paces"
            );
            return Some((Concern::Guardian(None), text));
        }
        let silent = self.replaced.or_else(|| (self.silent > 0).then(|| self.pid()))?;
        let text = format!(
            "the guardian (process {silent}) does not respond; it may have been stopped. Another replaces it in a \
            second; until then new connections may not be paced"
        );
        Some((Concern::Guardian(Some(silent)), text))
    }

    /// Tells the guardian that the agent is alive.
    pub(super) fn beat(&mut self) {
        let _ = self.write(0, None);
    }

    /// Rewrites the record file with the paced connections only, once it has grown long.
    pub(super) fn shorten(&mut self, paced: &ByNumber<u64, Option<u64>>) {
        if self.record.count > 4 * paced.len() + LEAST_RECORDS {
            let _ = self.record.rewrite(paced);
        }
    }

    /// Waits on `input` for the end of an agent with the eBPF back-end. Calls `renew` a few times
    /// per second until then. Must be called before the first thread is started.
    ///
    /// # Errors
    /// The process can't give up its rights.
    pub fn wait(mut input: impl Read + AsFd, mut renew: impl FnMut()) -> io::Result<()> {
        let _signals = Signals::hold();
        settle_as_guardian(Needs::Programs)?;
        // The agent writes nothing here: the read returns 0 once the agent has ended.
        loop {
            if is_ready(&input, BEAT) && input.read(&mut [0; 64])? == 0 {
                return Ok(());
            }
            renew();
        }
    }

    /// Waits on `input` for the agent's end, then frees its connections. Returns the same as
    /// [`clear`]. An agent that sends nothing for 800 ms hangs: its connections are freed until it
    /// goes on. Must be called before the first thread is started.
    ///
    /// # Errors
    /// The kernel can't list connections.
    pub fn keep(mut input: impl Read + AsFd, record: &Path) -> io::Result<(usize, usize)> {
        // A signal for the agent often goes to all its processes. The guardian ends by itself, so
        // it ignores them.
        let _signals = Signals::hold();
        let _ = settle_as_guardian(Needs::Sockets);
        let mut ward = Ward::default();
        loop {
            if !is_ready(&input, PULSE) {
                if ward.note_silence() {
                    let _ = free(&ward);
                }
            } else if !ward.take(&mut input) {
                break;
            }
        }
        let done = free(&ward);
        if done.as_ref().is_ok_and(|(_, left)| *left == 0) {
            let _ = fs::remove_file(record);
        }
        done
    }
}

/// True if there is data or the end of input within `patience`.
fn is_ready(input: &impl AsFd, patience: Duration) -> bool {
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&patience)) != Ok(0)
}

/// A file of the paced connections, for the agent that follows one killed together with its
/// guardian. It begins with the machine's boot: cookies are not valid after it.
#[derive(Debug)]
struct RecordFile {
    path: PathBuf,
    file: File,
    count: usize,
}

impl RecordFile {
    fn create(path: &Path) -> io::Result<RecordFile> {
        let mut record = RecordFile { path: path.to_owned(), file: new_file(path)?, count: 0 };
        record.file.write_all(&boot()?)?;
        Ok(record)
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        self.count += 1;
        self.file.write_all(record)
    }

    fn rewrite(&mut self, paced: &ByNumber<u64, Option<u64>>) -> io::Result<()> {
        let path = self.path.with_extension("new");
        let mut file = new_file(&path)?;
        let mut bytes = boot()?.to_vec();
        for (cookie, own) in paced {
            bytes.extend(ward::record(*cookie, Some(*own)));
        }
        file.write_all(&bytes)?;
        fs::rename(&path, &self.path)?;
        (self.file, self.count) = (file, paced.len());
        Ok(())
    }
}

/// Creates a new file, so that another user can't have prepared it.
fn new_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// The kernel's identifier of the machine's boot.
fn boot() -> io::Result<Record> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(io::Error::other)
}

/// Frees connections left paced by an agent that was killed together with its guardian, from their
/// record file. Returns the same as [`clear`].
///
/// # Errors
/// The kernel can't list connections.
pub fn replay(record: &Path) -> io::Result<(usize, usize)> {
    let Ok(bytes) = fs::read(record) else { return Ok((0, 0)) };
    let ward = Ward::read(&bytes, &boot()?);
    if ward.is_empty() { Ok((0, 0)) } else { free(&ward) }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // The pipe closes after this. The guardian frees what is left, if anything.
        let _ = self.child.try_wait();
    }
}

/// Removes every connection's limit, from whatever source. Returns the number that was set, and the
/// number that could not be set.
///
/// # Errors
/// The kernel can't list connections.
pub fn clear() -> io::Result<(usize, usize)> {
    each(|seen| seen.limit.map(|_| None))
}

/// Frees the connections of a ward. Returns the same as [`clear`].
fn free(ward: &Ward) -> io::Result<(usize, usize)> {
    ward.free(&mut SockDiag::new()?, patience())
}

/// Sets the limit of every connection to the result of `own`.
fn each(own: impl Fn(&Seen) -> Option<Option<u64>>) -> io::Result<(usize, usize)> {
    ward::restore(&mut SockDiag::new()?, own, patience())
}

/// A pause between two listings while some connections could not be set; false after two seconds.
fn patience() -> impl FnMut(usize) -> bool {
    let until = Instant::now() + PATIENCE;
    move |left| {
        if left > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Instant::now() < until
    }
}

/// Interval between renewals of the lease of an agent that may hang.
pub(super) const BEAT: Duration = Duration::from_millis(200);
/// An agent that sends nothing for this long hangs.
pub(super) const PULSE: Duration = Duration::from_millis(800);
/// Least length of a record file, in records, before closed connections are removed.
const LEAST_RECORDS: usize = 1 << 12;
/// Longest wait for room in the pipe.
const ROOM: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Checks without a read after which a guardian is replaced.
const SILENT: u32 = 2;
/// Time for connections whose owner is not found: a socket may be passed between processes.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use socket2::{MsgHdr, SockRef};

    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_heard_later() {
        let folder = std::env::temp_dir().join(format!("tollway-untold-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (go, told) = (folder.join("go"), folder.join("told"));
        let script = "until test -e $0; do sleep 0.02; done; exec cat > $1";
        let program = ["sh", "-c", script, go.to_str().unwrap(), told.to_str().unwrap()].map(Into::into);
        let mut guardian =
            Guardian::start(&program, &File::create(folder.join("claim")).unwrap(), &folder.join("paced"))
                .unwrap();
        let full = (1..).find(|&cookie| guardian.tell(cookie, None).is_err()).unwrap();
        // Only the last message for each connection counts.
        guardian.note(1, Some(Some(7)));
        guardian.note(1, None);
        assert_eq!(guardian.untold.len(), 1);
        File::create(go).unwrap();
        while !guardian.untold.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
            guardian.flush();
        }
        guardian.tell(full, None).unwrap();
        guardian.pipe.write_all(b"end").unwrap();
        let text = loop {
            let text = std::fs::read(&told).unwrap_or_default();
            if text.ends_with(b"end") {
                break text;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let words = text.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let words: Vec<u64> = words.collect();
        assert_eq!(words[words.len() - 4..], [1, 0, full, u64::MAX]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn who_could_not_be_reached_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let set = |seen: &Seen| ((seen.local, seen.remote) == ends).then_some(Some(1_000_000));
        assert_eq!(each(set).unwrap(), (1, 0));
        // A socket in transit belongs to no process: a control message with one descriptor
        // (cmsg(3)).
        let (sender, _receiver) = UnixDatagram::pair().unwrap();
        let mut control = 20u64.to_ne_bytes().to_vec();
        for word in [libc::SOL_SOCKET, libc::SCM_RIGHTS, client.as_raw_fd(), 0] {
            control.extend(word.to_ne_bytes());
        }
        let bytes = [IoSlice::new(b"x")];
        let message = MsgHdr::new().with_buffers(&bytes).with_control(&control);
        SockRef::from(&sender).sendmsg(&message, 0).unwrap();
        drop(client);
        let free = |seen: &Seen| set(seen).map(|_| None);
        assert_eq!(each(free).unwrap(), (0, 1));
    }
}
