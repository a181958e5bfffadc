//! Who divides among whom: tenants, their classes, and what each wants and gets.

use super::LEAST_WEIGHT;
use super::pool::Pool;

#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) pool: Pool,
    pub(super) weight: f64,
    /// First, and one past the last.
    pub(super) classes: (usize, usize),
    pub(super) given: Given,
    /// The part of itself by which its weight is raised, to give back what was kept for those
    /// below.
    pub(super) raise: f64,
}

impl Branch {
    /// Its weight with what is given back.
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
    /// What of what was kept is to be given back to its members, bytes a second.
    pub(super) back: f64,
    /// The part of itself by which its weight is raised for that.
    pub(super) raise: f64,
    pub(super) sent: u64,
    /// What its members may be ahead of their paces.
    pub(super) ahead: u64,
    pub(super) members: usize,
    pub(super) weights: f64,
    /// Its members' first place.
    pub(super) first: usize,
    pub(super) open: Open,
}

impl Class {
    /// Its weight with what is given back.
    pub(super) fn pull(&self) -> f64 {
        raised(self.weight, self.raise)
    }

    /// As it was before the first tick.
    pub(super) fn cleared(self) -> Class {
        Class { tenant: self.tenant, weight: self.weight, ..Class::default() }
    }
}

/// A weight, so that what was kept is given back: `raise` is a part of it.
pub(super) fn raised(weight: f64, raise: f64) -> f64 {
    weight * (1.0 + raise)
}

/// What a node of the tree wants and gets, bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    pub(super) keep: f64,
    pub(super) hungry: bool,
    pub(super) gets: f64,
    /// What it would get if it hungered.
    pub(super) could: f64,
    /// What it would get if all did.
    pub(super) even: f64,
}

impl Given {
    pub(super) fn wants(self) -> f64 {
        if self.hungry { f64::INFINITY } else { self.keep }
    }

    /// What those below divide: their part, or what it would be if they wanted it.
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

/// What siblings get, and what those of them that hunger do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub(super) gets: f64,
    pub(super) hungry: f64,
    pub(super) weights: f64,
}

impl Open {
    /// What one of them could have of `capacity`: its part of what the hungry divide, were it one
    /// of them.
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
