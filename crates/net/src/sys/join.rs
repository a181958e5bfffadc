//! Commands that run in namespaces of another process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::move_into_link_name_space;

/// Makes `command` run in `spaces`, which it enters in their order: a user namespace first, since
/// it gives the right to enter others.
///
/// The command keeps its working directory, by its path. The calling process may have threads,
/// because only the new process enters the namespaces.
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to make system calls between fork and exec"
)]
pub fn join(command: &mut Command, spaces: Vec<OwnedFd>) {
    let parent = rustix::process::getpid();
    let enter = move || {
        // Entering a mount namespace moves the process to the root folder.
        let mut here = [0u8; libc::PATH_MAX as usize];
        // SAFETY: the kernel writes at most the buffer's length, and ends the path with a zero.
        let known = unsafe { !libc::getcwd(here.as_mut_ptr().cast(), here.len()).is_null() };
        for space in &spaces {
            move_into_link_name_space(space.as_fd(), None)?;
        }
        // The network of a killed process may have ended, with the programs that were in it.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // SAFETY: `here` holds the path that getcwd wrote.
        if known && unsafe { libc::chdir(here.as_ptr().cast()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls, takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(enter);
    }
}
