//! Connections listed by `inet_diag`, and paced through their owners' descriptors.
//!
//! The kernel lists its TCP sockets with TCP's state (sock_diag(7)), but sets a pace only through a
//! descriptor. So the agent finds the owner under `/proc` and borrows its descriptor with
//! pidfd_getfd(2) for one call. It compares the socket's cookie, because a descriptor number may be
//! reused. It keeps no descriptor open, because an open descriptor would keep the socket from
//! closing.

pub(crate) mod message;
mod owners;
mod unseen;

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};
use tollway_law::{Rate, Time};
use tollway_net::Clock;
use tollway_net::sys::sockopt;

use super::guardian::Guardian;
use super::{ByNumber, Concern, Kernel, Seen};
use message::Answer;
use owners::Owners;
use unseen::Unseen;

/// The back-end that lists by `inet_diag` and sets `SO_MAX_PACING_RATE`.
#[derive(Debug)]
pub struct SockDiag {
    netlink: std::fs::File,
    clock: Clock,
    owners: Owners,
    buffer: Vec<u8>,
    sequence: u32,
    guardian: Option<Guardian>,
    /// Time of the next check of the guardian.
    look_after: Time,
    /// The limit of each paced connection's program, by cookie.
    paced: ByNumber<u64, Option<u64>>,
    unseen: Unseen,
}

impl SockDiag {
    /// Creates a back-end for the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no `inet_diag`.
    pub fn new() -> io::Result<SockDiag> {
        let socket = Socket::new(
            Domain::from(libc::AF_NETLINK),
            Type::from(libc::SOCK_RAW | libc::SOCK_CLOEXEC),
            Some(Protocol::from(libc::NETLINK_SOCK_DIAG)),
        )?;
        Ok(SockDiag {
            netlink: std::fs::File::from(OwnedFd::from(socket)),
            clock: Clock::starting_at(Time::ZERO),
            owners: Owners::default(),
            buffer: vec![0; 1 << 18],
            sequence: 0,
            guardian: None,
            look_after: Time::ZERO,
            paced: ByNumber::default(),
            unseen: Unseen::default(),
        })
    }

    /// Reports every connection that is paced to `guardian`.
    pub fn guarded(mut self, guardian: Guardian) -> SockDiag {
        self.guardian = Some(guardian);
        self
    }

