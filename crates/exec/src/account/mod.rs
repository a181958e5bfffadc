//! The report on a run: rates, queues, drops, shares, and the lateness of the emulator.

mod share;
mod text;
#[cfg(feature = "view")]
pub mod view;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use tollway_law::{Rate, Time};
use tollway_report::html::Page;
use tollway_report::plot::{Figure, PictureOptions, PlotError};
use tollway_scenario::plan::Plan;

use crate::{
    Ended, FiveTuple, FlowRecord, Lateness, LinkRecord, LinkStats, Listen, Listened, Mesh, Outcome,
    Privilege, Spec, address, address_v6, addresses,
};
use share::FlowShare;

/// The report on a run, with the network it used.
#[derive(Debug)]
pub struct Account<'a> {
    plan: &'a Plan,
    spec: &'a Spec,
    outcome: &'a Outcome,
    privilege: Privilege,
    /// By flow; `None` for a flow that did not use all it could get.
    shares: Vec<Option<FlowShare>>,
}

impl<'a> Account<'a> {
    /// Computes the report.
    pub fn new(plan: &'a Plan, spec: &'a Spec, outcome: &'a Outcome, privilege: Privilege) -> Account<'a> {
        let shares = share::shares(plan, spec, outcome);
        Account { plan, spec, outcome, privilege, shares }
    }

    /// True if the machine kept up: at most one packet in a hundred was more than a millisecond
    /// late, and the kernel lost none.
    pub fn kept_up(&self) -> bool {
        self.outcome.record.lateness.share_over(LATE) <= TOO_MANY && self.lost_by_kernel() == 0
    }

    /// Warnings on conditions that make the results less reliable.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let lost = self.outcome.outside_lost.then(|| {
            "WARNING: the helper of `--outside` ended before the program: from then on the outside was \
            unreachable"
                .into()
        });
        self.late()
            .into_iter()
            .chain(lost)
            .chain(self.failed_servers())
            .chain(self.refused())
            .chain(self.tls_refused())
    }

    fn tls_refused(&self) -> impl Iterator<Item = String> {
        let ports = self.spec.tls.iter().zip(&self.outcome.tls_refused);
        ports.filter(|(_, refused)| **refused > 0).map(|(tls, refused)| {
            let node = &self.spec.mesh.nodes[tls.node as usize];
            let (port, to) = (tls.port, tls.to);
            format!(
                "WARNING: port {to} of `{node}` did not accept {refused} connections with TLS from port {port}: \
                start a server there with `--serve`, or name its port in `--tls {port}:PORT`"
            )
        })
    }

    fn refused(&self) -> impl Iterator<Item = String> {
        let listens = self.spec.listen.iter().zip(&self.outcome.listened);
        listens.filter(|(_, listened)| listened.refused > 0).map(|(listen, listened)| {
            format!(
                "WARNING: `{}` did not accept {} of {} connections from {} at port {}: a server there must \
                listen at 0.0.0.0, not at 127.0.0.1",
                self.spec.mesh.nodes[listen.node as usize],
                listened.refused,
                listened.connections,
                door(listen, listened),
                listen.port,
            )
        })
    }

    fn failed_servers(&self) -> impl Iterator<Item = String> {
        self.outcome.failed_servers.iter().map(|(i, ended)| {
            let (node, command) = &self.spec.servers[*i];
            let node = &self.spec.mesh.nodes[*node as usize];
            format!("WARNING: the server `{command}` at `{node}` {ended}, before the program ended")
        })
    }

    fn late(&self) -> Option<String> {
        let late = self.outcome.record.lateness.percentile(0.99).as_millis_f64();
        let dropped = self.lost_by_kernel();
        let root = if self.outcome.record.real_time { "" } else { " or root, which has real-time priority" };
        (!self.kept_up()).then(|| {
            format!(
                "WARNING: this machine did not keep up: 1 % of packets were {late:.1} ms late or more, and \
                the kernel dropped {dropped}; the results are not more exact than that (use slower links, \
                an idle machine{root})"
            )
        })
    }

    fn lost_by_kernel(&self) -> u64 {
        let interfaces: u64 = self.outcome.kernel_drops.iter().map(|drops| drops.sent + drops.received).sum();
        interfaces + self.outcome.record.refused
    }

    /// The links to which any packet came, with their counts.
    fn links(&self) -> impl Iterator<Item = LinkAccount<'_>> {
        let links = self.plan.links.iter().zip(&self.outcome.record.links);
        links
            .map(|(link, record)| LinkAccount {
                name: &link.name,
                from: &self.plan.nodes[link.from.0 as usize].name,
                to: &self.plan.nodes[link.to.0 as usize].name,
                nominal: link.rate,
                delay: link.delay,
                record,
                elapsed: self.outcome.record.elapsed,
            })
            .filter(|link| link.offered() > 0)
    }

    /// Flows with their shares, the largest first.
    fn flows(&self) -> Vec<(&FlowRecord, Option<&FlowShare>)> {
        let shares = self.shares.iter().map(Option::as_ref);
        let mut flows: Vec<_> = self.outcome.record.flows.iter().zip(shares).collect();
        flows.sort_by_key(|(flow, _)| std::cmp::Reverse(flow.bytes));
        flows
    }

    /// Jain's index over the flows that used all they could get, each with its rate as a part of
    /// its ideal share. `None` if there are fewer than two.
    pub fn jain(&self) -> Option<f64> {
        let parts: Vec<f64> = self
            .shares
            .iter()
            .flatten()
            .filter(|share| share.span >= WORTH_COMPARING)
            .map(FlowShare::part)
            .collect();
        (parts.len() > 1).then(|| tollway_theory::jain(&parts)).filter(|jain| jain.is_finite())
    }

    /// The name of a flow for users, with nodes instead of addresses.
    fn name(&self, tuple: &FiveTuple) -> String {
        name(&self.spec.mesh.nodes, tuple)
    }

    /// Writes `exec.html`, `exec` as `pictures`, `links.csv` and `flows.csv` to `folder`. Returns
    /// the paths written.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn draw(&self, folder: &Path, pictures: &PictureOptions) -> Result<Vec<PathBuf>, PlotError> {
        let failed = |path: &Path, e: std::io::Error| PlotError::Write {
            path: path.to_path_buf(),
            message: e.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let figure = self.figure();
        let html = folder.join("exec.html");
        Page { figure: &figure, runs: &[], claims: None }.write(&html)?;
        let mut written = vec![html];
        written.extend(figure.write_all(&folder.join("exec"), pictures)?);
        for (name, text) in TABLES.into_iter().zip([self.links_csv(), self.flows_csv()]) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
            written.push(path);
        }
        Ok(written)
    }

    /// The figure: rates of links and of the largest flows, and queues, over time.
    fn figure(&self) -> Figure {
        let seconds = Mesh::INTERVAL.as_secs_f64();
        let (mut rates, mut queues, mut drops) = (Vec::new(), Vec::new(), Vec::new());
        for link in self.links() {
            let (mut rate, mut queue, mut drop) = (Vec::new(), Vec::new(), Vec::new());
            for (from, until, past, now) in link.intervals() {
                let at = (from + until).nearest_secs() / 2.0;
                let span = until.saturating_sub(from).as_secs_f64();
                rate.push((at, (now.sent_bytes - past.sent_bytes) as f64 * 8e-6 / span));
                // At the rate of each instant.
                queue.push((at, now.queue_drain_ns2 as f64 * 1e-15 / span));
                drop.push((at, (now.drops.total() - past.drops.total()) as f64));
            }
            rates.push((link.name.to_owned(), rate));
            queues.push((link.name.to_owned(), queue));
            drops.push((link.name.to_owned(), drop));
        }
        let flow = |(flow, _): &(&FlowRecord, Option<&FlowShare>)| {
            let points =
                (flow.rates.first().map_or(0, |r| r.0)..=flow.rates.last().map_or(0, |r| r.0)).map(|k| {
                    let bytes = flow.rates.binary_search_by_key(&k, |r| r.0).map_or(0, |i| flow.rates[i].1);
                    ((f64::from(k) + 0.5) * seconds, bytes as f64 * 8e-6 / seconds)
                });
            (self.name(&flow.tuple), points.collect())
        };
        let flows = self.flows().iter().take(DRAWN).map(flow).collect();
        let until = self.outcome.record.elapsed.nearest_secs();
        let rows = vec![
            ("Rate on links (Mb/s)", rates),
            ("Rate of flows (Mb/s)", flows),
            ("Queue, as the time to send it (ms)", queues),
            ("Packets lost in each tenth of a second", drops),
        ];
        Figure::of_lines(self.command(), self.spec.mesh.nodes.join(", "), rows, until)
    }

    fn links_csv(&self) -> String {
        let mut text = String::from(
            "time_s,link,rate_mbps,queue_mean_bytes,queue_max_bytes,queue_mean_ms,sent_packets,full,law,lost_before,lost_after,marks\n",
        );
        for link in self.links() {
            for (from, until, past, now) in link.intervals() {
                let span = until.saturating_sub(from);
                text += &format!(
                    "{},{},{:.6},{:.1},{},{:.4},{},{},{},{},{},{}\n",
                    until.nearest_secs(),
                    link.name,
                    (now.sent_bytes - past.sent_bytes) as f64 * 8e-6 / span.as_secs_f64(),
                    now.queue_byte_ns as f64 / span.0 as f64,
                    now.queue_max_bytes,
                    now.queue_drain_ns2 as f64 * 1e-6 / span.0 as f64,
                    now.sent_packets - past.sent_packets,
                    now.drops.full - past.drops.full,
                    now.drops.law - past.drops.law,
                    now.drops.before - past.drops.before,
                    now.drops.after + now.drops.corrupt - past.drops.after - past.drops.corrupt,
                    now.marks - past.marks,
                );
            }
        }
        text
    }

    fn flows_csv(&self) -> String {
        let mut text = String::from("time_s,flow,rate_mbps\n");
        let seconds = Mesh::INTERVAL.as_secs_f64();
        for (flow, _) in self.flows() {
            for (interval, bytes) in &flow.rates {
                let until = f64::from(interval + 1) * seconds;
                text +=
                    &format!("{until:.1},{},{:.6}\n", self.name(&flow.tuple), *bytes as f64 * 8e-6 / seconds);
            }
        }
        text
    }

    fn command(&self) -> String {
        command(self.spec)
    }
}

