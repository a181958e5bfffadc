//! Transports of flows and workloads: sender law, wire format, loss detection, timers, receiver.

use tollway_law::Time;
use tollway_law::link::Pricing;
use tollway_law::sender::{self, Descriptor, Ecn, Sending};
use tollway_law::toll::Content;
use tollway_proto::encoding::Feedback;
use tollway_proto::encoding::draft20::Version;
use tollway_proto::transport::{self as proto, FlowControl};

use super::Resolver;
use super::links::Laws;
use crate::file::keys;
use crate::file::reader::Reader;
use crate::plan::{Detection, Encoding, Rto, SenderLaw, Transport, TransportId, WindowGrowth, laws_that};

impl<'a> Resolver<'a> {
    pub(super) fn transport(&mut self, k: &Reader<'a>) -> TransportId {
        let id = TransportId(self.plan.transports.len() as u32);
        let size = |key| k.bytes(key).unwrap_or_default() as u16;
        let kernel = k.word("transport") == "kernel";
        // IP and TCP headers, with the timestamp option that Linux adds to every packet.
        let of_kernel = |key, usual| if kernel && k.lacks(key) { usual } else { size(key) };
        let (header, ack) = if kernel { kernel_headers(k) } else { (0, 0) };
        let (packet_size, header) = (size("packet-size"), of_kernel("header", header));
        if header >= packet_size {
            let at = k.at(if k.has("header") { "header" } else { "packet-size" });
            let message =
                format!("a header of {header} B leaves no room for data in a packet of {packet_size} B");
            self.mistakes.add(at, message, "no room").help("`header` is part of `packet-size`");
        }
        let tables = Laws::of(k, keys::sender_laws());
        let mut law = self.sender(k, &tables);
        let about = law.descriptor();
        if kernel {
            self.program(k, &tables, &mut law);
        }
        // A simulated sender falls back by a count for which XCP's options have no room; the program
        // does without.
        let counts = tables.has(law.word(), "fallback");
        let encoding = self.encoding(k, &about, kernel && !counts);
        let (sack, both_ways) = (k.truth("sack"), k.truth("both-ways"));
        let (loss_detection, repair_copies) = self.detection(k, sack, about.rack || kernel);
        // Of 40 bytes of TCP options, timestamps take 12 and XCP's forward and return options 8 and
        // 4.
        let room = match (about.reads, encoding, both_ways) {
            (Some(Content::Feedback), Encoding::TcpOption { .. }, true) => 1,
            (Some(Content::Feedback), Encoding::TcpOption { .. }, false) => 2,
            _ => 3,
        };
        let rto = self.rto(k);
        let window = k.table("receive-window", &keys::RECEIVE_WINDOW);
        let packets = |key| window.count(key).unwrap_or(1) as u32;
        let window_growth = match window.word("growth") {
            "per-packet" => WindowGrowth::PerPacket { initial: packets("initial"), step: packets("step") },
            "feedback" => WindowGrowth::Feedback { initial: packets("initial") },
            _ => WindowGrowth::Whole,
        };
        let (reader, flow_control) = self.receiving(k, &about, &window);
        let (ecn, l4s) = self.marks(k, &about);
        let class = self.class(k);
        let pricing = self.plan.pricing(class);
        let deadline = about.spends.and_then(|spends| spends.deadline);
        if matches!(pricing, Pricing::Deadline { .. }) && deadline.is_none() {
            let message = "a flow of a class with the pricing `deadline` needs a rate";
            self.mistakes
                .add(k.key_at("class"), message, "here")
                .help("write the rate that it needs: `fcp = { deadline = \"10 Mbps\" }`");
        }
        let initial_window =
            k.count("initial-window").map_or(about.initial_window.unwrap_or(10), |n| n as u32);
        let sending = Sending {
            segment: packet_size,
            whole_toll: !encoding.xcp_only(),
            pricing,
            ..Sending::of(f64::from(initial_window))
        };
        if let Err(misfit) = law.check(&sending) {
            let at = tables.key_at(law.word(), misfit.field).unwrap_or(k.place());
            let found = self.mistakes.add(at, misfit.message, misfit.label);
            if !misfit.help.is_empty() {
                found.help(misfit.help);
            }
        }
        if kernel && about.kernel.is_none() && !about.program {
            let message = format!("the kernel's TCP has no law `{}`", k.word("law"));
            let laws = laws_that(|law| law.kernel.is_some() || law.program);
            self.mistakes
                .add(k.at("transport"), message, "the kernel's")
                .help(format!("choose {laws}, or leave out `transport`"));
        }
        self.plan.transports.push(Transport {
            kernel,
            law,
            packet_size,
            header,
            ack_size: of_kernel("ack-size", ack),
            initial_window,
            sack_blocks: if sack { k.count("sack-blocks").unwrap_or(room) as u8 } else { 0 },
            loss_detection,
            repair_copies,
            delayed_ack: k.time("delayed-ack"),
            handshake: k.truth("handshake"),
            encoding,
            both_ways,
            ecn,
            l4s,
            window_growth,
            reader,
            flow_control,
            rto,
            class,
            weight: k.number("weight"),
        });
        id
    }

