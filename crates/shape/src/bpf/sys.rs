//! The bpf(2) system call, as far as it is used here.
#![expect(unsafe_code, reason = "nobody wraps bpf(2) for programs that are not read from an object file")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::asm::Instruction;

/// A value that maps may hold: any bytes are one, and it has no padding. Implemented for integers, and for structures of them without gaps.
pub(crate) trait Plain: Copy + Default {}

impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for [u64; 2] {}
impl Plain for [u64; 3] {}
impl Plain for [u32; 8] {}

/// A map of the kernel's.
#[derive(Debug)]
pub(crate) struct Map<K, V> {
    descriptor: OwnedFd,
    held: PhantomData<(K, V)>,
}

/// What kind of map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any keys, in memory as they come.
    Hash = 1,
    /// Keys 0, 1, …
    Array = 2,
    /// Any keys; the one that was not used for longest goes where there is no room.
    Recent = 9,
    /// Bits that keys begin with, the longest counts.
    Prefixes = 11,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// A new map with room for so many.
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
        // SAFETY: nothing in the attributes points anywhere.
        let descriptor = unsafe { descriptor(0, &mut attributes) }?;
        Ok(Map { descriptor, held: PhantomData })
    }

    /// The map behind a descriptor, if its keys and values are of these sizes.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Option<Map<K, V>> {
        let info: [u32; 6] = info(descriptor.as_fd()).ok()?;
        // type, id, key_size, value_size
        let fits = info[2] as usize == size_of::<K>() && info[3] as usize == size_of::<V>();
        fits.then_some(Map { descriptor, held: PhantomData })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// What stands at a key; none if nothing does.
    pub(crate) fn get(&self, key: K) -> io::Result<Option<V>> {
        let mut value = V::default();
        let mut element = self.element(&key, (&raw mut value).cast());
        // SAFETY: key and value live until the call returns, and have the sizes the map was made with; any bytes are a value.
        match unsafe { bpf(1, &mut element) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets what stands at a key.
    pub(crate) fn set(&self, key: K, value: V) -> io::Result<()> {
        let mut element = self.element(&key, (&raw const value).cast_mut().cast());
        // SAFETY: as above; the kernel only reads them.
        unsafe { bpf(2, &mut element) }.map(drop)
    }

    /// Takes a key out, if it is there.
    pub(crate) fn remove(&self, key: K) -> io::Result<()> {
        let mut element = self.element(&key, std::ptr::null_mut());
        // SAFETY: the key lives until the call returns.
        match unsafe { bpf(3, &mut element) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets what stands at many keys, in one call.
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
        // SAFETY: the slices live until the call returns, are as long as `count` says, and the kernel only reads them.
        unsafe { bpf(26, &mut batch) }.map(drop)
    }

    /// Reads the whole map, as many at once as the buffers have room for.
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
            // SAFETY: the slices live until the call returns and have room for `count`; any bytes are keys and values.
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

/// What a program is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// It is called as connections open and close, and once a round trip.
    SocketOps,
    /// It is called for each packet that a socket sends.
    Egress,
    /// It is called for each socket of a namespace when somebody asks; the number is the iterator's in the kernel's types.
    Iterator(u32),
}

/// Loads a program.
///
/// # Errors
/// The system's; where it is the verifier that refuses, with what it says.
pub(crate) fn load(purpose: Purpose, name: &str, code: &[Instruction]) -> io::Result<OwnedFd> {
    match load_with(purpose, name, code, &mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => {
            // Once more, to hear why.
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
        /// Our own types, of which we have none.
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
    // SAFETY: code, licence and log live until the call returns and are as long as the attributes say.
    unsafe { descriptor(5, &mut attributes) }
}

/// Attaches a program to a control group, beside others that may be there. It stays when we are gone.
pub(crate) fn attach(program: BorrowedFd, group: BorrowedFd, place: u32) -> io::Result<()> {
    let mut attributes = [group.as_raw_fd() as u32, program.as_raw_fd() as u32, place, ALLOW_MULTI, 0];
    // SAFETY: nothing in the attributes points anywhere.
    unsafe { bpf(8, &mut attributes) }.map(drop)
}

/// Takes it away again.
pub(crate) fn detach(program: BorrowedFd, group: BorrowedFd, place: u32) -> io::Result<()> {
    let mut attributes = [group.as_raw_fd() as u32, program.as_raw_fd() as u32, place, 0, 0];
    // SAFETY: nothing in the attributes points anywhere.
    unsafe { bpf(9, &mut attributes) }.map(drop)
}

/// The programs that are attached at a place of a control group itself.
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
    let mut ids = [0u32; 64]; // a group takes no more
    let mut attributes = Attributes {
        group: group.as_raw_fd() as u32,
        attach: place,
        ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        ..Attributes::default()
    };
    // SAFETY: the numbers live until the call returns and have room for `count`.
    unsafe { bpf(16, &mut attributes) }?;
    // A program may have gone meanwhile.
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

/// A program's name.
pub(crate) fn program_name(program: BorrowedFd) -> io::Result<String> {
    Ok(text(&info::<ProgramInfo>(program)?.name))
}

/// A map's name.
pub(crate) fn map_name(map: BorrowedFd) -> io::Result<String> {
    // type, id, key_size, value_size, max_entries, flags, then the name.
    let info: [[u8; 8]; 5] = info(map)?;
    Ok(text(info[3..].as_flattened()))
}

/// How often a program has run, and for how long in all, while anybody held [`measure`].
pub(crate) fn runs(program: BorrowedFd) -> io::Result<(u64, Duration)> {
    let info = info::<ProgramInfo>(program)?;
    Ok((info.runs, Duration::from_nanos(info.run_time)))
}

/// While this is held the kernel measures what programs take.
pub(crate) fn measure() -> io::Result<OwnedFd> {
    // SAFETY: nothing in the attributes points anywhere.
    unsafe { descriptor(32, &mut [0u32]) }
}

/// What opens an iterator's file as often as one wants.
pub(crate) fn link(program: BorrowedFd) -> io::Result<OwnedFd> {
    let mut attributes = [program.as_raw_fd() as u32, 0, ITERATOR, 0, 0, 0, 0, 0];
    // SAFETY: nothing in the attributes points anywhere.
    unsafe { descriptor(28, &mut attributes) }
}

/// Runs an iterator's program on every TCP socket of the calling thread's network namespace.
pub(crate) fn iterate(link: BorrowedFd) -> io::Result<()> {
    let mut attributes = [link.as_raw_fd() as u32, 0];
    // SAFETY: nothing in the attributes points anywhere.
    let file = unsafe { descriptor(33, &mut attributes) }?;
    let mut nothing = [0u8; 8];
    loop {
        match rustix::io::read(&file, &mut nothing) {
            Ok(0) => return Ok(()),
            // It has been through a million sockets, or was interrupted, and goes on where it was.
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn by_id(command: i64, id: u32) -> io::Result<OwnedFd> {
    // SAFETY: nothing in the attributes points anywhere.
    unsafe { descriptor(command, &mut [id, 0, 0]) }
}

/// The head of `struct bpf_prog_info`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    /// Lengths and places of code that we don't ask for; when it was loaded, and by whom.
    code: [u32; 9],
    map_count: u32,
    maps: u64,
    name: [u8; NAME],
    interface: u32,
    licence: u32,
    /// The interface's namespace, and tables of symbols, types and lines that we don't ask for.
    tables: [u64; 13],
    run_time: u64,
    runs: u64,
}

impl Plain for ProgramInfo {}
impl Plain for [u32; 6] {}
impl Plain for [[u8; 8]; 5] {}

/// The head of what the kernel says of an object.
fn info<T: Plain>(object: BorrowedFd) -> io::Result<T> {
    let mut info = T::default();
    // SAFETY: with nothing in it but zeros, it points nowhere.
    unsafe { fill_info(object, &mut info) }?;
    Ok(info)
}

/// # Safety
/// What `info` points to has to be as long as it says.
unsafe fn fill_info<T: Plain>(object: BorrowedFd, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        object: u32,
        len: u32,
        info: u64,
    }
    let object = object.as_raw_fd() as u32;
    let mut attributes = Attributes { object, len: size_of::<T>() as u32, info: &raw mut *info as u64 };
    // SAFETY: `info` lives until the call returns, has `len` bytes, and any bytes are one.
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
/// As of [`bpf`]; the command has to be one that answers a descriptor.
unsafe fn descriptor<T>(command: i64, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's promise.
    let number = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// # Safety
/// The attributes have to be those of the command, and whatever they point to has to be as long as they say and live until this returns.
unsafe fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: by the caller's promise; the kernel reads and writes no more than the size that it is given.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// A name as the kernel takes it: at most fifteen letters, and a zero.
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
/// Reading the kernel's structures is for programs that may be combined with it.
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
