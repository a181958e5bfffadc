//! Metrics, and the selection of what they measure.

use serde::{Deserialize, Serialize};
use tollway_law::{Bytes, Rate, Time};

use crate::grid::GridPart;

/// A measurement in a run: a metric, with its flows or links and its time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measurement {
    /// The metric.
    pub metric: Metric,
    /// The variant; may be left out if there is only one.
    #[serde(default)]
    pub variant: String,
    /// The part of the experiment's grid, for all variants there. On a bound's right side, the
    /// counterpart of the measured variant that differs from it on these axes.
    #[serde(rename = "where")]
    pub part: Option<GridPart>,
    /// With `where`: uses one value, the mean over these variants.
    #[serde(default)]
    pub mean_of_variants: bool,
    /// The links: a name, or a pattern with `*`.
    pub link: Option<String>,
    /// The flows: a name, a group's name for all its members, or a pattern with `*`. All flows if
    /// left out.
    #[serde(alias = "flow")]
    pub flows: Option<String>,
    /// For [`Metric::Table`]: the path of the number, such as `queues.bottleneck.none.delay_ms`, or
    /// a pattern.
    pub name: Option<String>,
    /// Start of the window.
    pub from: Option<Time>,
    /// End of the window.
    pub until: Option<Time>,
    /// Cuts the window into pieces of this length and measures each. For [`Metric::TimeToReach`],
    /// the length of the moving mean; for [`Metric::SeriesDeviation`], the length of the compared
    /// windows.
    pub span: Option<Time>,
    /// Measures in the last half of each phase instead of one window.
    #[serde(default)]
    pub phases: Phases,
    /// With phases: measures from this time after each phase's start on, instead of in its last
    /// half.
    pub settle: Option<Time>,
    /// The reduction of several values; by default the metric's own.
    pub over: Option<Over>,
    /// For [`Metric::TimeToReach`]: the fraction of the capacity to reach; 0 means any traffic. For
    /// the periods: the fraction of the median to cross.
    pub fraction: Option<f64>,
    /// For [`Metric::Fct`]: upper bound on the flows' size.
    pub max_size: Option<Bytes>,
    /// The capacity for [`Metric::ShareOfFair`] and [`Metric::TimeToReach`]; by default the link's.
    pub capacity: Option<Rate>,
    /// For [`Metric::SeriesDeviation`]: a CSV file beside the experiment's, with columns `time_s`
    /// and `<flow>_mbps`.
    pub reference: Option<String>,
    /// For [`Metric::SeriesDeviation`]: the time after each flow's start that is not compared.
    pub skip_after_start: Option<Time>,
}

