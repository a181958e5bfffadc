//! Filters of system calls (seccomp(2)).
#![expect(unsafe_code, reason = "no safe wrapper of seccomp(2) among our dependencies")]

use std::ffi::c_long;
use std::io;

use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// Refuses `calls` to this thread, and to its later children, with `EPERM`. It needs
/// `no_new_privs`.
///
/// It does nothing on a kernel without seccomp, or on a machine whose call numbers are unknown
/// here.
///
/// # Errors
/// The kernel refuses the filter.
pub fn deny(calls: &[c_long]) -> io::Result<()> {
    let Some(machine) = MACHINE else { return Ok(()) };
    // Offsets in `struct seccomp_data`: 0 is the call's number, 4 the machine.
    let load = |at| instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, at);
    let count = calls.len() as u8;
    let mut program = vec![load(4), instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, count + 3, machine), load(0)];
    // Numbers from here on belong to x32, another interface of x86-64.
    program.push(instruction(BPF_JMP | BPF_JGE | BPF_K, count + 1, 0, X32));
    for (call, at) in calls.iter().zip(1..) {
        program.push(instruction(BPF_JMP | BPF_JEQ | BPF_K, count - at + 1, 0, *call as u32));
    }
    program.push(instruction(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    program.push(instruction(BPF_RET | BPF_K, 0, 0, refuse));
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads `len` instructions at `filter`, which `program` has, and keeps a
    // copy.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, FILTER, &raw const filter) };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        error if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => Ok(()),
        error => Err(error),
    }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

const FILTER: libc::c_ulong = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
const X32: u32 = 1 << 30;
/// The machine as the kernel names it: its number in ELF, 64 bits, little-endian.
const MACHINE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};
