//! The owner of a budget: divides it over the host's connections, with the right timing.

use tollway_law::budget::{CREDIT, Fall, Ledger, Share, Strategy};
use tollway_law::{Budget, Bytes, Price, Rate, Time};

/// A host's budget and the flows that share it (the FCP report, § 4 and § 4.2), sans I/O.
///
/// The engine reports flows that start and end, and calls
/// [`handle_timeout`](BudgetHost::handle_timeout) at the time of
/// [`poll_timeout`](BudgetHost::poll_timeout). That call reads the connections and gives the new
/// budgets to their laws.
///
/// A change of budget takes a round trip to announce and one to take effect. So that the sum never
/// exceeds the budget while it moves between flows (equation 1), a [`Ledger`] holds decreases until
/// they take effect, and a flow gets more only as far as there is room. The part of a new flow stays
/// with the others until it knows a price, except for what its first packet announced. That much is
/// lent to it if the others have not made room by then.
#[derive(Debug)]
pub struct BudgetHost {
    budget: Budget,
    strategy: Box<dyn Strategy + Send>,
    members: Vec<HostFlow>,
    /// The next call of the strategy, the next look at the flows, and the last call of the
    /// strategy.
    ask_at: Time,
    look_at: Time,
    asked: Time,
    shares: Vec<Share>,
    ledger: Ledger,
}

#[derive(Clone, Copy, Debug)]
struct HostFlow {
    share: Share,
    /// The budget last given to its law; `None` before the first.
    given: Option<Budget>,
    /// Bytes sent at the last call of the strategy; `None` for a flow that started since.
    sent: Option<u64>,
    ending: bool,
    /// Bytes that its first packet announces for the next round trip.
    first: f64,
    /// The limit of its spending at its first price, $/s.
    start: f64,
    /// The part of it that was lent, $/s, until the others have made room at `due`.
    lent: f64,
    due: Time,
}

impl HostFlow {
    fn given(&self) -> f64 {
        self.given.map_or(0.0, Budget::get)
    }

    /// The budget that it may have now, $/s.
    fn part(&self) -> f64 {
        let part = self.share.budget.get();
        if self.share.price.is_some() { part } else { part.min(self.start) }
    }

    fn give(&mut self, budget: f64, give: &mut impl FnMut(u64, Budget)) {
        let budget = Budget::per_sec(budget);
        self.given = Some(budget);
        give(self.share.flow, budget);
    }

    /// Dollars that it may spend beyond its host's budget, if its first price arrives at `now`.
    fn debt(&self, now: Time) -> f64 {
        self.lent * self.due.saturating_sub(now).as_secs_f64()
    }

    /// The time between its packets at its present budget.
    fn spacing(&self) -> Time {
        let price = self.share.price.map_or(0.0, Price::get);
        let longest = (self.share.rtt * 4).as_secs_f64().max(LONGEST_PAUSE);
        let spacing = (PACKET * price / self.given().max(f64::MIN_POSITIVE)).min(longest);
        Time::from_secs_f64(spacing)
    }
}

/// The state of a connection, as the engine reports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The price of its path, once known.
    pub price: Option<Price>,
    /// Its smoothed round-trip time, zero while it is unknown.
    pub rtt: Time,
    /// Bytes it has sent since its start.
    pub sent: u64,
    /// True while it sends its last packets, after announcing its end: its budget goes to the
    /// others.
    pub ending: bool,
    /// The rate it is to keep from now on; `None` leaves that of its share.
    pub wants: Option<Rate>,
}

