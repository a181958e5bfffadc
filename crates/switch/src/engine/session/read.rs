//! A client's bytes, cut into frames.

use tollway_proto::dispatch::Queue;
use tollway_proto::framing::FrameError;

use super::{End, ROUNDS, Session};
use crate::config::{MOVED, SCRATCH};
use crate::engine::core::Core;
use crate::redis;
use crate::stream::Got;

impl Session {
    /// Reads frames from the client while it has some and there is room.
    pub(super) fn pump(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), End> {
        if self.shuts.is_some() {
            return self.discard(core, scratch);
        }
        if std::mem::take(&mut self.held_back) {
            let mut whole = std::mem::take(&mut self.partial);
            let used = self.cut(core, whole.as_slice())?;
            whole.consume(used);
            self.keep(core, whole, used > 0);
        }
        for _ in 0..ROUNDS {
            self.paused = self.is_full() || self.is_held();
            if !self.readable || self.ended || self.paused {
                return Ok(());
            }
            let kept = self.partial.len();
            let in_place = kept > MOVED;
            let from = if in_place { 0 } else { kept };
            scratch[..from].copy_from_slice(&self.partial.as_slice()[..from]);
            let got = match self.stream.read(&mut scratch[from..from + SCRATCH]) {
                Ok(got) => got,
                // Frames received before are still sent.
                Err(_) => {
                    self.gone = true;
                    Got::End
                }
            };
            match got {
                Got::Nothing => {
                    self.readable = false;
                    return Ok(());
                }
                Got::End => {
                    (self.readable, self.ended) = (false, true);
                    core.counters.torn += u64::from(!self.partial.is_empty());
                    self.partial = Queue::default();
                    self.since = None;
                    return Ok(());
                }
                Got::Bytes { len, drained } => {
                    self.readable = !drained || self.closed;
                    self.last = core.now;
                    self.identify(core);
                    if in_place {
                        self.partial.push(&scratch[..len]);
                        let mut whole = std::mem::take(&mut self.partial);
                        let used = self.cut(core, whole.as_slice())?;
                        whole.consume(used);
                        self.keep(core, whole, used > 0);
                    } else {
                        let whole = &scratch[..from + len];
                        let used = self.cut(core, whole)?;
                        let mut rest = std::mem::take(&mut self.partial);
                        rest.consume(usize::MAX);
                        rest.push(&whole[used..]);
                        self.keep(core, rest, used > 0);
                    }
                }
            }
        }
        if self.readable {
            self.go_on(core);
        }
        Ok(())
    }

    /// Keeps the bytes of an incomplete frame, or of commands that must wait.
    fn keep(&mut self, core: &Core, rest: Queue, moved: bool) {
        self.since = match self.since {
            _ if rest.is_empty() || self.ended => None,
            Some(since) if !moved && rest.len() < self.stretch + STRETCH => Some(since),
            _ => {
                self.stretch = rest.len();
                Some(core.now)
            }
        };
        if !self.ended {
            self.partial = rest;
        }
    }

    /// Drops what the client sends after the end of its session, so that the kernel does not reset
    /// the connection before the client has read the last answer.
    fn discard(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), End> {
        for _ in 0..ROUNDS {
            match self.stream.read(scratch) {
                Ok(Got::Bytes { .. }) => {}
                Ok(Got::Nothing) => return Ok(()),
                Ok(Got::End) | Err(_) => return Err(self.ends_as),
            }
        }
        self.go_on(core);
        Ok(())
    }

    /// Splits `bytes` into frames and dispatches each. Returns the number of bytes consumed.
    fn cut(&mut self, core: &mut Core, bytes: &[u8]) -> Result<usize, End> {
        let (mut at, mut frames) = (0, 0);
        let failed = loop {
            if self.ended || self.is_held() {
                break None;
            }
            let next = match &self.redis {
                Some(_) if bytes.get(at).is_some_and(|&first| first != b'*') => inline_end(&bytes[at..]),
                _ => self.framer.next(&bytes[at..]),
            };
            match next {
                Ok(Some(len)) => {
                    if !self.take(core, bytes, at, len)? {
                        break None;
                    }
                    at += len;
                    frames += 1;
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        self.held_back = self.is_held() && at < bytes.len();
        self.send_planned(core, bytes)?;
        core.counters.frames += frames;
        core.counters.bytes += at as u64;
        if let Some(client) = core.client(self.client) {
            client.frames += frames;
            client.bytes += at as u64;
        }
        match failed {
            None => Ok(at),
            Some(error) if self.redis.is_some() => {
                let why = match error {
                    FrameError::Malformed(why) => format!("Protocol error: {why}"),
                    FrameError::TooLong { len, most } => format!(
                        "Protocol error: a command of at least {len} bytes exceeds limits.frame, {most} bytes"
                    ),
                };
                self.refuse(core, &why, true);
                self.ends_as = End::Malformed;
                Ok(at)
            }
            Some(_) => Err(End::Malformed),
        }
    }

    /// Selects the destination of the frame at `at`. Returns false if it must wait.
    #[inline]
    fn take(&mut self, core: &mut Core, bytes: &[u8], at: usize, len: usize) -> Result<bool, End> {
        let frame = &bytes[at..at + len];
        if self.redis.is_some() {
            if frame.first() == Some(&b'*') {
                return self.take_command(core, bytes, frame, Some(at));
            }
            let Some(words) = redis::inline_words(frame) else {
                self.refuse(core, "Protocol error: unbalanced quotes in request", true);
                return Ok(true);
            };
            let frame = redis::command(words.iter().map(Vec::as_slice));
            return self.take_command(core, bytes, &frame, None);
        }
        let key = if self.config.hashes_keys() { core.hash.of(self.config.key.of(frame)) } else { 0 };
        self.plan(core, key, frame, at)?;
        Ok(true)
    }
}

/// The length of an inline command of Redis, which is a line.
fn inline_end(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    match bytes.iter().take(INLINE).position(|&byte| byte == b'\n') {
        Some(end) => Ok(Some(end + 1)),
        None if bytes.len() > INLINE => Err(FrameError::Malformed("too big inline request")),
        None => Ok(None),
    }
}

/// Bytes of a frame that must arrive within its time limit.
const STRETCH: usize = 1 << 20;
/// The longest inline command of Redis, bytes.
const INLINE: usize = 64 << 10;
