//! A view of links during a run, and changes to them.
//!
//! Two channels connect the emulator's thread and the viewer. Neither waits for the other.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::event::EventfdFlags;
use tollway_law::{Rate, Time};
use tollway_proto::Change;
use tollway_proto::link::LinkStats;

use super::{Mesh, Record, Setting};
use crate::error::Error;
use crate::sys::ip::FiveTuple;

/// Measurements of an interval of [`Mesh::INTERVAL`].
#[derive(Clone, Debug)]
pub struct Moment {
    /// End of the interval.
    pub until: Time,
    /// By link.
    pub links: Vec<LinkMoment>,
    /// The flows that delivered most, in descending order; at most [`Moment::FLOWS`].
    pub flows: Vec<FlowMoment>,
}

impl Moment {
    /// Limit of flows in one moment.
    pub const FLOWS: usize = 12;
}

/// Measurements of a link in an interval.
#[derive(Clone, Copy, Debug)]
pub struct LinkMoment {
    /// Parameters at the interval's end.
    pub setting: Setting,
    /// Rate on the wire.
    pub rate: Rate,
    /// Mean waiting time at its port; `None` if no packet left it.
    pub wait: Option<Time>,
    /// Packets dropped or lost.
    pub drops: u64,
}

/// Measurements of a flow in an interval.
#[derive(Clone, Copy, Debug)]
pub struct FlowMoment {
    /// Addresses and ports, one direction.
    pub tuple: FiveTuple,
    /// Rate of delivered bytes.
    pub rate: Rate,
    /// Mean delay of its packets plus that of the packets back; `None` without both.
    pub rtt: Option<Time>,
}

/// The viewer's end.
#[derive(Debug)]
pub struct Remote {
    requests: Sender<Request>,
    wake: OwnedFd,
    moments: Receiver<Moment>,
    records: Receiver<Record>,
}

/// A request of the viewer.
#[derive(Debug)]
enum Request {
    Change(u32, Change),
    Record,
}

impl Remote {
    /// Changes a link as soon as the emulator receives the change. An unknown number is ignored.
    pub fn change(&self, link: u32, what: Change) {
        self.send(Request::Change(link, what));
    }

    /// The record so far; `None` if the emulator has ended. Waits for the [start](super::Start) of
    /// the record.
    ///
    /// The queue's figures of the current interval restart.
    pub fn record(&self) -> Option<Record> {
        self.send(Request::Record);
        self.records.recv().ok()
    }

    fn send(&self, request: Request) {
        // If the emulator has ended, the request is dropped.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Measurements since the last call.
    pub fn moments(&self) -> impl Iterator<Item = Moment> + '_ {
        self.moments.try_iter()
    }
}

