//! Tolls at a switch with one member in use: they leave it as they came, to the bit.

use std::cell::RefCell;
use std::rc::Rc;

use tollway_law::receiver::Echo;
use tollway_law::sender::{AnySender, FcpConfig, XcpConfig};
use tollway_law::session::Reading;
use tollway_law::toll::Content;
use tollway_law::{Time, Toll};
use tollway_proto::route::Policy;
use tollway_proto::switch;
use tollway_proto::transport::Config;
use tollway_proto::{Flags, Packet};

use super::net::{Net, Opener};

fn xcp() -> AnySender {
    XcpConfig::default().build().into()
}

fn fcp() -> AnySender {
    FcpConfig::default().build().into()
}

/// Runs a session of which one member is used; returns the packets that differ, and how many were
/// compared.
fn differing(
    members: usize,
    opener: Opener,
    content: Content,
    reading: Reading,
) -> (Vec<(Packet, Packet)>, usize) {
    let (law, echo, due): (fn() -> AnySender, _, _) = match content {
        Content::Feedback => (xcp, Echo::Sum, (-2e4, 2e4)),
        _ => (fcp, Echo::Latest, (1e-8, 1e-7)),
    };
    let transport = Config { send_buffer: 64, echo, ..Config::default() };
    let session = switch::Config { content: Some(content), reading, ..switch::Config::default() };
    // The sticky module uses one member only.
    let mut net = Net::with(31, members, opener, Policy::Sticky, transport, session, law);
    net.due = due;
    let log = Rc::new(RefCell::new((Vec::new(), 0)));
    let taken = log.clone();
    net.watch = Box::new(move |_, came, left| {
        let Some((_, left)) = left.filter(|_| !came.flags.has(Flags::SYN)) else { return };
        let mut log = taken.borrow_mut();
        log.1 += 1;
        let bits = |toll: &Toll| {
            let floats = [toll.rtt, toll.offer, toll.stake, toll.echo].map(f32::to_bits);
            (toll.due.to_bits(), floats)
        };
        let same = bits(&came.toll) == bits(&left.toll)
            && came.flags.has(Flags::ECHO) == left.flags.has(Flags::ECHO)
            && came.window == left.window;
        if !same {
            log.0.push((*came, *left));
        }
    });
    net.open();
    if opener == Opener::Peer {
        net.write(0, 2000, 1000);
    } else {
        net.write(1, 2000, 1000);
    }
    net.drive(Time::from_secs(20));
    drop(net);
    Rc::try_unwrap(log).unwrap().into_inner()
}

#[test]
fn one_member_or_one_active_of_four_is_no_switch_at_all() {
    for opener in [Opener::Peer, Opener::Members] {
        for content in [Content::Feedback, Content::Price] {
            for reading in [Reading::Totals, Reading::Literal] {
                // Read literally, the bound of a merge is what the source's latest packet carried,
                // whichever packet is acknowledged.
                let bounded = opener == Opener::Members && content == Content::Feedback;
                if bounded && reading == Reading::Literal {
                    continue;
                }
                for members in [1, 4] {
                    let (differ, compared) = differing(members, opener, content, reading);
                    assert!(compared > 500, "{compared}");
                    // Windows are cut to the ring.
                    let tolls: Vec<_> = differ.iter().filter(|(came, left)| came.toll != left.toll).collect();
                    assert!(tolls.is_empty(), "{members} {opener:?} {content:?} {reading:?}: {:?}", tolls[0]);
                }
            }
        }
    }
}