impl BudgetHost {
    /// An owner of `budget` without flows.
    pub fn new(budget: Budget, strategy: Box<dyn Strategy + Send>) -> BudgetHost {
        BudgetHost {
            budget,
            strategy,
            members: Vec::new(),
            ask_at: Time::NEVER,
            look_at: Time::NEVER,
            asked: Time::ZERO,
            shares: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// The budget to divide.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Adds a flow that is about to start. Its first packet announces `first` for the next round
    /// trip; `share` gives its identifier, weight and wanted rate.
    pub fn join(&mut self, now: Time, share: Share, first: Bytes) {
        self.members.push(HostFlow {
            share: Share { budget: Budget::ZERO, price: None, ..share },
            given: None,
            sent: None,
            ending: false,
            first: first.get() as f64,
            start: 0.0,
            lent: 0.0,
            due: Time::ZERO,
        });
        self.ask_at = now;
    }

    /// Removes a flow that ended.
    pub fn leave(&mut self, now: Time, flow: u64) {
        let before = self.members.len();
        self.members.retain(|member| member.share.flow != flow);
        if self.members.len() < before {
            self.ask_at = now;
        }
    }

    /// Sets the budget from now on.
    pub fn set_budget(&mut self, now: Time, budget: Budget) {
        self.budget = budget;
        self.ask_at = now;
    }

    /// Sets the strategy from now on.
    pub fn set_strategy(&mut self, now: Time, strategy: Box<dyn Strategy + Send>) {
        self.strategy = strategy;
        self.ask_at = now;
    }

    /// The time of the next call; [`Time::NEVER`] if there is nothing to do before a flow starts or
    /// ends.
    pub fn poll_timeout(&self) -> Time {
        self.ask_at.min(self.look_at)
    }

    /// Handles the time that [`poll_timeout`](BudgetHost::poll_timeout) returned: `see` reads a
    /// flow's state, `give` sets the budget of its law.
    pub fn handle_timeout(
        &mut self,
        now: Time,
        mut see: impl FnMut(u64) -> Seen,
        mut give: impl FnMut(u64, Budget),
    ) {
        if now < self.poll_timeout() {
            return;
        }
        let mut news = false;
        let elapsed = now.saturating_sub(self.asked).as_secs_f64();
        for member in &mut self.members {
            let seen = see(member.share.flow);
            news |= seen.ending != member.ending || seen.price.is_some() != member.share.price.is_some();
            if seen.price.is_some() && member.lent > 0.0 {
                // It spends from now on what it was lent.
                self.ledger.spend(member.debt(now), member.due);
                member.lent = 0.0;
            }
            member.ending = seen.ending;
            member.share.price = seen.price;
            member.share.rtt = seen.rtt;
            member.share.wants = seen.wants.unwrap_or(member.share.wants);
            let sent = seen.sent.saturating_sub(member.sent.unwrap_or(seen.sent));
            member.share.rate =
                if elapsed > 0.0 { Rate::from_bytes_per_sec(sent as f64 / elapsed) } else { Rate::ZERO };
        }
        if news || self.ask_at <= now {
            for member in &mut self.members {
                member.sent = Some(see(member.share.flow).sent);
            }
            self.divide(now);
        }
        self.settle(now, &mut give);
        self.look_at = self.next_look(now);
    }

    /// Calls the strategy.
    fn divide(&mut self, now: Time) {
        self.asked = now;
        self.shares.clear();
        self.shares.extend(self.members.iter().filter(|m| !m.ending).map(|m| m.share));
        self.strategy.divide(now, self.budget, &mut self.shares);
        self.ask_at = now.saturating_add(self.strategy.interval(&self.shares));
        // A strategy from outside is held to the budget like any other.
        let sum: f64 = self.shares.iter().map(|share| share.budget.get()).sum();
        let scale = if sum > self.budget.get() { self.budget.get() / sum } else { 1.0 };
        // New flows cannot spend their part before they know a price; until then the others keep
        // it. The cost of their first round trip is estimated from the prices of the others.
        let (mut spendable, mut cost, mut priced) = (0.0, 0.0, 0.0);
        for share in self.shares.iter().filter(|share| share.rtt > Time::ZERO) {
            if let Some(price) = share.price {
                spendable += share.budget.get() * scale;
                cost += price.get() / share.rtt.as_secs_f64();
                priced += 1.0;
            }
        }
        let newcomers = self.members.iter_mut().filter(|m| !m.ending).zip(&self.shares);
        let mut reserved = 0.0;
        for (member, share) in newcomers.filter(|(_, share)| share.price.is_none()) {
            let granted = share.budget.get() * scale;
            member.start = if priced > 0.0 { granted.min(member.first * cost / priced) } else { granted };
            reserved += member.start;
        }
        // The part that a strategy leaves unspent is given to no flow.
        let kept = (self.budget.get().min(sum) - reserved).max(0.0);
        let spread = if spendable > 0.0 { (kept / spendable).max(1.0) } else { 1.0 };
        for (member, share) in self.members.iter_mut().filter(|m| !m.ending).zip(&self.shares) {
            let granted = share.budget.get() * scale;
            let kept = match share.price.is_some() {
                true => (granted * spread).min(member.given()).max(granted),
                false => granted,
            };
            member.share.budget = Budget::per_sec(kept);
        }
    }

    /// Gives laws their parts: less at once, more as far as the budget has room when it takes
    /// effect.
    fn settle(&mut self, now: Time, give: &mut impl FnMut(u64, Budget)) {
        self.ledger.settle(now);
        // A flow that has nothing would take itself to be at its end.
        let least = self.budget.get() * LEAST_PART;
        let (mut free, mut wanted) = (self.budget.get(), 0.0);
        for member in &mut self.members {
            let (part, given) = (member.part().max(least), member.given());
            if member.ending && given > 0.0 {
                // It has announced its end, over a round trip.
                self.ledger.fall(Fall::new(now, member.share.rtt, Time::ZERO, given, given));
                member.given = Some(Budget::ZERO);
            } else if !member.ending && part < given * (1.0 - SAME) {
                if member.share.price.is_some() {
                    let (rtt, spacing) = (member.share.rtt, member.spacing());
                    self.ledger.fall(Fall::new(now, rtt, spacing, given - part, given));
                }
                member.give(part, give);
            }
            free -= member.given();
            wanted += if member.ending { 0.0 } else { (part - member.given()).max(0.0) };
        }
        let debts = self.members.iter().map(|member| member.debt(now)).sum::<f64>();
        let mut credit = (CREDIT * self.budget.get() - self.ledger.lent() - debts).max(0.0);
        let room = now.saturating_add(self.slowest());
        for member in self.members.iter_mut().filter(|member| !member.ending) {
            let (part, given, new) = (member.part().max(least), member.given(), member.given.is_none());
            let more = part - given;
            if more <= part * SAME && !new {
                continue;
            }
            let knows = member.share.price.is_some();
            let rtt = if knows { member.share.rtt } else { Time::ZERO };
            let mut grant = ((free - self.ledger.held(now, rtt)).max(0.0) * (more / wanted)).min(more);
            if new && !knows {
                member.due = room;
                let time = room.saturating_sub(now).as_secs_f64().max(f64::MIN_POSITIVE);
                member.lent = (more - grant).min(credit / time);
                credit -= member.lent * time;
                grant += member.lent;
            }
            if new || grant >= more * PIECE {
                member.give((given + grant).max(least), give);
            }
        }
    }

    /// The time after which a decrease of any flow takes effect.
    fn slowest(&self) -> Time {
        let priced = self.members.iter().filter(|member| member.share.price.is_some());
        priced.map(|member| member.share.rtt).max().unwrap_or(Time::ZERO)
    }

    /// The interval between looks. Several flows are checked a few times per round trip, so that a
    /// part that one leaves soon goes to another.
    fn next_look(&self, now: Time) -> Time {
        if self.members.len() < 2 {
            return Time::NEVER;
        }
        let rtt = self.members.iter().map(|m| m.share.rtt).filter(|&rtt| rtt > Time::ZERO).min();
        let pause = rtt.map_or(LOOK_LEAST * 10, |rtt| Time(rtt.0 / 8));
        now.saturating_add(pause.clamp(LOOK_LEAST, LOOK_LEAST * 50))
    }
}

/// The least increase that is given, as a part of what the flow lacks: each is announced anew.
const PIECE: f64 = 0.125;
/// Parts that differ by less than this fraction count as equal.
const SAME: f64 = 1e-9;
/// The least part of the budget that a flow without room has.
const LEAST_PART: f64 = 1e-9;
/// Bytes of a packet, and the longest time between those of a near flow, s.
const PACKET: f64 = 1500.0;
const LONGEST_PAUSE: f64 = 0.25;
/// Shortest interval between looks at the flows.
const LOOK_LEAST: Time = Time::from_millis(1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tollway_law::budget::{Background, EqualBudget, Stable};

    use super::*;

    fn budgets(host: &mut BudgetHost, now: Time, seen: &dyn Fn(u64) -> Seen, given: &mut BTreeMap<u64, f64>) {
        host.handle_timeout(now, seen, |flow, budget| {
            given.insert(flow, budget.get());
        });
    }

    fn rtt(ms: u64) -> Seen {
        Seen { rtt: Time::from_millis(ms), price: (ms > 0).then_some(Price::MIN), ..Seen::default() }
    }

    #[test]
    fn flows_that_come_and_go_share_what_there_is() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut given = BTreeMap::new();
        host.join(Time::ZERO, Share::new(7), Bytes(0));
        budgets(&mut host, Time::ZERO, &|_| rtt(100), &mut given);
        assert_eq!(given[&7], 1.0);
        assert_eq!(host.poll_timeout(), Time::NEVER);
        host.join(Time::from_secs(1), Share::new(8), Bytes(0));
        budgets(&mut host, Time::from_secs(1), &|flow| rtt(if flow == 7 { 100 } else { 0 }), &mut given);
        // It knows no price yet, and has announced nothing.
        assert!(given[&7] == 1.0 && given[&8] < 1e-6, "{given:?}");
        budgets(&mut host, Time::from_millis(1100), &|_| rtt(100), &mut given);
        assert!(given[&7] == 0.5 && (given[&8] - 0.5).abs() < 1e-6, "{given:?}");
        // The one that takes its leave makes room at once.
        let leaves = |flow| Seen { ending: flow == 7, ..rtt(100) };
        budgets(&mut host, Time::from_millis(1500), &leaves, &mut given);
        assert_eq!(given[&8], 1.0);
        host.leave(Time::from_secs(2), 7);
        host.set_budget(Time::from_secs(2), Budget::per_sec(3.0));
        budgets(&mut host, Time::from_secs(2), &|_| rtt(100), &mut given);
        assert_eq!(given[&8], 3.0);
    }

    #[test]
    fn who_gets_more_waits_for_a_longer_round_trip_that_gets_less() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut given = BTreeMap::new();
        let see = |flow| rtt(if flow == 1 { 200 } else { 50 });
        host.join(Time::ZERO, Share { weight: 3.0, ..Share::new(1) }, Bytes(0));
        host.join(Time::ZERO, Share::new(2), Bytes(0));
        budgets(&mut host, Time::ZERO, &see, &mut given);
        assert_eq!((given[&1], given[&2]), (0.75, 0.25));
        // Weights turn round: the slow flow gives up a third of its part from 200 to 267 ms after
        // it is told, and the fast one's increase takes 50 ms twice.
        host.leave(Time::from_secs(1), 1);
        host.join(Time::from_secs(1), Share::new(1), Bytes(0));
        host.members
            .iter_mut()
            .for_each(|m| m.given = Some(Budget::per_sec(if m.share.flow == 1 { 0.75 } else { 0.25 })));
        budgets(&mut host, Time::from_secs(1), &see, &mut given);
        assert_eq!((given[&1], given[&2]), (0.5, 0.25));
        budgets(&mut host, Time::from_millis(1160), &see, &mut given);
        assert_eq!(given[&2], 0.25);
        budgets(&mut host, Time::from_millis(1167), &see, &mut given);
        assert_eq!(given[&2], 0.5);
    }

