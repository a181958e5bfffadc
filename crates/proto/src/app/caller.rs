//! A client of the echo service.

use bytes::Bytes;
use tollway_law::Time;

use super::{App, MessagePort};

/// Sends messages on each of its ports, checks that each comes back unchanged, then closes the
/// port.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    messages: u64,
    size: usize,
    /// Messages that came back unchanged, in the order in which they were sent.
    pub answered: u64,
    /// Other messages.
    pub wrong: u64,
    /// By port, messages sent and messages received.
    ports: Vec<(u64, u64)>,
}

impl Caller {
    /// A client that sends `messages` of `size` bytes on each port.
    pub fn new(messages: u64, size: usize) -> Caller {
        Caller { messages, size, ..Caller::default() }
    }

    fn port(&mut self, port: MessagePort) -> &mut (u64, u64) {
        let at = port.0 as usize;
        if self.ports.len() <= at {
            self.ports.resize(at + 1, (0, 0));
        }
        &mut self.ports[at]
    }

    /// The bytes of a message, which differ from those of the messages before and after.
    fn content(&self, port: MessagePort, number: u64) -> Bytes {
        let first = number.wrapping_mul(167).wrapping_add(u64::from(port.0).wrapping_mul(59));
        (first..).take(self.size).map(|byte| (byte ^ (byte >> 8)) as u8).collect()
    }
}

impl App for Caller {
    fn handle_message(&mut self, _: Time, port: MessagePort, message: Bytes) {
        let (_, received) = self.port(port);
        let number = *received;
        *received += 1;
        let same = number < self.messages && message == self.content(port, number);
        self.answered += u64::from(same);
        self.wrong += u64::from(!same);
    }

    fn poll_message(&mut self, _: Time, port: MessagePort, unsent: u64) -> Option<Bytes> {
        let messages = self.messages;
        let (sent, _) = self.port(port);
        if *sent == messages || unsent > 0 {
            return None;
        }
        *sent += 1;
        let number = *sent - 1;
        Some(self.content(port, number))
    }

    fn is_finished(&self, port: MessagePort) -> bool {
        self.ports.get(port.0 as usize).is_some_and(|&(_, received)| received >= self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Echo;

    #[test]
    fn what_comes_back_changed_or_out_of_order_is_wrong() {
        let (mut caller, mut echo) = (Caller::new(4, 300), Echo::default());
        let (now, port) = (Time::ZERO, MessagePort(1));
        let mut returned = Vec::new();
        while let Some(message) = caller.poll_message(now, port, 0) {
            echo.handle_message(now, port, message);
            assert_eq!(echo.poll_message(now, port, 1), None, "the connection holds enough");
            returned.extend(echo.poll_message(now, port, 0));
        }
        assert_eq!((returned.len(), echo.echoed), (4, 4));
        let mut changed = returned[3].to_vec();
        changed[299] ^= 1;
        for message in [&returned[0], &returned[1], &returned[1], &changed.into()] {
            assert!(!caller.is_finished(port));
            caller.handle_message(now, port, message.clone());
        }
        assert_eq!((caller.answered, caller.wrong, caller.is_finished(port)), (2, 2, true));
        caller.handle_message(now, port, returned[3].clone());
        assert_eq!(caller.wrong, 3, "it is one too many");
    }
}