    /// Gives a law the constants of its program in the kernel, if it has one.
    fn program(&mut self, k: &Reader<'a>, tables: &Laws<'a>, law: &mut SenderLaw) {
        let given = |field: &str| tables.has(law.word(), field);
        match law.program(&given) {
            Ok(Some(program)) => *law = SenderLaw(program),
            Ok(None) => {}
            Err(misfit) => {
                let at = tables.key_at(law.word(), misfit.field).unwrap_or(k.place());
                self.mistakes.add(at, misfit.message, misfit.label).help(misfit.help);
            }
        }
    }

    /// The encoding of the toll in packets.
    fn encoding(&mut self, k: &Reader<'a>, about: &Descriptor, kernel: bool) -> Encoding {
        // The kernel's packets have options.
        let options = kernel && about.reads == Some(Content::Feedback);
        if options && k.has("encoding") && k.word("encoding") != "tcp-option" {
            let message = "the kernel's TCP carries XCP's header in TCP options only";
            self.mistakes.add(k.at("encoding"), message, "not in the kernel").help("leave out `encoding`");
        }
        let word = if options && k.lacks("encoding") { "tcp-option" } else { k.word("encoding") };
        let encoding = match word {
            "tcp-option" => Encoding::TcpOption {
                feedback: if k.word("feedback") == "integer" { Feedback::Integer } else { Feedback::Split },
            },
            "draft-2" => Encoding::Draft20 { version: Version::V2 },
            "draft-3" => Encoding::Draft20 { version: Version::V3 },
            _ => Encoding::Acp,
        };
        if matches!(about.reads, Some(Content::Price | Content::Rate)) && encoding.xcp_only() {
            let message = format!("XCP's header has no room for the tolls of the law `{}`", k.word("law"));
            self.mistakes
                .add(k.at("encoding"), message, "XCP's header")
                .help("leave out `encoding`, or choose \"acp\"");
        }
        if k.has("feedback") && !matches!(encoding, Encoding::TcpOption { .. }) {
            self.mistakes
                .add(k.key_at("feedback"), "`feedback` needs the encoding `tcp-option`", "no effect")
                .help("add `encoding = \"tcp-option\"`");
        }
        encoding
    }

