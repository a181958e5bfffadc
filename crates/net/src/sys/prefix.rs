//! Prefixes of IP addresses and ranges of ports, as configurations name networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A set of addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    bits: u128,
    /// Length in bits: at most 32 for IPv4, 128 for IPv6.
    len: u32,
    v4: bool,
}

impl Prefix {
    /// Parses `192.0.2.1`, `10.0.0.0/8`, `10.0.*`, `2001:db8::/32` or `*`.
    ///
    /// `*` covers both families, and so gives two prefixes. `None` for any other text.
    pub fn parse(text: &str) -> Option<Vec<Prefix>> {
        let text = text.trim();
        if text == "*" {
            return Some([true, false].map(|v4| Prefix { bits: 0, len: 0, v4 }).to_vec());
        }
        if let Some(head) = text.strip_suffix(".*") {
            let bytes: Vec<u8> = head
                .trim_end_matches(".*")
                .split('.')
                .map(|part| part.parse().ok())
                .collect::<Option<_>>()?;
            let mut whole = [0u8; 4];
            whole.get_mut(..bytes.len()).filter(|_| bytes.len() < 4)?.copy_from_slice(&bytes);
            return Some(vec![Prefix::new(IpAddr::from(whole), bytes.len() as u32 * 8)]);
        }
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.unwrap_or(most);
        if len > most {
            return None;
        }
        // An IPv4-mapped address counts as IPv4, as it does in connections.
        Some(vec![match (address, address.to_canonical()) {
            (IpAddr::V6(_), address @ IpAddr::V4(_)) if len >= 96 => Prefix::new(address, len - 96),
            _ => Prefix::new(address, len),
        }])
    }

    /// The first `len` bits of an address; `None` if it has fewer.
    pub fn of(address: IpAddr, len: u32) -> Option<Prefix> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (len <= most).then(|| Prefix::new(address, len))
    }

    fn new(address: IpAddr, len: u32) -> Prefix {
        Prefix { bits: bits(address), len, v4: address.is_ipv4() }
    }

    /// An address of the prefix, and the prefix's length in bits.
    pub fn parts(&self) -> (IpAddr, u32) {
        let address = if self.v4 {
            Ipv4Addr::from_bits(self.bits as u32).into()
        } else {
            Ipv6Addr::from_bits(self.bits).into()
        };
        (address, self.len)
    }

    /// Specificity of a match: 2 for a single address, 1 for a network, 0 for any address; `None`
    /// if no match.
    pub fn score(&self, address: IpAddr) -> Option<u32> {
        let most = if self.v4 { 32 } else { 128 };
        let differs = self.bits ^ bits(address);
        let same = address.is_ipv4() == self.v4 && differs.checked_shr(most - self.len).unwrap_or(0) == 0;
        same.then_some(match self.len {
            0 => 0,
            len if len == most => 2,
            _ => 1,
        })
    }
}

/// A range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Parses `443` or `8000-8099`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Ports> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = Ports { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? };
        (ports.first <= ports.last && ports.first > 0).then_some(ports)
    }

    /// Specificity of a match: 2 for a single port, 1 for a range; `None` if no match.
    pub fn score(&self, port: u16) -> Option<u32> {
        (self.first..=self.last).contains(&port).then_some(1 + u32::from(self.first == self.last))
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An address belongs to every network cut from it, and to none that differs within the
        /// prefix.
        #[test]
        fn networks_hold_their_addresses(bits in any::<u32>(), len in 0u32..=32, flip in 0u32..32) {
            let address = std::net::Ipv4Addr::from_bits(bits);
            let network = Prefix::parse(&format!("{address}/{len}")).unwrap();
            prop_assert!(network[0].score(address.into()).is_some());
            let other = std::net::Ipv4Addr::from_bits(bits ^ 1 << flip);
            prop_assert_eq!(network[0].score(other.into()).is_some(), flip < 32 - len);
        }

        #[test]
        fn any_text_can_be_read(text in ".{0,40}") {
            let _ = Prefix::parse(&text);
        }
    }
}
