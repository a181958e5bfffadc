//! The program that limits the packets of each tenant to its rate, in addition to the pacing of its
//! connections.
//!
//! The kernel runs it for every IP packet that a socket sends, once the packet has its device. Each
//! tenant has a token bucket, kept as the instant at which all its packets would have left at its
//! rate (GCRA). A packet too far ahead of that instant is dropped. TCP keeps the segment and sends it
//! again, as when a queue of the interface is full.
//!
//! A packet stays on this machine if its device is the loopback device; its addresses, which the
//! sender chooses, do not matter. Exceptions narrow that: an IPv6 packet to this machine from another
//! address, which an unprivileged socket may bind, makes the kernel answer to that address; a routing
//! header makes the kernel forward it. What the kernel sends on account of a packet counts with it.

use std::io;

use super::asm::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::asm::With::{Imm, Reg as Other};
use super::asm::{Assembler, Instruction, Label, Op, Reg, When};
use super::classes::{
    self, AT_LOCAL, AT_PORTS, AT_REMOTE, AT_STAYS, AT_UID, BELOW, CELL, CELL_BYTES, GROUP, KEY, NOBODY,
    PREFIX, Pass, SMALL, UNKNOWN, classify,
};
use super::fields::field;
use super::layout::Layout;
use super::record::LOOPBACK;

/// Descriptors of the program's maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// The end of the lease, and its namespace.
    pub(crate) lease: i32,
    /// By bucket: the cost of a byte in 2⁻¹⁶ ns, 0 for no limit; the depth in ns; the pace of a
    /// connection that opens.
    pub(crate) limits: i32,
    /// By bucket: the instant of the last byte, bytes passed, bytes dropped.
    pub(crate) counts: i32,
    pub(crate) classes: classes::Maps,
}

/// Builds the program for packets. `users` is the number of the user namespace whose network
/// namespaces count.
pub(crate) fn egress(layout: &Layout, maps: Maps, users: u32) -> io::Result<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let (pass, ours, everywhere, foreign) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (leaves, named, earlier, bucket) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.copy(R6, R1); // R6 = struct __sk_buff, until the end
    asm.call(KTIME);
    asm.store(8, R10, -NOW, R0);
    asm.value_of(R8, maps.lease);
    asm.load(8, R1, R8, 0);
    asm.jump(When::NoMore, R1, Other(R0), pass); // the lease is over
    asm.load(8, R8, R8, 8);
    socket(&mut asm, layout, pass); // R7 = struct sk_buff, until the end; R9 = struct sock
    for slot in [-IP, -HEADERS, -FRAGMENT, -ERROR, -ECHO] {
        asm.store_value(8, R10, slot, 0);
    }
    asm.jump(When::Equal, R8, Imm(0), everywhere); // the lease covers every namespace
    field(&mut asm, &layout.packet.namespace, R9, R1);
    asm.jump(When::NotEqual, R1, Other(R8), pass);
    asm.go(ours);
    asm.here(everywhere);
    field(&mut asm, &layout.packet.users, R9, R1);
    asm.set(R2, users as i32);
    asm.op(Op::ShiftLeft, R2, 32);
    asm.op(Op::ShiftRight, R2, 32);
    asm.jump(When::NotEqual, R1, Other(R2), foreign);

    asm.here(ours);
    for word in 0..CELL_BYTES / 8 {
        asm.store_value(8, R10, -CELL + 8 * word, 0);
    }
    headers(&mut asm, pass);
    asm.load(4, R1, R10, AT_STAYS);
    asm.jump(When::Equal, R1, Imm(0), leaves);
    maps.classes.if_local_counts(&mut asm, leaves);
    asm.go(pass);
    asm.here(leaves);
    layout.owner.of_any(&mut asm, R9, R8, R10, AT_UID);
    asm.copy(R1, R6);
    asm.call(GROUP_ID);
    asm.store(8, R10, -CELL, R0);
    for (pass, named) in [(Pass::Current, named), (Pass::Before, earlier)] {
        classes::group(&mut asm, &maps.classes, pass, named);
        ancestors(&mut asm, &maps.classes);
        asm.here(named);
        classify(&mut asm, &maps.classes, pass);
        asm.jump(When::NotEqual, R1, Imm(UNKNOWN as i32), bucket);
    }
    asm.go(bucket);
    asm.here(foreign);
    asm.load(4, R1, R6, DEVICE);
    asm.jump(When::Equal, R1, Imm(LOOPBACK as i32), pass);
    asm.set(R1, NOBODY as i32);
    asm.here(bucket);
    asm.store(4, R10, -SMALL, R1);
    wire(&mut asm, layout, &maps);
    spend(&mut asm, &maps, pass);
    asm.here(pass);
    asm.exit(1);
    asm.finish()
}