    /// Loss detection, and the extra copies of each repair. RACK if `rack` is true and the file
    /// leaves it open.
    fn detection(&mut self, k: &Reader<'a>, sack: bool, rack: bool) -> (Detection, u8) {
        if !sack && k.has("sack-blocks") {
            let message = "`sack-blocks` needs SACK";
            self.mistakes.add(k.key_at("sack-blocks"), message, "no effect");
        }
        let loss_detection = match (k.word("loss-detection"), sack) {
            ("reno", _) => Detection::Reno,
            ("ns-2", _) => Detection::Ns2,
            ("newreno", _) | ("", false) => Detection::NewReno,
            ("", true) if rack => RACK,
            ("rfc6675" | "", _) => Detection::Rfc6675,
            _ => RACK,
        };
        if loss_detection == Detection::Ns2 && (k.word("law") != "newreno" || k.truth("ecn")) {
            self.mistakes
                .add(k.at("loss-detection"), "`ns-2` needs the law `newreno`, without ECN", "ns-2's senders")
                .help("add `law = \"newreno\"`, and leave out `ecn`");
        }
        if loss_detection == Detection::Ns2 {
            let rto = k.table("rto", &keys::RTO);
            let own = ["granularity", "at-repair", "impatient"].map(|key| (rto, key));
            for (of, key) in own.into_iter().chain([(*k, "growth-per-ack")]).filter(|(of, key)| of.has(key)) {
                let message = format!("the senders of ns-2 have their own rule in place of `{key}`");
                self.mistakes.add(of.key_at(key), message, "no effect").help(format!("leave out `{key}`"));
            }
        }
        let needs_sack = matches!(loss_detection, Detection::Rfc6675 | Detection::Rack { .. });
        if !sack && needs_sack {
            self.mistakes
                .add(k.at("loss-detection"), "this loss detection needs SACK", "without SACK")
                .help("leave out `sack = false`, or choose \"newreno\"");
        }
        let repair_copies = k.count("repair-copies").unwrap_or(0) as u8;
        if repair_copies > 0 && loss_detection != RACK {
            self.mistakes
                .add(
                    k.key_at("repair-copies"),
                    "`repair-copies` needs the loss detection `rack`",
                    "no effect",
                )
                .help("add `loss-detection = \"rack\"`");
        }
        (loss_detection, repair_copies)
    }

    /// The retransmission timer.
    fn rto(&mut self, k: &Reader<'a>) -> Rto {
        let rto = k.table("rto", &keys::RTO);
        let rto_at = rto.at(if rto.has("max") { "max" } else { "min" });
        let fixed = rto.time("fixed");
        let rto = Rto {
            initial: rto.span("initial"),
            min: rto.span("min"),
            max: rto.span("max"),
            granularity: rto.span("granularity"),
            backoff: rto.truth("backoff"),
            at_repair: rto.truth("at-repair"),
            impatient: rto.truth("impatient"),
            widens: false,
        };
        if rto.min > rto.max {
            let message = format!("the timer's `min`, {}, is over its `max`, {}", rto.min, rto.max);
            self.mistakes.add(rto_at, message, "here");
        }
        let always = |time| Rto { initial: time, min: time, max: time, backoff: false, ..rto };
        fixed.map_or(rto, always)
    }

    /// The pace of the receiver's application, and the receiver's flow control.
    fn receiving(
        &mut self,
        k: &Reader<'a>,
        about: &Descriptor,
        window: &Reader<'a>,
    ) -> (proto::Reader, FlowControl) {
        let reader = self.reader(k);
        let soft = k.word("flow-control") == "soft";
        if soft && about.reads != Some(Content::Feedback) {
            let message =
                format!("soft flow control uses XCP's feedback, which the law `{}` ignores", k.word("law"));
            self.mistakes
                .add(k.at("flow-control"), message, "ignored")
                .help("use it with `law = \"xcp\"`, or leave it out");
        }
        if soft && k.lacks("receive-buffer") {
            self.mistakes
                .add(k.at("flow-control"), "soft flow control needs a limited buffer", "without a buffer")
                .help("add `receive-buffer`, such as \"200 KiB\"");
        }
        let key = if soft { "flow-control" } else { "reader" };
        if (soft || k.has("reader")) && window.has("growth") && window.word("growth") != "whole" {
            let message = format!(
                "a growing window does not work with `{key}`, which uses the room left in the buffer"
            );
            self.mistakes.add(window.at("growth"), message, "here").help("leave out one of them");
        }
        if (soft || k.has("reader")) && k.word("transport") == "kernel" {
            let message = format!("`{key}` is for Tollway's receivers, and this flow uses the kernel's TCP");
            self.mistakes.add(k.key_at(key), message, "no effect").help("leave out `transport = \"kernel\"`");
        }
        (reader, if soft { FlowControl::Soft } else { FlowControl::Credit })
    }

