//! Random paths on which a flow joins, a flow leaves, and the link's rate doubles and falls back:
//! what a steady state does not show of a law, its gains.

use std::fmt::Write;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollway_law::Aim;
use tollway_scenario::tables::RunResult;

use super::draw::spread;
use super::mean_of;
use crate::data::{self, Window};

/// A link and its flows, which have one round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    /// Mb/s.
    rate: f64,
    /// The base round trip, ms.
    rtt: f64,
    /// Flows from the start on, the one that leaves among them.
    flows: u32,
}

/// The effects of each change. Shares are of an equal share of the link, queues in products of its
/// rate then and the base round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changes {
    /// Share of a new flow 10 to 15 round trips after its start.
    pub joined: f64,
    /// Its share 50 to 55 round trips after its start.
    pub settled: f64,
    /// Utilisation 10 to 15 round trips after a flow left.
    pub resumed: f64,
    /// Utilisation 6 to 10 round trips after the rate doubled.
    pub filled: f64,
    /// The longest queue after the rate doubled.
    pub overshoot: f64,
    /// The mean queue 10 to 15 round trips after the rate fell back.
    pub standing: f64,
    /// Packets dropped.
    pub drops: f64,
}

impl Path {
    pub(super) fn draw(seed: u64) -> Path {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ CHANGES);
        let rate = libm::round(10.0 * spread(&mut random, 10.0, 100.0)) / 10.0;
        let rtt = libm::round(spread(&mut random, 20.0, 200.0));
        // Twenty packets in the window of each, where there are so many for two flows.
        let most = (rate * rtt * 1e3 / (8.0 * super::PACKET * 20.0)) as u32;
        Path { rate, rtt, flows: random.random_range(2..=most.clamp(2, 9)) }
    }

    /// Packets in the window of each flow while all of them send.
    fn window(&self) -> f64 {
        self.rate * self.rtt * 1e3 / (8.0 * super::PACKET * f64::from(self.flows + 1))
    }

    /// The scenario file. Its text for a seed is the same on every machine.
    pub(super) fn text(&self, law: &str, seed: u64) -> String {
        let Path { rate, rtt, flows } = *self;
        let access = |from: &str| {
            format!(
                "[link.access-{from}]\nfrom = \"{from}\"\nto = \"r1\"\nrate = \"1 Gbps\"\ndelay = \"{} ms\"\n\n",
                rtt / 2.0 - 1.0,
            )
        };
        let flow = |name: &str, from: &str, keys: &str| {
            format!("[flow.{name}]\nfrom = \"{from}\"\nto = \"r0\"\nlaw = \"{law}\"\n{keys}\n")
        };
        let mut text = format!(
            "# Drawn by `tollway verify --law {law} --random 1 --seed {seed}`: a flow joins, a flow leaves, the rate doubles and falls back.\n\
             name = \"changes-{law}-{seed}\"\ntitle = \"Random path {seed}, changes\"\nduration = \"{} ms\"\nseed = {seed}\n\n\
             [measure]\ninterval = \"{} ms\"\n\n[node.r0]\n[node.r1]\n[node.s]\ncount = {}\n[node.leaver]\n[node.joiner]\n\n\
             [link.{LINK}]\nfrom = \"r1\"\nto = \"r0\"\nrate = \"{rate} Mbps\"\ndelay = \"1 ms\"\nlimit = \"4 BDP\"\nlaw = \"{law}\"\n\n",
            END * rtt,
            rtt / 4.0,
            flows - 1,
        );
        for from in ["s", "leaver", "joiner"] {
            text += &access(from);
        }
        let spread = if flows > 2 {
            format!("start = {{ first = \"0 ms\", last = \"{rtt} ms\" }}\n")
        } else {
            String::new()
        };
        text += &flow("stays", "s", &spread);
        text += &flow(
            "leaves",
            "leaver",
            &format!("start = \"{} ms\"\nstop = \"{} ms\"\n", rtt / 2.0, LEAVES * rtt),
        );
        text += &flow("joins", "joiner", &format!("start = \"{} ms\"\n", JOINS * rtt));
        for (at, rate) in [(DOUBLES, 2.0 * rate), (FALLS, rate)] {
            let _ = write!(
                text,
                "[[change]]\nat = \"{} ms\"\nlink = \"{LINK}\"\ndirection = \"forward\"\nrate = \"{rate} Mbps\"\ncapacity = \"{rate} Mbps\"\n\n",
                at * rtt,
            );
        }
        text
    }

    /// Measures the effects in the run of [`Path::text`].
    pub(super) fn follow(&self, result: &RunResult) -> Changes {
        let window = |after: f64, from: f64, until: f64| {
            let second = self.rtt * 1e-3;
            Window { from: (after + from) * second, until: (after + until) * second }
        };
        let link = |column: &str, window| mean_of(result, LINK, column, window);
        let equal = self.rate / f64::from(self.flows + 1);
        let flows = data::series(&result.flows, "rate_mbps");
        let joiner = flows.iter().find(|series| series.name == "joins");
        let share = |window| joiner.map_or(f64::NAN, |series| series.mean(window)) / equal;
        let product = self.rate * self.rtt * 1e3 / 8.0;
        let peaks = data::series(&result.links, "queue_max_packets");
        let peak = |window| {
            let of = peaks.iter().find(|series| series.name == LINK);
            of.map_or(f64::NAN, |series| series.within(window).map(|(_, queue)| queue).fold(0.0, f64::max))
        };
        Changes {
            joined: share(window(JOINS, 10.0, 15.0)),
            settled: share(window(JOINS, 50.0, 55.0)),
            resumed: link("utilisation", window(LEAVES, 10.0, 15.0)),
            filled: link("utilisation", window(DOUBLES, 6.0, 10.0)),
            overshoot: peak(window(DOUBLES, 0.0, FALLS - DOUBLES)) * super::PACKET / (2.0 * product),
            standing: link("queue_mean_packets", window(FALLS, 10.0, 15.0)) * super::PACKET / product,
            drops: data::summary(&result.link_summary, "link").iter().map(|row| row.whole("drops")).sum(),
        }
    }
}

