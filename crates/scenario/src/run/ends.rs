//! The two ends of a flow.

use std::sync::Arc;

use tollway_law::sender::AnySender;
use tollway_proto::transport::{Config, Connection};

use crate::plan::Data;

/// The ends of a flow to be started.
pub(super) struct Ends<'a, L> {
    pub(super) config: &'a Arc<Config>,
    /// Makes the law of an end: of the server, if `true`.
    pub(super) law: L,
    /// Numbers of routers there and back.
    pub(super) routers: (u8, u8),
    pub(super) data: Data,
    pub(super) both_ways: bool,
}

impl<L: Fn(bool) -> AnySender> Ends<'_, L> {
    /// Makes client and server; `first_segment` if each flow has another first number.
    pub(super) fn connect(self, first_segment: Option<u32>) -> [Connection; 2] {
        let Ends { config, law, routers, data, both_ways } = self;
        let own =
            first_segment.map(|number| Arc::new(Config { initial_segment: number, ..(**config).clone() }));
        let config = own.as_ref().unwrap_or(config);
        let mut client = Connection::client(config, law(false), 0);
        let mut server = Connection::server(config, law(true), 0);
        prepare([&mut client, &mut server], routers, data, both_ways);
        [client, server]
    }

    /// Makes client and server of those of a flow that has ended.
    pub(super) fn renew(self, client: &mut Connection, server: &mut Connection) {
        let Ends { config, law, routers, data, both_ways } = self;
        client.renew_client(config, law(false), 0);
        server.renew_server(config, law(true), 0);
        prepare([client, server], routers, data, both_ways);
    }
}

fn prepare([client, server]: [&mut Connection; 2], (there, back): (u8, u8), data: Data, both_ways: bool) {
    server.set_routers_passed(there);
    client.set_routers_passed(back);
    write(client, data);
    if both_ways {
        write(server, data);
    }
}

/// Gives a sender its data.
fn write(sender: &mut Connection, data: Data) {
    match data {
        Data::Messages => {}
        Data::Endless => sender.write_unlimited(),
        Data::Bytes(bytes) => {
            sender.write_stream(bytes);
            sender.finish();
        }
        Data::Frames { count: Some(count), size } => {
            sender.write_frames(size, count);
            sender.finish();
        }
        Data::Frames { count: None, size } => sender.write_frames(size, u64::MAX),
    }
}
