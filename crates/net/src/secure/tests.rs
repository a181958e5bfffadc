use std::collections::BTreeSet;

use proptest::prelude::*;
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;

const A: &str = "10.0.0.1:7000";
const B: &str = "10.0.0.2:7000";
const C: &str = "10.0.0.3:7000";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn files() -> Vec<KeyFile> {
    KeyFile::mesh(&["a", "b", "c"].map(String::from)).unwrap()
}

/// Two parties, and the datagrams between them.
struct Pair {
    files: Vec<KeyFile>,
    parties: [Secure; 2],
    addrs: [SocketAddr; 2],
    now: Time,
}

impl Pair {
    fn new() -> Pair {
        Pair::of(files())
    }

    fn of(files: Vec<KeyFile>) -> Pair {
        let parties = [
            Secure::new(&files[0], &[("b", at(B)), ("c", at(C))]).unwrap(),
            Secure::new(&files[1], &[("a", at(A)), ("c", at(C))]).unwrap(),
        ];
        Pair { files, parties, addrs: [at(A), at(B)], now: Time::from_secs(1) }
    }

    /// Delivers both parties' handshake datagrams until none is left.
    fn settle(&mut self) -> Vec<Vec<u8>> {
        let mut opened = Vec::new();
        loop {
            let mut quiet = true;
            for from in 0..2 {
                while let Some((to, mut datagram)) = self.parties[from].poll_transmit() {
                    if to != self.addrs[1 - from] {
                        continue;
                    }
                    quiet = false;
                    opened.extend(self.hand(from, &mut datagram));
                }
            }
            if quiet {
                return opened;
            }
        }
    }

    fn hand(&mut self, from: usize, datagram: &mut [u8]) -> Option<Vec<u8>> {
        match self.parties[1 - from].handle_datagram(self.now, self.addrs[from], datagram) {
            Heard::Packet(len) => Some(datagram[FRONT..][..len].to_vec()),
            Heard::Handshake | Heard::Refused => None,
        }
    }

    fn seal(&mut self, from: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.parties[from].seal(self.now, self.addrs[1 - from], packet, &mut out).then_some(out)
    }

    /// Completes a handshake.
    fn open(&mut self) {
        self.parties[0].open_all(self.now);
        self.settle();
        for i in 0..2 {
            assert_eq!(self.parties[i].trouble(self.addrs[1 - i]), None);
        }
    }

    fn sessions(&self) -> [usize; 2] {
        [0, 1].map(|i| self.parties[i].peers[0].sessions.len())
    }
}

#[test]
fn packets_wait_for_keys_and_arrive_sealed() {
    let mut pair = Pair::new();
    assert_eq!(pair.seal(1, b"first"), None);
    assert_eq!(pair.seal(1, b"second"), None);
    assert_eq!(pair.settle(), [b"first".to_vec(), b"second".to_vec()]);
    for (from, packet) in [(0, &b"there"[..]), (1, b"and back"), (0, &[7; 1472])] {
        let mut datagram = pair.seal(from, packet).unwrap();
        assert_eq!(datagram.len(), packet.len() + OVERHEAD);
        assert!(!datagram.windows(packet.len()).any(|window| window == packet));
        assert_eq!(pair.hand(from, &mut datagram).unwrap(), packet);
    }
    assert_eq!(pair.parties[0].stats(), SecureStats::default());
    assert_eq!(pair.parties[1].stats(), SecureStats::default());
}

#[test]
fn no_more_than_a_few_packets_wait() {
    let mut pair = Pair::new();
    for i in 0..WAITING as u8 + 5 {
        pair.seal(0, &[i]);
    }
    assert_eq!(pair.parties[0].stats().unsealed, 5);
    assert_eq!(pair.settle().len(), WAITING);
}

