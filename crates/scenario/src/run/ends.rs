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
    pub(super) fn connect(&self, first_segment: Option<u32>) -> [Connection; 2] {
        let own = first_segment
            .map(|initial_segment| Arc::new(Config { initial_segment, ..(**self.config).clone() }));
        let config = own.as_ref().unwrap_or(self.config);
        let mut client = Connection::client(config, (self.law)(false), 0);
        let mut server = Connection::server(config, (self.law)(true), 0);
        self.prepare(&mut client, &mut server);
        [client, server]
    }

    /// Makes client and server of those of a flow that has ended.
    pub(super) fn renew(&self, client: &mut Connection, server: &mut Connection) {
        client.renew_client(self.config, (self.law)(false), 0);
        server.renew_server(self.config, (self.law)(true), 0);
        self.prepare(client, server);
    }

    fn prepare(&self, client: &mut Connection, server: &mut Connection) {
        server.set_routers_passed(self.routers.0);
        client.set_routers_passed(self.routers.1);
        write(client, self.data);
        if self.both_ways {
            write(server, self.data);
        }
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
