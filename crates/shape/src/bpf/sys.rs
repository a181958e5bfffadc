//! The bpf(2) system call, as far as this crate uses it.
#![expect(unsafe_code, reason = "nobody wraps bpf(2) for programs that are not read from an object file")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::asm::Instruction;

/// A value for maps: any bytes are valid, and there is no padding. Implemented for integers and
/// structures of integers without gaps.
pub(crate) trait Plain: Copy + Default {}

impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for [u32; 2] {}
impl Plain for [u64; 2] {}
impl Plain for [u64; 3] {}
impl Plain for [u32; 8] {}

/// A map in the kernel.
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    descriptor: OwnedFd,
    held: PhantomData<(K, V)>,
}

/// The type of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any keys; memory is allocated on insertion.
    Hash = 1,
    /// Keys 0, 1, …
    Array = 2,
    /// Any keys; if full, drops the least recently used.
    Recent = 9,
    /// Prefixes of bits; a lookup finds the longest match.
    Prefixes = 11,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Creates a map with room for `entries` entries.
    pub(crate) fn new(kind: Kind, name: &str, entries: u32) -> io::Result<Map<K, V>> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key: u32,
            value: u32,
            entries: u32,
            flags: u32,
            inner: u32,
            node: u32,
            name: [u8; NAME],
        }
        let flags = if matches!(kind, Kind::Hash | Kind::Prefixes) { NO_PREALLOC } else { 0 };
        let (key, value) = (size_of::<K>() as u32, size_of::<V>() as u32);
        let kind = kind as u32;
        let mut attributes =
            Attributes { kind, key, value, entries, flags, inner: 0, node: 0, name: padded(name) };
        // SAFETY: the attributes contain no pointer.
        let descriptor = unsafe { descriptor(0, &mut attributes) }?;
        Ok(Map { descriptor, held: PhantomData })
    }

    /// The map behind a descriptor, if its keys and values have these sizes.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Option<Map<K, V>> {
        let info: [u32; 6] = info(descriptor.as_fd()).ok()?;
        // type, id, key_size, value_size
        let fits = info[2] as usize == size_of::<K>() && info[3] as usize == size_of::<V>();
        fits.then_some(Map { descriptor, held: PhantomData })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Returns the value of a key, if there is one.
    pub(crate) fn get(&self, key: K) -> io::Result<Option<V>> {
        let mut value = V::default();
        let mut element = self.element(&key, (&raw mut value).cast());
        // SAFETY: key and value live until the call returns and have the map's sizes; any bytes are
        // a value.
        match unsafe { bpf(1, &mut element) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: K, value: V) -> io::Result<()> {
        let mut element = self.element(&key, (&raw const value).cast_mut().cast());
        // SAFETY: as above; the kernel only reads them.
        unsafe { bpf(2, &mut element) }.map(drop)
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&self, key: K) -> io::Result<()> {
        let mut element = self.element(&key, std::ptr::null_mut());
        // SAFETY: the key lives until the call returns.
        match unsafe { bpf(3, &mut element) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the values of many keys in one call.
    pub(crate) fn set_all(&self, keys: &[K], values: &[V]) -> io::Result<()> {
        assert_eq!(keys.len(), values.len());
        if keys.is_empty() {
            return Ok(());
        }
        let mut batch = Batch {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: keys.len() as u32,
            map: self.raw() as u32,
            ..Batch::default()
        };
        // SAFETY: the slices live until the call returns and have `count` elements; the kernel only
        // reads them.
        unsafe { bpf(26, &mut batch) }.map(drop)
    }

    /// Reads the whole map, in chunks of the buffers' length.
    pub(crate) fn for_each(
        &self,
        keys: &mut [K],
        values: &mut [V],
        mut each: impl FnMut(K, &V),
    ) -> io::Result<()> {
        assert_eq!(keys.len(), values.len());
        let (mut from, mut to) = (0u32, 0u32);
        let mut first = true;
        loop {
            let mut batch = Batch {
                from: if first { 0 } else { &raw const from as u64 },
                to: &raw mut to as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: keys.len() as u32,
                map: self.raw() as u32,
                ..Batch::default()
            };
            // SAFETY: the slices live until the call returns and have room for `count`; any bytes
            // are keys and values.
            let end = match unsafe { bpf(24, &mut batch) } {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) => return Err(error),
            };
            for (key, value) in keys.iter().zip(values.iter()).take(batch.count as usize) {
                each(*key, value);
            }
            if end {
                return Ok(());
            }
            (from, first) = (to, false);
        }
    }

    fn element(&self, key: &K, value: *mut u8) -> Element {
        Element { map: self.raw() as u32, gap: 0, key: &raw const *key as u64, value: value as u64, flags: 0 }
    }
}

/// The type of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Called as connections open and close, and once per round trip.
    SocketOps,
    /// Called for each packet that a socket sends.
    Egress,
    /// Called for each socket of a namespace on a read of the iterator. The number is the
    /// iterator's type in BTF.
    Iterator(u32),
}