#[test]
fn a_datagram_that_comes_again_is_refused_here_and_at_another_hop() {
    let mut pair = Pair::new();
    pair.open();
    let datagrams: Vec<_> = (0..1100u32).map(|i| pair.seal(0, &i.to_be_bytes()).unwrap()).collect();
    // Out of order, within the window.
    for datagram in datagrams[1..].iter().rev().take(1000) {
        assert!(pair.hand(0, &mut datagram.clone()).is_some());
    }
    for datagram in &datagrams[..1] {
        assert_eq!(pair.hand(0, &mut datagram.clone()), None, "it fell out of the window");
    }
    let before = pair.parties[1].stats().replayed;
    for datagram in datagrams[1..].iter().rev().take(1000) {
        assert_eq!(pair.hand(0, &mut datagram.clone()), None);
    }
    assert_eq!(pair.parties[1].stats().replayed, before + 1000);
    // Another node of the same mesh, which also has keys with A.
    let fresh = pair.seal(0, b"for b").unwrap();
    let mut c = Secure::new(&pair.files[2], &[("a", at(A))]).unwrap();
    c.open_all(pair.now);
    let hello = c.poll_transmit().unwrap().1;
    let mut hear = |a: &mut Secure, mut datagram: Vec<u8>| {
        a.handle_datagram(pair.now, at(C), &mut datagram);
        while let Some((to, mut datagram)) = a.poll_transmit() {
            assert_eq!(to, at(C));
            c.handle_datagram(pair.now, at(A), &mut datagram);
        }
        c.poll_transmit()
    };
    let again = hear(&mut pair.parties[0], hello).unwrap().1;
    hear(&mut pair.parties[0], again);
    assert_eq!(c.trouble(at(A)), None, "they have keys");
    assert_eq!(c.handle_datagram(pair.now, at(A), &mut fresh.clone()), Heard::Refused);
    // Back to its sender.
    assert_eq!(pair.parties[0].handle_datagram(pair.now, at(B), &mut fresh.clone()), Heard::Refused);
    assert_eq!((c.stats().forged, pair.parties[0].stats().forged), (1, 1));
    assert_eq!(pair.hand(0, &mut fresh.clone()).unwrap(), b"for b");
}

#[test]
fn strangers_leave_no_state_and_get_less_than_they_send() {
    let mut pair = Pair::new();
    let strange = KeyFile::mesh(&["b".into(), "a".into()]).unwrap();
    let mut stranger = Secure::new(&strange[0], &[("a", at(A))]).unwrap();
    let a = &mut pair.parties[0];
    // From no peer's address: no answer.
    stranger.open_all(pair.now);
    let hello = stranger.poll_transmit().unwrap().1;
    assert_eq!(a.handle_datagram(pair.now, at("10.9.9.9:1"), &mut hello.clone()), Heard::Refused);
    assert_eq!((a.poll_transmit(), a.stats().strangers), (None, 1));
    // With the forged address of a peer: a cookie, and no key arithmetic.
    let (mut came, mut went) = (0, 0);
    for i in 0..1000u32 {
        let mut hello = hello.clone();
        hello[TOKEN_AT..TOKEN_AT + 4].copy_from_slice(&i.to_be_bytes());
        came += hello.len();
        a.handle_datagram(pair.now, at(B), &mut hello);
        while let Some((to, datagram)) = a.poll_transmit() {
            assert_eq!((to, datagram[0]), (at(B), RETRY));
            went += datagram.len();
        }
    }
    assert!(went > 0 && went < came, "{went} of {came}");
    let peer = &a.peers[0];
    assert!(peer.sessions.is_empty() && peer.welcomed.is_none() && peer.attempt.is_none());
    // A party that receives at this address has other keys.
    a.handle_datagram(pair.now, at(B), &mut hello.clone());
    let mut retry = a.poll_transmit().unwrap().1;
    stranger.handle_datagram(pair.now, at(A), &mut retry);
    let mut hello = stranger.poll_transmit().unwrap().1;
    a.handle_datagram(pair.now, at(B), &mut hello);
    assert_eq!((a.poll_transmit(), a.stats().handshakes), (None, 1));
    assert!(a.peers[0].sessions.is_empty());
    assert_eq!(
        (a.trouble(at(B)), stranger.trouble(at(A))),
        (Some(Trouble::Mistaken), Some(Trouble::Mistaken))
    );
    assert_eq!(a.trouble(at(C)), Some(Trouble::Silent));
    // The right party is still accepted.
    pair.open();
}