/// A link with its record.
struct LinkAccount<'a> {
    name: &'a str,
    from: &'a str,
    to: &'a str,
    nominal: Rate,
    delay: Time,
    record: &'a LinkRecord,
    elapsed: Time,
}

impl LinkAccount<'_> {
    fn offered(&self) -> u64 {
        let drops = self.record.total.drops;
        self.record.total.sent_packets + drops.total() - drops.after - drops.corrupt
    }

    /// Begin and end of each interval, with the totals at both.
    fn intervals(&self) -> impl Iterator<Item = (Time, Time, LinkStats, LinkStats)> {
        let rows = &self.record.intervals;
        rows.iter().enumerate().filter_map(move |(i, &now)| {
            let from = Mesh::INTERVAL * i as u64;
            let until = (from + Mesh::INTERVAL).min(self.elapsed);
            let past = i.checked_sub(1).map_or_else(LinkStats::default, |i| rows[i]);
            (until > from).then_some((from, until, past, now))
        })
    }

    /// Rate in Mb/s from the first interval with traffic to the last.
    fn rate(&self) -> f64 {
        let mut busy = self.intervals().filter(|(_, _, past, now)| now.sent_bytes > past.sent_bytes);
        let Some((from, first_end, ..)) = busy.next() else { return 0.0 };
        let until = busy.last().map_or(first_end, |last| last.1);
        self.record.total.sent_bytes as f64 * 8e-6 / until.saturating_sub(from).as_secs_f64()
    }

    /// The highest rate over one second, in Mb/s; the mean if the link sent for less than a second.
    fn best_second(&self) -> f64 {
        let ends: Vec<(Time, u64)> =
            self.intervals().map(|(_, until, _, now)| (until, now.sent_bytes)).collect();
        let window = (Time::from_secs(1).0 / Mesh::INTERVAL.0) as usize;
        let start = (Time::ZERO, 0);
        let rates = (0..ends.len()).filter(|&i| i + 1 >= window || i + 1 == ends.len()).map(|i| {
            let before = (i + 1).checked_sub(window + 1).map_or(start, |j| ends[j]);
            (ends[i].1 - before.1) as f64 * 8e-6 / ends[i].0.saturating_sub(before.0).as_secs_f64()
        });
        rates.fold(self.rate(), f64::max)
    }
}