/// Loads a program.
///
/// # Errors
/// A system call fails; for a refusal of the verifier, with the end of its log.
pub(crate) fn load(purpose: Purpose, name: &str, code: &[Instruction]) -> io::Result<OwnedFd> {
    match load_with(purpose, name, code, &mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => {
            // Loads it again with a log, for the reason.
            let mut log = vec![0; 1 << 20];
            let again = load_with(purpose, name, code, &mut log);
            let text = String::from_utf8_lossy(&log);
            let said = text.trim_end_matches('\0').trim_end().lines().rev().take(4).collect::<Vec<_>>();
            let said = said.into_iter().rev().collect::<Vec<_>>().join("; ");
            again.map_err(|error| io::Error::new(error.kind(), format!("{error}: {said}")))
        }
        other => other,
    }
}

fn load_with(purpose: Purpose, name: &str, code: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    #[derive(Default)]
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        version: u32,
        flags: u32,
        name: [u8; NAME],
        interface: u32,
        attach: u32,
        /// BTF of the program itself; there is none.
        types: [u32; 9],
        attach_type: u32,
        attach_to: u32,
    }
    let (kind, attach, attach_type) = match purpose {
        Purpose::SocketOps => (13, SOCKET_OPS, 0),
        Purpose::Egress => (8, EGRESS, 0),
        Purpose::Iterator(number) => (26, ITERATOR, number),
    };
    let mut attributes = Attributes {
        kind,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: padded(name),
        attach,
        attach_type,
        ..Attributes::default()
    };
    // SAFETY: code, licence and log live until the call returns and have the lengths in the
    // attributes.
    unsafe { descriptor(5, &mut attributes) }
}

/// Attaches a program to a control group, beside others. It stays attached when this process ends.
pub(crate) fn attach(program: BorrowedFd, group: BorrowedFd, place: u32) -> io::Result<()> {
    let mut attributes = [group.as_raw_fd() as u32, program.as_raw_fd() as u32, place, ALLOW_MULTI, 0];
    // SAFETY: the attributes contain no pointer.
    unsafe { bpf(8, &mut attributes) }.map(drop)
}

/// Detaches a program from a control group.
pub(crate) fn detach(program: BorrowedFd, group: BorrowedFd, place: u32) -> io::Result<()> {
    let mut attributes = [group.as_raw_fd() as u32, program.as_raw_fd() as u32, place, 0, 0];
    // SAFETY: the attributes contain no pointer.
    unsafe { bpf(9, &mut attributes) }.map(drop)
}

/// The programs attached to the control group itself, at an attach point.
pub(crate) fn attached(group: BorrowedFd, place: u32) -> io::Result<Vec<OwnedFd>> {
    #[derive(Default)]
    #[repr(C)]
    struct Attributes {
        group: u32,
        attach: u32,
        query: u32,
        flags: u32,
        ids: u64,
        count: u32,
        gap: u32,
    }
    let mut ids = [0u32; 64]; // the kernel's limit per group
    let mut attributes = Attributes {
        group: group.as_raw_fd() as u32,
        attach: place,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        ..Attributes::default()
    };
    // SAFETY: the numbers live until the call returns and have room for `count`.
    unsafe { bpf(16, &mut attributes) }?;
    // A program may have been detached meanwhile.
    let ids = &ids[..(attributes.count as usize).min(ids.len())];
    Ok(ids.iter().filter_map(|id| by_id(13, *id).ok()).collect())
}

/// The maps that a program uses.
pub(crate) fn maps_of(program: BorrowedFd) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0u32; 16];
    let mut wanted =
        ProgramInfo { map_count: ids.len() as u32, maps: ids.as_mut_ptr() as u64, ..Default::default() };
    // SAFETY: the numbers live until the call returns and have room for `map_count`.
    unsafe { fill_info(program, &mut wanted) }?;
    let ids = &ids[..(wanted.map_count as usize).min(ids.len())];
    ids.iter().map(|id| by_id(14, *id)).collect()
}

/// The name of a program.
pub(crate) fn program_name(program: BorrowedFd) -> io::Result<String> {
    Ok(text(&info::<ProgramInfo>(program)?.name))
}

/// The name of a map.
pub(crate) fn map_name(map: BorrowedFd) -> io::Result<String> {
    // type, id, key_size, value_size, max_entries, flags, then the name.
    let info: [[u8; 8]; 5] = info(map)?;
    Ok(text(info[3..].as_flattened()))
}

