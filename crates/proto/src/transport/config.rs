//! What a connection can be told to do otherwise.

use tollway_law::Time;
use tollway_law::receiver::Echo;

/// The parameters of a [`Connection`](super::Connection); many connections share one.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// A full segment on the wire, headers included, bytes. Default 1500.
    pub segment: u16,
    /// Headers of a data packet, bytes; the payload of a full segment is the rest. Default 40.
    pub header: u16,
    /// A packet without data on the wire, bytes. Default 40.
    pub ack_size: u16,
    /// Whether a connection is opened by SYN, SYN+ACK, ACK. If not, both ends start established, the way ns-2's
    /// agents do. Default yes.
    pub handshake: bool,
    /// Number of the first segment, of both directions. Default 0.
    pub initial_segment: u32,
    /// Segments that may wait for acknowledgement, whatever the windows say. Default 2^20.
    pub send_buffer: u32,
    /// Receive buffer, bytes of payload; it bounds the advertised window. Default 2^30.
    pub receive_buffer: u64,
    /// How the advertised window comes to use that buffer. Default: all of it at once. Of no effect
    /// with a `reader` or soft flow control.
    pub window_growth: WindowGrowth,
    /// How the application reads what has arrived. Default: at once.
    pub reader: Reader,
    /// The receiver's flow control. Default: credit.
    pub flow_control: FlowControl,
    /// Whether the receiver reports segments received out of order (RFC 2018). Default yes.
    pub sack: bool,
    /// Most ranges in one report, by what room the header has: 3 beside a timestamp, 2 beside one XCP option
    /// too, 1 beside both. Default 3.
    pub sack_ranges: u8,
    /// How losses are found. Without `sack` it is [`Detection::NewReno`] or [`Detection::Reno`] in any case.
    pub detection: Detection,
    /// How many times more a retransmission leaves if the receiver's window would not last until the loss of it is found and repaired;
    /// with [`Detection::Rack`] only. Default 0.
    pub repair_copies: u8,
    /// Whether the first duplicate acknowledgements let new segments leave (RFC 3042). Default yes.
    pub limited_transmit: bool,
    /// Longest wait of an acknowledgement for a second segment (RFC 1122: 500 ms, Linux 40 ms); `None`
    /// acknowledges each. Default `None`.
    pub delayed_ack: Option<Time>,
    /// The retransmission timer.
    pub rto: Rto,
    /// Whether data packets may be marked instead of dropped. Default no.
    pub ecn: bool,
    /// Whether these say, by ECT(1), that their sender answers marks as L4S wants (RFC 9331 § 4.3), which is up to the
    /// law. Default no.
    pub l4s: bool,
    /// What a receiver echoes of the tolls that come, as the other side's law wants it. Default the sum.
    pub echo: Echo,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            segment: 1500,
            header: 40,
            ack_size: 40,
            handshake: true,
            initial_segment: 0,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 30,
            window_growth: WindowGrowth::Whole,
            reader: Reader::AtOnce,
            flow_control: FlowControl::Credit,
            sack: true,
            sack_ranges: 3,
            detection: Detection::Rfc6675,
            repair_copies: 0,
            limited_transmit: true,
            delayed_ack: None,
            rto: Rto::default(),
            ecn: false,
            l4s: false,
            echo: Echo::Sum,
        }
    }
}

impl Config {
    /// Payload of a full segment, bytes; at least 1, so that data gets on whatever the sizes say.
    #[inline]
    pub fn payload(&self) -> u16 {
        self.segment.saturating_sub(self.header).max(1)
    }

    /// The receive buffer in full segments, at least 1.
    pub fn receive_segments(&self) -> u32 {
        (self.receive_buffer / u64::from(self.payload())).clamp(1, u64::from(MAX_WINDOW)) as u32
    }

    /// The window advertised at the start, segments.
    pub(super) fn first_window(&self) -> u32 {
        let initial = match self.window_growth {
            WindowGrowth::Whole => u32::MAX,
            WindowGrowth::PerPacket { initial, .. } | WindowGrowth::Feedback { initial } => initial.max(1),
        };
        match self.flow_control {
            FlowControl::Credit => initial.min(self.receive_segments()),
            FlowControl::Soft => Config::overcommitted(self.receive_segments()),
        }
    }

    /// Whether the sender goes by the ranges reported.
    #[inline]
    pub(super) fn heeds_ranges(&self) -> bool {
        !matches!(self.detects(), Detection::NewReno | Detection::Reno)
    }

    /// How losses are found, considering that ranges may not be reported.
    #[inline]
    pub(super) fn detects(&self) -> Detection {
        if self.sack || self.detection == Detection::Reno { self.detection } else { Detection::NewReno }
    }
}