/// `R7` = the packet in the kernel's form, `R9` = its socket; that of a connection request is its
/// listener.
fn socket(asm: &mut Assembler, layout: &Layout, pass: Label) {
    let (packet, full) = (&layout.packet, asm.label());
    asm.copy(R1, R6);
    asm.call_kernel(packet.to_kernel);
    asm.copy(R7, R0);
    field(asm, &packet.socket, R7, R1);
    asm.jump(When::Equal, R1, Imm(0), pass);
    layout.owner.cast(asm, R1, packet.kinds[0]);
    asm.copy(R9, R0);
    field(asm, &packet.state, R9, R1);
    asm.jump(When::NotEqual, R1, Imm(REQUEST), full);
    field(asm, &packet.listener, R9, R1);
    layout.owner.cast(asm, R1, packet.kinds[0]);
    asm.copy(R9, R0);
    asm.here(full);
}

/// Fills in the addresses and ports of the identity in the frame from the packet's headers, whether
/// it stays here, and the lengths of its headers. Changes `R8`.
fn headers(asm: &mut Assembler, pass: Label) {
    let (v6, transport, none, leaves) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(4, R1, R6, DEVICE);
    asm.jump(When::NotEqual, R1, Imm(LOOPBACK as i32), leaves);
    asm.store_value(4, R10, AT_STAYS, 1);
    asm.here(leaves);
    asm.load(4, R1, R6, PROTOCOL);
    asm.jump(When::Equal, R1, Imm(i32::from(ETHERTYPE_V6.to_be())), v6);
    asm.jump(When::NotEqual, R1, Imm(i32::from(ETHERTYPE_V4.to_be())), pass);
    asm.set(R2, 0);
    bytes(asm, 20, pass);
    for (from, to) in [(12, AT_LOCAL), (16, AT_REMOTE)] {
        asm.store_value(2, R10, to + 10, 0xffff);
        asm.load(4, R1, R10, -HEADER + from);
        asm.store(4, R10, to + 12, R1);
    }
    asm.load(1, R8, R10, -HEADER); // R8 = the offset of the next header
    asm.op(Op::And, R8, 0xf);
    asm.op(Op::ShiftLeft, R8, 2);
    asm.load(1, R1, R10, -HEADER + 9);
    asm.store(8, R10, -NEXT, R1);
    asm.go(transport);

    asm.here(v6);
    asm.set(R2, 0);
    bytes(asm, 40, pass);
    for (from, to) in [(8, AT_LOCAL), (24, AT_REMOTE)] {
        for word in [0, 4, 8, 12] {
            asm.load(4, R1, R10, -HEADER + from + word);
            asm.store(4, R10, to + word, R1);
        }
    }
    foreign_source(asm);
    asm.store_value(8, R10, -FRAGMENT, FRAGMENT_HEADER);
    asm.set(R8, 40);
    asm.load(1, R1, R10, -HEADER + 6);
    asm.store(8, R10, -NEXT, R1);
    for _ in 0..EXTENSIONS {
        let more = asm.label();
        asm.load(8, R1, R10, -NEXT);
        for extension in [libc::IPPROTO_ROUTING, libc::IPPROTO_HOPOPTS, libc::IPPROTO_DSTOPTS] {
            asm.jump(When::Equal, R1, Imm(extension), more);
        }
        asm.go(transport);
        asm.here(more);
        let stays = asm.label();
        asm.jump(When::NotEqual, R1, Imm(libc::IPPROTO_ROUTING), stays);
        asm.store_value(4, R10, AT_STAYS, 0);
        asm.here(stays);
        asm.copy(R2, R8);
        bytes(asm, 4, none);
        asm.load(1, R1, R10, -HEADER);
        asm.store(8, R10, -NEXT, R1);
        asm.load(1, R1, R10, -HEADER + 1);
        asm.op(Op::ShiftLeft, R1, 3);
        asm.op(Op::Add, R1, 8);
        asm.op_with(Op::Add, R8, R1);
    }
    asm.here(transport);
    ports(asm, none);
    asm.here(none);
}