impl Serialize for Account<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = &self.outcome.record;
        let (exit, signal) = match self.outcome.ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signalled(signal) => (None, Some(signal)),
            Ended::TimedOut => (None, None),
        };
        let links: Vec<Value> = self.links().map(|link| link_json(&link)).collect();
        let flows: Vec<Value> =
            self.flows().iter().map(|(flow, share)| self.flow_json(flow, *share)).collect();
        let drops = |node: usize| {
            let drops = self.outcome.kernel_drops.get(node).copied().unwrap_or_default();
            json!({
                "node": self.spec.mesh.nodes[node], "from_programs": drops.sent, "to_programs": drops.received,
                "udp_buffer_full": drops.sockets.datagrams, "listen_queue_full": drops.sockets.connections,
            })
        };
        json!({
            "command": self.command(),
            "exit_status": exit,
            "signal": signal,
            "timed_out": self.outcome.ended == Ended::TimedOut,
            "duration_s": record.elapsed.nearest_secs(),
            "nodes": self.spec.mesh.nodes.iter().zip(0..).map(|(name, node)| json!({"name": name, "address": address(node).to_string(), "address_v6": address_v6(node).to_string()})).collect::<Vec<_>>(),
            "published": self.outcome.published.iter().map(|p| json!({"node": self.spec.mesh.nodes[p.node as usize], "port": p.port, "host_port": p.host, "protocol": if p.udp { "udp" } else { "tcp" }})).collect::<Vec<_>>(),
            "listened": self.spec.listen.iter().zip(&self.outcome.listened).map(|(to, seen)| json!({"address": door(to, seen), "from": self.spec.mesh.nodes[to.from as usize], "node": self.spec.mesh.nodes[to.node as usize], "port": to.port, "connections": seen.connections, "refused": seen.refused})).collect::<Vec<_>>(),
            "refused_at_localhost": self.outcome.refused,
            "links": links,
            "flows": flows,
            "jain": self.jain(),
            "strays": {"not_ip": record.strays.not_ip, "malformed": record.strays.malformed, "no_such_address": record.strays.no_such_address, "no_route": record.strays.no_route},
            "outside": self.spec.mesh.outside.map(|node| &self.spec.mesh.nodes[node as usize]),
            "kernel_drops": (0..self.spec.mesh.nodes.len()).map(drops).collect::<Vec<_>>(),
            "refused_by_kernel": record.refused,
            "capture_missed": self.outcome.captured.as_ref().ok(),
            "lateness_us": lateness_json(&record.lateness),
            "kept_up": self.kept_up(),
            "real_time": record.real_time,
            "rootless": self.privilege == Privilege::User,
            "emulator_cpu_s": record.cpu.as_secs_f64(),
            "longest_train_bytes": self.spec.train,
        })
        .serialize(serializer)
    }
}