    fn dump(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.netlink.write_all(&message::request(self.sequence))?;
        loop {
            // The kernel has already filled the buffer of the next read, and fills the one after it
            // then.
            let at = self.clock.now();
            let known = seen.len();
            let len = match self.netlink.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let answer = message::read(&self.buffer[..len], self.sequence, seen);
            seen[known..].iter_mut().for_each(|seen| seen.at = at);
            match answer {
                Answer::More => {}
                Answer::Done => return Ok(()),
                Answer::Failed(error) => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Replaces a guardian that was killed or stopped. It could not free the connections that are
    /// paced.
    fn keep_guarded(&mut self) {
        let Some(guardian) = &mut self.guardian else { return };
        let now = self.clock.now();
        if now >= self.look_after {
            self.look_after = now + Time::from_secs(1);
            if guardian.is_of_no_use() {
                // If memory for a new one is missing now, the next try is in a second.
                let _ = guardian.again(&self.paced);
            }
        }
        guardian.flush();
        guardian.shorten(&self.paced);
    }

    /// Tells the guardian, if there is one, that a connection with the limit `own` is going to be
    /// paced.
    fn tell(&mut self, cookie: u64, own: Option<u64>) -> io::Result<()> {
        let Some(guardian) = &mut self.guardian else { return Ok(()) };
        match guardian.tell(cookie, own) {
            // Replaces a guardian that has ended. One that only does not read is checked later.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock && !guardian.is_alone() => {
                guardian.again(&self.paced)?;
                guardian.tell(cookie, own)
            }
            told => told,
        }
    }

    /// Sends the guardian a message that may be delayed.
    fn note(&mut self, cookie: u64, own: Option<Option<u64>>) {
        if let Some(guardian) = &mut self.guardian {
            guardian.note(cookie, own);
        }
    }
}

impl Kernel for SockDiag {
    fn connections(&mut self, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.keep_guarded();
        self.unseen.look(self.clock.now());
        self.dump(seen)?;
        self.owners.learn(seen);
        // Closed connections are removed only now and then: they need no care.
        if self.paced.len() > 2 * seen.len() + 64 {
            let there: std::collections::HashSet<u64> = seen.iter().map(|seen| seen.cookie).collect();
            let gone: Vec<u64> =
                self.paced.keys().copied().filter(|cookie| !there.contains(cookie)).collect();
            for cookie in gone {
                self.paced.remove(&cookie);
                self.note(cookie, None);
            }
        }
        Ok(())
    }

    fn pace(&mut self, connection: &Seen, rate: Option<Rate>) -> io::Result<()> {
        let value = rate.map_or(u64::MAX, |rate| rate.bytes_per_sec() as u64);
        // The guardian must know of the connection before its pace is set.
        if rate.is_some() && !self.paced.contains_key(&connection.cookie) {
            self.tell(connection.cookie, connection.limit)?;
            self.paced.insert(connection.cookie, connection.limit);
        }
        // 8 bytes; all ones is no limit (socket(7), Linux 4.20 and later).
        let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
        self.owners.with(connection, |socket| sockopt::set(socket, level, name, &value.to_ne_bytes()))?;
        // The program's own limit is restored. Limits that it sets from now on stay.
        let own = self.paced.get(&connection.cookie).map(|own| own.unwrap_or(u64::MAX));
        if own.is_some_and(|own| own == value || value == u64::MAX) {
            self.paced.remove(&connection.cookie);
            self.note(connection.cookie, None);
        }
        Ok(())
    }

    fn owns(&mut self, connection: &Seen) {
        if let Some(own) = self.paced.get_mut(&connection.cookie) {
            *own = connection.limit;
            self.note(connection.cookie, Some(connection.limit));
        }
    }

    fn beat(&mut self) {
        if let Some(guardian) = &mut self.guardian {
            guardian.beat();
        }
    }

    fn describe(&self) -> String {
        "inet_diag and pidfd_getfd".to_owned()
    }

    fn warnings(&self) -> Vec<(Concern, String)> {
        let trouble = self.guardian.as_ref().and_then(Guardian::trouble);
        trouble.into_iter().chain(self.unseen.warning().map(|text| (Concern::Unlimited, text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection to this process, and the kernel's view of it.
    fn connection(kernel: &mut SockDiag) -> (TcpStream, TcpStream, Seen) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let seen = look(kernel, &client).expect("our connection is listed");
        (client, server, seen)
    }

    fn look(kernel: &mut SockDiag, stream: &TcpStream) -> Option<Seen> {
        let mut seen = Vec::new();
        kernel.connections(&mut seen).unwrap();
        let ends = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        seen.into_iter().find(|seen| (seen.local, seen.remote) == ends)
    }

    /// The guardian here never reads, as if stopped by SIGSTOP.
    #[test]
    fn a_guardian_that_takes_no_word_holds_nobody_up_and_has_a_successor_that_knows_all() {
        let folder = std::env::temp_dir().join(format!("tollway-deaf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (deaf, told) = (folder.join("deaf"), folder.join("told"));
        let script = "test -e $0 && exec cat > $1; : > $0; exec sleep 600";
        let program = ["sh", "-c", script, deaf.to_str().unwrap(), told.to_str().unwrap()].map(Into::into);
        let claim = std::fs::File::create(folder.join("claim")).unwrap();
        let mut kernel = SockDiag::new().unwrap();
        let (_client, _server, one) = connection(&mut kernel);
        kernel = kernel.guarded(Guardian::start(&program, &claim, &folder.join("paced")).unwrap());
        let first = kernel.guardian.as_ref().unwrap().pid();
        while !deaf.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // These connections are closed already; the test looks at the messages to the guardian.
        let many = (1..=5000).map(|n| Seen { cookie: u64::MAX - n, inode: 0, ..one });
        let pace = |kernel: &mut SockDiag| -> usize {
            let refused = |seen: &Seen| {
                let paced = kernel.pace(seen, Some(Rate::from_mbps(8.0)));
                paced.unwrap_err().kind() == io::ErrorKind::WouldBlock
            };
            many.clone().filter(refused).count()
        };
        let refused = pace(&mut kernel);
        assert_eq!(
            (refused, kernel.paced.len()),
            (5000 - 4096, 4096),
            "who it can't be told of is not paced"
        );
        let mut warned = false;
        while kernel.guardian.as_ref().unwrap().pid() == first {
            std::thread::sleep(std::time::Duration::from_millis(20));
            kernel.keep_guarded();
            warned |= kernel.warnings().iter().any(|(concern, _)| *concern == Concern::Guardian(Some(first)));
        }
        assert!(warned, "it is said");
        while pace(&mut kernel) > 0 || std::fs::metadata(&told).map_or(0, |meta| meta.len()) < 5000 * 16 {
            kernel.keep_guarded();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let guardian =
            |kernel: &SockDiag| kernel.warnings().iter().any(|one| matches!(one.0, Concern::Guardian(_)));
        // The warning stays until the next check.
        for _ in 0..200 {
            if guardian(&kernel) {
                kernel.keep_guarded();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        assert!(!guardian(&kernel));
        let records = std::fs::read(&told).unwrap();
        let cookies: std::collections::HashSet<u64> = records
            .chunks_exact(16)
            .map(|record| u64::from_ne_bytes(record[..8].try_into().unwrap()))
            .filter(|&cookie| cookie != 0)
            .collect();
        assert_eq!(cookies, kernel.paced.keys().copied().collect());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_connection_of_our_own_is_seen_and_paced_and_free_again() {
        let mut kernel = SockDiag::new().unwrap();
        let (mut client, server, seen) = connection(&mut kernel);
        assert_eq!(seen.limit, None);
        assert!(seen.mss > 500 && seen.inode > 0 && seen.uid == rustix::process::getuid().as_raw());
        kernel.pace(&seen, Some(Rate::from_mbps(40.0))).unwrap();
        client.write_all(&[7; 1000]).unwrap();
        let paced = look(&mut kernel, &client).unwrap();
        assert_eq!((paced.limit, paced.sent, paced.cookie), (Some(5_000_000), 1000, seen.cookie));
        // More than 34 Gb/s needs more than four bytes.
        kernel.pace(&seen, Some(Rate::from_bytes_per_sec(1e10))).unwrap();
        assert_eq!(look(&mut kernel, &client).unwrap().limit, Some(10_000_000_000));
        kernel.pace(&seen, None).unwrap();
        assert_eq!(look(&mut kernel, &client).unwrap().limit, None);
        assert!(kernel.paced.is_empty());
        // No process has the socket open any more.
        drop((client, server));
        let error = kernel.pace(&seen, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn a_socket_under_the_number_of_one_that_is_elsewhere_now_is_found() {
        let mut kernel = SockDiag::new().unwrap();
        let (client, _server, first) = connection(&mut kernel);
        // From here the first socket has another number, and the second takes its old one.
        let number = OwnedFd::from(client);
        let _elsewhere = number.try_clone().unwrap();
        let (second, _other, _) = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            (client, server, ())
        };
        let mut place = std::mem::ManuallyDrop::new(number);
        rustix::io::dup2(&second, &mut place).unwrap();
        let moved = TcpStream::from(std::mem::ManuallyDrop::into_inner(place));
        drop(second);
        let seen = look(&mut kernel, &moved).expect("it is listed");
        assert_ne!(seen.cookie, first.cookie);
        kernel.pace(&seen, Some(Rate::from_mbps(8.0))).unwrap();
        assert_eq!(look(&mut kernel, &moved).unwrap().limit, Some(1_000_000));
    }

    #[test]
    fn a_number_given_out_anew_is_not_taken_for_the_socket_it_was() {
        let mut kernel = SockDiag::new().unwrap();
        let (client, server, seen) = connection(&mut kernel);
        kernel.pace(&seen, Some(Rate::from_mbps(8.0))).unwrap();
        drop((client, server));
        // The new sockets most likely have the same descriptor numbers.
        let (client, _server, other) = connection(&mut kernel);
        assert!(kernel.pace(&seen, Some(Rate::from_mbps(8.0))).is_err());
        assert_eq!(look(&mut kernel, &client).unwrap().limit, None);
        assert_ne!(other.cookie, seen.cookie);
    }
}
