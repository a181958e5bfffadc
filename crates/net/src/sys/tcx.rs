//! Programs of the kernel at an interface's tcx hooks (bpf(2), Linux 6.6).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A hook of an interface: `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS` of `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// Packets that the interface has received.
    Ingress = 46,
    /// Packets that it is about to send.
    Egress = 47,
}

/// Attaches a program behind those already there, until the result and its pins are gone.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: the kernel has no tcx. Others: no such interface, or no right.
pub fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut request = Request([0; REQUEST / 8]);
    request.put(0, program.as_raw_fd() as u32);
    request.put(1, interface);
    request.put(2, hook as u32);
    let link = request.ask(BPF_LINK_CREATE)?;
    #[expect(unsafe_code, reason = "the call has just returned this descriptor, which no other value owns")]
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Keeps what a descriptor stands for at `path`, in a BPF file system, after the process has ended.
///
/// # Errors
/// The path exists, or is in no such file system.
pub fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut request = Request([0; REQUEST / 8]);
    request.0[0] = path.as_ptr() as u64;
    request.put(2, link.as_raw_fd() as u32);
    request.ask(BPF_OBJ_PIN).map(drop)
}

/// The start of a `union bpf_attr`, in 64-bit words.
struct Request([u64; REQUEST / 8]);

impl Request {
    /// Sets a 32-bit word.
    fn put(&mut self, at: usize, value: u32) {
        let shift = if cfg!(target_endian = "little") == at.is_multiple_of(2) { 0 } else { 32 };
        self.0[at / 2] |= u64::from(value) << shift;
    }

    #[expect(unsafe_code, reason = "no safe wrapper of bpf(2) for these hooks among our dependencies")]
    fn ask(&self, command: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: the kernel reads `REQUEST` bytes of `self`, and a path that outlives the call; it
        // keeps nothing.
        let done = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), REQUEST) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as libc::c_int) }
    }
}

/// Bytes of a request: as far as the two commands' fields go, and the tcx options, which are zero.
const REQUEST: usize = 32;
/// Commands of `linux/bpf.h`.
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_LINK_CREATE: libc::c_int = 28;
