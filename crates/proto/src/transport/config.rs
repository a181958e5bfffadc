//! The parameters of a connection.

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
    /// True to open connections by SYN, SYN+ACK, ACK. If false, both ends start established, as in
    /// ns-2's agents. Default true.
    pub handshake: bool,
    /// Number of the first segment, in both directions. Default 0.
    pub initial_segment: u32,
    /// Upper bound on unacknowledged segments, in addition to the windows. Default 2^20.
    pub send_buffer: u32,
    /// Receive buffer, bytes of payload; it bounds the advertised window. Default 2^30.
    pub receive_buffer: u64,
    /// The growth of the advertised window into that buffer. Default: whole from the start. No
    /// effect with a `reader` or soft flow control.
    pub window_growth: WindowGrowth,
    /// The application's pace of reading. Default: at once.
    pub reader: Reader,
    /// The receiver's flow control. Default: credit.
    pub flow_control: FlowControl,
    /// True if the receiver reports segments received out of order (RFC 2018). Default true.
    pub sack: bool,
    /// Upper bound on ranges per report, which depends on the header: 3 beside a timestamp, 2 with
    /// one XCP option too, 1 with both. Default 3.
    pub sack_ranges: u8,
    /// The method of loss detection. Without `sack` it is [`Detection::NewReno`],
    /// [`Detection::Reno`] or [`Detection::Ns2`].
    pub detection: Detection,
    /// Extra copies of a retransmission, sent if the receiver's window would not last until its
    /// loss is detected and repaired; with [`Detection::Rack`] only. Default 0.
    pub repair_copies: u8,
    /// True if the first duplicate acknowledgements release new segments (RFC 3042). Default true.
    pub limited_transmit: bool,
    /// Longest delay of an acknowledgement that waits for a second segment (RFC 1122: 500 ms, Linux
    /// 40 ms); `None` acknowledges each segment. Default `None`.
    pub delayed_ack: Option<Time>,
    /// The retransmission timer.
    pub rto: Rto,
    /// True if data packets may be marked instead of dropped. Default false.
    pub ecn: bool,
    /// True if they state, by ECT(1), that their sender reacts to marks as L4S requires (RFC 9331 §
    /// 4.3), which depends on the law. Default false.
    pub l4s: bool,
    /// The receiver's echo rule for tolls, as the other side's law requires. Default: the sum.
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
    /// Payload of a full segment, bytes; at least 1, so that data progress with any sizes.
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

    /// True if the sender uses reported ranges.
    #[inline]
    pub(super) fn heeds_ranges(&self) -> bool {
        self.sack && !matches!(self.detection, Detection::NewReno | Detection::Reno)
    }

    /// The method of loss detection in effect, given that ranges may not be reported.
    #[inline]
    pub(super) fn detects(&self) -> Detection {
        let without_sack = matches!(self.detection, Detection::Reno | Detection::Ns2);
        if self.sack || without_sack { self.detection } else { Detection::NewReno }
    }
}

/// The growth of the advertised window into the receive buffer. The window never shrinks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowGrowth {
    /// The whole buffer is advertised from the start.
    Whole,
    /// By a fixed number of segments per data packet; Linux has 2.
    PerPacket {
        /// Segments advertised at the start.
        initial: u32,
        /// Growth per data packet, segments.
        step: u32,
    },
    /// By the whole part of the feedback received, in segments. This is the XCP study's change,
    /// since feedback can open the sender's window faster than Linux opens the receiver's.
    Feedback {
        /// Segments advertised at the start.
        initial: u32,
    },
}

/// The application's pace of reading: by frames, or by segments where there are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As data arrive.
    AtOnce,
    /// At most one per interval: each keeps the application busy for this time.
    Every(Time),
    /// The same with two alternating intervals, a square wave.
    Wave {
        /// Time a frame takes in the first half of each period.
        first: Time,
        /// Time a frame takes in the second half.
        second: Time,
        /// The period, from the start of the run; above zero.
        period: Time,
    },
}

impl Reader {
    /// Upper bound on frames read per second: the mean over a wave, infinite for `AtOnce`.
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

/// The method by which a sender detects a lost segment before a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Three duplicate acknowledgements repair one segment, and recovery ends with the first new
    /// acknowledgement (RFC 5681 § 3.2). Until the data in flight at that time are acknowledged,
    /// duplicates start no other recovery: further holes wait for the timer, as with `bugFix_` in
    /// ns-2's `Agent/TCP/Reno`.
    Reno,
    /// Three duplicate acknowledgements, then one segment per partial acknowledgement (RFC 6582).
    /// Reported ranges are ignored.
    NewReno,
    /// Three segments received beyond it (RFC 6675).
    Rfc6675,
    /// A later segment was received, and a short time has passed (RFC 8985); detects lost
    /// retransmissions too. There are no duplicate reports (DSACK), so the reordering window does
    /// not adapt.
    Rack {
        /// True if the last segment of a burst is probed for after two round trips (§ 7).
        tail_probe: bool,
    },
    /// As ns-2.35: `Agent/TCP/Sack1` with `sack`, `Agent/TCP/Newreno` without. It also sets the
    /// window and samples round trips as these do, so it needs the law
    /// [`NewReno`](tollway_law::sender::NewReno).
    Ns2,
}

/// The retransmission timer (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Timeout before the first round-trip sample. Default 1 s.
    pub initial: Time,
    /// The least timeout. Default 200 ms, as in Linux; RFC 6298 has 1 s.
    pub min: Time,
    /// The greatest timeout. Default 60 s.
    pub max: Time,
    /// The least margin over the smoothed round trip: RFC 6298's clock granularity G. Default 200
    /// ms, where Linux applies its minimum, so that a constant round trip still has a margin.
    pub granularity: Time,
    /// True if the timeout doubles each time it expires. The XCP study proposes not to. Default
    /// true.
    pub backoff: bool,
    /// True if the fast retransmit of the first hole restarts the timer (RFC 6675 § 6 allows it;
    /// Linux and ns-2 do it). [`Detection::Rack`] always does. Default false.
    pub at_repair: bool,
    /// True if the nth timeout in a row, from the third on, allows a window of at least 2ⁿ⁻²
    /// segments, up to 256, and resends the first one and what follows the one resent last. Over a
    /// switch, the first lost segment may lie beyond its member's window. Only segments after it
    /// then open that window. Default false.
    pub widens: bool,
    /// With [`Detection::NewReno`]: true if only the first partial acknowledgement of a recovery
    /// restarts the timer (RFC 6582 § 4, Impatient), false if each does (Slow-but-Steady). Default
    /// false.
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

/// The largest window believed or advertised: unambiguous in 32-bit serial arithmetic, with a
/// margin.
pub(super) const MAX_WINDOW: u32 = 1 << 30;
