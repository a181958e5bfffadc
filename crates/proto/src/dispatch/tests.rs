//! A client, a switch and members that answer, stop, die and come back, drawn from a seed: every
//! frame once and in order per member while none dies, accounted for when one does.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use tollway_law::Time;

use super::*;

fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame = number.to_le_bytes().to_vec();
    frame.resize(len.max(8), number as u8);
    frame
}

fn number(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[..8].try_into().unwrap())
}

/// A member's end of one connection: the bytes that came, of which it has read some frames.
#[derive(Default)]
struct Server {
    lens: VecDeque<usize>,
    bytes: Vec<u8>,
    answers: VecDeque<u64>,
    /// All frames that it carried out, over all connections.
    carried_out: Vec<u64>,
}

impl Server {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Carries out frames that are there whole.
    fn work(&mut self, lens: &BTreeMap<u64, usize>, most: usize) {
        for _ in 0..most {
            let Some(len) = self.bytes.get(..8).map(|head| lens[&number(head)]) else { return };
            if self.bytes.len() < len {
                return;
            }
            let done = number(&self.bytes);
            assert_eq!(self.bytes[..len], frame(done, len), "the bytes of a frame");
            self.bytes.drain(..len);
            self.carried_out.push(done);
            self.answers.push_back(done);
        }
    }
}

struct World {
    dispatch: Dispatch<u64>,
    rules: FrameRules,
    servers: Vec<Server>,
    lens: BTreeMap<u64, usize>,
    /// Frame's own number by the session's, and the answers that the client had.
    by_seq: BTreeMap<u64, u64>,
    delivered: Vec<u64>,
    told: Vec<u64>,
    rng: Pcg32,
    deaths: u32,
}

impl World {
    fn new(rules: FrameRules, seed: u64) -> World {
        World {
            dispatch: Dispatch::new(rules),
            rules,
            servers: (0..3).map(|_| Server::default()).collect(),
            lens: BTreeMap::new(),
            by_seq: BTreeMap::new(),
            delivered: Vec::new(),
            told: Vec::new(),
            rng: Pcg32::seed_from_u64(seed),
            deaths: 0,
        }
    }

    fn below(&mut self, most: usize) -> usize {
        self.rng.next_u32() as usize % most
    }

    fn offer(&mut self, name: u64) {
        let (member, len) = (self.below(3), 8 + self.below(60));
        let frame = frame(name, len);
        self.lens.insert(name, len);
        let written = if self.dispatch.is_clear(member) { self.below(len + 20).min(len) } else { 0 };
        self.servers[member].write(&frame[..written]);
        if self.rules.answers == Answers::None && self.below(2) == 0 {
            let all = self.dispatch.written(member) + written as u64;
            self.dispatch.acknowledged(member, all);
        }
        let seq = self.dispatch.submit(member, Tag::Client, &frame, written);
        self.by_seq.insert(seq, name);
    }

    fn write(&mut self, member: usize) {
        let room = self.below(200) as u64;
        let bytes = self.dispatch.sendable(member, room);
        let len = bytes.len().min(self.rng.next_u32() as usize % 150);
        self.servers[member].write(&bytes[..len]);
        self.dispatch.wrote(member, len);
    }

    fn answer(&mut self, member: usize) {
        if self.rules.answers == Answers::None {
            let all = self.dispatch.written(member);
            let offset = all.saturating_sub(self.below(100) as u64);
            self.dispatch.acknowledged(member, offset);
            return;
        }
        let Some(name) = self.servers[member].answers.pop_front() else { return };
        let answer = self.dispatch.answer(member).unwrap();
        assert_eq!(self.by_seq[&answer.seq], name, "answers come in the order of a member's frames");
        match self.rules.answers {
            Answers::InOrder => {
                self.dispatch.place(answer.seq, name);
                while let Some(name) = self.dispatch.deliver() {
                    self.delivered.push(name);
                }
            }
            _ => self.delivered.push(name),
        }
    }

