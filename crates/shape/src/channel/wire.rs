//! The form in which a worker sends policies, and the agent's checks of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollway_law::shares::{Contract, Tenant};
use tollway_law::{Bytes, Rate, Time};

use crate::policies::{Filter, Filters, Policies};
use crate::{Party, Regime};

/// A version of the policies. A fraction is sent as its bits: JSON's decimal digits may lose the
/// last one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoliciesMessage {
    version: String,
    tick_ns: u64,
    overhead: u32,
    link: Bucket,
    tenants: Vec<TenantMessage>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    weight: u64,
    rate: Option<u64>,
    peak: Option<u64>,
    depth: Option<u64>,
}

/// A tenant with its classes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantMessage {
    name: String,
    bucket: Bucket,
    /// Name, weight and filter of each class. The first class holds the connections that no other
    /// matches; its filter is the tenant's.
    classes: Vec<(String, u64, Filter)>,
}

impl Bucket {
    fn new(contract: &Contract) -> Bucket {
        let bits = |rate: Rate| rate.bytes_per_sec().to_bits();
        Bucket {
            weight: contract.weight.to_bits(),
            rate: contract.rate.map(bits),
            peak: contract.peak.map(bits),
            depth: contract.depth.map(|depth| depth.0),
        }
    }

    fn check(&self) -> Result<Contract, String> {
        let rate = |bits: Option<u64>| bits.map(amount).transpose();
        Ok(Contract {
            weight: amount(self.weight)?,
            rate: rate(self.rate)?.map(Rate::from_bytes_per_sec),
            peak: rate(self.peak)?.map(Rate::from_bytes_per_sec),
            depth: self.depth.map(Bytes),
        })
    }
}

impl PoliciesMessage {
    pub(super) fn new(policies: &Policies) -> PoliciesMessage {
        let regime = policies.regime();
        let share = |(party, (own, filters)): (&Party, &(Filter, Vec<Filter>))| {
            let filters = std::iter::once(own).chain(filters);
            let names = party.classes.iter().zip(&party.tenant.classes);
            TenantMessage {
                name: party.name.clone(),
                bucket: Bucket::new(&party.tenant.contract),
                classes: names
                    .zip(filters)
                    .map(|((name, weight), filter)| (name.clone(), weight.to_bits(), filter.clone()))
                    .collect(),
            }
        };
        PoliciesMessage {
            version: regime.version.clone(),
            tick_ns: regime.tick.0,
            overhead: regime.overhead,
            link: Bucket::new(&regime.link),
            tenants: regime.tenants.iter().zip(&policies.filters().tenants).map(share).collect(),
        }
    }

    /// Checks the policies and converts them, if a policy file could state the same.
    ///
    /// # Errors
    /// A value that no policy file could have.
    pub(super) fn check(self) -> Result<Regime, String> {
        let tick = Time(self.tick_ns);
        if !(Time::from_millis(1)..=Time::from_secs(10)).contains(&tick) {
            return Err("a tick is out of range".into());
        }
        if self.overhead > 1000 {
            return Err("the framing is too large".into());
        }
        let (mut tenants, mut filters) = (Vec::new(), Filters::default());
        for share in self.tenants {
            let contract = share.bucket.check()?;
            let (mut names, mut weights, mut all) = (Vec::new(), Vec::new(), Vec::new());
            for (name, weight, filter) in share.classes {
                names.push(word(name)?);
                weights.push(amount(weight)?);
                all.push(checked(filter)?);
            }
            if all.is_empty() {
                return Err("a tenant has no class".into());
            }
            let own = all.remove(0);
            filters.tenants.push((own, all));
            let tenant = Tenant { contract, classes: weights };
            tenants.push(Party { name: word(share.name)?, tenant, classes: names });
        }
        let (version, link) = (word(self.version)?, self.link.check()?);
        Ok(Regime { version, tick, overhead: self.overhead, link, tenants, rules: Arc::new(filters) })
    }
}

/// An amount from its bits: finite, and not negative.
fn amount(bits: u64) -> Result<f64, String> {
    let amount = f64::from_bits(bits);
    let good = amount.is_finite() && amount >= 0.0;
    if good { Ok(amount) } else { Err("an amount is invalid".into()) }
}

/// A text of one printable line.
fn word(text: String) -> Result<String, String> {
    let good = text.len() <= LONGEST && !text.chars().any(char::is_control);
    if good { Ok(text) } else { Err("a name is invalid".into()) }
}

/// Checks a filter's ports and patterns. Networks were checked as they were read.
fn checked(filter: Filter) -> Result<Filter, String> {
    for &(first, last) in filter.from_ports.iter().chain(&filter.to_ports) {
        if first == 0 || first > last {
            return Err("a range of ports is invalid".into());
        }
    }
    for text in filter.cgroups.iter().chain(&filter.containers) {
        if text.is_empty() || text.len() > LONGEST {
            return Err("a pattern is invalid".into());
        }
    }
    Ok(filter)
}

/// Upper bound of a name's or a pattern's length, in bytes: that of a path.
const LONGEST: usize = 4096;