impl Account<'_> {
    fn flow_json(&self, flow: &FlowRecord, share: Option<&FlowShare>) -> Value {
        let tuple = &flow.tuple;
        json!({
            "flow": self.name(tuple),
            "protocol": tuple.protocol_name(),
            "source": tuple.source.to_string(), "source_port": tuple.source_port,
            "destination": tuple.destination.to_string(), "destination_port": tuple.destination_port,
            "packets": flow.packets, "bytes": flow.bytes,
            "delivered_packets": flow.delivered, "delivered_bytes": flow.delivered_bytes, "payload_bytes": flow.payload_bytes,
            "lost_packets": lost(flow), "marks": flow.marks, "in_flight": flow.in_flight,
            "first_s": flow.first.nearest_secs(), "last_s": flow.last.nearest_secs(),
            "rate_mbps": flow_rate(flow),
            "delay_mean_ms": delay_mean(flow), "delay_min_ms": (flow.delivered > 0).then(|| flow.delay_min.as_millis_f64()),
            "delay_max_ms": flow.delay_max.as_millis_f64(),
            "ideal_mbps": share.map(FlowShare::ideal_mbps), "part_of_ideal": share.map(FlowShare::part),
        })
    }
}

fn link_json(link: &LinkAccount<'_>) -> Value {
    let total = &link.record.total;
    let waits = &link.record.waits;
    json!({
        "link": link.name, "from": link.from, "to": link.to,
        "nominal_mbps": link.nominal.mbps(), "delay_ms": link.delay.as_millis_f64(),
        "rate_mbps": link.rate(), "best_second_mbps": link.best_second(),
        "utilisation": total.busy_ns as f64 / link.elapsed.0.max(1) as f64,
        "sent_packets": total.sent_packets, "sent_bytes": total.sent_bytes, "marks": total.marks, "copies": total.copies,
        "drops": {"queue_full": total.drops.full, "law": total.drops.law, "loss_before_queue": total.drops.before, "loss_on_wire": total.drops.after, "corrupt": total.drops.corrupt},
        "held": link.record.held,
        "queueing_delay_ms": {
            "mean": waits.mean().as_millis_f64(), "p50": waits.percentile(0.5).as_millis_f64(),
            "p90": waits.percentile(0.9).as_millis_f64(), "p99": waits.percentile(0.99).as_millis_f64(),
            "max": waits.max().as_millis_f64(),
        },
    })
}