/// Defines the enum, and the list of its members with their documentation, from one text.
macro_rules! vocabulary {
    ($(#[$of_all:meta])* pub enum $Name:ident { $($(#[doc = $says:literal])+ $Member:ident,)+ }) => {
        $(#[$of_all])*
        pub enum $Name {
            $($(#[doc = $says])+ $Member,)+
        }

        impl $Name {
            /// All members, in the order of their documentation.
            pub const ALL: &[$Name] = &[$($Name::$Member),+];

            /// The description, as text.
            pub fn says(self) -> &'static str {
                match self {
                    $($Name::$Member => concat!($($says),+).trim(),)+
                }
            }
        }
    };
}

vocabulary! {
    /// The vocabulary of metrics. Descriptions give the units. A rate counts every header byte, a
    /// goodput does not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Metric {
        /// Mean used fraction of a link's capacity, 0 to 1.
        Utilisation,
        /// Packets dropped at a link.
        Drops,
        /// Packets marked at a link.
        Marks,
        /// Mean queue of a link in bytes.
        QueueMeanBytes,
        /// Largest queue of a link in bytes.
        QueueMaxBytes,
        /// Mean queue of a link in packets.
        QueueMeanPackets,
        /// Largest queue of a link in packets.
        QueueMaxPackets,
        /// Mean queue of a link, as a fraction of its limit.
        QueueMeanOfLimit,
        /// Largest queue of a link, as a fraction of its limit.
        QueueMaxOfLimit,
        /// Mean queueing delay of a link in milliseconds: mean queue over capacity.
        QueueMeanMs,
        /// Mean rate of a flow in Mb/s.
        Rate,
        /// Mean goodput of a flow in Mb/s.
        Goodput,
        /// Mean total rate of the selected flows in Mb/s.
        TotalRate,
        /// Mean total goodput of the selected flows in Mb/s.
        TotalGoodput,
        /// A flow's mean rate over an equal share C/k of the link's capacity, with k the number of
        /// flows active in the window: 1 is fair.
        ShareOfFair,
        /// A flow's mean rate over its rate in the ideal allocation of the whole scenario.
        ShareOfIdeal,
        /// Jain's fairness index of the mean rates of the flows active in the window.
        Jain,
        /// Coefficient of variation (standard deviation over mean) of a flow's rate from interval
        /// to interval.
        RateVariation,
        /// Coefficient of variation of the total rate of the selected flows, from interval to
        /// interval.
        TotalRateVariation,
        /// Fraction of windows of length `span`, one for each interval, in which a flow's mean rate
        /// is within `fraction` of `capacity`. Without `capacity`, of the flow's mean rate over the
        /// whole measurement window.
        SteadyPart,
        /// Largest ratio between a flow's price and its price at most `span` earlier, upwards or
        /// downwards.
        PriceSwing,
        /// Mean congestion window of a flow in packets.
        Cwnd,
        /// Largest congestion window of a flow in packets.
        CwndMax,
        /// Congestion window of a flow at the end of the measurement window, in packets.
        CwndEnd,
        /// Time between successive crossings in seconds: a flow's congestion window rises above
        /// `fraction` of its median (with a `fraction` below 1: falls below it). One value for each
        /// period.
        CwndPeriod,
        /// The same for a flow's pacing rate.
        PacingPeriod,
        /// Slope of a flow's congestion window by least squares, in packets per second.
        CwndSlope,
        /// Mean smoothed RTT of a flow in milliseconds.
        Rtt,
        /// Largest smoothed RTT of a flow in milliseconds.
        RttMax,
        /// Retransmitted packets of a flow.
        Retransmissions,
        /// Retransmission timeouts of a flow, over its whole life.
        Timeouts,
        /// Completion time of a finished flow, in seconds.
        Fct,
        /// Number of selected flows that finished, by `until` if it is given.
        Finished,
        /// Time in seconds from `from` until the link's utilisation reaches `fraction`. Without a
        /// link: until the flows' total rate reaches that fraction of `capacity`.
        TimeToReach,
        /// Largest relative deviation of a flow's rate from a reference series, over all windows of
        /// length `span`.
        SeriesDeviation,
        /// Mean feedback of a packet that leaves a link with an explicit law, as a change of its
        /// sender's window in packets. One value for each control interval that begins in the
        /// window.
        PacketFeedback,
        /// Mean price of a link, in $/MB.
        LinkPrice,
        /// Mean spending of a flow's sender, in $/s.
        Spending,
        /// A number from a system's result table, by its path `name`.
        Table,
    }
}

impl Measurement {
    /// A measurement with a metric and defaults.
    pub fn of(metric: Metric) -> Measurement {
        Measurement {
            metric,
            variant: String::new(),
            part: None,
            mean_of_variants: false,
            link: None,
            flows: None,
            name: None,
            from: None,
            until: None,
            span: None,
            phases: Phases::No,
            settle: None,
            over: None,
            fraction: None,
            max_size: None,
            capacity: None,
            reference: None,
            skip_after_start: None,
        }
    }
}

impl Metric {
    /// The name in a file: `queue-mean-bytes`.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }

    /// True if the metric is about links.
    pub fn is_of_link(self) -> bool {
        use Metric::*;
        matches!(
            self,
            Utilisation
                | Drops
                | Marks
                | QueueMeanBytes
                | QueueMaxBytes
                | QueueMeanPackets
                | QueueMaxPackets
                | QueueMeanOfLimit
                | QueueMaxOfLimit
                | QueueMeanMs
                | PacketFeedback
                | LinkPrice
        )
    }

    /// True for counts, peaks and metrics of a flow's whole life. Without a window they cover the
    /// whole run.
    pub fn is_of_whole_run(self) -> bool {
        use Metric::*;
        matches!(
            self,
            Drops
                | Marks
                | QueueMaxBytes
                | QueueMaxPackets
                | QueueMaxOfLimit
                | CwndMax
                | RttMax
                | Retransmissions
                | TimeToReach
                | SeriesDeviation
                | Timeouts
                | Fct
                | Finished
                | Table
        )
    }

    /// The default reduction of several values.
    pub fn usual_over(self) -> Over {
        match self {
            Metric::Drops | Metric::Marks | Metric::Retransmissions | Metric::Timeouts => Over::Sum,
            Metric::Fct => Over::Mean,
            _ => Over::Each,
        }
    }

    /// The unit in print: `Mb/s`, `ms`, or empty.
    pub fn unit(self) -> &'static str {
        use Metric::*;
        match self {
            Rate | Goodput | TotalRate | TotalGoodput => "Mb/s",
            QueueMeanBytes | QueueMaxBytes => "B",
            QueueMeanPackets | QueueMaxPackets | Cwnd | CwndMax | CwndEnd | PacketFeedback => "packets",
            CwndSlope => "packets/s",
            Rtt | RttMax | QueueMeanMs => "ms",
            LinkPrice => "$/MB",
            Spending => "$/s",
            Fct | TimeToReach | CwndPeriod | PacingPeriod => "s",
            _ => "",
        }
    }
}

/// The vocabulary in Markdown, for the manual.
pub fn metrics_markdown() -> String {
    let mut text = String::from("| metric | meaning |\n|---|---|\n");
    for metric in Metric::ALL {
        // Links to other items work only in the crate's own documentation.
        let says = metric.says().replace("[`Metric::", "`").replace("`]", "`");
        text += &format!("| `{}` | {says} |\n", metric.name());
    }
    let names = |of: fn(&Metric) -> bool| {
        let those = Metric::ALL.iter().copied().filter(of).map(|metric| format!("`{}`", metric.name()));
        those.collect::<Vec<_>>().join(", ")
    };
    text += &format!(
        "\nWithout a window, these cover the whole run, and others its second half: {}.\n\n\
         Of several values, the sum counts for {}, the mean for {}, and each value for the others.\n",
        names(|metric| metric.is_of_whole_run()),
        names(|metric| metric.usual_over() == Over::Sum),
        names(|metric| metric.usual_over() == Over::Mean),
    );
    text
}

/// The reduction of several values, of flows, links, phases or spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Each value must meet the bound. On a bound's right side: the strictest value counts, or, for
    /// `equals` and `within`, the one with the same name.
    Each,
    /// The first value: the earliest, or that of the first flow or link.
    First,
    /// The mean.
    Mean,
    /// The least value.
    Min,
    /// The largest value.
    Max,
    /// The sum.
    Sum,
    /// The value that 95 % of them reach.
    P5,
}

/// The phases of a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Phases {
    /// `false`: one window. `true`: a phase for each stretch between successive starts and ends of
    /// flows.
    Automatic(bool),
    /// The phases lie between these times.
    At(Vec<Time>),
    /// One window.
    #[default]
    No,
}