    /// A strategy that promises more than there is.
    #[derive(Debug)]
    struct Spendthrift;

    impl Strategy for Spendthrift {
        fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
            flows.iter_mut().for_each(|flow| flow.budget = budget);
        }
    }

    #[test]
    fn a_strategy_cannot_give_away_more_than_there_is() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(Spendthrift));
        let mut given = BTreeMap::new();
        (0..4).for_each(|flow| host.join(Time::ZERO, Share::new(flow), Bytes(0)));
        budgets(&mut host, Time::ZERO, &|_| rtt(10), &mut given);
        assert_eq!(given.values().sum::<f64>(), 1.0);
    }

    #[test]
    fn only_what_changes_something_asks_the_strategy_anew() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut given = BTreeMap::new();
        host.join(Time::ZERO, Share::new(1), Bytes(0));
        assert_eq!(host.poll_timeout(), Time::ZERO);
        budgets(&mut host, Time::ZERO, &|_| rtt(100), &mut given);
        host.leave(Time::from_secs(1), 2);
        assert_eq!(host.poll_timeout(), Time::NEVER, "nobody has left");
        host.set_budget(Time::from_secs(2), Budget::per_sec(2.0));
        assert_eq!(host.poll_timeout(), Time::from_secs(2));
        budgets(&mut host, Time::from_secs(2), &|_| rtt(100), &mut given);
        assert_eq!((given[&1], host.poll_timeout()), (2.0, Time::NEVER));
        host.set_strategy(Time::from_secs(3), Box::new(AsFast));
        assert_eq!(host.poll_timeout(), Time::from_secs(3));
        host.leave(Time::from_secs(4), 1);
        budgets(&mut host, Time::from_secs(4), &|_| rtt(100), &mut given);
        assert_eq!(host.poll_timeout(), Time::NEVER);
    }

    #[test]
    fn what_has_not_changed_is_not_given_again() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut times = 0;
        host.join(Time::ZERO, Share::new(1), Bytes(0));
        for second in 0..3 {
            host.set_budget(Time::from_secs(second), Budget::per_sec(1.0));
            host.handle_timeout(Time::from_secs(second), |_| rtt(100), |_, _| times += 1);
        }
        assert_eq!(times, 1);
    }

    /// Divides by how fast flows were since it was asked last.
    #[derive(Debug)]
    struct AsFast;

    impl Strategy for AsFast {
        fn divide(&mut self, _: Time, budget: Budget, flows: &mut [Share]) {
            let all: f64 = flows.iter().map(|flow| flow.rate.bytes_per_sec()).sum();
            for flow in flows {
                flow.budget = Budget::per_sec(budget.get() * flow.rate.bytes_per_sec() / all.max(1.0));
            }
        }
    }

    #[test]
    fn a_strategy_is_told_how_fast_flows_were_since_it_was_asked() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(AsFast));
        let mut given = BTreeMap::new();
        let sent =
            |first, second| move |flow| Seen { sent: if flow == 1 { first } else { second }, ..rtt(100) };
        (1..=2).for_each(|flow| host.join(Time::ZERO, Share::new(flow), Bytes(0)));
        budgets(&mut host, Time::ZERO, &sent(500, 0), &mut given);
        for (second, counts, parts) in
            [(2, sent(6500, 2000), [0.75, 0.25]), (4, sent(7500, 5000), [0.25, 0.75])]
        {
            host.set_budget(Time::from_secs(second), Budget::per_sec(1.0));
            budgets(&mut host, Time::from_secs(second), &counts, &mut given);
            assert!((given[&1] - parts[0]).abs() < 1e-9, "{given:?}");
            assert!((given[&2] - parts[1]).abs() < 1e-9, "{given:?}");
        }
    }

    #[test]
    fn a_newcomer_s_first_round_trip_is_reserved_and_lent_within_the_credit() {
        let price = Price::per_byte(1e-6);
        let see = |flow| if flow == 1 { Seen { price: Some(price), ..rtt(100) } } else { rtt(0) };
        // 20 kB a round trip at 1e-6 $/B: 0.2 $/s of the half that will be its own. 80 kB cost more
        // than that. The other needs 100 ms to give it up, in which a hundredth of a second's
        // budget may be spent twice.
        for (first, kept, lent) in
            [(20_000, 0.8, 0.1), (80_000, 0.5, 0.1), (500, 0.995, 0.005), (0, 1.0, 0.0)]
        {
            let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
            let mut given = BTreeMap::new();
            host.join(Time::ZERO, Share::new(1), Bytes(0));
            budgets(&mut host, Time::ZERO, &see, &mut given);
            host.join(Time::from_secs(1), Share::new(2), Bytes(first));
            budgets(&mut host, Time::from_secs(1), &see, &mut given);
            assert!((given[&1] - kept).abs() < 1e-9, "{first}: {given:?}");
            assert!((given[&2] - lent).abs() < 1e-3, "{first}: {given:?}");
            // A second newcomer finds no credit left.
            host.join(Time::from_secs(1), Share::new(3), Bytes(first));
            budgets(&mut host, Time::from_secs(1), &see, &mut given);
            assert!(given[&2] + given[&3] <= 0.101, "{first}: {given:?}");
        }
    }

    #[test]
    fn near_newcomers_wait_until_a_far_flow_has_made_room() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut given = BTreeMap::new();
        let see = |flow| rtt(if flow == 0 { 600 } else { 10 });
        host.join(Time::ZERO, Share::new(0), Bytes(0));
        budgets(&mut host, Time::ZERO, &see, &mut given);
        (1..10).for_each(|flow| host.join(Time::from_secs(1), Share::new(flow), Bytes(0)));
        // The far flow gives up nine tenths from 1600 ms on, until 2140 ms.
        for now in (1000..2400).step_by(5) {
            budgets(&mut host, Time::from_millis(now), &see, &mut given);
            let near: f64 = (1..10).map(|flow| given[&flow]).sum();
            assert_eq!(given[&0], 0.1);
            assert!(if now < 2120 { near < 1e-6 } else { (near - 0.9).abs() < 1e-6 }, "{now}: {given:?}");
        }
    }

    #[test]
    fn several_flows_are_looked_at_eight_times_in_the_shortest_round_trip() {
        let next = |rtts: &[u64]| {
            let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
            (0..rtts.len()).for_each(|flow| host.join(Time::ZERO, Share::new(flow as u64), Bytes(0)));
            budgets(&mut host, Time::ZERO, &|flow| rtt(rtts[flow as usize]), &mut BTreeMap::new());
            host.poll_timeout()
        };
        assert_eq!(next(&[80]), Time::NEVER);
        assert_eq!(next(&[80, 160]), Time::from_millis(10));
        assert_eq!(next(&[0, 160]), Time::from_millis(20), "who knows none has no say");
        assert_eq!(next(&[4, 4]), Time::from_millis(1));
        assert_eq!(next(&[4000, 4000]), Time::from_millis(50));
        assert_eq!(next(&[0, 0]), Time::from_millis(10));
    }

    #[test]
    fn what_a_strategy_leaves_unspent_nobody_keeps() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(EqualBudget));
        let mut given = BTreeMap::new();
        (1..=2).for_each(|flow| host.join(Time::ZERO, Share::new(flow), Bytes(0)));
        budgets(&mut host, Time::ZERO, &|_| rtt(100), &mut given);
        assert_eq!([given[&1], given[&2]], [0.5, 0.5]);
        // Flows that are to fill what is spare from now on.
        host.set_strategy(Time::from_secs(1), Box::new(Background { part: 0.01 }));
        budgets(&mut host, Time::from_secs(1), &|_| rtt(100), &mut given);
        assert_eq!([given[&1], given[&2]], [0.005, 0.005]);
    }

    #[test]
    fn who_wants_a_rate_spends_less_once_that_costs_less() {
        let mut host = BudgetHost::new(Budget::per_sec(1.0), Box::new(Stable));
        let mut given = BTreeMap::new();
        let at = |price: f64| move |_| Seen { price: Some(Price::per_byte(price)), ..rtt(100) };
        let wants = Rate::from_bytes_per_sec(1e6);
        host.join(Time::ZERO, Share { wants, ..Share::new(1) }, Bytes(0));
        for (second, price, spends) in [(1, 5e-7, 0.5), (2, 1e-7, 0.1), (3, 8e-7, 0.8)] {
            host.set_budget(Time::from_secs(second), Budget::per_sec(1.0));
            budgets(&mut host, Time::from_secs(second), &at(price), &mut given);
            assert!((given[&1] - spends).abs() < 1e-9, "{price}: {given:?}");
        }
    }
}
