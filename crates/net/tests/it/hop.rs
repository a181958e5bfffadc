//! Sealed hops between two nodes on loopback.

use std::net::{Ipv4Addr, SocketAddr};

use tollway_law::Time;
use tollway_net::hop::{Batch, HopError, HopEvent, Hops, SILENCE};
use tollway_net::secure::{FRONT, KeyFile};
use tollway_proto::encoding::acp;
use tollway_proto::{Flags, Packet, SackRanges};

/// Two nodes with each other's keys, and their clock.
struct Pair {
    ends: [Hops; 2],
    now: Time,
    batch: Batch,
    files: Vec<KeyFile>,
    addrs: [SocketAddr; 2],
}

fn free() -> SocketAddr {
    std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn end(files: &[KeyFile], addrs: [SocketAddr; 2], side: usize, bind: SocketAddr, now: Time) -> Hops {
    let other = (["b", "a"][side].to_owned(), addrs[1 - side]);
    Hops::open_at(bind, &files[side], &[other], now).unwrap()
}

impl Pair {
    fn new() -> Pair {
        let (files, addrs) = (KeyFile::mesh(&["a".into(), "b".into()]).unwrap(), [free(), free()]);
        let now = Time::from_secs(100);
        let ends = [0, 1].map(|side| end(&files, addrs, side, addrs[side], now));
        Pair { ends, now, batch: Batch::new(), files, addrs }
    }

    /// Ends side 1, and replaces it by another process.
    fn replace(&mut self) {
        for bind in [free(), self.addrs[1]] {
            self.ends[1] = end(&self.files, self.addrs, 1, bind, self.now);
        }
    }

    /// Handles the datagrams at either side, for `millis` of real time. Returns the packets that
    /// side 1 got.
    ///
    /// The nodes' clock advances by `step` each millisecond.
    fn run(&mut self, millis: u64, step: Time) -> Vec<(Packet, Vec<u8>)> {
        let mut all = Vec::new();
        for _ in 0..millis {
            for (side, end) in self.ends.iter_mut().enumerate() {
                end.receive(&mut self.batch).unwrap();
                self.batch.for_each(|from, datagram| {
                    let Some(opened) = end.open(self.now, from, datagram) else { return };
                    let payload = datagram[FRONT + acp::LEN..opened.end].to_vec();
                    all.extend((side == 1).then_some((opened.packet, payload)));
                });
                end.handle_timeout(self.now);
            }
            self.now += step;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        all
    }

    fn events(&mut self, side: usize) -> Vec<HopEvent> {
        std::iter::from_fn(|| self.ends[side].poll_event()).collect()
    }
}

#[test]
fn packets_arrive_with_their_payloads_also_those_sent_before_there_are_keys() {
    let mut pair = Pair::new();
    let packet = |seq: u32, len: u16| Packet {
        seq,
        flags: Flags::DATA,
        size: (acp::OVERHEAD + acp::LEN) as u16 + len,
        ..Packet::default()
    };
    let payload = |seq: u32, len: u16| vec![seq as u8; usize::from(len)];
    let mut got = Vec::new();
    for seq in 0..300u32 {
        let len = 1 + (seq * 37 % 1300) as u16;
        let payload = payload(seq, len);
        let (front, back) = payload.split_at(payload.len() / 3);
        pair.ends[0].send(pair.now, 0, &packet(seq, len), &SackRanges::EMPTY, (front, back));
        // Some packets wait for keys, then short trains follow.
        if seq >= 10 && seq % 7 == 0 {
            got.extend(pair.run(if seq < 20 { 100 } else { 2 }, Time::from_millis(1)));
        }
    }
    got.extend(pair.run(100, Time::from_millis(1)));
    got.sort_by_key(|(packet, _)| packet.seq);
    assert_eq!(got.len(), 300);
    for (seq, (came, bytes)) in (0..).zip(&got) {
        let len = 1 + (seq * 37 % 1300) as u16;
        assert_eq!((came.seq, came.size, bytes), (seq, packet(seq, len).size, &payload(seq, len)));
    }
    assert_eq!(pair.ends.each_ref().map(|end| end.stats().senseless), [0, 0]);
}

#[test]
fn a_neighbour_is_up_while_it_is_heard_and_another_process_is_noticed() {
    let mut pair = Pair::new();
    pair.run(100, Time::from_millis(1));
    assert_eq!((pair.events(0), pair.events(1)), (vec![HopEvent::Up(0)], vec![HopEvent::Up(0)]));
    // Beats keep it up.
    pair.run(100, Time::from_millis(100));
    assert!(pair.events(0).is_empty() && pair.ends[0].is_up(0));
    pair.now += SILENCE + SILENCE;
    pair.ends[0].handle_timeout(pair.now);
    assert_eq!(pair.events(0), [HopEvent::Down(0)]);
    pair.replace();
    pair.run(100, Time::from_millis(100));
    assert_eq!(pair.events(0), [HopEvent::Up(0), HopEvent::Replaced(0)]);
}

#[test]
fn neighbours_that_cannot_be_told_apart_are_refused() {
    let files = KeyFile::mesh(&["a", "b", "c"].map(String::from)).unwrap();
    let at = free();
    let open = |names: [&str; 2], addrs: [SocketAddr; 2]| {
        let all = [0, 1].map(|i| (names[i].to_owned(), addrs[i]));
        Hops::open_at(free(), &files[0], &all, Time::ZERO).map(drop)
    };
    assert!(matches!(open(["b", "c"], [at, at]), Err(HopError::SameAddress { .. })));
    assert!(matches!(open(["b", "d"], [at, free()]), Err(HopError::Secure(_))));
    open(["b", "c"], [at, free()]).unwrap();
}

#[test]
fn a_neighbour_is_added_and_removed_while_others_stay() {
    let mut pair = Pair::new();
    let files = KeyFile::mesh(&["a".into(), "b".into(), "c".into()]).unwrap();
    pair.ends = [0, 1].map(|side| end(&files, pair.addrs, side, free(), pair.now));
    let addrs = [0, 1].map(|side| pair.ends[side].addr());
    let now = pair.now;
    let [first, second] = &mut pair.ends;
    first.remove(0);
    assert_eq!(first.add(now, &files[0], "b", addrs[1]).unwrap(), 0, "its index was free");
    let same = first.add(now, &files[0], "c", addrs[1]).unwrap_err();
    assert!(matches!(same, HopError::SameAddress { .. }), "{same}");
    let unknown = first.add(now, &files[0], "d", free()).unwrap_err();
    assert!(unknown.to_string().contains("`d`"), "{unknown}");
    let third = free();
    assert_eq!(first.add(now, &files[0], "c", third).unwrap(), 1);
    second.remove(0);
    assert_eq!(second.add(now, &files[1], "a", addrs[0]).unwrap(), 0);
    pair.run(200, Time::from_millis(1));
    assert_eq!(pair.events(0), [HopEvent::Up(0)]);
    assert_eq!(pair.ends[0].name_of(1), "c");
    pair.ends[0].remove(0);
    pair.events(1);
    pair.run(100, Time::from_millis(100));
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![HopEvent::Down(0)]));
    assert!(pair.ends[0].refused().strangers > 0);
}
