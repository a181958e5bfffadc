//! The echo service: the smallest app.

use std::collections::VecDeque;

use bytes::Bytes;
use tollway_law::Time;

use super::{App, MessagePort};
use crate::transport::Event;

/// Returns each message on its port, in order; closes a port once its peer has.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    /// Messages returned.
    pub echoed: u64,
    ports: Vec<Port>,
}

/// Messages not yet returned at a port, and whether no more will come.
#[derive(Clone, Debug, Default)]
struct Port {
    waiting: VecDeque<Bytes>,
    finished: bool,
}

impl Echo {
    fn port(&mut self, port: MessagePort) -> &mut Port {
        let at = port.0 as usize;
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, Port::default);
        }
        &mut self.ports[at]
    }
}

impl App for Echo {
    fn handle_message(&mut self, _: Time, port: MessagePort, message: Bytes) {
        self.port(port).waiting.push_back(message);
    }

    fn handle_event(&mut self, _: Time, port: MessagePort, event: Event) {
        self.port(port).finished |= matches!(event, Event::PeerFinished | Event::Reset);
    }

    fn poll_message(&mut self, _: Time, port: MessagePort, unsent: u64) -> Option<Bytes> {
        let message = if unsent == 0 { self.port(port).waiting.pop_front() } else { None };
        self.echoed += u64::from(message.is_some());
        message
    }

    fn is_finished(&self, port: MessagePort) -> bool {
        self.ports.get(port.0 as usize).is_some_and(|port| port.finished && port.waiting.is_empty())
    }
}
