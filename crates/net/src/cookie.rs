//! Cookies that prove, without stored state, that a client receives at its source address.
//!
//! A listener answers an opening from an unknown address with a cookie: the time, and a keyed hash
//! of time, address and flow. Only a host that receives at this address can return the cookie.
//! Until then the listener has stored nothing, and has sent at most three times the bytes received,
//! as in QUIC (RFC 9000 § 8.1). SCTP has the same mechanism (RFC 9260 § 5.1.3).

use std::net::{IpAddr, SocketAddr};

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use tollway_law::Time;

/// Length of a cookie, in bytes.
pub const LEN: usize = 24;

/// A key that makes cookies and verifies them.
#[derive(Clone, Debug)]
pub struct Jar {
    key: [u8; 16],
    lifetime: Time,
}

impl Jar {
    /// Makes a jar whose cookies are valid for `lifetime`; `key` must be secret and random.
    pub fn new(key: [u8; 16], lifetime: Time) -> Jar {
        Jar { key, lifetime }
    }

    /// Makes the cookie of `flow` from `peer` at `now`.
    pub fn bake(&self, now: Time, peer: SocketAddr, flow: u32) -> [u8; LEN] {
        let mut cookie = [0; LEN];
        cookie[..8].copy_from_slice(&now.0.to_be_bytes());
        cookie[8..].copy_from_slice(&self.mac(now, peer, flow));
        cookie
    }

    /// Returns true if this jar made `cookie` for `flow` from `peer`, and it is still valid at
    /// `now`.
    pub fn knows(&self, now: Time, peer: SocketAddr, flow: u32, cookie: &[u8]) -> bool {
        let Some((time, mac)) = cookie.split_first_chunk::<8>() else { return false };
        let baked = Time(u64::from_be_bytes(*time));
        let right = self.mac(baked, peer, flow);
        // The comparison reads every byte, so its duration does not show where they differ.
        let differs = mac.iter().zip(&right).fold(0, |differs, (a, b)| differs | (a ^ b));
        mac.len() == right.len() && differs == 0 && baked <= now && now.saturating_sub(baked) <= self.lifetime
    }

    fn mac(&self, time: Time, peer: SocketAddr, flow: u32) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&time.0.to_be_bytes());
        match peer.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&peer.port().to_be_bytes());
        hasher.write(&flow.to_be_bytes());
        hasher.finish128().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cookie_is_good_for_its_address_flow_and_time_alone(
            key: [u8; 16],
            at in 0u64..1 << 50,
            flow: u32,
            port: u16,
            after in 0u64..20_000_000_000,
            at_byte in 0..LEN,
            wrong in 1u8..,
        ) {
            let jar = Jar::new(key, Time::from_secs(10));
            let peer = SocketAddr::from(([127, 0, 0, 1], port));
            let cookie = jar.bake(Time(at), peer, flow);
            let now = Time(at + after);
            prop_assert_eq!(jar.knows(now, peer, flow, &cookie), after <= 10_000_000_000);
            let now = Time(at);
            prop_assert!(!jar.knows(now, peer, flow.wrapping_add(1), &cookie));
            prop_assert!(!jar.knows(now, SocketAddr::from(([127, 0, 0, 2], port)), flow, &cookie));
            prop_assert!(!jar.knows(now, SocketAddr::from(([127, 0, 0, 1], port ^ 1)), flow, &cookie));
            let mut bad = cookie;
            bad[at_byte] ^= wrong;
            prop_assert!(!jar.knows(now, peer, flow, &bad));
            prop_assert!(!jar.knows(now, peer, flow, &cookie[..LEN - 1]));
            let mut other = key;
            other[0] ^= 1;
            prop_assert!(!Jar::new(other, Time::from_secs(10)).knows(now, peer, flow, &cookie));
        }
    }
}
