use tollway_law::aggregate::Depths;
use tollway_law::{Bytes, Rate};

use super::*;

fn policy(scheme: Scheme, order: Order, action: Action) -> PolicyConfig {
    let profile =
        Profile { depth: Bytes(6000), rate: Rate::from_bytes_per_sec(100e3), peak: None, largest: None };
    PolicyConfig { profile, scheme, order, action, increase: Increase::Standard }
}

fn shaper(config: PolicyConfig, members: usize) -> (Shaper, PolicyId, Vec<MemberId>) {
    let mut shaper = Shaper::new(Timer::Coarse(Time::from_millis(15)));
    let policy = shaper.install(Time::ZERO, config);
    shaper.classify(Time::ZERO, ClassId(0), Some(policy));
    let members = (0..members).map(|_| shaper.enter(Time::ZERO, ClassId(0))).collect();
    (shaper, policy, members)
}

/// Serves all members that are due; each always has another packet of `size`.
fn serve(shaper: &mut Shaper, now: Time, size: u16) -> Vec<u32> {
    let mut served = Vec::new();
    while let Some(member) = shaper.next(now) {
        if shaper.grant(now, member, size) {
            served.push(member.0);
        }
    }
    served
}

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

#[test]
fn turns_go_by_the_order() {
    for (order, expected) in
        [(Order::Sequential, [0, 0, 0, 0]), (Order::Fcfs, [2, 0, 1, 2]), (Order::Lru, [0, 1, 2, 0])]
    {
        let (mut shaper, _, members) = shaper(policy(Scheme::Common, order, Action::Shape), 3);
        for member in [2, 0, 1] {
            shaper.want(Time::ZERO, members[member], 1500);
        }
        assert_eq!(serve(&mut shaper, Time::ZERO, 1500), expected, "{order:?}");
        // 1500 B come in with each tick.
        assert_eq!(shaper.poll_timeout(), ms(15), "{order:?}");
        assert_eq!(serve(&mut shaper, ms(14), 1500), [], "{order:?}");
        shaper.handle_timeout(ms(15));
        assert_eq!(serve(&mut shaper, ms(15), 1500).len(), 1, "{order:?}");
        assert_eq!((shaper.poll_timeout(), shaper.timer_events()), (ms(30), 1), "{order:?}");
    }
}

#[test]
fn nobody_waits_without_a_reason_and_then_there_is_no_timer() {
    let (mut shaper, id, members) = shaper(policy(Scheme::Common, Order::Fcfs, Action::Shape), 2);
    shaper.want(Time::ZERO, members[0], 1500);
    assert_eq!(shaper.next(Time::ZERO), Some(members[0]));
    assert!(shaper.grant(Time::ZERO, members[0], 1500));
    shaper.withdraw(members[0]);
    assert_eq!(shaper.next(Time::ZERO), None);
    assert_eq!(shaper.poll_timeout(), Time::NEVER);
    let stats = shaper.stats(id);
    assert_eq!((stats.packets, stats.bytes, stats.burst), (1, 1500, 1500.0));
}

#[test]
fn logical_partitions_are_served_by_their_own_tokens() {
    let config = policy(Scheme::Logical(Depths::Equal), Order::Fcfs, Action::Shape);
    let (mut shaper, _, members) = shaper(config, 2);
    shaper.want(Time::ZERO, members[0], 1500);
    // Half of the bucket is the other's, although it has nothing to send.
    assert_eq!(serve(&mut shaper, Time::ZERO, 1500), [0, 0]);
    // It is full: all of the rate is for the one.
    assert_eq!(serve(&mut shaper, ms(30), 1500), [0, 0]);
}

#[test]
fn a_policy_takes_over_connections_that_are_open() {
    let (mut shaper, first, members) = shaper(policy(Scheme::Common, Order::Fcfs, Action::Shape), 2);
    for &member in &members {
        shaper.want(Time::ZERO, member, 1500);
    }
    assert_eq!(serve(&mut shaper, Time::ZERO, 1500).len(), 4);
    let second = shaper.install(ms(1), policy(Scheme::Common, Order::Fcfs, Action::Shape));
    shaper.classify(ms(1), ClassId(0), Some(second));
    assert_eq!((shaper.policy(members[0]), shaper.policy(members[1])), (Some(second), Some(second)));
    assert_eq!(serve(&mut shaper, ms(1), 1500).len(), 4);
    assert_eq!((shaper.stats(first).packets, shaper.stats(second).packets), (4, 4));
    // Without any policy, what waits goes.
    shaper.classify(ms(2), ClassId(0), None);
    assert_eq!(serve(&mut shaper, ms(2), 1500), [0, 1]);
    assert_eq!(shaper.poll_timeout(), Time::NEVER);
}

#[test]
fn policing_marks_or_drops_but_never_holds() {
    for action in [Action::Mark, Action::Drop] {
        let (mut shaper, id, members) = shaper(policy(Scheme::Common, Order::Fcfs, action), 1);
        let verdicts: Vec<bool> = (0..6).map(|_| shaper.police(Time::ZERO, members[0], 1500)).collect();
        assert_eq!(verdicts, [true, true, true, true, false, false]);
        let stats = shaper.stats(id);
        let (excess, dropped) = if action == Action::Mark { (3000, 0) } else { (0, 2) };
        assert_eq!((stats.packets, stats.excess_bytes, stats.dropped), (4, excess, dropped));
    }
}

#[test]
fn a_source_waits_in_a_bounded_queue() {
    let (mut shaper, id, members) = shaper(policy(Scheme::Common, Order::Fcfs, Action::Shape), 1);
    let queued: Vec<bool> = (0..4).map(|_| shaper.enqueue(Time::ZERO, members[0], 1500, 3)).collect();
    assert_eq!(queued, [true, true, true, false]);
    assert!(!shaper.enqueue(Time::ZERO, members[0], 7000, 9));
    let mut left = 0;
    while let Some(member) = shaper.next(Time::ZERO) {
        assert!(shaper.grant(Time::ZERO, member, 1500));
        left += 1;
        if !shaper.dequeue(member) {
            shaper.withdraw(member);
        }
    }
    assert_eq!(left, 3);
    let stats = shaper.stats(id);
    assert_eq!((stats.dropped, stats.too_large), (2, 1));
}

#[test]
fn timers_of_their_own_expire_when_each_conforms() {
    let mut shaper = Shaper::new(Timer::PerFlow);
    let config = policy(Scheme::Partitioned(Depths::Equal), Order::Fcfs, Action::Shape);
    let policy = shaper.install(Time::ZERO, config);
    shaper.classify(Time::ZERO, ClassId(0), Some(policy));
    let members: Vec<MemberId> = (0..2).map(|_| shaper.enter(Time::ZERO, ClassId(0))).collect();
    for &member in &members {
        shaper.want(Time::ZERO, member, 1500);
    }
    assert_eq!(serve(&mut shaper, Time::ZERO, 1500), [0, 1, 0, 1]);
    // 50 kB/s each.
    let then = shaper.poll_timeout();
    assert!((ms(30)..ms(31)).contains(&then), "{then}");
    shaper.handle_timeout(then);
    assert_eq!((serve(&mut shaper, then, 1500).len(), shaper.timer_events()), (2, 2));
}
