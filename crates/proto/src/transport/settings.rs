//! Changes of an open connection by its owner.

use tollway_law::sender::AnySender;

use super::config::MAX_WINDOW;
use super::{Connection, Reader};

impl Connection {
    /// Sets the receive buffer to `segments` full ones; zero closes the window.
    ///
    /// An advertised window stays valid (RFC 9293 § 3.8.6): a smaller buffer takes effect once the
    /// sender has used that window.
    pub fn set_receive_buffer(&mut self, segments: u32) {
        self.forget();
        self.receive.set_capacity(segments.min(MAX_WINDOW), &self.config);
    }

    /// Changes the application's pace of reading. A frame in progress takes as long as before.
    pub fn set_reader(&mut self, reader: Reader) {
        self.forget();
        self.receive.set_reader(reader, &self.config);
    }

    /// Holds back new data, from the next frame on, or lets them leave again. Data in flight are
    /// still repaired; the window stays.
    pub fn set_paused(&mut self, paused: bool) {
        self.forget();
        self.send.source.set_paused(paused);
    }

    /// Sets the number of routers on the path of the other side's packets, as IP's time-to-live
    /// shows it. It is compared with a toll's count of routers that speak its law.
    pub fn set_routers_passed(&mut self, routers: u8) {
        self.receive.feedback.set_passed(routers);
    }

    /// The sender's law, mutable for the owner of its budget.
    pub fn law_mut(&mut self) -> &mut AnySender {
        self.forget();
        &mut self.send.law
    }
}