/// How the advertised window grows into the receive buffer. It never shrinks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowGrowth {
    /// The whole buffer is advertised from the start.
    Whole,
    /// By a fixed number of segments a data packet, as Linux does it (by 2).
    PerPacket {
        /// Segments advertised at the start.
        initial: u32,
        /// Segments more a data packet.
        step: u32,
    },
    /// By the whole part of the feedback received, in segments: the XCP study's change, since feedback can open
    /// the sender's window faster than Linux opens the receiver's.
    Feedback {
        /// Segments advertised at the start.
        initial: u32,
    },
}

/// An application's pace: by frames, and by segments where there are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As data arrive.
    AtOnce,
    /// One every so often at most: each keeps it busy so long.
    Every(Time),
    /// The same by turns, a square wave.
    Wave {
        /// Time a frame takes in the first half of each period.
        first: Time,
        /// Time a frame takes in the second half.
        second: Time,
        /// The period, from the run's begin on; above zero.
        period: Time,
    },
}

impl Reader {
    /// The most frames that it reads in a second; the mean over a wave, infinite at once.
    pub fn per_second(self) -> f64 {
        let rate = |interval: Time| 1.0 / interval.as_secs_f64();
        match self {
            Reader::AtOnce => f64::INFINITY,
            Reader::Every(interval) => rate(interval),
            Reader::Wave { first, second, .. } => (rate(first) + rate(second)) / 2.0,
        }
    }

    /// The time that a frame read at `now` keeps the application busy.
    pub(super) fn interval(self, now: Time) -> Time {
        match self {
            Reader::AtOnce => Time::ZERO,
            Reader::Every(interval) => interval,
            Reader::Wave { first, second, period } => {
                let phase = now.0 % period.0.max(1);
                if phase < period.0 / 2 { first } else { second }
            }
        }
    }
}

/// The flow control of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// The window states the room left.
    Credit,
    /// XCP's feedback states the rate at which the buffer drains (the Anypoint paper, § IV-A). The
    /// receiver drops a segment without room.
    Soft,
}

/// How a sender finds out that a segment is lost, short of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Three duplicate acknowledgements repair one segment, and recovery ends with the first new acknowledgement (RFC 5681 § 3.2).
    /// Until what was in flight then is acknowledged, duplicates begin no other recovery: further holes wait for the timer, as with
    /// `bugFix_` in ns-2's `Agent/TCP/Reno`.
    Reno,
    /// Three duplicate acknowledgements, then one segment a partial acknowledgement (RFC 6582). Ranges reported are not looked at.
    NewReno,
    /// Three segments received beyond it (RFC 6675).
    Rfc6675,
    /// One sent later was received, and a little time has passed (RFC 8985); finds lost retransmissions too. There
    /// are no duplicate reports (DSACK) here, so the reordering window does not adapt.
    Rack {
        /// Whether the last segment of a burst is probed for after two round trips (§ 7).
        tail_probe: bool,
    },
}

/// The retransmission timer (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Before the first round-trip sample. Default 1 s.
    pub initial: Time,
    /// The least timeout. Default 200 ms, as Linux has it; RFC 6298 says 1 s.
    pub min: Time,
    /// The greatest timeout. Default 60 s.
    pub max: Time,
    /// The least margin over the smoothed round trip: RFC 6298's clock granularity G. Default 200 ms, which is
    /// where Linux puts its minimum, so that a steady round trip doesn't leave no margin at all.
    pub granularity: Time,
    /// Whether the timeout doubles each time it expires. The XCP study proposes that it should not.
    pub backoff: bool,
    /// The fast retransmit of the first hole restarts the timer (RFC 6675 § 6 allows it; Linux and
    /// ns-2 do so). [`Detection::Rack`] does in any case. Default no.
    pub at_repair: bool,
    /// Each timeout after another retransmits twice as many segments, up to 256. Over a switch the
    /// first may lie beyond its member's window, which only later ones open. Default no.
    pub widens: bool,
    /// With [`Detection::NewReno`], only the first partial acknowledgement of a recovery restarts
    /// the timer (RFC 6582 § 4, Impatient). If not, each does (Slow-but-Steady). Default no.
    pub impatient: bool,
}

impl Default for Rto {
    fn default() -> Rto {
        Rto {
            initial: Time::from_secs(1),
            min: Time::from_millis(200),
            max: Time::from_secs(60),
            granularity: Time::from_millis(200),
            backoff: true,
            at_repair: false,
            widens: false,
            impatient: false,
        }
    }
}

/// The largest window believed or advertised: what serial arithmetic on 32 bits can tell apart, with a margin.
pub(super) const MAX_WINDOW: u32 = 1 << 30;
