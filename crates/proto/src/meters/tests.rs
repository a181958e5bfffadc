use super::*;

#[test]
fn who_takes_over_a_number_starts_with_a_clean_sheet() {
    let mut meters = Meters::default();
    let posts = [Duty::Windows, Duty::Balance].map(|duty| meters.add_post(MeterConfig::default(), duty));
    meters.announce(3, 1500);
    let flags = Flags::DATA.with(Flags::TOLLED);
    for post in posts {
        let mut packet = Packet { flow: 3, size: 1500, flags, ..Packet::default() };
        meters.on_entry(Time::from_secs(1), post, &mut packet);
    }
    assert!(meters.of(3).is_some() && meters.payers[3].is_some());
    meters.announce(3, 1500);
    assert!(meters.of(3).is_none() && meters.payers[3].is_none());
}

#[test]
fn what_is_sent_again_is_no_news_of_what_is_paid() {
    let mut meters = Meters::default();
    let post = meters.add_post(MeterConfig::default(), Duty::Balance);
    meters.announce(0, 1500);
    // A packet each millisecond that pays what links ask; every other one is a repair, which paid
    // the price of long ago.
    for ms in 0..20_000 {
        let (seq, stake) = if ms % 2 == 0 { (1000 + ms, 1e-8) } else { (ms, 1e-10) };
        let toll = Toll { due: 1e-8, rtt: 0.1, stake, ..Toll::default() };
        let flags = Flags::DATA.with(Flags::TOLLED);
        let mut packet = Packet { toll, seq, size: 1500, flags, ..Packet::default() };
        meters.on_entry(Time::from_millis(ms.into()), post, &mut packet);
    }
    assert_eq!(meters.balance(0), None);
}

fn data(flow: u32, toll: Toll) -> Packet {
    Packet { flow, toll, size: 1000, flags: Flags::DATA.with(Flags::TOLLED), ..Packet::default() }
}

fn meters(duties: &[Duty]) -> Meters {
    let mut meters = Meters::default();
    for (post, &duty) in duties.iter().enumerate() {
        assert_eq!(meters.add_post(MeterConfig::default(), duty), post as u32);
    }
    (0..4).for_each(|flow| meters.announce(flow, 1000));
    meters
}

#[test]
fn what_a_first_packet_announces_is_of_so_many_bytes_of_one_round_trip() {
    let opened = |after: &[u64]| -> Vec<f32> {
        let mut payer = Payer::default();
        // Ten packets of 250 B.
        assert_eq!(
            payer.opens(Time::from_secs(1), 250, &Toll { rtt: 0.0, offer: 10.0, ..Toll::default() }),
            0.0
        );
        let toll = Toll { rtt: 0.1, ..Toll::default() };
        after.iter().map(|&ms| payer.opens(Time::from_millis(1100 + ms), 1000, &toll)).collect()
    };
    assert_eq!(opened(&[0, 10, 20, 30]), [1000.0, 1000.0, 500.0, 0.0]);
    // The round trip begins with the first packet that knows it.
    assert_eq!(opened(&[500, 600, 601]), [1000.0, 1000.0, 0.0]);
    // A packet that was no first one announces nothing of the kind.
    let toll = Toll { rtt: 0.1, offer: 10.0, ..Toll::default() };
    assert_eq!(Payer::default().opens(Time::ZERO, 1000, &toll), 0.0);
}

#[test]
fn a_wire_is_busy_since_its_last_break() {
    let mut meters = meters(&[Duty::Windows]);
    let mut since = |now, on_wire| {
        meters.note_wire(Time(now), 0, WireTimes { time: Time(on_wire), delay: Time::ZERO });
        meters.posts[0].busy_since.0
    };
    assert_eq!(since(5000, 1000), 4000);
    // Back to back, but for a nanosecond that is carried.
    assert_eq!(since(6000, 1000), 4000);
    assert_eq!(since(7001, 1000), 4000);
    assert_eq!(since(8003, 1000), 7003);
    assert_eq!(since(9003, 1000), 7003);
}

#[test]
fn who_states_no_window_is_not_watched() {
    let mut meters = meters(&[Duty::Windows]);
    for flags in
        [Flags::ACK.with(Flags::TOLLED), Flags::DATA, Flags::DATA.with(PLAIN), Flags::SYN.with(PLAIN)]
    {
        let mut packet = Packet { flags, ..data(1, Toll::default()) };
        assert_eq!(meters.on_entry(Time::from_secs(1), 0, &mut packet), Passage::Untouched);
        assert!(meters.of(1).is_none(), "{flags:?}");
    }
    // An opening is measured, and counts as a flow seen once a toll follows.
    let mut syn = Packet { flags: Flags::SYN, ..data(1, Toll::default()) };
    meters.on_entry(Time::from_secs(1), 0, &mut syn);
    assert!(meters.of(1).is_some() && meters.counts() == (0, 0));
    for _ in 0..2 {
        meters.on_entry(Time::from_secs(1), 0, &mut data(1, Toll::default()));
        assert_eq!(meters.counts(), (1, 0));
    }
}

