//! A listening host that receives arbitrary datagrams from an unknown address.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use tollway_law::Time;
use tollway_law::sender::NewRenoConfig;
use tollway_net::host::{Host, HostConfig};
use tollway_proto::transport::Config;

thread_local! {
    static LISTENER: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// Sends the datagrams in `data` to the host. Each is one byte with its length, then its bytes.
/// Checks that nothing panics, that no connection opens, and that the answers have at most three
/// times the bytes of the datagrams.
pub fn strangers(data: &[u8]) {
    LISTENER.with_borrow_mut(|listener| {
        let host = listener.get_or_insert_with(listen);
        let before = *host.stats();
        let mut rest = data;
        while let Some((&len, tail)) = rest.split_first() {
            let (datagram, tail) = tail.split_at(tail.len().min(usize::from(len)));
            // Port 9 is the discard port: answers to it are lost.
            let from = SocketAddr::from(([127, 0, 0, 1], 9));
            host.handle(Time::from_secs(1), from, datagram).expect("a stranger has no payload to be wrong");
            rest = tail;
        }
        assert_eq!(host.connections(), 0);
        let stats = host.stats();
        let (came, went) =
            (stats.stranger_bytes - before.stranger_bytes, stats.challenge_bytes - before.challenge_bytes);
        assert!(went <= 3 * came, "{went} bytes for {came}");
    });
}

fn listen() -> Host {
    let transport = Config { header: 80, ack_size: 112, ..Config::default() };
    let config = HostConfig {
        transport: Arc::new(transport),
        law: Box::new(|| NewRenoConfig::default().build().into()),
        patience: Time::from_secs(3),
        most: 8,
        most_per_address: 4,
    };
    Host::new(SocketAddr::from(([127, 0, 0, 1], 0)), config, Some([7; 16])).expect("a socket on loopback")
}
