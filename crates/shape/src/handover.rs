//! Descriptors that an agent hands to its worker, a process without rights: files of the command
//! line, and sockets.
//!
//! A request is one byte, the number of an item. The reply is an error number of four bytes, with a
//! descriptor if that is zero.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The number of an item.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// The channel to the agent.
    Channel,
    /// The socket where clients ask for the agent's state.
    Status,
    /// The file of policies.
    Policy,
    /// The file of the password of a store's user.
    Password,
    /// The certificate of a store's authority.
    Authority,
    /// Our certificate for a store.
    Certificate,
    /// The key of our certificate.
    Key,
}

/// Something that a worker may request.
#[derive(Debug)]
pub enum Item {
    /// A file, opened anew for each request, to be read only.
    File(PathBuf),
    /// A descriptor that is open already.
    Open(OwnedFd),
}

/// Replies to the requests on `socket` until its other end closes. A number without an item has no
/// file.
///
/// # Errors
/// The socket fails.
pub(crate) fn hand_over(mut socket: UnixStream, items: &[Option<Item>]) -> io::Result<()> {
    let mut request = [0];
    loop {
        match socket.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        match items.get(usize::from(request[0])).and_then(Option::as_ref) {
            None => send(&socket, Err(Errno::NOENT))?,
            Some(Item::Open(descriptor)) => send(&socket, Ok(descriptor.as_fd()))?,
            Some(Item::File(path)) => {
                // Opening a FIFO must not wait for its writer, nor a terminal become ours.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let file = open(path, flags, Mode::empty());
                send(&socket, file.as_ref().map(AsFd::as_fd).map_err(|errno| *errno))?;
            }
        }
    }
}

fn send(mut socket: &UnixStream, item: Result<BorrowedFd<'_>, Errno>) -> io::Result<()> {
    let descriptor = match item {
        Ok(descriptor) => descriptor,
        Err(errno) => return socket.write_all(&errno.raw_os_error().to_ne_bytes()),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0; 4])], &mut control, SendFlags::empty())?;
    Ok(())
}

/// The next input of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// No input.
    Nothing,
    /// Data.
    Data,
    /// The other end has closed, whether there is data or not.
    End,
}

/// Returns the next input of a stream, without waiting or reading.
pub(crate) fn pending(stream: &UnixStream) -> Pending {
    let mut ready = [PollFd::new(stream, PollFlags::IN)];
    let _ = poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    match ready[0].revents() {
        events if events.contains(PollFlags::HUP) => Pending::End,
        events if events.contains(PollFlags::IN) => Pending::Data,
        _ => Pending::Nothing,
    }
}

/// The worker's end.
#[derive(Debug)]
pub struct Handover(UnixStream);

impl Handover {
    /// The end of a worker whose standard input is the socket.
    ///
    /// # Errors
    /// There is no standard input.
    pub fn of_stdin() -> io::Result<Handover> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Handover(UnixStream::from(socket)))
    }

    /// Requests the item with this number.
    ///
    /// # Errors
    /// The item cannot be opened; [`io::ErrorKind::NotFound`]: there is none. Or the agent has
    /// ended.
    pub fn request(&self, number: Number) -> io::Result<OwnedFd> {
        self.request_number(number as u8)
    }

    fn request_number(&self, number: u8) -> io::Result<OwnedFd> {
        (&self.0).write_all(&[number])?;
        let mut reply = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut reply)], &mut control, flags)?;
        if got.bytes != reply.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match i32::from_ne_bytes(reply) {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let mut descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        descriptors.next().and_then(|mut all| all.next()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Requests a file.
    ///
    /// # Errors
    /// Those of [`Handover::request`].
    pub fn file(&self, number: Number) -> io::Result<File> {
        self.request(number).map(File::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_sockets_are_handed_over_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("tollway-handover-{}", std::process::id()));
        std::fs::write(&path, "first").unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (held, mut far) = UnixStream::pair().unwrap();
        let items = [Some(Item::File(path.clone())), None, Some(Item::Open(held.into()))];
        let serving = std::thread::spawn(move || hand_over(ours, &items));
        let handover = Handover(theirs);
        let read = || {
            let mut text = String::new();
            File::from(handover.request_number(0).unwrap()).read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read(), "first");
        // The file is read-only, and always the file that has the name now.
        assert!(File::from(handover.request_number(0).unwrap()).write_all(b"x").is_err());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(handover.request_number(0).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "second").unwrap();
        assert_eq!(read(), "second");
        for number in [1, 3, 255] {
            assert_eq!(handover.request_number(number).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(pending(&far), Pending::Nothing);
        File::from(handover.request_number(2).unwrap()).write_all(b"hello").unwrap();
        assert_eq!(pending(&far), Pending::Data);
        let mut hello = [0; 5];
        far.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        drop(handover);
        serving.join().unwrap().unwrap();
        assert_eq!(pending(&far), Pending::End);
        std::fs::remove_file(path).unwrap();
    }
}
