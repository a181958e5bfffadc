//! Frames between daemons of the overlay: no bytes may panic, what is read is what is written, and
//! no frame upsets a daemon.

use std::sync::Arc;

use tollway_law::{Rate, Time};
use tollway_proto::overlay::wire::{Decoder, Encoder};
use tollway_proto::overlay::{Config, Daemon, DaemonId, Epoch, Frame, Incarnation, LinkConfig, TenantConfig};

/// A connection's bytes, given to a daemon that expects daemon 1 at the other end and has a message
/// for daemons 1 and 2.
pub fn overlay(data: &[u8]) {
    let mut now = Time::from_secs(1);
    let mut daemon: Daemon<Arc<[u8]>> = Daemon::new(now, Config::default(), 1);
    let port = daemon.open(now, LinkConfig { peer: DaemonId(1), weight: 1, rate: Rate::from_mbps(2.0) });
    let peer = Incarnation { daemon: DaemonId(1), epoch: Epoch(1) };
    daemon.handle_message(now, port, Frame::Hello(peer)).expect("the peer that is expected");
    daemon.join(b"group");
    let tenant = daemon.add_tenant(now, TenantConfig::default());
    let client = daemon.add_client(now, tenant);
    let set = daemon.set(&[DaemonId(1), DaemonId(2)]);
    let (mut decoder, mut encoder, mut again) = (Decoder::new(), Encoder::new(), Decoder::new());
    let mut rest = data;
    while let Ok(Some((frame, used))) = decoder.decode(rest) {
        let body: Option<Arc<[u8]>> = frame.body().map(|range| rest[range.clone()].into());
        let frame = frame.map_body(|_| body.unwrap_or_default());
        let mut bytes = Vec::new();
        encoder.encode(&frame, &mut bytes);
        bytes.extend(frame.body().into_iter().flat_map(|body| body.iter()));
        let (read, length) = again.decode(&bytes).expect("what is written can be read").expect("all of it");
        assert_eq!(length, bytes.len());
        let read = read.map_body(|range| Arc::<[u8]>::from(&bytes[range]));
        // Numbers that are none equal nothing; as text they do.
        assert_eq!(format!("{read:?}"), format!("{frame:?}"));
        let _ = daemon.handle_message(now, port, frame);
        let _ = daemon.buy(now, client, set, &[1], 100);
        daemon.send(now, client, set, Arc::from(&b"content"[..]));
        while let Some(frame) = daemon.poll_message(now, port) {
            frame.size();
        }
        now += Time::from_millis(700);
        daemon.handle_timeout(now);
        while daemon.poll_event().is_some() || daemon.poll_delivery().is_some() {}
        rest = &rest[used..];
    }
    // Time goes on for all that the frames have begun.
    for _ in 0..40 {
        now = daemon.poll_timeout().max(now + Time::from_millis(1));
        daemon.handle_timeout(now);
        while daemon.poll_message(now, port).is_some() {}
    }
    for status in daemon.snapshot().ports {
        assert!(status.price.is_finite() && status.lot >= 1.0);
    }
}