/// The emulator's end.
#[derive(Debug)]
pub struct Panel {
    requests: Receiver<Request>,
    /// Readable if there are requests.
    pub(super) wake: OwnedFd,
    moments: Sender<Moment>,
    pub(super) records: Sender<Record>,
    /// End of the last interval.
    since: Time,
    /// Link totals at that time.
    links: Vec<LinkPast>,
    /// Flow totals at that time.
    flows: Vec<FlowPast>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkPast {
    bytes: u64,
    drops: u64,
    waited: Time,
    waits: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowPast {
    bytes: u64,
    packets: u64,
    delays: Time,
}

/// Makes both ends of a panel: the emulator's, and the viewer's.
///
/// # Errors
/// [`Error::Namespace`] if the system gives no descriptor.
pub fn panel() -> Result<(Panel, Remote), Error> {
    let failed = |source| Error::Namespace { action: "make an event descriptor", source };
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(|error| failed(error.into()))?;
    let waker = wake.try_clone().map_err(failed)?;
    let (requests, requested) = mpsc::channel();
    let (moments, seen) = mpsc::channel();
    let (records, recorded) = mpsc::channel();
    let panel = Panel {
        requests: requested,
        wake,
        moments,
        records,
        since: Time::ZERO,
        links: Vec::new(),
        flows: Vec::new(),
    };
    Ok((panel, Remote { requests, wake: waker, moments: seen, records: recorded }))
}

impl Panel {
    /// Applies the changes received. Returns the number of records requested.
    pub(super) fn apply(&mut self, now: Time, mesh: &mut Mesh) -> usize {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        let mut records = 0;
        for request in self.requests.try_iter() {
            match request {
                Request::Change(link, what) => mesh.change_now(now, link, what),
                Request::Record => records += 1,
            }
        }
        records
    }

    /// Sends the measurements of the interval that ends at `until`; `totals` are the links' totals.
    pub(super) fn tell(&mut self, until: Time, mesh: &Mesh, totals: &[LinkStats]) {
        let span = until.saturating_sub(self.since).as_secs_f64();
        self.since = until;
        if span <= 0.0 {
            return;
        }
        let rate = |bytes: u64| Rate::from_bytes_per_sec(bytes as f64 / span);
        self.links.resize_with(totals.len(), LinkPast::default);
        let mut links = Vec::with_capacity(totals.len());
        for (i, (total, past)) in totals.iter().zip(&mut self.links).enumerate() {
            let (waited, waits) = mesh.waited(i);
            let drops = total.drops.total();
            let now = LinkPast { bytes: total.sent_bytes, drops, waited, waits };
            let before = std::mem::replace(past, now);
            links.push(LinkMoment {
                setting: mesh.setting(i),
                rate: rate(now.bytes - before.bytes),
                wait: mean(now.waited.saturating_sub(before.waited), now.waits - before.waits),
                drops: now.drops - before.drops,
            });
        }
        let flows = self.flows_told(mesh, rate);
        let _ = self.moments.send(Moment { until, links, flows });
    }

    fn flows_told(&mut self, mesh: &Mesh, rate: impl Fn(u64) -> Rate) -> Vec<FlowMoment> {
        let records = mesh.records();
        self.flows.resize_with(records.len(), FlowPast::default);
        let since: Vec<FlowPast> = records
            .iter()
            .zip(&self.flows)
            .map(|(record, past)| FlowPast {
                bytes: record.delivered_bytes - past.bytes,
                packets: record.delivered - past.packets,
                delays: record.delay_sum.saturating_sub(past.delays),
            })
            .collect();
        for (past, record) in self.flows.iter_mut().zip(records) {
            let (bytes, packets) = (record.delivered_bytes, record.delivered);
            *past = FlowPast { bytes, packets, delays: record.delay_sum };
        }
        let mut active: Vec<usize> = (0..records.len()).filter(|&i| since[i].packets > 0).collect();
        active.sort_by_key(|&i| std::cmp::Reverse(since[i].bytes));
        active.truncate(Moment::FLOWS);
        let delay = |i: usize| mean(since[i].delays, since[i].packets);
        let told = |i: usize| {
            let tuple = records[i].tuple;
            let back = mesh.number_of(&tuple.back()).and_then(|back| delay(back as usize));
            let rtt = delay(i).zip(back).map(|(there, back)| there + back);
            FlowMoment { tuple, rate: rate(since[i].bytes), rtt }
        };
        active.into_iter().map(told).collect()
    }
}

fn mean(sum: Time, count: u64) -> Option<Time> {
    (count > 0).then(|| Time(sum.0 / count))
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use crate::sys::address;
    use crate::sys::ip::tests::packet;
    use tollway_proto::link::Drops;

    use super::*;

    #[test]
    fn who_looks_on_sees_each_interval_and_changes_links() {
        let mut mesh = Mesh::new(&row(), 0);
        let (mut panel, remote) = panel().unwrap();
        let totals = |mesh: &mut Mesh, now| -> Vec<LinkStats> {
            (0..4).map(|link| mesh.read_link(now, link)).collect()
        };
        let send = |mesh: &mut Mesh, ms, from, to| {
            // ICMP has no ports, so any packet back answers.
            let echo = packet(address(from).octets(), address(to).octets(), 1, 2, 972);
            mesh.handle_frame(Time::from_millis(ms), from, &echo, 0);
        };
        let deliver = |mesh: &mut Mesh, now| {
            mesh.handle_timeout(now);
            while let Some(delivery) = mesh.poll_delivery() {
                mesh.release(delivery, true);
            }
        };
        // 1000 bytes take 1 ms on a link of 8 Mb/s, so the second packet waits 1 ms. The answer
        // follows at 10 ms.
        send(&mut mesh, 1, 0, 1);
        send(&mut mesh, 1, 0, 1);
        send(&mut mesh, 10, 1, 0);
        let first = Time::from_millis(100);
        deliver(&mut mesh, first);
        let seen = totals(&mut mesh, first);
        panel.tell(first, &mesh, &seen);

        // Afterwards the link has a tenth of the rate, and a longer delay.
        remote.change(0, Change::Rate(Rate::from_mbps(0.8)));
        remote.change(0, Change::Delay(Time::from_millis(20)));
        remote.change(99, Change::Blackout(true));
        panel.apply(Time::from_millis(120), &mut mesh);
        send(&mut mesh, 130, 0, 1);
        let second = Time::from_millis(200);
        deliver(&mut mesh, second);
        let seen = totals(&mut mesh, second);
        panel.tell(second, &mesh, &seen);

        let moments: Vec<Moment> = remote.moments().collect();
        let [before, after] = &moments[..] else { panic!("{moments:?}") };
        let link = before.links[0];
        assert_eq!((link.rate.mbps(), link.drops), (0.16, 0));
        assert_eq!(link.wait, Some(Time(500_000)));
        assert_eq!(
            (link.setting.rate, link.setting.delay),
            (Some(Rate::from_mbps(8.0)), Time::from_millis(5))
        );
        assert_eq!((before.links[1].wait, before.flows.len()), (None, 2));
        // 6 and 7 ms forward, 6 ms back. Timestamps have a resolution of 64 ns.
        let flow = before.flows[0];
        let rtt = flow.rtt.unwrap().as_millis_f64();
        assert!((rtt - 12.5).abs() < 1e-3 && flow.rate.mbps() == 0.16, "{flow:?}");

        let link = after.links[0];
        let expected = Setting { rate: Some(Rate::from_mbps(0.8)), delay: Time::from_millis(20), loss: 0.0 };
        assert_eq!((link.setting, link.rate.mbps()), (expected, 0.08));
        assert_eq!(mesh.rates(0), [(Time::from_millis(120), Rate::from_mbps(0.8))]);
        // No packet answered; 10 ms to serialise and 20 ms on the wire.
        assert_eq!((after.flows.len(), after.flows[0].rtt), (1, None));
    }

    #[test]
    fn the_dozen_flows_that_delivered_most_are_told_and_all_that_is_lost() {
        let mut mesh = Mesh::new(&row(), 0);
        let (mut panel, remote) = panel().unwrap();
        let send = |mesh: &mut Mesh, ms, port: u8, payload| {
            let mut datagram = packet(address(0).octets(), address(1).octets(), 17, 2, payload);
            datagram[21] = port;
            mesh.handle_frame(Time::from_millis(ms), 0, &datagram, 0);
        };
        let tell = |mesh: &mut Mesh, panel: &mut Panel, ms, total| {
            mesh.handle_timeout(Time::from_millis(ms));
            while let Some(delivery) = mesh.poll_delivery() {
                mesh.release(delivery, true);
            }
            panel.tell(Time::from_millis(ms), mesh, &[total]);
        };
        (0..14).for_each(|port| send(&mut mesh, u64::from(port), port, 100 * usize::from(port)));
        let stats = LinkStats {
            drops: Drops { full: 1, law: 2, before: 4, after: 8, corrupt: 0, meter: 0 },
            ..LinkStats::default()
        };
        tell(&mut mesh, &mut panel, 100, stats);
        // Two flows that delivered little now deliver most.
        for (ms, port, payload) in [(110, 3, 72), (120, 3, 72), (130, 2, 97)] {
            send(&mut mesh, ms, port, payload);
        }
        let stats = LinkStats {
            drops: Drops { full: 2, law: 4, before: 7, after: 12, corrupt: 0, meter: 0 },
            ..stats
        };
        tell(&mut mesh, &mut panel, 200, stats);
        // An empty interval gives no moment.
        tell(&mut mesh, &mut panel, 200, stats);

        let moments: Vec<Moment> = remote.moments().collect();
        let [before, after] = &moments[..] else { panic!("{moments:?}") };
        assert_eq!((before.links[0].drops, after.links[0].drops), (15, 10));
        let ports = |moment: &Moment| -> Vec<u16> {
            moment.flows.iter().map(|flow| flow.tuple.source_port & 0xff).collect()
        };
        assert_eq!(ports(before), (2..14).rev().collect::<Vec<_>>());
        assert_eq!(ports(after), [3, 2]);
        // Twice 100 bytes and once 125 bytes in a tenth of a second.
        assert_eq!([0, 1].map(|i| after.flows[i].rate.bytes_per_sec()), [2000.0, 1250.0]);
    }
}
