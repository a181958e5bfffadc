//! The toll: the 24 bytes of a packet that links write and senders obey.

/// What a packet carries of the control law, in law units. An encoding (in `tollway-proto`) writes it as bytes.
///
/// | field | XCP | FCP |
/// |---|---|---|
/// | `due` | throughput change asked for, then granted, per packet, bytes/s | price of the path so far, $/byte |
/// | `rtt` | sender's smoothed round-trip time, s; 0 unknown | the same |
/// | `offer` | X, s between this sender's packets; 0 unknown | preload |
/// | `stake` | packets it speaks for, itself included; 0 is one | balance, $/byte |
/// | `echo` | sum of `due` received since the last packet back, bytes/s | last `due` received, $/byte |
///
/// `due` is a double because what links write is summed; the sender's own words need no more than a float.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Toll {
    /// What links write.
    pub due: f64,
    /// The sender's smoothed round-trip time in seconds, 0 while it is unknown.
    pub rtt: f32,
    /// What the sender says of its rate.
    pub offer: f32,
    /// What the sender says it pays.
    pub stake: f32,
    /// What the far end heard, on its way back; it means something only in a packet that says it carries an echo.
    pub echo: f32,
}

const _: () = assert!(size_of::<Toll>() == 24);

/// How a link's law has to take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes and nothing more: plain traffic, and acknowledgements without data (XCP's minimal header).
    Plain,
    /// The toll's forward part is meant for the links on the way.
    Tolled,
}
