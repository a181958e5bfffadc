//! Large pages for large arrays, and early loads.

/// Requests large pages for the whole capacity of `array`, if it is large.
///
/// A hundred thousand flows touch a place in 200 MB with each packet. With pages of 4 KiB most
/// accesses would also wait for the page's address.
pub(crate) fn in_large_pages<T>(array: &Vec<T>) {
    if array.capacity() * size_of::<T>() >= LARGE {
        advise(array.as_ptr().cast::<u8>().cast_mut(), array.capacity() * size_of::<T>());
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn advise(start: *mut u8, bytes: usize) {
    let skip = start.align_offset(PAGE);
    if skip < bytes {
        // SAFETY: the pages lie within one live allocation. The advice changes the page size and no
        // content; if the system refuses it, the call fails without effect.
        unsafe { libc::madvise(start.add(skip).cast(), bytes - skip, libc::MADV_HUGEPAGE) };
    }
}

/// Loads the cache line at `place`, which is used soon. No effect if there is none.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn load_early<T>(place: *const T) {
    // SAFETY: the instruction reads nothing, and ignores addresses without memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// [`load_early`] of all of `value`.
#[inline(always)]
pub(crate) fn load_lines<T>(value: &T) {
    let start = (&raw const *value).cast::<[u8; 64]>();
    (0..size_of::<T>() / 64).for_each(|line| load_early(start.wrapping_add(line)));
}

#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize) {}

/// Least size of a large array, in bytes. The up to 2 MiB more at its end are a small part of it.
const LARGE: usize = 4 << 20;
/// The system's least page size, or a multiple of it.
#[cfg(target_os = "linux")]
const PAGE: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_an_array_stays() {
        let mut large: Vec<u64> = Vec::with_capacity(LARGE / size_of::<u64>());
        large.extend(0..10_000);
        in_large_pages(&large);
        large.extend(10_000..20_000);
        assert!(large.iter().copied().eq(0..20_000));
        // Small arrays are allowed too.
        in_large_pages(&Vec::<u64>::new());
        advise(large.as_mut_ptr().cast(), 1);
    }
}