/// An IPv6 packet to this machine from another of its addresses, or from none of them, counts as one
/// that leaves: the answer may.
fn foreign_source(asm: &mut Assembler) {
    let (foreign, done) = (asm.label(), asm.label());
    asm.load(4, R1, R10, AT_STAYS);
    asm.jump(When::Equal, R1, Imm(0), done);
    let differ = asm.label();
    for half in [0, 8] {
        asm.load(8, R1, R10, AT_LOCAL + half);
        asm.load(8, R2, R10, AT_REMOTE + half);
        asm.jump(When::NotEqual, R1, Other(R2), differ);
    }
    asm.go(done);
    asm.here(differ);
    asm.load(8, R1, R10, AT_LOCAL); // ::1
    asm.jump(When::NotEqual, R1, Imm(0), foreign);
    asm.load(4, R1, R10, AT_LOCAL + 8);
    asm.jump(When::NotEqual, R1, Imm(0), foreign);
    asm.load(4, R1, R10, AT_LOCAL + 12);
    asm.jump(When::Equal, R1, Imm(1u32.to_be() as i32), done);
    asm.here(foreign);
    asm.store_value(4, R10, AT_STAYS, 0);
    asm.store_value(8, R10, -ERROR, ERROR_HEADERS);
    asm.here(done);
}

/// Stores the ports and the lengths of headers. `R8` is the offset of the transport's header, whose
/// number is in the frame.
fn ports(asm: &mut Assembler, none: Label) {
    let (tcp, read) = (asm.label(), asm.label());
    asm.store(8, R10, -IP, R8);
    asm.store(8, R10, -HEADERS, R8);
    asm.load(8, R1, R10, -NEXT);
    asm.jump(When::Equal, R1, Imm(libc::IPPROTO_TCP), tcp);
    for (protocol, length) in [(libc::IPPROTO_UDP, 8), (libc::IPPROTO_UDPLITE, 8), (libc::IPPROTO_SCTP, 12)] {
        let other = asm.label();
        asm.jump(When::NotEqual, R1, Imm(protocol), other);
        asm.copy(R2, R8);
        bytes(asm, 4, none);
        asm.op(Op::Add, R8, length);
        asm.go(read);
        asm.here(other);
    }
    // Of an echo request to a group, this machine may get a copy, and answer it to another one.
    asm.jump(When::NotEqual, R1, Imm(libc::IPPROTO_ICMPV6), none);
    asm.load(1, R1, R10, AT_REMOTE);
    asm.jump(When::NotEqual, R1, Imm(0xff), none);
    asm.store_value(8, R10, -ECHO, 1);
    asm.go(none);
    asm.here(tcp);
    asm.copy(R2, R8);
    bytes(asm, 14, none);
    asm.load(1, R1, R10, -HEADER + 12); // the header's length, in words, is in the high half
    asm.op(Op::ShiftRight, R1, 4);
    asm.op(Op::ShiftLeft, R1, 2);
    asm.op_with(Op::Add, R8, R1);
    asm.here(read);
    asm.store(8, R10, -HEADERS, R8);
    for at in [0, 2] {
        asm.load(2, R1, R10, -HEADER + at);
        asm.swap_half(R1);
        asm.store(2, R10, AT_PORTS + at, R1);
    }
}

/// Copies `count` bytes of the packet from offset `R2` to the frame.
fn bytes(asm: &mut Assembler, count: i32, none: Label) {
    asm.copy(R1, R6);
    asm.frame(R3, HEADER);
    asm.set(R4, count);
    asm.call(LOAD_BYTES);
    asm.jump(When::NotEqual, R0, Imm(0), none);
}

/// Stores in the key the index of the nearest ancestor group that has one. Changes `R8`.
fn ancestors(asm: &mut Assembler, maps: &classes::Maps) {
    let (next, unknown, end) = (asm.label(), asm.label(), asm.label());
    asm.set(R8, 0); // R8 = the level, from the root
    asm.here(next);
    asm.copy(R1, R6);
    asm.copy(R2, R8);
    asm.call(ANCESTOR_ID);
    asm.jump(When::Equal, R0, Imm(0), end);
    // The group's key is in the frame, with its version.
    asm.store(8, R10, -PREFIX, R0);
    asm.map(R1, maps.groups());
    asm.frame(R2, PREFIX);
    asm.call(MAP_LOOKUP);
    asm.jump(When::Equal, R0, Imm(0), unknown);
    asm.load(4, R1, R0, 0);
    asm.store(4, R10, -KEY + GROUP, R1);
    asm.here(unknown);
    asm.op(Op::Add, R8, 1);
    asm.jump(When::NoMore, R8, Imm(DEEPEST), next);
    asm.here(end);
}