    /// The rate at which an application reads, from the table `reader` of a section.
    pub(super) fn reader(&mut self, keys: &Reader<'a>) -> proto::Reader {
        let keys = keys.table("reader", &keys::READER);
        let every = keys.span("every");
        match (keys.time("then"), keys.time("period")) {
            (None, None) if every == Time::ZERO => proto::Reader::AtOnce,
            (None, None) => proto::Reader::Every(every),
            (Some(second), Some(period)) => proto::Reader::Wave { first: every, second, period },
            (then, _) => {
                let (have, lack) = if then.is_some() { ("then", "period") } else { ("period", "then") };
                let message = format!("`{have}` needs `{lack}`");
                self.mistakes.add(keys.key_at(have), message, format!("without `{lack}`"));
                proto::Reader::AtOnce
            }
        }
    }

    /// The sender's law, with its constants.
    fn sender(&mut self, k: &Reader<'a>, tables: &Laws<'a>) -> SenderLaw {
        let word = k.word("law");
        // An unknown law has been reported.
        let entry = sender::LAWS.iter().find(|law| law.word == word).unwrap_or(&sender::LAWS[0]);
        for other in sender::LAWS.iter().filter(|other| other.word != entry.word) {
            let beside = other.tables.iter().filter(|table| table.word.is_empty());
            for param in beside.flat_map(|table| (table.params)()) {
                let key = param.field.replace('_', "-");
                if k.has(&key) {
                    let message =
                        format!("`{key}` needs the law `{}`, and this flow has `{word}`", other.word);
                    self.mistakes.add(k.key_at(&key), message, "no effect");
                }
            }
        }
        SenderLaw((entry.read)(tables))
    }

    /// ECN and L4S: true if packets are ECN-capable, and true if they carry ECT(1).
    fn marks(&mut self, k: &Reader<'a>, about: &Descriptor) -> (bool, bool) {
        let (law, needs) = (k.word("law"), about.ecn == Ecn::Needs);
        let ecn = if k.has("ecn") { k.truth("ecn") } else { needs };
        if needs && !ecn {
            let message = format!("the law `{law}` needs marks, and so ECN");
            self.mistakes.add(k.key_at("ecn"), message, "here").help("leave out `ecn = false`");
        }
        if ecn && about.ecn == Ecn::Refuses {
            let message = format!("the law `{law}` does not respond to marks, so it must not use ECN");
            self.mistakes.add(k.key_at("ecn"), message, "here").help("leave out `ecn = true`");
        }
        let l4s = k.truth("l4s");
        if l4s && !(about.l4s && ecn) {
            let laws = laws_that(|law| law.l4s);
            self.mistakes
                .add(
                    k.key_at("l4s"),
                    "L4S is for senders that reduce a little at each mark (RFC 9331 § 4.3)",
                    "here",
                )
                .help(format!("use it with `law = \"{laws}\"`, or leave it out"));
        }
        (ecn, l4s)
    }
}

/// Bytes of IP's and TCP's header in a flow of the kernel's TCP, and bytes of an acknowledgement:
/// with timestamps, and the options of a law's program.
fn kernel_headers(k: &Reader<'_>) -> (u16, u16) {
    match (k.word("law"), k.truth("both-ways")) {
        ("xcp", false) => (60, 56),
        ("xcp", true) => (64, 56),
        ("fcp", false) => (64, 60),
        ("fcp", true) => (68, 60),
        _ => (52, 52),
    }
}

/// RACK with a tail probe after the last segment of a burst.
const RACK: Detection = Detection::Rack { tail_probe: true };