#[test]
fn a_peer_without_keys_is_named_so() {
    let mut pair = Pair::new();
    let mut plain = [0xa5; 80];
    assert_eq!(pair.hand(1, &mut plain), None);
    assert_eq!(pair.parties[0].trouble(at(B)), Some(Trouble::Plain));
    assert_eq!(pair.parties[0].stats().plain, 1);
    let missing = Secure::new(&pair.files[0], &[("d", at(B))]);
    assert!(matches!(missing, Err(SecureError::NoKey { name }) if name == "d"));
}

#[test]
fn a_hello_that_comes_again_gets_the_same_welcome_and_an_older_one_none() {
    let mut pair = Pair::new();
    let hello = |pair: &mut Pair| {
        pair.parties[0].open_all(pair.now);
        let mut first = pair.parties[0].poll_transmit().unwrap().1;
        pair.hand(0, &mut first);
        let mut retry = pair.parties[1].poll_transmit().unwrap().1;
        pair.hand(1, &mut retry);
        pair.parties[0].replies.retain(|(to, _)| *to == at(B));
        pair.parties[0].poll_transmit().unwrap().1
    };
    let old = hello(&mut pair);
    let welcome = |pair: &mut Pair, hello: &[u8]| {
        pair.hand(0, &mut hello.to_vec());
        pair.parties[1].poll_transmit().map(|(_, datagram)| datagram)
    };
    let first = welcome(&mut pair, &old).unwrap();
    assert_eq!((welcome(&mut pair, &old).unwrap(), pair.sessions()), (first, [0, 1]));
    // The party begins anew, a second later.
    pair.now += Time::from_secs(1);
    pair.parties[0] = Secure::new(&pair.files[0], &[("b", at(B)), ("c", at(C))]).unwrap();
    let new = hello(&mut pair);
    let mut answer = welcome(&mut pair, &new).unwrap();
    assert_eq!(welcome(&mut pair, &old), None);
    assert_eq!(pair.parties[1].stats().handshakes, 1);
    // An attacker on the path gets the old one a new cookie.
    pair.now += Time::from_secs(1);
    let mut bare = old.clone();
    bare[1..TOKEN_AT].fill(0);
    let retry = welcome(&mut pair, &bare).unwrap();
    assert_eq!(retry[0], RETRY);
    bare[1..TOKEN_AT].copy_from_slice(&retry[1 + TOKEN_LEN..]);
    assert_eq!(welcome(&mut pair, &bare), None);
    assert_eq!(pair.parties[1].stats().handshakes, 2);
    pair.hand(1, &mut answer);
    pair.settle();
    assert!(pair.seal(1, b"x").is_some());
}

#[test]
fn keys_are_renewed_without_a_packet_lost_and_forgotten_when_old() {
    let mut pair = Pair::new();
    pair.open();
    let mut held = None;
    for second in 0..1000u64 {
        pair.now += Time::from_secs(1);
        for from in 0..2 {
            let mut datagram = pair.seal(from, &second.to_be_bytes()).unwrap();
            if second == 0 && from == 0 {
                held = Some(datagram.clone());
                continue;
            }
            assert_eq!(pair.hand(from, &mut datagram).unwrap(), second.to_be_bytes());
        }
        pair.settle();
    }
    assert_eq!(pair.parties[0].stats().unsealed + pair.parties[1].stats().unsealed, 0);
    assert!(pair.parties[0].peers[0].next >= 8, "keys of two minutes in a thousand seconds");
    assert!(pair.sessions().iter().all(|&kept| kept <= SESSIONS));
    assert_eq!(pair.hand(0, &mut held.unwrap()), None);
    assert_eq!(pair.parties[1].stats().forged, 1);
}