/// Runs of a program and their total time, while [`measure`] was on.
pub(crate) fn runs(program: BorrowedFd) -> io::Result<(u64, Duration)> {
    let info = info::<ProgramInfo>(program)?;
    Ok((info.runs, Duration::from_nanos(info.run_time)))
}

/// Turns on the kernel's measurement of run times until the descriptor is closed.
pub(crate) fn measure() -> io::Result<OwnedFd> {
    // SAFETY: the attributes contain no pointer.
    unsafe { descriptor(32, &mut [0u32]) }
}

/// Makes an iterator, which [`iterate`] may run any number of times.
pub(crate) fn link(program: BorrowedFd) -> io::Result<OwnedFd> {
    let mut attributes = [program.as_raw_fd() as u32, 0, ITERATOR, 0, 0, 0, 0, 0];
    // SAFETY: the attributes contain no pointer.
    unsafe { descriptor(28, &mut attributes) }
}

/// Runs an iterator's program on every TCP socket of the calling thread's network namespace.
pub(crate) fn iterate(link: BorrowedFd) -> io::Result<()> {
    let mut attributes = [link.as_raw_fd() as u32, 0];
    // SAFETY: the attributes contain no pointer.
    let file = unsafe { descriptor(33, &mut attributes) }?;
    let mut nothing = [0u8; 8];
    loop {
        match rustix::io::read(&file, &mut nothing) {
            Ok(0) => return Ok(()),
            // The iterator stopped after a million sockets, or was interrupted, and continues from
            // there.
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn by_id(command: i64, id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes contain no pointer.
    unsafe { descriptor(command, &mut [id, 0, 0]) }
}

/// The head of `struct bpf_prog_info`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    /// Lengths and addresses of code, which are not requested; time of loading, and user.
    code: [u32; 9],
    map_count: u32,
    maps: u64,
    name: [u8; NAME],
    interface: u32,
    licence: u32,
    /// The interface's namespace, and tables of symbols, types and lines, which are not requested.
    tables: [u64; 13],
    run_time: u64,
    runs: u64,
}

impl Plain for ProgramInfo {}
impl Plain for [u32; 6] {}
impl Plain for [[u8; 8]; 5] {}

/// Reads the head of the kernel's information on an object.
fn info<T: Plain>(object: BorrowedFd) -> io::Result<T> {
    let mut info = T::default();
    // SAFETY: all bytes are zero, so that it contains no pointer.
    unsafe { fill_info(object, &mut info) }?;
    Ok(info)
}

/// # Safety
/// Memory that `info` points to must be as long as `info` states.
unsafe fn fill_info<T: Plain>(object: BorrowedFd, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        object: u32,
        len: u32,
        info: u64,
    }
    let object = object.as_raw_fd() as u32;
    let mut attributes = Attributes { object, len: size_of::<T>() as u32, info: &raw mut *info as u64 };
    // SAFETY: `info` lives until the call returns, has `len` bytes, and any bytes are valid.
    unsafe { bpf(15, &mut attributes) }.map(drop)
}

#[repr(C)]
struct Element {
    map: u32,
    gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[derive(Default)]
#[repr(C)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// # Safety
/// As for [`bpf`]; the command must be one that returns a descriptor.
unsafe fn descriptor<T>(command: i64, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees it.
    let number = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// # Safety
/// The attributes must be those of the command. Memory that they point to must have the stated
/// length and live until the call returns.
unsafe fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the caller guarantees it; the kernel reads and writes at most the given size.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// A name in the kernel's form: at most fifteen bytes, and a zero.
fn padded(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn text(name: &[u8]) -> String {
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..len]).into_owned()
}

const NAME: usize = 16;
/// Helpers that read the kernel's structures need a licence compatible with the GPL.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// BPF_F_NO_PREALLOC and BPF_F_ALLOW_MULTI of `linux/bpf.h`.
const NO_PREALLOC: u32 = 1;
const ALLOW_MULTI: u32 = 2;
/// BPF_CGROUP_INET_EGRESS, BPF_CGROUP_SOCK_OPS and BPF_TRACE_ITER.
pub(crate) const EGRESS: u32 = 1;
pub(crate) const SOCKET_OPS: u32 = 3;
const ITERATOR: u32 = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(ProgramInfo, maps), 56);
        assert_eq!(std::mem::offset_of!(ProgramInfo, name), 64);
        assert_eq!(std::mem::offset_of!(ProgramInfo, run_time), 192);
        assert_eq!(size_of::<Batch>(), 56);
        assert_eq!(size_of::<Element>(), 32);
    }

    #[test]
    fn names_end_in_zero() {
        assert_eq!(text(&padded("tollway_shares")), "tollway_shares");
    }
}
