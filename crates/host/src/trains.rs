//! The least number of segments that the kernel sends at once.

use std::fs;
use std::io;

/// Segments leave one by one where the pace asks for it, instead of in pairs: while this exists,
/// `tcp_min_tso_segs` of this network namespace is 1.
///
/// A congestion control can set this for its own connections (`min_tso_segs`), but Linux 6.18
/// sometimes ignores it, and then sends all that the window allows. FCP's windows have room for
/// half of what is in flight.
#[derive(Debug)]
pub struct SingleSegments {
    before: String,
}

impl SingleSegments {
    /// Sets the parameter, and restores it when dropped.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn set() -> io::Result<SingleSegments> {
        let before = fs::read_to_string(PARAMETER)?;
        fs::write(PARAMETER, "1")?;
        Ok(SingleSegments { before })
    }
}

impl Drop for SingleSegments {
    fn drop(&mut self) {
        // A namespace without the right to write it had refused 1 too.
        let _ = fs::write(PARAMETER, &self.before);
    }
}

const PARAMETER: &str = "/proc/sys/net/ipv4/tcp_min_tso_segs";