/// `R8` = bytes of the packet on the wire. It may leave as several segments, and a segment as several
/// fragments, each with its headers and the link's. Changes `R9`.
fn wire(asm: &mut Assembler, layout: &Layout, maps: &Maps) {
    let (many, counted, whole, framed) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(4, R8, R6, LEN);
    asm.copy(R4, R8); // R4 = bytes of a segment
    asm.load(4, R3, R6, SEGMENTS); // R3 = their number
    asm.jump(When::Over, R3, Imm(1), many);
    asm.set(R3, 1);
    asm.go(counted);
    asm.here(many);
    asm.load(8, R2, R10, -HEADERS);
    asm.copy(R1, R3);
    asm.op(Op::Add, R1, -1);
    asm.op_with(Op::Multiply, R1, R2);
    asm.op_with(Op::Add, R8, R1);
    asm.load(4, R4, R6, SEGMENT_SIZE);
    asm.op_with(Op::Add, R4, R2);
    asm.here(counted);
    asm.store(8, R10, -SEGMENT_COUNT, R3);
    asm.jump(When::NoMore, R4, Imm(LEAST_SIZE), whole);
    asm.store(8, R10, -SEGMENT, R4);
    largest(asm, layout); // R9 = the largest packet
    asm.load(8, R4, R10, -SEGMENT);
    asm.load(8, R3, R10, -SEGMENT_COUNT);
    asm.jump(When::NoMore, R4, Other(R9), whole);
    asm.load(8, R2, R10, -IP);
    asm.load(8, R5, R10, -FRAGMENT);
    asm.op_with(Op::Subtract, R9, R2);
    asm.op_with(Op::Subtract, R9, R5);
    asm.op(Op::And, R9, -8);
    asm.jump(When::Equal, R9, Imm(0), whole);
    asm.op_with(Op::Subtract, R4, R2);
    asm.op_with(Op::Add, R4, R9);
    asm.op(Op::Add, R4, -1);
    asm.op_with(Op::Divide, R4, R9); // R4 = fragments of a segment
    asm.op_with(Op::Multiply, R5, R4);
    asm.copy(R1, R4);
    asm.op(Op::Add, R1, -1);
    asm.op_with(Op::Multiply, R1, R2);
    asm.op_with(Op::Add, R1, R5);
    asm.op_with(Op::Multiply, R1, R3);
    asm.op_with(Op::Add, R8, R1);
    asm.go(framed);
    asm.here(whole);
    asm.set(R4, 1);
    asm.here(framed);
    asm.value_of(R2, maps.classes.scope());
    asm.load(8, R2, R2, 0);
    asm.op_with(Op::Multiply, R2, R4);
    asm.op_with(Op::Multiply, R2, R3);
    asm.op_with(Op::Add, R8, R2);
    asm.load(8, R2, R10, -ERROR);
    asm.op_with(Op::Add, R8, R2);
    asm.load(8, R2, R10, -ECHO);
    asm.op_with(Op::ShiftLeft, R8, R2);
}

/// `R9` = the size of the largest packet that leaves in one piece: the least of the bounds that may
/// apply.
fn largest(asm: &mut Assembler, layout: &Layout) {
    let (packet, v4, rest) = (&layout.packet, asm.label(), asm.label());
    let lower = |asm: &mut Assembler, bound: Reg| {
        let higher = asm.label();
        asm.jump(When::Equal, bound, Imm(0), higher);
        asm.jump(When::NoMore, R9, Other(bound), higher);
        asm.copy(R9, bound);
        asm.here(higher);
    };
    layout.owner.cast(asm, R9, packet.kinds[1]);
    field(asm, &packet.own, R0, R2);
    field(asm, &packet.device, R7, R9);
    asm.load(8, R1, R10, -FRAGMENT);
    asm.jump(When::Equal, R1, Imm(0), v4);
    lower(asm, R2);
    field(asm, &packet.device6, R7, R1);
    lower(asm, R1);
    asm.here(v4);
    field(asm, &packet.route, R7, R1);
    asm.op(Op::And, R1, -2); // a bit marks a borrowed reference
    layout.owner.cast(asm, R1, packet.kinds[2]);
    asm.load(8, R1, R10, -FRAGMENT);
    asm.jump(When::NotEqual, R1, Imm(0), rest);
    asm.load(4, R1, R0, packet.path.steps[0].offset);
    match cfg!(target_endian = "little") {
        true => asm.op(Op::ShiftRight, R1, 1),
        false => asm.op(Op::And, R1, i32::MAX),
    }
    lower(asm, R1);
    asm.here(rest);
    field(asm, &packet.metrics, R0, R1);
    asm.op(Op::And, R1, -4); // two bits are flags
    layout.owner.cast(asm, R1, packet.kinds[3]);
    field(asm, &packet.metric, R0, R1);
    lower(asm, R1);
}