#[test]
fn a_flow_is_watched_where_it_first_passes_and_by_the_packets_it_announced() {
    let mut meters = meters(&[Duty::Windows, Duty::Windows]);
    meters.announce(2, 500);
    for post in [0, 1, 1] {
        meters.on_entry(Time::from_secs(1), post, &mut data(2, Toll::default()));
    }
    // One packet of twice the size; what passes the second post is no business of it.
    assert_eq!(meters.of(2).unwrap().allotment(), 2.0);
    assert_eq!(meters.counts(), (1, 0));
}

#[test]
fn a_budget_is_kept_where_the_host_s_flow_enters_and_nowhere_else() {
    let budget = |usd| Duty::Budget(tollway_law::Budget::per_sec(usd));
    let mut meters = meters(&[budget(1.0), budget(1e-9)]);
    for ms in 1..1000 {
        for post in [0, 1] {
            let toll = Toll { rtt: 0.1, stake: 1e-7, ..Toll::default() };
            meters.on_entry(Time::from_millis(ms), post, &mut data(0, toll));
        }
    }
    assert_eq!(meters.counts(), (1, 0));
    assert!([0, 1].iter().all(|&post| meters.account(post).unwrap().accusation().is_none()));
    // Nor does traffic that pays nothing count.
    let mut plain = Packet { flags: Flags::DATA, ..data(3, Toll::default()) };
    meters.on_entry(Time::from_secs(1), 1, &mut plain);
    assert_eq!(meters.counts(), (1, 0));
}

#[test]
fn an_underpayment_is_known_at_the_entry_with_the_first_answer_that_leaves_after_it() {
    let mut meters = meters(&[Duty::Budget(tollway_law::Budget::per_sec(1.0)), Duty::Balance]);
    for ms in 1..5000u64 {
        let toll = Toll { due: 1e-7, rtt: 0.1, stake: 1e-9, ..Toll::default() };
        for post in [0, 1] {
            let mut packet = Packet { seq: ms as u32, ..data(0, toll) };
            meters.on_entry(Time::from_millis(ms), post, &mut packet);
        }
    }
    let found = meters.balance(0).unwrap();
    assert_eq!((found.offence, meters.counts()), (Offence::Underpaid, (1, 1)));
    let ack = |meters: &mut Meters, sent: Time, flags: Flags| {
        let toll = Toll { echo: 1e-7, ..Toll::default() };
        let mut packet = Packet { sent: Stamp::at(sent), flags: Flags::ACK.with(flags), ..data(0, toll) };
        packet.flags = Flags::ACK.with(flags);
        meters.on_exit(Time::from_secs(6), 0, &mut packet);
        meters.account(0).unwrap().accusation().map(|found| found.offence)
    };
    let before = found.at.saturating_sub(Time::from_millis(1));
    assert_eq!(ack(&mut meters, before, Flags::ECHO), None);
    assert_eq!(ack(&mut meters, found.at, Flags::default()), None, "it brings no price");
    assert_eq!(ack(&mut meters, found.at, Flags::ECHO), Some(Offence::Underpaid));
    // From then on the host's packets are charged what their path asks.
    let mut cheap = data(0, Toll { rtt: 0.1, stake: 1e-9, ..Toll::default() });
    assert_eq!(meters.on_entry(Time::from_secs(6), 0, &mut cheap), Passage::Rewritten);
    assert_eq!(cheap.toll.stake, 1e-7);
}

/// An acknowledgement of the packet sent at `sent`, with a price or feedback of 1.
fn answer(flow: u32, sent: Time) -> Packet {
    let flags = Flags::ACK.with(Flags::ECHO).with(Flags::STAMP_ECHO);
    let toll = Toll { echo: 1.0, ..Toll::default() };
    Packet { flow, toll, flags, sent_echo: Stamp::at(sent), ..Packet::default() }
}

