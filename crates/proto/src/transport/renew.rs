//! A new connection in the place of one that has ended.

use std::sync::Arc;

use tollway_law::Time;
use tollway_law::sender::AnySender;

use super::predict::Expected;
use super::receiver::Receiver;
use super::sender::Sender;
use super::stats::Counters;
use super::{Config, Connection, State};

impl Connection {
    /// Makes of an old connection what [`client`](Connection::client) makes, in its memory.
    pub fn renew_client(&mut self, config: &Arc<Config>, law: AnySender, flow: u32) {
        let Connection { config: known, flow: number, state, events, told, expected, receive, send, stats } =
            self;
        if !Arc::ptr_eq(known, config) {
            *known = Arc::clone(config);
        }
        (*number, *state, *events, *told, *expected) = (flow, State::Idle, 0, 0, Expected::Anything);
        *receive = Receiver::new(config);
        send.renew(config, law);
        *stats = Counters::default();
    }

    /// Makes of an old connection what [`server`](Connection::server) makes, in its memory.
    pub fn renew_server(&mut self, config: &Arc<Config>, law: AnySender, flow: u32) {
        self.renew_client(config, law, flow);
        if !config.handshake {
            self.establish_unasked(Time::ZERO);
        }
    }
}

impl Sender {
    /// Makes a new sender of an old one, whose few slots serve it.
    fn renew(&mut self, config: &Config, law: AnySender) {
        let slots = self.board.take_slots();
        *self = Sender::new(config, law);
        self.board.give_slots(slots);
    }
}
