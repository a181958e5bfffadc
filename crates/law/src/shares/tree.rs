//! The tree of the division: tenants and their classes, with their demands and parts.

use super::LEAST_WEIGHT;
use super::pool::Pool;

#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) pool: Pool,
    pub(super) weight: f64,
    /// The range of its classes: first, and one past the last.
    pub(super) classes: (usize, usize),
    pub(super) given: Given,
    /// The relative raise of its weight that repays the reserves of its connections.
    pub(super) raise: f64,
}

impl Branch {
    /// Its weight with the raise.
    pub(super) fn pull(&self) -> f64 {
        raised(self.weight, self.raise)
    }

    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.classes.0..self.classes.1
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    pub(super) tenant: u32,
    pub(super) weight: f64,
    pub(super) given: Given,
    /// The rate at which reserves of its connections are to be repaid, bytes/s.
    pub(super) back: f64,
    /// The relative raise of its weight for that.
    pub(super) raise: f64,
    pub(super) sent: u64,
    /// Bytes that its connections may be ahead of their paces.
    pub(super) ahead: u64,
    pub(super) connections: usize,
    pub(super) weights: f64,
    /// The place of its first connection.
    pub(super) first: usize,
    pub(super) open: Open,
}

impl Class {
    /// Its weight with the raise.
    pub(super) fn pull(&self) -> f64 {
        raised(self.weight, self.raise)
    }

    /// Its state before the first tick.
    pub(super) fn cleared(self) -> Class {
        Class { tenant: self.tenant, weight: self.weight, ..Class::default() }
    }
}

/// A weight with the relative raise `raise`.
pub(super) fn raised(weight: f64, raise: f64) -> f64 {
    weight * (1.0 + raise)
}

/// The demand and the parts of a node of the tree, bytes/s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    pub(super) keep: f64,
    pub(super) hungry: bool,
    pub(super) gets: f64,
    /// Its part if it were hungry.
    pub(super) could: f64,
    /// Its part if all were hungry.
    pub(super) even: f64,
}

impl Given {
    pub(super) fn wants(self) -> f64 {
        if self.hungry { f64::INFINITY } else { self.keep }
    }

    /// The rate that its children divide: its part, or the part it would have with a higher demand.
    pub(super) fn most(self) -> f64 {
        self.gets.max(self.could)
    }

    pub(super) fn open(self, weight: f64) -> Open {
        let weight = weight.max(LEAST_WEIGHT);
        match self.hungry {
            true => Open { gets: self.gets, hungry: self.gets, weights: weight },
            false => Open { gets: self.gets, ..Open::default() },
        }
    }
}

/// The sums over siblings, and over the hungry ones of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub(super) gets: f64,
    pub(super) hungry: f64,
    pub(super) weights: f64,
}

impl Open {
    /// The part of `capacity` that a sibling would have if it were hungry.
    pub(super) fn could(self, capacity: f64, weight: f64, own: Given) -> f64 {
        let weight = weight.max(LEAST_WEIGHT);
        let (mine, weights) =
            if own.hungry { (0.0, self.weights) } else { (own.gets, self.weights + weight) };
        let free = (capacity - self.gets).max(0.0);
        ((self.hungry + free + mine) * weight / weights).max(own.gets).min(capacity.max(own.gets))
    }
}

impl std::ops::Add for Open {
    type Output = Open;
    fn add(self, other: Open) -> Open {
        Open {
            gets: self.gets + other.gets,
            hungry: self.hungry + other.hungry,
            weights: self.weights + other.weights,
        }
    }
}

impl std::iter::Sum for Open {
    fn sum<I: Iterator<Item = Open>>(all: I) -> Open {
        all.fold(Open::default(), |sum, one| sum + one)
    }
}
