//! Apps: machines at a node that own the connections which end there.
//!
//! An [`App`] reads and writes whole messages. A message is a frame of the transport: ACP delivers
//! it once, in order, and marks its first and last segments. Between two apps its bytes are real in
//! both engines: payload on real packets, in the simulator a queue beside each connection.
//!
//! [`deliver`] and [`refill`] are the engine's side: they move messages between an app and a
//! connection.

mod caller;
mod echo;

pub use caller::Caller;
pub use echo::Echo;

use std::any::Any;
use std::fmt::Debug;

use bytes::Bytes;
use tollway_law::Time;

use crate::transport::{Connection, Event, State};

/// A sans-I/O machine on top of connections that end at its node, each at one of its *ports*.
///
/// The engine calls [`handle_message`](App::handle_message) and
/// [`handle_event`](App::handle_event) for deliveries, and [`poll_message`](App::poll_message)
/// whenever a connection has sent some of its data. After each call it asks
/// [`poll_port`](App::poll_port) and [`poll_timeout`](App::poll_timeout). Randomness is a seeded
/// generator handed to the constructor.
pub trait App: Any + Debug + Send {
    /// A message has arrived whole, after all before it. From a sender that is no app it has the
    /// right length, and no meaning.
    fn handle_message(&mut self, now: Time, port: MessagePort, message: Bytes);

    /// Handles an event of the connection at `port` other than a frame.
    fn handle_event(&mut self, _now: Time, _port: MessagePort, _event: Event) {}

    /// The next message to send at `port`, whose connection holds `unsent` bytes that have not left
    /// yet. An app that returns `None` while this is enough keeps the queue, and the choice of the
    /// next message, on its own side.
    fn poll_message(&mut self, now: Time, port: MessagePort, unsent: u64) -> Option<Bytes>;

    /// A port with a message that the engine does not expect: the last call was for another port,
    /// or for a timer. The engine then calls [`poll_message`](App::poll_message).
    fn poll_port(&mut self) -> Option<MessagePort> {
        None
    }

    /// Returns true once no message will follow at `port`: its connection closes this direction.
    fn is_finished(&self, _port: MessagePort) -> bool {
        false
    }

    /// Handles the instant that `poll_timeout` returned. `connections` gives access to the app's
    /// connections: round trips, laws and counters.
    fn handle_timeout(&mut self, _now: Time, _connections: &mut dyn Connections) {}

    /// The time of the next `handle_timeout`; [`Time::NEVER`] if the app waits for messages only.
    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

/// The place at an app where one connection ends, numbered in the order of attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessagePort(pub u32);

/// An app's connections, by port.
pub trait Connections {
    /// The connection that ends at `port`; `None` for a port that does not exist.
    fn connection(&mut self, port: MessagePort) -> Option<&mut Connection>;
}

/// Hands an app the deliveries of its connection at `port`; `read` returns the bytes of the next
/// frame, of this length.
pub fn deliver(
    app: &mut dyn App,
    now: Time,
    port: MessagePort,
    connection: &mut Connection,
    mut read: impl FnMut(u64) -> Bytes,
) {
    while let Some(event) = connection.poll_event() {
        match event {
            Event::FrameDelivered { bytes, .. } => app.handle_message(now, port, read(bytes)),
            event => app.handle_event(now, port, event),
        }
    }
}

/// Moves an app's messages at `port` to its connection, and shows each to `write`. Returns whether
/// there was any, or the app closed the port.
pub fn refill(
    app: &mut dyn App,
    now: Time,
    port: MessagePort,
    connection: &mut Connection,
    mut write: impl FnMut(Bytes),
) -> bool {
    if connection.is_closing() || connection.state() == State::Reset {
        return false;
    }
    let mut changed = false;
    while let Some(message) = app.poll_message(now, port, connection.unsent()) {
        connection.write_frame(message.len() as u64);
        write(message);
        changed = true;
    }
    if app.is_finished(port) {
        connection.finish();
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollway_law::sender::NewRenoConfig;

    use super::*;
    use crate::transport::Config;

    /// An app with a message at each call, while few bytes wait.
    #[derive(Debug, Default)]
    struct Endless(u64);

    impl App for Endless {
        fn handle_message(&mut self, _: Time, _: MessagePort, _: Bytes) {}

        fn poll_message(&mut self, _: Time, _: MessagePort, unsent: u64) -> Option<Bytes> {
            self.0 = self.0.max(unsent);
            (unsent < 3000).then(|| vec![0; 1000].into())
        }
    }

    #[test]
    fn a_connection_holds_as_much_as_its_app_lets_it() {
        let config = Arc::new(Config { handshake: false, ..Config::default() });
        let mut connection = Connection::client(&config, NewRenoConfig::default().build().into(), 0);
        let (mut app, now) = (Endless::default(), Time::ZERO);
        let mut bytes = 0;
        let mut refill = |app: &mut Endless, connection: &mut Connection| {
            refill(app, now, MessagePort(0), connection, |message| bytes += message.len())
        };
        assert!(refill(&mut app, &mut connection));
        assert_eq!((connection.unsent(), app.0), (3000, 3000));
        assert!(!refill(&mut app, &mut connection), "nothing has left");
        // After its end there are no more calls.
        connection.stop();
        assert!(!refill(&mut app, &mut connection));
        assert_eq!((bytes, connection.unsent()), (3000, 0));
    }
}