/// Takes the packet's cost from the bucket whose number is in the frame, or drops the packet. `R8` is
/// its bytes on the wire.
fn spend(asm: &mut Assembler, maps: &Maps, pass: Label) {
    let (fresh, long, drop, counted) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (usual, refused) = (asm.label(), asm.label());
    for (map, to) in [(maps.limits, R7), (maps.counts, R9)] {
        asm.map(R1, map);
        asm.frame(R2, SMALL);
        asm.call(MAP_LOOKUP);
        asm.jump(When::Equal, R0, Imm(0), pass);
        asm.copy(to, R0); // R7 = the limit, R9 = the counts
    }
    asm.load(8, R4, R7, 0);
    asm.jump(When::Equal, R4, Imm(0), counted); // no limit
    // One packet whose headers make it a burst that no queue expects.
    asm.load(4, R1, R6, LEN);
    asm.op(Op::ShiftLeft, R1, 1);
    asm.jump(When::NoMore, R8, Other(R1), usual);
    asm.jump(When::Over, R8, Imm(BURST), refused);
    asm.here(usual);
    asm.op_with(Op::Multiply, R4, R8);
    asm.op(Op::ShiftRight, R4, 16); // R4 = ns that it takes
    asm.load(8, R2, R10, -NOW);
    asm.load(8, R0, R9, 0);
    asm.jump(When::NoMore, R2, Other(R0), fresh);
    asm.compare_and_swap(R9, 0, R2); // idle: tokens beyond the depth are lost
    asm.here(fresh);
    asm.load(8, R3, R7, 8);
    asm.op_with(Op::Add, R2, R3); // R2 = the latest instant allowed
    asm.jump(When::Over, R8, Imm(SHORT), long);
    asm.op(Op::Add, R2, RESERVE); // acknowledgements and SYN packets pass longer than data
    asm.here(long);
    asm.copy(R1, R4);
    asm.fetch_add(R9, 0, R1); // R1 = the instant before
    asm.jump(When::Over, R1, Other(R2), drop);
    asm.here(counted);
    asm.fetch_add(R9, 8, R8);
    asm.exit(1);
    asm.here(drop);
    asm.set(R1, 0);
    asm.op_with(Op::Subtract, R1, R4);
    asm.fetch_add(R9, 0, R1);
    asm.here(refused);
    asm.fetch_add(R9, 16, R8);
    asm.exit(0);
}

// The frame below that of classification: a header, the time, the number of the next header, lengths
// of IP's headers and of all, of a fragment's header, the number and size of segments, the length by
// which an error that answers exceeds the packet, and 1 if an answer is as long as the packet.
const HEADER: i16 = BELOW + 40;
const NOW: i16 = HEADER + 8;
const NEXT: i16 = NOW + 8;
const IP: i16 = NEXT + 8;
const HEADERS: i16 = IP + 8;
const FRAGMENT: i16 = HEADERS + 8;
const SEGMENT_COUNT: i16 = FRAGMENT + 8;
const SEGMENT: i16 = SEGMENT_COUNT + 8;
const ERROR: i16 = SEGMENT + 8;
const ECHO: i16 = ERROR + 8;
const _: () = assert!(ECHO <= 512, "a frame has 512 bytes");

/// Upper bound of extension headers: unprivileged sockets can add one.
const EXTENSIONS: usize = 4;
/// Bytes of IPv6's fragment header.
const FRAGMENT_HEADER: i32 = 8;
/// Bytes of the IPv6 and ICMPv6 headers before a packet that an error quotes.
const ERROR_HEADERS: i32 = 48;
/// The smallest bound of a packet's size that a path can have (`ip_rt_min_pmtu`).
const LEAST_SIZE: i32 = 552;
/// Bytes on the wire of one packet that may be mostly headers.
const BURST: i32 = 1 << 17;
/// Upper size in bytes of a packet that may use the reserve; and the reserve in ns.
const SHORT: i32 = 128;
const RESERVE: i32 = 10_000_000;
/// Upper bound of levels of control groups.
const DEEPEST: i32 = 1024;
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
/// State of a connection request (`TCP_NEW_SYN_RECV`).
const REQUEST: i32 = 12;

// Numbers of helpers in `linux/bpf.h`.
const MAP_LOOKUP: i32 = 1;
const KTIME: i32 = 5;
const LOAD_BYTES: i32 = 26;
const GROUP_ID: i32 = 79;
const ANCESTOR_ID: i32 = 83;

// Offsets in `struct __sk_buff`: len, protocol, ifindex, gso_segs, gso_size.
const LEN: i16 = 0;
const PROTOCOL: i16 = 16;
const DEVICE: i16 = 40;
const SEGMENTS: i16 = 164;
const SEGMENT_SIZE: i16 = 176;