#[test]
fn a_border_turns_prices_both_ways() {
    let mut meters = meters(&[Duty::Windows]);
    assert_eq!(meters.add_border(Exchange::new(tollway_law::link::ExchangeRate::Fixed(4.0))), 1);
    assert_eq!((meters.border(1).map(Exchange::factor), meters.border(0).is_some()), (Some(4.0), false));
    let mut packet = data(0, Toll { due: 2.0, stake: 3.0, ..Toll::default() });
    assert_eq!(meters.on_entry(Time::from_secs(1), 1, &mut packet), Passage::Rewritten);
    assert_eq!((packet.toll.due, packet.toll.stake), (8.0, 12.0));
    // A price that goes back, and nothing that is none.
    let back = |meters: &mut Meters, packet: Packet| {
        let mut packet = packet;
        meters.on_exit(Time::from_secs(1), 1, &mut packet);
        packet.toll.echo
    };
    let priced = answer(0, Time::ZERO);
    assert_eq!(back(&mut meters, priced), 0.25);
    for flags in [Flags::ACK, Flags::ECHO, Flags::ACK.with(Flags::ECHO).with(PLAIN)] {
        assert_eq!(back(&mut meters, Packet { flags, ..priced }), 1.0, "{flags:?}");
    }
}

#[test]
fn a_round_trip_is_measured_from_before_the_link_to_the_answer() {
    let ms = Time::from_millis;
    // The packet was 2 ms on a wire that was busy for 8 ms before it, and 3 ms on its way: it left
    // no later than at 995 ms.
    let entry = |meters: &mut Meters, flags| {
        meters.note_wire(ms(998), 0, WireTimes { time: ms(8), delay: ms(3) });
        meters.note_wire(ms(1000), 0, WireTimes { time: ms(2), delay: ms(3) });
        let mut packet = Packet { flags, sent: Stamp::at(ms(995)), ..data(1, Toll::default()) };
        meters.on_entry(ms(1000), 0, &mut packet);
    };
    for flags in [Flags::SYN, Flags::DATA.with(Flags::TOLLED)] {
        let mut meters = meters(&[Duty::Windows, Duty::Windows]);
        entry(&mut meters, flags);
        // Neither another flow's answers, nor those at another post, nor what is no answer.
        meters.on_exit(ms(1050), 1, &mut answer(1, ms(995)));
        meters.on_exit(ms(1050), 0, &mut answer(2, ms(995)));
        for none in [Flags::STAMP_ECHO, Flags::ACK, Flags::ACK.with(Flags::STAMP_ECHO).with(PLAIN)] {
            meters.on_exit(ms(1050), 0, &mut Packet { flags: none, ..answer(1, ms(995)) });
        }
        assert_eq!(meters.of(1).unwrap().rtt(), 0.0, "{flags:?}");
        meters.on_exit(ms(1100), 0, &mut answer(1, ms(995)));
        // And its sender may have measured those 8 ms, too.
        assert!((meters.of(1).unwrap().rtt() - 0.113).abs() < 1e-9, "{}", meters.of(1).unwrap().rtt());
    }
}

#[test]
fn who_is_accused_is_counted_once_and_held() {
    let mut meters = meters(&[Duty::Windows, Duty::Budget(tollway_law::Budget::per_sec(1.0))]);
    let mut dropped = 0;
    for i in 1..300u64 {
        // Every 10 ms a packet that is answered after 100, and states a round trip of 500.
        let now = Time::from_millis(10 * i);
        let toll = Toll { rtt: 0.5, offer: 0.05, stake: 3e-5, ..Toll::default() };
        let mut packet = Packet { seq: i as u32, sent: Stamp::at(now), ..data(0, toll) };
        meters.note_wire(now, 0, WireTimes::default());
        meters.on_entry(now, 0, &mut packet);
        meters.on_exit(
            now,
            0,
            &mut Packet { flow: 0, ..answer(0, now.saturating_sub(Time::from_millis(100))) },
        );
        // Another spends three times its budget.
        let passage = meters.on_entry(now, 1, &mut Packet { seq: i as u32, ..data(1, toll) });
        dropped += u32::from(passage == Passage::Dropped);
    }
    assert_eq!(meters.of(0).unwrap().accusation().map(|found| found.offence), Some(Offence::RttOverstated));
    let account = meters.account(1).unwrap();
    assert_eq!(account.accusation().map(|found| found.offence), Some(Offence::Overspent));
    assert_eq!((meters.counts(), account.dropped()), ((2, 2), u64::from(dropped)));
    assert!(dropped > 100, "{dropped}");
    // The price returned to a held host is that of its meter.
    let told = account.answer(1.0);
    let mut back = answer(1, Time::ZERO);
    meters.on_exit(Time::from_secs(3), 1, &mut back);
    assert!(told > 1.0 && back.toll.echo == told, "{told}");
    // That of another host's flow is left alone.
    let mut other = answer(0, Time::ZERO);
    meters.on_exit(Time::from_secs(3), 1, &mut other);
    assert_eq!(other.toll.echo, 1.0);
}
