use super::{Candidate, Item, Route};

/// Selects members in turn, in proportion to their shares and evenly spread: smooth weighted round
/// robin. Members that have no share, or are not up, are skipped.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The share of each member, and its credit.
    members: Vec<(u32, i64)>,
}

impl Weighted {
    /// A module with shares in the order of the members; members beyond the last share have none.
    pub fn new(shares: &[u32]) -> Weighted {
        Weighted { members: shares.iter().map(|&share| (share, 0)).collect() }
    }
}

impl Route for Weighted {
    fn pick(&mut self, _: &Item, members: &[Candidate]) -> Option<usize> {
        let (mut best, mut most, mut total) = (None, i64::MIN, 0);
        let all = self.members.iter_mut().zip(members).enumerate();
        for (at, ((share, owed), _)) in all.filter(|(_, (own, member))| own.0 > 0 && member.up) {
            *owed += i64::from(*share);
            total += i64::from(*share);
            if *owed > most {
                (best, most) = (Some(at), *owed);
            }
        }
        if let Some(at) = best {
            self.members[at].1 -= total;
        }
        best
    }
}
