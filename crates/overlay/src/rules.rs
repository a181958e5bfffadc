//! Limits and tenants of a site.

use serde::Deserialize;
use tollway_law::Time;

/// The treatment of a subscription whose receiver is slower than its senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slow {
    /// Senders to it wait; a receiver without progress is disconnected.
    #[default]
    Price,
    /// Its messages wait on disk; nobody pays.
    Spool,
    /// Its messages are dropped and counted.
    Drop,
}

impl Slow {
    /// The word for it, in configurations and subjects.
    pub fn word(self) -> &'static str {
        match self {
            Slow::Price => "price",
            Slow::Spool => "spool",
            Slow::Drop => "drop",
        }
    }

    /// The way that a pattern asks for, and the pattern itself: `$TOLL.drop.a.>` asks for drops of
    /// `a.>`.
    pub(crate) fn of_pattern(pattern: &[u8]) -> Option<(Slow, &[u8])> {
        let rest = pattern.strip_prefix(b"$TOLL.")?;
        [Slow::Price, Slow::Spool, Slow::Drop].into_iter().find_map(|slow| {
            let rest = rest.strip_prefix(slow.word().as_bytes())?.strip_prefix(b".")?;
            Some((slow, rest))
        })
    }
}

/// A tenant: an account whose clients hear each other, and nobody else's.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRules {
    /// Its name, and its clients' user.
    pub name: String,
    /// Its part of what links carry, beside other tenants'.
    pub salary: f64,
    /// The way its clients authenticate.
    pub proof: Proof,
    /// The mode of subscriptions without a prefix.
    pub slow: Slow,
    /// Most connections.
    pub connections: usize,
    /// Most subscriptions.
    pub subscriptions: usize,
}

/// A tenant's way to authenticate clients.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// It need not.
    None,
    /// By a password, or by a token.
    Secret {
        /// With the tenant's name as the user.
        password: Option<String>,
        /// Alone.
        token: Option<String>,
    },
    /// By a certificate for `NAME.tenant.tollway`.
    Certificate,
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Proof::None => "None",
            Proof::Secret { .. } => "Secret",
            Proof::Certificate => "Certificate",
        })
    }
}

/// Limits and tenants of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The site's name.
    pub site: String,
    /// Tenants, by name.
    pub tenants: Vec<TenantRules>,
    /// Bytes of a message's headers and payload together.
    pub payload: usize,
    /// Bytes that may wait for a receiver before it counts as slow.
    pub buffer: usize,
    /// The time a receiver may make no progress.
    pub patience: Time,
    /// Bytes that may wait on disk; beyond, and without a disk, `spool` is as `price`.
    pub spool: u64,
    /// Clients have to use TLS.
    pub tls: bool,
    /// A certificate is asked for.
    pub certificates: bool,
}

impl Rules {
    /// One tenant, to whom everybody belongs.
    pub fn open(site: &str) -> Rules {
        let tenant = TenantRules {
            name: "default".into(),
            salary: 1.0,
            proof: Proof::None,
            slow: Slow::Price,
            connections: 65_536,
            subscriptions: 65_536,
        };
        Rules {
            site: site.into(),
            tenants: vec![tenant],
            payload: 1 << 20,
            buffer: 1 << 20,
            patience: Time::from_secs(10),
            spool: 0,
            tls: false,
            certificates: false,
        }
    }
}

/// Compares two secrets in constant time.
pub(crate) fn same_secret(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differs) == 0 && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_says_how_slowness_is_dealt_with() {
        assert_eq!(Slow::of_pattern(b"$TOLL.drop.a.>"), Some((Slow::Drop, &b"a.>"[..])));
        assert_eq!(Slow::of_pattern(b"$TOLL.spool.a"), Some((Slow::Spool, &b"a"[..])));
        assert_eq!(Slow::of_pattern(b"$TOLL.other.a"), None);
        assert_eq!(Slow::of_pattern(b"a.drop"), None);
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same_secret("abc", "abc"));
        assert!(!same_secret("abc", "abd") && !same_secret("abc", "ab") && !same_secret("", "a"));
    }
}
