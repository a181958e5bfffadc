use super::{Candidate, Item, Route};

/// Members in turn, each as often as its share says, spread evenly: smooth weighted round robin. A
/// member without a share, or that is not up, gets nothing.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The share of each member, and what it is owed.
    members: Vec<(u32, i64)>,
}

impl Weighted {
    /// Shares in the order of the members; those beyond the last have none.
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
