//! Who makes sockets free again when the agent can't: a process of its own that does nothing but wait for the agent's end.
//!
//! The agent writes down a pipe what it paces, before it does. However it ends, by a signal or a fault of its own, the kernel closes
//! the pipe; the guardian then sets every socket of the list back to what its program had set, and ends too. One that reads nothing any more, since
//! somebody has stopped it, holds nobody up: the agent never waits for room in the pipe, and has another in its place.

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
use super::{ByNumber, Seen, SockDiag};

/// A guardian that waits.
#[derive(Debug)]
pub struct Guardian {
    program: Vec<std::ffi::OsString>,
    child: Child,
    pipe: ChildStdin,
    claim: File,
    /// Where its successors after a crash of both find the same.
    record: RecordFile,
    /// What the pipe had no room for and may be heard of later.
    untold: ByNumber<u64, Option<Option<u64>>>,
    /// Room was waited for in vain, and none was found since.
    full: bool,
    /// Bytes written to the pipe, and what of them had been read at the last look.
    said: u64,
    heard: u64,
    /// Looks one after the other at which it had read nothing of what there was.
    silent: u32,
    /// Why there is none in the place of one that is of no use.
    alone: Option<io::Error>,
    /// Those in whose places others are: killed, and kept until they have ended.
    fallen: Vec<Guardian>,
}

impl Guardian {
    /// Starts `program`, which has to call [`keep`](Guardian::keep) and nothing else. It holds the agent's place (`claim`, of
    /// [`Control`](super::Control)) as long as it runs.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(program: &[std::ffi::OsString], claim: &File, record: &Path) -> io::Result<Guardian> {
        Guardian::start_with(program, claim, RecordFile::create(record)?)
    }

    fn start_with(program: &[std::ffi::OsString], claim: &File, record: RecordFile) -> io::Result<Guardian> {
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        let (held, claim) = (claim.try_clone()?, claim.try_clone()?);
        // It writes nothing: there it holds the place. And a group of its own: what is typed at the agent's terminal is not for it, and should it be stopped
        // when the agent ends, the kernel wakes it as it does all groups that are orphaned.
        command.args(arguments).stdin(Stdio::piped()).stdout(held).process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // Our end only: the other goes on to wait for what there is to read.
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
            fallen: Vec::new(),
        })
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection is going to be paced, which had `own`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: it reads nothing, and what it has been told already fills the pipe. Others: it is gone.
    pub(super) fn tell(&mut self, cookie: u64, own: Option<u64>) -> io::Result<()> {
        self.write(cookie, Some(own))?;
        self.untold.remove(&cookie);
        Ok(())
    }

    /// A connection that it knows is free; or had `own` all along. What there is no room for now it hears at a later [`flush`](Guardian::flush).
    pub(super) fn note(&mut self, cookie: u64, own: Option<Option<u64>>) {
        match self.write(cookie, own) {
            Ok(()) => drop(self.untold.remove(&cookie)),
            Err(_) => drop(self.untold.insert(cookie, own)),
        }
    }

    /// Says what there was no room for, as far as there is now.
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
        // It may only not have come to it. What can't be waited for once is not waited for again.
        if !self.full && done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            let _ = poll(&mut [PollFd::new(&self.pipe, PollFlags::OUT)], Some(&ROOM));
            done = self.pipe.write_all(&record);
        }
        self.full = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        done?;
        self.said += RECORD as u64;
        Ok(())
    }

    /// Looks after it, which is to be done once a second; answers whether it is of no use any more: it has ended, which it has no reason to, or has read
    /// nothing for two looks.
    pub(super) fn is_of_no_use(&mut self) -> bool {
        self.fallen.retain_mut(|guardian| !guardian.has_ended());
        let unread = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        let heard = self.said.saturating_sub(unread);
        self.silent = if unread > 0 && heard == self.heard { self.silent + 1 } else { 0 };
        self.heard = heard;
        // There is always something to read until the next look: that nobody is free.
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

    /// Another takes its place, and learns all there is, as far as there is room at once. Where there is no memory for one, that is asked for again at the
    /// next look, not for every connection.
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
        // Before its pipe closes: it must not take that for our end.
        let _ = self.child.kill();
        next.untold = paced.iter().map(|(&cookie, &own)| (cookie, Some(own))).collect();
        next.fallen = std::mem::take(&mut self.fallen);
        let before = std::mem::replace(self, next);
        self.fallen.push(before);
        self.flush();
        Ok(())
    }

    /// Whether none could be started in the place of one that is gone.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// What is wrong with it, for people.
    pub(super) fn trouble(&self) -> Option<String> {
        if let Some(error) = &self.alone {
            return Some(format!(
                "no guardian can be started ({error}): new connections are not paced, and should this agent be killed too, `tollway shape clear` \
                 makes the others free"
            ));
        }
        (self.silent > 0).then(|| {
            format!(
                "the guardian (process {}) takes no word, as if somebody had stopped it: another takes its place in a second, and until then new \
                 connections may not be paced",
                self.pid()
            )
        })
    }

    /// Tells it that the agent is there.
    pub(super) fn beat(&mut self) {
        let _ = self.write(0, None);
    }

    /// Starts a record of what is paced anew where the old one has grown long.
    pub(super) fn shorten(&mut self, paced: &ByNumber<u64, Option<u64>>) {
        if self.record.count > 4 * paced.len() + LEAST_RECORDS {
            let _ = self.record.rewrite(paced);
        }
    }

    /// Waits on `input` for the end of an agent whose connections the kernel knows; calls `renew` a few times a second until then. To be called
    /// before the first thread is started.
    ///
    /// # Errors
    /// The kernel keeps the rights.
    pub fn wait(mut input: impl Read + AsFd, mut renew: impl FnMut()) -> io::Result<()> {
        let _signals = Signals::hold();
        settle_as_guardian(Needs::Programs)?;
        // Nothing is written there; it ends.
        loop {
            if is_ready(&input, BEAT) && input.read(&mut [0; 64])? == 0 {
                return Ok(());
            }
            renew();
        }
    }

    /// Waits on `input` for the agent's end, then frees what it has paced; answers what [`clear`] does. An agent that says nothing for
    /// long hangs: what it has paced is freed until it goes on. To be called before the first thread is started.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn keep(mut input: impl Read + AsFd, record: &Path) -> io::Result<(usize, usize)> {
        // Who ends the agent often means all of its processes, and this one ends by itself.
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