    /// Ends a member's connection; its frames are executed up to an unknown point.
    fn kill(&mut self, member: usize) {
        self.deaths += 1;
        let some = self.below(10);
        let lens = std::mem::take(&mut self.lens);
        self.servers[member].work(&lens, some);
        self.lens = lens;
        self.servers[member].bytes.clear();
        self.servers[member].answers.clear();
        self.servers[member].lens.clear();
        for orphan in self.dispatch.fail(member) {
            match orphan.frame {
                Some(frame) => {
                    assert_eq!(number(&frame), self.by_seq[&orphan.seq]);
                    let other = self.below(3);
                    self.dispatch.carry(other, orphan.seq, orphan.tag, &frame, 0);
                }
                None => {
                    let name = self.by_seq[&orphan.seq];
                    self.told.push(name);
                    if self.rules.answers == Answers::InOrder {
                        self.dispatch.place(orphan.seq, name);
                    }
                }
            }
        }
        while let Some(name) = self.dispatch.deliver() {
            self.delivered.push(name);
        }
    }

    fn run(&mut self, frames: u64, deaths: bool) {
        let mut name = 0;
        while name < frames || self.dispatch.open() > 0 {
            let member = self.below(3);
            match self.below(if deaths { 400 } else { 399 }) {
                0..150 if name < frames => {
                    self.offer(name);
                    name += 1;
                }
                0..250 => self.write(member),
                250..320 => {
                    let most = self.below(5);
                    self.servers[member].work(&self.lens, most);
                }
                320..399 => self.answer(member),
                _ => self.kill(member),
            }
        }
        for server in &mut self.servers {
            server.work(&self.lens, usize::MAX);
        }
    }
}

fn rules() -> impl Strategy<Value = FrameRules> {
    let answers = prop_oneof![Just(Answers::Any), Just(Answers::InOrder), Just(Answers::None)];
    let retry = prop_oneof![Just(Retry::Never), Just(Retry::Idempotent)];
    (answers, retry).prop_map(|(answers, retry)| FrameRules { answers, retry })
}

proptest! {
    #[test]
    fn without_a_crash_every_frame_comes_once_and_in_order_per_member(rules in rules(), seed in any::<u64>()) {
        let mut world = World::new(rules, seed);
        world.run(300, false);
        let mut all: Vec<u64> = world.servers.iter().flat_map(|server| server.carried_out.clone()).collect();
        for server in &world.servers {
            prop_assert!(server.carried_out.is_sorted());
        }
        all.sort_unstable();
        prop_assert_eq!(&all, &(0..300).collect::<Vec<_>>());
        if rules.answers != Answers::None {
            if rules.answers == Answers::InOrder {
                prop_assert!(world.delivered.is_sorted());
            }
            world.delivered.sort_unstable();
            prop_assert_eq!(&world.delivered, &all);
        }
        prop_assert_eq!(world.dispatch.bytes(), 0);
        prop_assert!((0..3).all(|member| world.dispatch.outstanding(member) == 0));
    }

    #[test]
    fn across_crashes_every_frame_is_carried_out_or_told(rules in rules(), seed in any::<u64>()) {
        let mut world = World::new(rules, seed);
        world.run(300, true);
        let mut times = BTreeMap::<u64, usize>::new();
        for server in &world.servers {
            server.carried_out.iter().for_each(|&name| *times.entry(name).or_default() += 1);
        }
        for name in 0..300 {
            let times = times.get(&name).copied().unwrap_or(0);
            match rules {
                // Never twice; and if not at all, the client is informed.
                FrameRules { answers: Answers::Any | Answers::InOrder, retry: Retry::Never } => {
                    prop_assert!(times <= 1, "{} was carried out {} times", name, times);
                    prop_assert!(times == 1 || world.told.contains(&name));
                }
                // At least once, and answered once.
                FrameRules { answers: Answers::Any | Answers::InOrder, retry: Retry::Idempotent } => {
                    prop_assert!(times >= 1);
                    prop_assert_eq!(world.delivered.iter().filter(|&&other| other == name).count(), 1);
                }
                // Acknowledged frames may be lost with a member; no others.
                FrameRules { answers: Answers::None, .. } => prop_assert!(times >= 1 || world.deaths > 0),
            }
        }
        if rules.answers == Answers::InOrder {
            prop_assert!(world.delivered.is_sorted());
        }
        prop_assert_eq!(world.dispatch.bytes(), 0);
    }
}