impl Changes {
    /// The bounds on `path` that are not kept, as text.
    pub(super) fn problems(&self, aim: Aim, path: &Path) -> Vec<String> {
        let Some(Expected { joined, settled, resumed, filled, overshoot, standing }) =
            Expected::of(aim, path.window())
        else {
            return Vec::new();
        };
        let bounds = [
            ("a new flow's share after 10 to 15 round trips", self.joined, joined),
            ("a new flow's share after 50 to 55 round trips", self.settled, settled),
            ("the link's use 10 to 15 round trips after a flow left", self.resumed, (resumed, 1.0)),
            ("the link's use 6 to 10 round trips after its rate doubled", self.filled, (filled, 1.0)),
            ("the longest queue after the rate doubled, in BDP", self.overshoot, overshoot),
            ("the queue 10 to 15 round trips after the rate fell back, in BDP", self.standing, standing),
            ("the number of drops on the path of changes", self.drops, (0.0, 0.0)),
        ];
        let outside =
            bounds.into_iter().filter(|(_, is, (least, most))| !(*least..=most + 1e-9).contains(is));
        outside.map(|(what, is, (least, most))| format!("{what} is {is:.3}, not {least} to {most}")).collect()
    }
}

/// The values that a law's published gains bring about, with the spread over [`Path::draw`].
pub(super) struct Expected {
    joined: (f64, f64),
    settled: (f64, f64),
    resumed: f64,
    filled: f64,
    overshoot: (f64, f64),
    standing: (f64, f64),
}

impl Expected {
    /// The values for windows of `window` packets.
    ///
    /// XCP's newcomer gets γ of what it lacks in a round trip, and shows it a round trip later: the
    /// lack decays as e^(−λn), λ = γe^λ = 0.112, to a third in the middle of the window, and to
    /// 0.3 % after 52 round trips. The queue after a doubling of the rate is α's and β's overshoot,
    /// and it drains by β. Windows hold whole packets: one flow's share is up to a packet away, the
    /// sum over flows half a packet of each. FCP states the new price within a round trip, and
    /// spaces packets. RCP is not judged: with two or three flows its published gains leave links
    /// unused for tens of round trips.
    pub(super) const fn of(aim: Aim, window: f64) -> Option<Expected> {
        let packet = 1.0 / window;
        match aim {
            Aim::XcpEquilibrium => Some(Expected {
                joined: (0.59, 0.75),
                settled: (1.0 - 0.005 - packet, 1.0 + 0.005 + packet),
                resumed: 0.99 - packet / 2.0,
                filled: 0.97,
                overshoot: (0.09, 0.18),
                standing: (0.1, 0.15 + packet / 2.0),
            }),
            Aim::Proportional => Some(Expected {
                joined: (0.9, 1.1),
                settled: (0.95, 1.05),
                resumed: 0.9,
                filled: 0.95,
                overshoot: (0.0, 0.05),
                standing: (0.0, 0.05),
            }),
            Aim::MaxMin | Aim::SessionFair => None,
        }
    }
}

/// The shared link.
const LINK: &str = "up1";
/// When a flow joins and leaves, and when the link's rate doubles and falls back, round trips.
const JOINS: f64 = 60.0;
const LEAVES: f64 = 120.0;
const DOUBLES: f64 = 160.0;
const FALLS: f64 = 200.0;
/// The end of the run, round trips.
const END: f64 = 220.0;
/// Mixed with the seed, so that paths do not repeat the networks' numbers.
const CHANGES: u64 = 0x6368_616e_6765_7321;
