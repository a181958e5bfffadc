//! The simulation loses as much as the bytes: `quantise_*` against headers written and read.

use proptest::prelude::*;
use tollway_law::Toll;
use tollway_proto::Encoding;
use tollway_proto::encoding::draft20::{self, Header};
use tollway_proto::encoding::tcp_option::{self, Builder, Forward};

/// Tolls as senders write them, and unusual ones: unknown, tiny, or beyond every field.
fn toll() -> impl Strategy<Value = Toll> {
    let due = prop_oneof![
        -1e9..1e9f64,
        -2.0..2.0f64,
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::NAN),
        Just(1e24),
        any::<f64>()
    ];
    let rtt = prop_oneof![Just(0.0f32), 1e-6..1e-3f32, 1e-3..2.0f32, 2.0..100.0f32, Just(f32::INFINITY)];
    let offer = prop_oneof![Just(0.0f32), 1e-9..1e-5f32, 1e-5..1.0f32, 1.0..100.0f32];
    (due, rtt, offer, -1e9..1e9f32).prop_map(|(due, rtt, offer, echo)| Toll {
        due,
        rtt,
        offer,
        stake: 0.0,
        echo,
    })
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop::sample::select(Encoding::NAMED.map(|(_, encoding)| encoding).to_vec())
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1500u32), 40..=9000u32, Just(0)]
}

/// Through bytes as a sender writes them and a link reads them; `None` where nothing is lost by
/// construction.
fn sent(encoding: Encoding, toll: &Toll, size: u32) -> Option<Toll> {
    match encoding {
        Encoding::Acp => None,
        Encoding::TcpOption { feedback } => {
            let mut list = Builder::new();
            list.timestamps(1, 2).unwrap();
            list.forward(Forward::from_toll(toll, size, feedback)).unwrap();
            let at = tcp_option::locate(list.as_slice()).unwrap().forward.unwrap();
            Some(Forward::read(list.as_slice(), at).unwrap().toll(size, feedback))
        }
        Encoding::Draft20 { version } => {
            let bytes = Header::from_toll(toll, version, 6).to_bytes();
            Some(Header::parse(&bytes).unwrap().toll())
        }
    }
}

/// Through bytes that were sent, rewritten by a link whose law set `due`, and read again.
fn written(encoding: Encoding, toll: &Toll, due: f64, size: u32) -> Option<f64> {
    match encoding {
        Encoding::Acp => None,
        Encoding::TcpOption { feedback } => {
            let forward = Forward::from_toll(toll, size, feedback);
            let mut bytes = forward.to_bytes();
            let bits = tcp_option::encode_due(due, forward.rtt_ms, size, feedback);
            assert!(tcp_option::store_feedback(&mut bytes, 0, bits));
            Some(Forward::read(&bytes, 0).unwrap().toll(size, feedback).due)
        }
        Encoding::Draft20 { version } => {
            let mut bytes = Header::from_toll(toll, version, 6).to_bytes();
            draft20::store_delta(&mut bytes, draft20::encode_change(due)).unwrap();
            Some(Header::parse(&bytes).unwrap().toll().due)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_sender_loses_what_its_bytes_lose(encoding in encoding(), toll in toll(), size in size()) {
        let mut quantised = toll;
        encoding.quantise_sender(&mut quantised, size);
        prop_assert_eq!(quantised.echo, toll.echo);
        match sent(encoding, &toll, size) {
            Some(read) => prop_assert_eq!(quantised, Toll { echo: toll.echo, ..read }),
            None => prop_assert_eq!(quantised.due.to_bits(), toll.due.to_bits()),
        }
        if encoding.xcp_only() {
            prop_assert!(quantised.due.is_finite() && quantised.rtt.is_finite() && quantised.offer.is_finite());
        }
    }

    #[test]
    fn a_link_loses_what_its_bytes_lose(
        encoding in encoding(), toll in toll(), due in -1e9..1e9f64, size in size(),
    ) {
        let mut quantised = toll;
        encoding.quantise_sender(&mut quantised, size);
        quantised.due = due;
        encoding.quantise_link(&mut quantised, size);
        prop_assert_eq!(quantised.due, written(encoding, &toll, due, size).unwrap_or(due));
    }

    #[test]
    fn a_second_hop_loses_nothing_more(encoding in encoding(), toll in toll(), size in size()) {
        prop_assume!(!toll.due.is_nan());
        let mut once = toll;
        encoding.quantise_sender(&mut once, size);
        let mut twice = once;
        encoding.quantise_link(&mut twice, size);
        prop_assert_eq!(once, twice);
        encoding.quantise_sender(&mut twice, size);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn an_echo_loses_what_its_bytes_lose(
        encoding in encoding(), echo in -1e8..1e8f32, rtt in 0.0..3.0f32, segment in size(),
    ) {
        let read = match encoding {
            Encoding::Acp => echo,
            Encoding::TcpOption { feedback } => {
                let rtt_ms = tcp_option::encode_rtt(rtt);
                let mut list = Builder::new();
                list.back(tcp_option::encode_due(f64::from(echo), rtt_ms, segment, feedback)).unwrap();
                let bits = tcp_option::parse(list.as_slice()).unwrap().back.unwrap();
                tcp_option::decode_due(bits, rtt_ms, segment, feedback) as f32
            }
            Encoding::Draft20 { version } => {
                Header::parse(&Header::minimal(echo, version, 6).to_bytes()).unwrap().toll().echo
            }
        };
        let quantised = encoding.quantise_echo(echo, rtt, segment);
        prop_assert_eq!(quantised, read);
        prop_assert_eq!(encoding.quantise_echo(quantised, rtt, segment), quantised);
    }

    #[test]
    fn what_the_split_value_loses_is_small(
        change in -400.0..400.0f64, rtt_ms in 1u16..2000, cwnd in 1u16..5000,
    ) {
        let rtt = f32::from(rtt_ms) / 1e3;
        let due = change * 1500.0 / f64::from(rtt);
        let mut toll = Toll { due, rtt, offer: rtt / f32::from(cwnd), ..Toll::default() };
        let before = toll;
        let encoding: Encoding = "tcp-option".parse().unwrap();
        encoding.quantise_sender(&mut toll, 1500);
        let packets = toll.due * f64::from(rtt) / 1500.0;
        prop_assert!((packets - change).abs() <= (change.abs() / 512.0).max(1.0 / 8192.0) + 1e-9);
        prop_assert_eq!((toll.rtt, toll.offer), (before.rtt, before.offer));
    }
}
