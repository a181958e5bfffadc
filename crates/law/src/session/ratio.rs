//! The receive ratio β: the part of a session's bytes that goes to each member (§ III-C).

/// β over a window of frames, as a histogram of bytes (§ V).
///
/// The paper leaves the window open; 64 frames follow a change of the indirection schedule within
/// two windows and keep the ratios of a round robin steady.
#[derive(Clone, Debug)]
pub struct ReceiveRatio {
    /// The last frames: member and bytes, the oldest at `at` once the window is full.
    frames: Vec<(u32, u32)>,
    window: usize,
    at: usize,
    bytes: Vec<u64>,
    total: u64,
    active: u32,
}

impl ReceiveRatio {
    /// Default length of the window, in frames.
    pub const WINDOW: usize = 64;

    /// Ratios of `members`, equal until the first frame, over the last `window` frames, at least
    /// one.
    pub fn new(members: usize, window: usize) -> ReceiveRatio {
        let window = window.max(1);
        ReceiveRatio {
            frames: Vec::with_capacity(window),
            window,
            at: 0,
            bytes: vec![0; members],
            total: 0,
            active: 0,
        }
    }

    /// Records a frame, or a packet of one, of `bytes` to `member`.
    #[inline]
    pub fn on_frame(&mut self, member: usize, bytes: u32) {
        let frame = (member as u32, bytes);
        if self.frames.len() < self.window {
            self.frames.push(frame);
        } else {
            let (old, less) = std::mem::replace(&mut self.frames[self.at], frame);
            self.at = if self.at + 1 == self.window { 0 } else { self.at + 1 };
            self.change(old as usize, |sum| *sum -= u64::from(less));
        }
        self.change(member, |sum| *sum += u64::from(bytes));
    }

    /// Adds a member.
    pub fn add(&mut self) {
        self.bytes.push(0);
    }

    /// Forgets the frames of `member`, which has left.
    pub fn forget(&mut self, member: usize) {
        for frame in self.frames.iter_mut().filter(|frame| frame.0 as usize == member) {
            frame.1 = 0;
        }
        self.change(member, |sum| *sum = 0);
    }

    fn change(&mut self, member: usize, change: impl FnOnce(&mut u64)) {
        let sum = &mut self.bytes[member];
        let before = *sum;
        change(sum);
        let after = *sum;
        self.total = self.total - before + after;
        self.active = self.active + u32::from(after > 0) - u32::from(before > 0);
    }

    /// β of `member`, 0 … 1.
    #[inline]
    pub fn of(&self, member: usize) -> f64 {
        if self.total == 0 {
            return 1.0 / self.bytes.len() as f64;
        }
        self.bytes[member] as f64 / self.total as f64
    }

    /// Members with a ratio above zero.
    #[inline]
    pub fn active(&self) -> u32 {
        if self.total == 0 { self.bytes.len() as u32 } else { self.active }
    }
}