fn lateness_json(lateness: &Lateness) -> Value {
    let micros = |p| lateness.percentile(p).as_secs_f64() * 1e6;
    json!({
        "packets": lateness.count(), "mean": lateness.mean().as_secs_f64() * 1e6,
        "p50": micros(0.5), "p90": micros(0.9), "p99": micros(0.99), "p999": micros(0.999),
        "max": lateness.max().as_secs_f64() * 1e6,
    })
}

/// The name of a flow for users, with `nodes` instead of addresses.
fn name(nodes: &[String], tuple: &FiveTuple) -> String {
    let end = |ip, port: u16| {
        let known = nodes.iter().zip(0..).find(|&(_, node)| addresses(node).contains(&ip));
        let host = known.map_or_else(|| format!("{ip}"), |(name, _)| name.clone());
        if port == 0 { host } else { format!("{host}:{port}") }
    };
    let (from, to) = (end(tuple.source, tuple.source_port), end(tuple.destination, tuple.destination_port));
    format!("{} {from} > {to}", tuple.protocol_name())
}

/// The program and its arguments; without a program, the ports that lead into the network.
fn command(spec: &Spec) -> String {
    let mut words: Vec<_> = spec.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.is_empty() {
        let nodes = &spec.mesh.nodes;
        let option = |to: &Listen| format!("--listen {}={}:{}", to.at, nodes[to.node as usize], to.port);
        words.extend(spec.listen.iter().filter(|to| !to.inside).map(option));
    }
    words.join(" ")
}

/// The name of a port that leads into the network, for users.
fn door(listen: &Listen, seen: &Listened) -> String {
    if listen.inside { format!("localhost:{}", seen.at.port()) } else { seen.at.to_string() }
}

fn lost(flow: &FlowRecord) -> u64 {
    flow.packets.saturating_sub(flow.delivered + flow.in_flight)
}

/// Delivered Mb/s from the flow's first packet to its last.
fn flow_rate(flow: &FlowRecord) -> f64 {
    let span = flow.last.saturating_sub(flow.first).as_secs_f64();
    if span > 0.0 { flow.delivered_bytes as f64 * 8e-6 / span } else { 0.0 }
}

fn delay_mean(flow: &FlowRecord) -> Option<f64> {
    (flow.delivered > 0).then(|| flow.delay_sum.as_millis_f64() / flow.delivered as f64)
}

/// The tables that [`Account::draw`] writes.
pub const TABLES: [&str; 2] = ["links.csv", "flows.csv"];
/// Lateness from which a packet counts as late, and the share of late packets that is too many.
const LATE: Time = Time::from_millis(1);
const TOO_MANY: f64 = 0.01;
/// Upper bound of flows in the figure.
const DRAWN: usize = 8;
/// Shortest life of a flow whose share is compared.
const WORTH_COMPARING: Time = Time::from_secs(1);