#[test]
fn an_answer_that_was_not_asked_is_refused() {
    let mut dispatch = Dispatch::<()>::new(FrameRules { answers: Answers::Any, retry: Retry::Never });
    assert_eq!(dispatch.answer(0), Err(Unrequested));
    dispatch.submit(0, Tag::Client, b"half a frame", 6);
    assert_eq!(dispatch.answer(0), Err(Unrequested), "it has not been asked whole");
    dispatch.wrote(0, 6);
    assert!(dispatch.answer(0).is_ok());
    assert_eq!(dispatch.answer(0), Err(Unrequested));
}

#[test]
fn the_frames_that_a_dead_member_may_have_lost_are_bounded_from_above() {
    let mut dispatch = Dispatch::<()>::new(FrameRules { answers: Answers::None, retry: Retry::Never });
    let frame = [1; 1000];
    for sent in 1..=10_000u64 {
        dispatch.acknowledged(0, sent * 1000);
        dispatch.submit(0, Tag::Client, &frame, 1000);
    }
    assert_eq!(dispatch.open(), 0);
    for window in [0u64, 5_000, 65_536, 1_000_000, 5_000_000] {
        let bound = dispatch.perhaps_lost(0, window);
        assert!(bound >= window / 1000 && bound <= window / 1000 + 2 * 66, "{window}: {bound}");
    }
    assert_eq!(dispatch.perhaps_lost(0, u64::MAX), 10_000);
}

/// Sessions of two clients that always have more, at a member that serves the oldest first.
fn contend(sessions: [usize; 2], weights: [f64; 2]) -> [f64; 2] {
    let (mut cluster, mut now) = (Cluster::new(), Time::ZERO);
    let member = cluster.add_member(now, MemberConfig { buffer: 64_000, segment: 1000 });
    let clients = weights.map(|weight| cluster.add_client(weight));
    let owner = |session: u64| usize::from(session >= sessions[0] as u64);
    let mut served = [0u64; 2];
    let mut queue = VecDeque::new();
    for session in 0..(sessions[0] + sessions[1]) as u64 {
        cluster.wait(member, clients[owner(session)], session, 4000);
    }
    for _ in 0..20_000 {
        while let Some(session) = cluster.wake(now, member) {
            let client = owner(session);
            let room = cluster.room(now, member, clients[client]).clamp(1, 4000);
            for _ in 0..room.div_ceil(1000) {
                cluster.on_sent(now, member, clients[client], 1000);
                queue.push_back((client, now));
            }
            cluster.wait(member, clients[client], session, 4000);
        }
        now += Time::from_micros(100);
        if let Some((client, sent)) = queue.pop_front() {
            served[client] += 1;
            cluster.on_drained(now, member, clients[client], 1000, Some(now.saturating_sub(sent)));
        }
    }
    assert!(cluster.window(member).outstanding() <= 64_000 + 1000);
    let all = (served[0] + served[1]) as f64;
    assert!(all > 19_000.0, "{all} served of 20000");
    served.map(|count| count as f64 / all)
}

#[test]
fn five_hundred_sessions_of_one_client_have_one_share() {
    for (sessions, weights, expected) in
        [([500, 1], [1.0, 1.0], 0.5), ([1, 1], [1.0, 1.0], 0.5), ([500, 1], [1.0, 3.0], 0.25)]
    {
        let parts = contend(sessions, weights);
        assert!((parts[0] - expected).abs() < 0.05, "{sessions:?} {weights:?}: {parts:?}");
    }
}

#[test]
fn a_client_that_ends_leaves_nothing() {
    let mut cluster = Cluster::new();
    let member = cluster.add_member(Time::ZERO, MemberConfig { buffer: 1000, segment: 100 });
    let (one, other) = (cluster.add_client(1.0), cluster.add_client(1.0));
    cluster.on_sent(Time::ZERO, member, one, 1000);
    cluster.wait(member, other, 7, 500);
    cluster.wait(member, other, 8, 500);
    assert_eq!(
        cluster.wake(Time::ZERO, member),
        Some(7),
        "its part is its own, whatever others have in hand"
    );
    cluster.forget(member, other, 8);
    cluster.on_lost(Time::from_secs(1), member, one, 1000);
    assert_eq!(cluster.wake(Time::from_secs(1), member), None);
    cluster.remove_client(other);
    assert_eq!(cluster.add_client(2.0), other, "its place is free");
    assert_eq!(cluster.room(Time::from_secs(2), member, other), 1000);
}