#[test]
fn a_party_that_has_forgotten_all_is_found_again() {
    let mut pair = Pair::new();
    pair.open();
    // It only listens.
    pair.parties[1] = Secure::new(&pair.files[1], &[("a", at(A)), ("c", at(C))]).unwrap();
    let mut heard = None;
    for second in 0..15u64 {
        pair.now += Time::from_secs(1);
        pair.parties[0].handle_timeout(pair.now);
        let mut datagram = pair.seal(0, b"x").unwrap();
        if pair.hand(0, &mut datagram).is_some() {
            heard.get_or_insert(second);
        }
        pair.settle();
    }
    assert!(heard.is_some_and(|second| second <= 11), "{heard:?}");
}

/// A packet arrives whole, and at most once, under loss, duplication, reordering, corruption and
/// restarts.
///
/// Once the path is good again, packets arrive.
#[test]
fn a_seeded_soak_delivers_each_packet_once_or_not_at_all() {
    for seed in 0..20 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut pair = Pair::new();
        let mut under_way: Vec<(usize, Vec<u8>)> = Vec::new();
        let (mut number, mut arrived) = (0u64, BTreeSet::new());
        pair.parties.iter_mut().for_each(|party| party.open_all(Time::from_secs(1)));
        for step in 0..6000 {
            pair.now += Time::from_millis(rng.random_range(0..200));
            let bad = step < 5000;
            for from in 0..2 {
                pair.parties[from].handle_timeout(pair.now);
                number += 1;
                let sealed = pair.seal(from, &number.to_be_bytes());
                under_way.extend(sealed.map(|datagram| (from, datagram)));
                while let Some((to, datagram)) = pair.parties[from].poll_transmit() {
                    if to == pair.addrs[1 - from] {
                        under_way.push((from, datagram));
                    }
                }
            }
            if bad && rng.random_range(0..700) == 0 {
                let i = rng.random_range(0..2);
                let other = if i == 0 { ("b", at(B)) } else { ("a", at(A)) };
                pair.parties[i] = Secure::new(&pair.files[i], &[other]).unwrap();
            }
            while under_way.len() > if bad { 8 } else { 0 } {
                let (from, datagram) = under_way.swap_remove(rng.random_range(0..under_way.len()));
                if bad {
                    match rng.random_range(0..10) {
                        0 | 1 => continue,
                        2 => under_way.push((from, datagram.clone())),
                        3 => {
                            let mut wrong = datagram.clone();
                            let place = rng.random_range(0..wrong.len());
                            wrong[place] ^= 1 << rng.random_range(0..8);
                            assert_eq!(pair.hand(from, &mut wrong), None, "seed {seed}");
                        }
                        _ => {}
                    }
                }
                if let Some(packet) = pair.hand(from, &mut datagram.clone()) {
                    let number = u64::from_be_bytes(packet.try_into().unwrap());
                    assert!(arrived.insert(number), "seed {seed}: {number} came twice");
                }
            }
        }
        // The path has been good for long enough, so the last packets all arrived.
        for i in 0..200 {
            assert!(arrived.contains(&(number - 4 - i)), "seed {seed}: {i} before the last");
        }
    }
}

proptest! {
    #[test]
    fn a_wrong_byte_is_found_wherever_it_is(
        packet in prop::collection::vec(any::<u8>(), 1..200),
        place in any::<prop::sample::Index>(),
        wrong in 1u8..,
    ) {
        let mut pair = Pair::new();
        pair.open();
        let good = pair.seal(0, &packet).unwrap();
        let mut bad = good.clone();
        bad[place.index(good.len())] ^= wrong;
        prop_assert_eq!(pair.hand(0, &mut bad), None);
        prop_assert_eq!(pair.hand(0, &mut good.clone()), Some(packet));
    }

    #[test]
    fn no_datagram_panics(
        datagrams in prop::collection::vec((0u8..5, prop::collection::vec(any::<u8>(), 0..160)), 0..40),
    ) {
        let mut pair = Pair::new();
        pair.open();
        for (kind, mut datagram) in datagrams {
            if let Some(first) = datagram.first_mut() {
                *first = HELLO + kind;
            }
            prop_assert_eq!(pair.hand(1, &mut datagram), None);
        }
        prop_assert!(pair.seal(1, b"x").is_some());
    }
}
