//! A session: the keys of two peers, a counter for sent datagrams, a window for received ones.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use snow::HandshakeState;
use tollway_law::Time;

use super::keys::Key;

/// The keys of one handshake.
pub(super) struct SecureSession {
    sealing: LessSafeKey,
    opening: LessSafeKey,
    /// The session's number in datagrams received; `theirs` is that in datagrams sent.
    pub(super) ours: u8,
    theirs: u8,
    /// Number of datagrams sealed, which is the next nonce.
    sealed: u64,
    window: Window,
    pub(super) born: Time,
    /// Time at which the last datagram was opened.
    pub(super) heard: Time,
    pub(super) initiator: bool,
    /// True once the peer has proved that it has the keys.
    pub(super) confirmed: bool,
}

impl SecureSession {
    /// Makes the session of a handshake; `None` if the handshake is not finished.
    pub(super) fn new(
        handshake: &mut HandshakeState,
        [ours, theirs]: [u8; 2],
        born: Time,
    ) -> Option<SecureSession> {
        if !handshake.is_handshake_finished() {
            return None;
        }
        // Noise's Split(): the initiator sends with the first key. The cipher states of `snow`
        // would copy each message.
        let (first, second) = handshake.dangerously_get_raw_split();
        let initiator = handshake.is_initiator();
        let [sealing, opening] = if initiator { [first, second] } else { [second, first] };
        let key = |bytes: Key| UnboundKey::new(&AES_256_GCM, &bytes).ok().map(LessSafeKey::new);
        Some(SecureSession {
            sealing: key(sealing)?,
            opening: key(opening)?,
            ours,
            theirs,
            sealed: 0,
            window: Window::default(),
            born,
            heard: born,
            initiator,
            confirmed: initiator,
        })
    }

    /// Returns true if the keys are due for renewal.
    pub(super) fn is_stale(&self, now: Time) -> bool {
        let silent = now.saturating_sub(self.heard) >= SILENCE;
        // The responder renews them only if the initiator does not.
        let age = if self.initiator { REKEY_AFTER } else { REKEY_AFTER + SILENCE };
        silent || now.saturating_sub(self.born) >= age || self.sealed >= REKEY_AT
    }

    /// Returns true if the keys have expired.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now.saturating_sub(self.born) >= LIFETIME || self.sealed >= 2 * REKEY_AT
    }

    /// Seals the packet that lies between [`FRONT`] and [`BEHIND`] bytes of room.
    pub(super) fn seal(&mut self, datagram: &mut [u8]) {
        let [_, _, counter @ ..] = self.sealed.to_be_bytes();
        let end = datagram.len().saturating_sub(BEHIND);
        let Some((header, packet)) = datagram[..end].split_first_chunk_mut::<FRONT>() else { return };
        let [kind, session, number @ ..] = header;
        (*kind, *session, *number) = (super::SEALED, self.theirs, counter);
        let nonce = nonce(self.sealed);
        // It fails only for packets of 64 GiB. The other end refuses a datagram without its tag.
        if let Ok(tag) = self.sealing.seal_in_place_separate_tag(nonce, Aad::empty(), packet) {
            datagram[end..].copy_from_slice(tag.as_ref());
        }
        self.sealed += 1;
    }

    /// Opens a sealed datagram in place. Returns the length of the packet, which lies at [`FRONT`].
    pub(super) fn open(&mut self, now: Time, datagram: &mut [u8]) -> Result<usize, Unopened> {
        let (header, sealed) = datagram.split_first_chunk_mut::<FRONT>().ok_or(Unopened::Forged)?;
        let [_, _, a, b, c, d, e, f] = *header;
        let counter = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        if self.window.has(counter) {
            return Err(Unopened::Replayed);
        }
        let opened = self.opening.open_in_place(nonce(counter), Aad::empty(), sealed);
        let len = opened.map_err(|_| Unopened::Forged)?.len();
        self.window.note(counter);
        self.heard = now;
        Ok(len)
    }
}

/// The nonce of a counter, as Noise defines it for AES-GCM.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The reason why a sealed datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unopened {
    /// It was received before, or is too old to decide.
    Replayed,
    /// The peer did not seal it, or its keys have expired.
    Forged,
}

/// The received counters among the last [`WINDOW`] up to the greatest (RFC 4303 § 3.4.3).
#[derive(Debug, Default)]
struct Window {
    /// One more than the greatest counter.
    next: u64,
    bits: [u64; WINDOW as usize / 64],
}

impl Window {
    /// Returns true if a counter was received, or lies before the window.
    fn has(&self, counter: u64) -> bool {
        let (word, bit) = Window::place(counter);
        counter + WINDOW < self.next || counter < self.next && self.bits[word] & bit != 0
    }

    /// Notes a received counter that is [new](Window::has).
    fn note(&mut self, counter: u64) {
        if counter >= self.next {
            // Counters in between were not received: clear the bits of a window earlier.
            let fresh = (counter - self.next).min(WINDOW - 1);
            for skipped in counter - fresh..counter {
                let (word, bit) = Window::place(skipped);
                self.bits[word] &= !bit;
            }
            self.next = counter + 1;
        }
        let (word, bit) = Window::place(counter);
        self.bits[word] |= bit;
    }

    fn place(counter: u64) -> (usize, u64) {
        ((counter % WINDOW / 64) as usize, 1 << (counter % 64))
    }
}

/// Bytes in front of a packet in a sealed datagram: kind, session, counter.
pub const FRONT: usize = 8;
/// Bytes behind a packet in a sealed datagram: the tag.
pub const BEHIND: usize = 16;
/// Number of counters that may arrive out of order.
pub(super) const WINDOW: u64 = 1024;
/// Age at which new keys are agreed on.
pub(super) const REKEY_AFTER: Time = Time::from_secs(120);
/// Number of datagrams after which new keys are agreed on: AES-GCM's confidentiality limit (RFC
/// 9001 § 6.6).
const REKEY_AT: u64 = 1 << 23;
/// Age at which keys expire.
pub(super) const LIFETIME: Time = Time::from_secs(180);
/// Silence of a peer after which it may have lost the keys.
const SILENCE: Time = Time::from_secs(10);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The window agrees with a set of all received counters.
        #[test]
        fn a_counter_comes_once_and_never_when_it_is_old(
            steps in prop::collection::vec((0u64..3000, any::<bool>()), 1..400),
        ) {
            let (mut window, mut came, mut next) = (Window::default(), std::collections::BTreeSet::new(), 0u64);
            for (step, ahead) in steps {
                let counter = if ahead { next + step % 80 } else { next.saturating_sub(step) };
                let old = came.contains(&counter) || counter + WINDOW < next;
                prop_assert_eq!(window.has(counter), old, "{} of {}", counter, next);
                if !old {
                    window.note(counter);
                    came.insert(counter);
                    next = next.max(counter + 1);
                }
            }
        }

        #[test]
        fn a_leap_clears_the_window(first in 0u64..5000, leap in 1u64..5000) {
            let mut window = Window::default();
            for counter in first..first + 10 {
                window.note(counter);
            }
            let last = first + 9 + leap;
            window.note(last);
            for counter in first..=last {
                let old = counter < first + 10 || counter == last || counter + WINDOW < last + 1;
                prop_assert_eq!(window.has(counter), old, "{}", counter);
            }
        }
    }
}