/// Whether there is something to read, or its end, within `patience`.
fn is_ready(input: &impl AsFd, patience: Duration) -> bool {
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&patience)) != Ok(0)
}

/// A file of what is paced, for the agent after one that was killed together with its guardian. It begins with the machine's boot: cookies
/// are of no use after that.
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

/// A file that nobody has planted.
fn new_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// The machine's boot, as the kernel names it.
fn boot() -> io::Result<Record> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map(u128::to_be_bytes).map_err(io::Error::other)
}

/// Frees what an agent and its guardian that were killed together have left paced, by their record; answers what [`clear`] does.
///
/// # Errors
/// The kernel can't be asked.
pub fn replay(record: &Path) -> io::Result<(usize, usize)> {
    let Ok(bytes) = fs::read(record) else { return Ok((0, 0)) };
    let ward = Ward::read(&bytes, &boot()?);
    if ward.is_empty() { Ok((0, 0)) } else { free(&ward) }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Its pipe closes after this; it has nothing left to do, or does it now.
        let _ = self.child.try_wait();
    }
}

/// Sets every connection back that has a limit, whoever set it; answers how many were, and how many could not be.
///
/// # Errors
/// The kernel can't be asked.
pub fn clear() -> io::Result<(usize, usize)> {
    each(|seen| seen.limit.map(|_| None))
}

/// Frees the connections of a ward; answers what [`clear`] does.
fn free(ward: &Ward) -> io::Result<(usize, usize)> {
    ward.free(&mut SockDiag::new()?, patience())
}

/// Gives every connection the limit that `own` states.
fn each(own: impl Fn(&Seen) -> Option<Option<u64>>) -> io::Result<(usize, usize)> {
    ward::restore(&mut SockDiag::new()?, own, patience())
}

/// A pause between two looks, while some connections could not be set; false after two seconds.
fn patience() -> impl FnMut(usize) -> bool {
    let until = Instant::now() + PATIENCE;
    move |left| {
        if left > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Instant::now() < until
    }
}

/// How often the lease of an agent that may hang is renewed.
pub(super) const BEAT: Duration = Duration::from_millis(200);
/// An agent that says nothing for so long hangs.
pub(super) const PULSE: Duration = Duration::from_millis(800);
/// Records that a file may have before those of connections that are gone are thrown out.
const LEAST_RECORDS: usize = 1 << 12;
/// How long room in the pipe is waited for.
const ROOM: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Looks without a word read, after which another takes its place.
const SILENT: u32 = 2;
/// A socket may be on its way from one process to another.
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
        // The last word on each counts.
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
        // On its way from one process to another it is nobody's: a message with a control message of one descriptor (cmsg(3)).
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
