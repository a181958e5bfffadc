//! Serial number arithmetic (RFC 1982) on segment numbers.

/// True if `a` comes before `b`.
#[inline]
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The later of the two.
#[inline]
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}
