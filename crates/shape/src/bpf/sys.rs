//! The kernel's maps with typed keys and values, and programs that stay attached when their process
//! ends.
#![expect(unsafe_code, reason = "a link ends with its process; a map's chunks need buffers of the caller")]

use std::io::{self, Read};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, Program, libbpf_sys};

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
    handle: MapHandle,
    held: PhantomData<(K, V)>,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// The map of loaded programs whose name ends in `name`.
    pub(crate) fn of(object: &Object, name: &str) -> io::Result<Map<K, V>> {
        let map = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
        let handle = map.and_then(|map| MapHandle::try_from(&map).ok());
        handle.and_then(Map::from_handle).ok_or_else(|| io::Error::other(format!("no map `{name}`")))
    }

    /// The map, if its keys and values have these sizes.
    pub(crate) fn from_handle(handle: MapHandle) -> Option<Map<K, V>> {
        let fits = (handle.key_size() as usize, handle.value_size() as usize);
        (fits == (size_of::<K>(), size_of::<V>())).then_some(Map { handle, held: PhantomData })
    }

    /// Its descriptor.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Returns the value of a key, if there is one.
    pub(crate) fn get(&self, key: K) -> io::Result<Option<V>> {
        let mut value = [V::default()];
        let found = self.handle.lookup_into(bytes(&[key]), bytes_mut(&mut value), MapFlags::ANY);
        Ok(found.map_err(plain)?.then_some(value[0]))
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: K, value: V) -> io::Result<()> {
        self.handle.update(bytes(&[key]), bytes(&[value]), MapFlags::ANY).map_err(plain)
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&self, key: K) -> io::Result<()> {
        match self.handle.delete(bytes(&[key])) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(plain(error)),
            _ => Ok(()),
        }
    }

    /// Sets the values of many keys in one call.
    pub(crate) fn set_all(&self, keys: &[K], values: &[V]) -> io::Result<()> {
        assert_eq!(keys.len(), values.len());
        if keys.is_empty() {
            return Ok(());
        }
        let count = keys.len() as u32;
        let done = self.handle.update_batch(bytes(keys), bytes(values), count, MapFlags::ANY, MapFlags::ANY);
        done.map_err(plain)
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
            let mut count = keys.len() as u32;
            let before = if first { std::ptr::null_mut() } else { (&raw mut from).cast() };
            // SAFETY: the slices live until the call returns and have room for `count`, any bytes are
            // keys and values, and a place in a hash or an array has four bytes.
            let done = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.as_fd().as_raw_fd(),
                    before,
                    (&raw mut to).cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            let end = match checked(done) {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) => return Err(error),
            };
            for (key, value) in keys.iter().zip(values.iter()).take(count as usize) {
                each(*key, value);
            }
            if end {
                return Ok(());
            }
            (from, first) = (to, false);
        }
    }
}

/// The place of a program at a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    Egress = libbpf_sys::BPF_CGROUP_INET_EGRESS,
    SocketOps = libbpf_sys::BPF_CGROUP_SOCK_OPS,
    SetOption = libbpf_sys::BPF_CGROUP_SETSOCKOPT,
}

/// Attaches a program to a control group, beside others. It stays attached when this process ends.
pub(crate) fn attach(program: BorrowedFd, group: BorrowedFd, place: Place) -> io::Result<()> {
    let (program, group) = (program.as_raw_fd(), group.as_raw_fd());
    // SAFETY: the call has no pointers.
    checked(unsafe {
        libbpf_sys::bpf_prog_attach(program, group, place as u32, libbpf_sys::BPF_F_ALLOW_MULTI)
    })
    .map(drop)
}

/// Detaches a program from a control group.
pub(crate) fn detach(program: BorrowedFd, group: BorrowedFd, place: Place) -> io::Result<()> {
    let (program, group) = (program.as_raw_fd(), group.as_raw_fd());
    // SAFETY: the call has no pointers.
    checked(unsafe { libbpf_sys::bpf_prog_detach2(program, group, place as u32) }).map(drop)
}

/// The programs attached to the control group itself, at an attach point.
pub(crate) fn attached(group: BorrowedFd, place: Place) -> io::Result<Vec<OwnedFd>> {
    let mut ids = [0u32; 64]; // the kernel's limit per group
    let (mut count, none) = (ids.len() as u32, std::ptr::null_mut());
    // SAFETY: the numbers live until the call returns and have room for `count`.
    checked(unsafe {
        libbpf_sys::bpf_prog_query(group.as_raw_fd(), place as u32, 0, none, ids.as_mut_ptr(), &raw mut count)
    })?;
    // A program may have been detached meanwhile.
    let ids = &ids[..(count as usize).min(ids.len())];
    Ok(ids.iter().filter_map(|&id| Program::fd_from_id(id).ok()).collect())
}

/// The name of a program.
pub(crate) fn program_name(program: BorrowedFd) -> io::Result<String> {
    let name = info(program, &mut [])?.name.map(|byte| byte as u8);
    Ok(name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect())
}

/// The map with this name that a program uses.
pub(crate) fn map_of(program: BorrowedFd, name: &str) -> io::Result<Option<MapHandle>> {
    let mut ids = [0u32; 32];
    let count = info(program, &mut ids)?.nr_map_ids as usize;
    let maps = ids.iter().take(count).filter_map(|&id| MapHandle::from_map_id(id).ok());
    Ok(maps.into_iter().find(|map| map.name() == name))
}

/// Runs of a program and their total time, while [`measure`] was on.
pub(crate) fn runs(program: BorrowedFd) -> io::Result<(u64, Duration)> {
    let info = info(program, &mut [])?;
    Ok((info.run_cnt, Duration::from_nanos(info.run_time_ns)))
}

/// Turns on the kernel's measurement of run times until the descriptor is closed.
pub(crate) fn measure() -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let number = checked(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })?;
    // SAFETY: the kernel has just made the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Runs an iterator's program on every TCP socket of the calling thread's network namespace.
pub(crate) fn iterate(link: &Link) -> io::Result<()> {
    let mut file = Iter::new(link).map_err(plain)?;
    let mut nothing = [0u8; 8];
    loop {
        match file.read(&mut nothing) {
            Ok(0) => return Ok(()),
            // The iterator stopped after a million sockets, or was interrupted, and continues from
            // there.
            Ok(_) => {}
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => {
            }
            Err(error) => return Err(error),
        }
    }
}

fn plain(error: libbpf_rs::Error) -> io::Error {
    io::Error::other(error)
}

/// The kernel's information on a program; fills in the numbers of its maps.
fn info(program: BorrowedFd, maps: &mut [u32]) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: maps.len() as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` and the numbers live until the call returns, and have the stated lengths.
    checked(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    })?;
    Ok(info)
}

/// The result of a function of libbpf, which returns a negative number of an error.
fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: the values have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: the values have no padding, and any bytes are values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
