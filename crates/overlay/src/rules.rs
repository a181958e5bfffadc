//! Limits and tenants of a site.

use tollway_law::Time;

/// The treatment of a subscription whose receiver is slower than its senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// Its senders wait; a receiver without progress is disconnected.
    #[default]
    Price,
    /// Its messages wait on disk, without a price.
    Spool,
    /// Its messages are dropped and counted.
    Drop,
}

impl Slow {
    /// Its name in configurations and subjects.
    pub fn word(self) -> &'static str {
        match self {
            Slow::Price => "price",
            Slow::Spool => "spool",
            Slow::Drop => "drop",
        }
    }

    /// The treatment of this name; the default one without such a name.
    pub(crate) fn of_word(word: &str) -> Slow {
        SLOW.into_iter().find(|slow| slow.word() == word).unwrap_or_default()
    }

    /// The treatment that a pattern's prefix requests, and the rest of the pattern.
    ///
    /// `$TOLL.drop.a.>` requests drops for `a.>`. `None` without such a prefix.
    pub(crate) fn of_pattern(pattern: &[u8]) -> Option<(Slow, &[u8])> {
        let rest = pattern.strip_prefix(b"$TOLL.")?;
        SLOW.into_iter().find_map(|slow| {
            let rest = rest.strip_prefix(slow.word().as_bytes())?.strip_prefix(b".")?;
            Some((slow, rest))
        })
    }
}

/// Every treatment.
const SLOW: [Slow; 3] = [Slow::Price, Slow::Spool, Slow::Drop];

/// A tenant: an account whose clients receive only each other's messages.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRules {
    /// Its name, which is also the user name of its clients.
    pub name: String,
    /// Its share of link capacity, relative to other tenants.
    pub salary: f64,
    /// The way its clients authenticate.
    pub proof: Proof,
    /// The treatment of slow subscriptions without a prefix.
    pub slow: Slow,
    /// Limit of connections.
    pub connections: usize,
    /// Limit of subscriptions.
    pub subscriptions: usize,
}

/// A tenant's way to authenticate clients.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// No authentication.
    None,
    /// By a password, or by a token.
    Secret {
        /// With the tenant's name as the user.
        password: Option<String>,
        /// Without a user name.
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
pub struct SiteRules {
    /// The site's name.
    pub site: String,
    /// Tenants, by name.
    pub tenants: Vec<TenantRules>,
    /// Limit of a message's headers and payload together, in bytes.
    pub payload: usize,
    /// Limit of output bytes for a receiver, beyond which it counts as slow.
    pub buffer: usize,
    /// Time without progress after which a receiver is disconnected.
    pub patience: Time,
    /// Limit of bytes on disk. Beyond it, and without a disk, `spool` acts as `price`.
    pub spool: u64,
    /// True if clients must use TLS.
    pub tls: bool,
    /// True if the server requests client certificates.
    pub certificates: bool,
}

impl SiteRules {
    /// Rules with one tenant that needs no authentication.
    pub fn open(site: &str) -> SiteRules {
        let tenant = TenantRules {
            name: "default".into(),
            salary: 1.0,
            proof: Proof::None,
            slow: Slow::Price,
            connections: 65_536,
            subscriptions: 65_536,
        };
        SiteRules {
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
