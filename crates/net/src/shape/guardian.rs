//! Who makes sockets free again when the agent can't: a process of its own that does nothing but wait for the agent's end.
//!
//! The agent writes down a pipe what it paces, before it does. However it ends, by a signal or a fault of its own, the kernel closes
//! the pipe; the guardian then sets every socket of the list back to what its program had set, and ends too.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tollway_law::Rate;

use super::number::ByNumber;
use super::rights::{Needs, give_up_rights};
use super::{Kernel, Seen, SockDiag};
use crate::exec::Signals;

/// A guardian that waits.
#[derive(Debug)]
pub struct Guardian {
    program: Vec<std::ffi::OsString>,
    child: Child,
    pipe: ChildStdin,
    claim: File,
}

impl Guardian {
    /// Starts `program`, which has to call [`keep`](Guardian::keep) and nothing else. It holds the agent's place (`claim`, of
    /// [`Control`](super::Control)) as long as it runs.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(program: &[std::ffi::OsString], claim: &File) -> io::Result<Guardian> {
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        let (held, claim) = (claim.try_clone()?, claim.try_clone()?);
        // It writes nothing: there it holds the place. And a group of its own: what is typed at the agent's terminal is not for it.
        command.args(arguments).stdin(Stdio::piped()).stdout(held).process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Guardian { program: program.to_vec(), child, pipe, claim })
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection is going to be paced, which had `own`; or, with none, is free.
    pub(super) fn tell(&mut self, cookie: u64, own: Option<Option<u64>>) -> io::Result<()> {
        let value = own.map_or(FREE, |own| own.unwrap_or(u64::MAX));
        let mut record = [0u8; RECORD];
        record[..8].copy_from_slice(&cookie.to_ne_bytes());
        record[8..].copy_from_slice(&value.to_ne_bytes());
        self.pipe.write_all(&record)
    }

    /// Whether its process has ended, which it has no reason to.
    pub(super) fn is_gone(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The guardian is gone: another takes its place, and learns all there is.
    pub(super) fn again(&mut self, paced: &ByNumber<u64, Option<u64>>) -> io::Result<()> {
        let _ = self.child.wait();
        *self = Guardian::start(&self.program, &self.claim)?;
        paced.iter().try_for_each(|(&cookie, &own)| self.tell(cookie, Some(own)))
    }

    /// Waits on `input` for the end of an agent whose connections the kernel knows. To be called before the first thread is started.
    ///
    /// # Errors
    /// The kernel keeps the rights.
    pub fn wait(mut input: impl Read) -> io::Result<()> {
        let _signals = Signals::hold();
        give_up_rights(Needs::Programs)?;
        // Nothing is written there; it ends.
        io::copy(&mut input, &mut io::sink()).map(drop)
    }

    /// Waits on `input` for the agent's end, then frees what it has paced; answers what [`clear`] does. To be called before the first thread is started.
    ///
    /// # Errors
    /// The kernel can't be asked.
    pub fn keep(mut input: impl Read) -> io::Result<(usize, usize)> {
        // Who ends the agent often means all of its processes, and this one ends by itself.
        let _signals = Signals::hold();
        let _ = give_up_rights(Needs::Sockets);
        let mut paced: ByNumber<u64, Option<u64>> = ByNumber::default();
        let mut record = [0u8; RECORD];
        while input.read_exact(&mut record).is_ok() {
            let [cookie, own] = [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| record[at + i])));
            match own {
                FREE => drop(paced.remove(&cookie)),
                own => drop(paced.insert(cookie, Some(own).filter(|&own| own != u64::MAX))),
            }
        }
        each(|seen| paced.get(&seen.cookie).copied())
    }
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

/// Sets every connection to what `own` says, until none differs or patience ends.
fn each(own: impl Fn(&Seen) -> Option<Option<u64>>) -> io::Result<(usize, usize)> {
    let mut kernel = SockDiag::new()?;
    let until = Instant::now() + PATIENCE;
    let mut freed = 0;
    let mut look = 0;
    loop {
        let mut seen = Vec::new();
        kernel.connections(&mut seen)?;
        let (mut left, before) = (0, freed);
        for seen in &seen {
            let Some(own) = own(seen).filter(|own| *own != seen.limit) else { continue };
            match kernel.pace(seen, own.map(|own| Rate::from_bytes_per_sec(own as f64))) {
                Ok(()) => freed += 1,
                Err(_) => left += usize::from(seen.inode != 0),
            }
        }
        // A look may leave out one that is there: the second or a later one finds nothing to do.
        if (left == 0 && freed == before && look > 0) || Instant::now() >= until {
            return Ok((freed, left));
        }
        look += 1;
        if left > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Bytes of a record: a cookie and what it had; zero stands for one that is free.
const RECORD: usize = 16;
const FREE: u64 = 0;
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
