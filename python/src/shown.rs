//! The arguments of laws written in Python: the flow or port of a law, packets, acknowledgements.

use pyo3::prelude::*;
use tollway_law::sender::{self, window_limited};
use tollway_law::{Time, link};

/// The sender that a law is made for.
#[pyclass(frozen, get_all, module = "tollway")]
pub(crate) struct Sending {
    pub(crate) flow: String,
    pub(crate) section: String,
    pub(crate) backward: bool,
    pub(crate) segment: u16,
    pub(crate) initial_window: f64,
    pub(crate) seed: u64,
}

/// The port that a law is made for.
#[pyclass(frozen, get_all, module = "tollway")]
pub(crate) struct Carrying {
    pub(crate) link: String,
    pub(crate) capacity_bps: f64,
    pub(crate) seed: u64,
}

/// The state of a sender's transport when it calls its law.
#[pyclass(frozen, module = "tollway", freelist = 16)]
pub(crate) struct Flight(pub(crate) sender::Flight);

#[pymethods]
impl Flight {
    #[getter]
    fn now_s(&self) -> f64 {
        self.0.now.nearest_secs()
    }

    #[getter]
    fn now_ns(&self) -> u64 {
        self.0.now.as_nanos()
    }

    #[getter]
    fn srtt_s(&self) -> f64 {
        self.0.srtt.nearest_secs()
    }

    #[getter]
    fn srtt_ns(&self) -> u64 {
        self.0.srtt.as_nanos()
    }

    #[getter]
    fn min_rtt_s(&self) -> Option<f64> {
        known(self.0.min_rtt).map(Time::nearest_secs)
    }

    #[getter]
    fn min_rtt_ns(&self) -> Option<u64> {
        known(self.0.min_rtt).map(Time::as_nanos)
    }

    #[getter]
    fn segment(&self) -> u32 {
        self.0.segment
    }

    #[getter]
    fn in_flight(&self) -> u32 {
        self.0.in_flight
    }

    #[getter]
    fn outstanding(&self) -> u32 {
        self.0.outstanding
    }

    #[getter]
    fn limit(&self) -> u32 {
        self.0.limit
    }

    #[getter]
    fn app_limited(&self) -> bool {
        self.0.app_limited
    }

    fn window_limited(&self, window: f64) -> bool {
        window_limited(window, &self.0)
    }
}

/// One acknowledgement, possibly a duplicate.
#[pyclass(frozen, module = "tollway", freelist = 16)]
pub(crate) struct Acked(pub(crate) sender::Acked);

#[pymethods]
impl Acked {
    #[getter]
    fn segments(&self) -> u32 {
        self.0.segments
    }

    #[getter]
    fn cumulative(&self) -> u32 {
        self.0.cumulative
    }

    #[getter]
    fn rtt_s(&self) -> Option<f64> {
        self.0.rtt.map(Time::nearest_secs)
    }

    #[getter]
    fn rtt_ns(&self) -> Option<u64> {
        self.0.rtt.map(Time::as_nanos)
    }

    #[getter]
    fn recovering(&self) -> bool {
        self.0.recovering
    }

    #[getter]
    fn marked(&self) -> bool {
        self.0.marked
    }
}

/// A delivery-rate sample.
#[pyclass(frozen, module = "tollway", freelist = 16)]
pub(crate) struct Delivery(pub(crate) sender::Delivery);

#[pymethods]
impl Delivery {
    #[getter]
    fn delivered(&self) -> u64 {
        self.0.delivered
    }

    #[getter]
    fn newly_acked(&self) -> u32 {
        self.0.newly_acked
    }

    #[getter]
    fn newly_lost(&self) -> u32 {
        self.0.newly_lost
    }

    #[getter]
    fn rtt_s(&self) -> Option<f64> {
        self.0.rtt.map(Time::nearest_secs)
    }

    #[getter]
    fn rtt_ns(&self) -> Option<u64> {
        self.0.rtt.map(Time::as_nanos)
    }

    #[getter]
    fn segments_per_s(&self) -> f64 {
        self.0.rate
    }

    #[getter]
    fn delivered_before(&self) -> u64 {
        self.0.before
    }

    #[getter]
    fn in_flight_then(&self) -> u32 {
        self.0.tx_in_flight
    }

    #[getter]
    fn lost_since(&self) -> u64 {
        self.0.lost
    }

    #[getter]
    fn app_limited(&self) -> bool {
        self.0.app_limited
    }

    #[getter]
    fn recovering(&self) -> bool {
        self.0.recovering
    }
}

/// A packet and its queue, as a link's law sees them.
#[pyclass(frozen, module = "tollway", freelist = 16)]
pub(crate) struct Passing {
    pub(crate) now: Time,
    pub(crate) packet: link::Passing,
}

#[pymethods]
impl Passing {
    #[getter]
    fn now_s(&self) -> f64 {
        self.now.nearest_secs()
    }

    #[getter]
    fn now_ns(&self) -> u64 {
        self.now.as_nanos()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.packet.size
    }

    #[getter]
    fn traffic_class(&self) -> u8 {
        self.packet.class
    }

    #[getter]
    fn ect(&self) -> bool {
        self.packet.ect
    }

    #[getter]
    fn l4s(&self) -> bool {
        self.packet.l4s
    }

    #[getter]
    fn backlog_packets(&self) -> u32 {
        self.packet.backlog_packets
    }

    #[getter]
    fn backlog_bytes(&self) -> u64 {
        self.packet.backlog_bytes
    }

    #[getter]
    fn waited_s(&self) -> f64 {
        self.packet.waited.nearest_secs()
    }

    #[getter]
    fn waited_ns(&self) -> u64 {
        self.packet.waited.as_nanos()
    }
}

/// A link law's decision on a packet.
#[pyclass(frozen, eq, from_py_object, module = "tollway")]
#[derive(Clone, Copy, PartialEq)]
#[expect(clippy::upper_case_acronyms, reason = "Python's constants are")]
pub(crate) enum Verdict {
    PASS,
    SIGNAL,
    DROP,
}

fn known(time: Time) -> Option<Time> {
    (time != Time::NEVER).then_some(time)
}

/// Adds the classes of laws' arguments to the extension module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sending>()?;
    module.add_class::<Carrying>()?;
    module.add_class::<Flight>()?;
    module.add_class::<Acked>()?;
    module.add_class::<Delivery>()?;
    module.add_class::<Passing>()?;
    module.add_class::<Verdict>()
}
