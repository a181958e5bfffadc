//! The program that limits the packets of each tenant to its rate, in addition to the pacing of its
//! connections.
//!
//! The kernel runs it for every IP packet that a socket sends. Each tenant has a token bucket, kept
//! as the instant at which all its packets would have left at its rate (GCRA). A packet too far
//! ahead of that instant is dropped. TCP keeps the segment and sends it again, as when a queue of
//! the interface is full.

use std::io;

use super::asm::Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use super::asm::With::{Imm, Reg as Other};
use super::asm::{Assembler, Instruction, Op, When};
use super::classes::{
    self, AT_LOCAL, AT_PORTS, AT_REMOTE, AT_UID, BELOW, CELL, CELL_BYTES, GROUP, KEY, NOBODY, SMALL, classify,
};

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

/// Builds the program for packets.
pub(crate) fn egress(maps: Maps) -> io::Result<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let (pass, ours, named, bucket) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.copy(R6, R1); // R6 = struct __sk_buff, until the end
    asm.call(KTIME);
    asm.store(8, R10, -NOW, R0);
    asm.value_of(R8, maps.lease);
    asm.load(8, R1, R8, 0);
    asm.jump(When::NoMore, R1, Other(R0), pass); // the lease is over
    asm.load(8, R8, R8, 8);
    asm.jump(When::Equal, R8, Imm(0), ours); // the lease covers every namespace
    asm.copy(R1, R6);
    asm.call(NAMESPACE_COOKIE);
    asm.jump(When::NotEqual, R0, Other(R8), pass);

    asm.here(ours);
    for word in 0..CELL_BYTES / 8 {
        asm.store_value(8, R10, -CELL + 8 * word, 0);
    }
    headers(&mut asm, pass);
    asm.copy(R1, R6);
    asm.call(SOCKET_UID);
    asm.store(4, R10, AT_UID, R0);
    asm.copy(R1, R6);
    asm.call(GROUP_ID);
    asm.store(8, R10, -CELL, R0);
    classes::group(&mut asm, &maps.classes, named);
    ancestors(&mut asm, &maps.classes);
    asm.here(named);
    classify(&mut asm, &maps.classes);
    asm.jump(When::Equal, R1, Imm(NOBODY as i32), pass);
    asm.jump(When::Equal, R1, Imm(0), bucket);
    asm.op(Op::Add, R1, -1);
    asm.here(bucket);
    asm.store(4, R10, -SMALL, R1);
    spend(&mut asm, &maps, pass);
    asm.here(pass);
    asm.exit(1);
    asm.finish()
}

/// Fills in the addresses and ports of the identity in the frame from the packet's headers.
fn headers(asm: &mut Assembler, pass: super::asm::Label) {
    let (v6, ports, read, none) = (asm.label(), asm.label(), asm.label(), asm.label());
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
    asm.load(1, R9, R10, -HEADER); // R9 = the offset of the next header
    asm.op(Op::And, R9, 0xf);
    asm.op(Op::ShiftLeft, R9, 2);
    asm.load(1, R7, R10, -HEADER + 9); // R7 = its protocol
    asm.go(ports);

    asm.here(v6);
    asm.set(R2, 0);
    bytes(asm, 40, pass);
    for (from, to) in [(8, AT_LOCAL), (24, AT_REMOTE)] {
        for word in [0, 4, 8, 12] {
            asm.load(4, R1, R10, -HEADER + from + word);
            asm.store(4, R10, to + word, R1);
        }
    }
    asm.load(1, R7, R10, -HEADER + 6);
    asm.set(R9, 40);
    // The only extension header that needs no privileges.
    asm.jump(When::NotEqual, R7, Imm(ROUTING), ports);
    asm.copy(R2, R9);
    bytes(asm, 4, none);
    asm.load(1, R7, R10, -HEADER);
    asm.load(1, R9, R10, -HEADER + 1);
    asm.op(Op::ShiftLeft, R9, 3);
    asm.op(Op::Add, R9, 48);

    asm.here(ports);
    for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_SCTP] {
        asm.jump(When::Equal, R7, Imm(protocol), read);
    }
    asm.go(none);
    asm.here(read);
    asm.copy(R2, R9);
    bytes(asm, 4, none);
    for at in [0, 2] {
        asm.load(2, R1, R10, -HEADER + at);
        asm.swap_half(R1);
        asm.store(2, R10, AT_PORTS + at, R1);
    }
    asm.here(none);
}

/// Copies `count` bytes of the packet from offset `R2` to the frame.
fn bytes(asm: &mut Assembler, count: i32, none: super::asm::Label) {
    asm.copy(R1, R6);
    asm.frame(R3, HEADER);
    asm.set(R4, count);
    asm.call(LOAD_BYTES);
    asm.jump(When::NotEqual, R0, Imm(0), none);
}

/// Stores in the key the index of the nearest ancestor group that has one.
fn ancestors(asm: &mut Assembler, maps: &classes::Maps) {
    let (next, unknown, end) = (asm.label(), asm.label(), asm.label());
    asm.set(R9, 0); // R9 = the level, from the root
    asm.here(next);
    asm.copy(R1, R6);
    asm.copy(R2, R9);
    asm.call(ANCESTOR_ID);
    asm.jump(When::Equal, R0, Imm(0), end);
    asm.store(8, R10, -HEADER, R0);
    asm.map(R1, maps.groups());
    asm.frame(R2, HEADER);
    asm.call(MAP_LOOKUP);
    asm.jump(When::Equal, R0, Imm(0), unknown);
    asm.load(4, R1, R0, 0);
    asm.store(4, R10, -KEY + GROUP, R1);
    asm.here(unknown);
    asm.op(Op::Add, R9, 1);
    asm.jump(When::NoMore, R9, Imm(DEEPEST), next);
    asm.here(end);
}

/// Takes the packet's cost from the bucket whose number is in the frame, or drops the packet.
fn spend(asm: &mut Assembler, maps: &Maps, pass: super::asm::Label) {
    let (one, fresh, long, drop, counted) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    for (map, to) in [(maps.limits, R7), (maps.counts, R9)] {
        asm.map(R1, map);
        asm.frame(R2, SMALL);
        asm.call(MAP_LOOKUP);
        asm.jump(When::Equal, R0, Imm(0), pass);
        asm.copy(to, R0); // R7 = the limit, R9 = the counts
    }
    // R8 = bytes on the wire. A packet with GSO leaves as several segments, each with its headers.
    asm.load(4, R8, R6, LEN);
    asm.value_of(R2, maps.classes.scope());
    asm.load(8, R2, R2, 0);
    asm.op_with(Op::Add, R8, R2);
    asm.op(Op::Add, R2, HEADERS);
    asm.load(4, R3, R6, SEGMENTS);
    asm.jump(When::NoMore, R3, Imm(1), one);
    asm.op(Op::Add, R3, -1);
    asm.op_with(Op::Multiply, R3, R2);
    asm.op_with(Op::Add, R8, R3);
    asm.here(one);
    asm.load(8, R4, R7, 0);
    asm.jump(When::Equal, R4, Imm(0), counted); // no limit
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
    asm.fetch_add(R9, 16, R8);
    asm.exit(0);
}

// The frame below that of classification: headers, and the time.
const HEADER: i16 = BELOW + 40;
const NOW: i16 = HEADER + 8;
const _: () = assert!(NOW <= 512, "a frame has 512 bytes");

/// Bytes of the headers of a segment of a GSO packet: IPv4, TCP with a timestamp.
const HEADERS: i32 = 52;
/// Upper size in bytes of a packet that may use the reserve; and the reserve in ns.
const SHORT: i32 = 128;
const RESERVE: i32 = 10_000_000;
/// Upper bound of levels of control groups.
const DEEPEST: i32 = 1024;
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const ROUTING: i32 = 43;

// Numbers of helpers in `linux/bpf.h`.
const MAP_LOOKUP: i32 = 1;
const KTIME: i32 = 5;
const LOAD_BYTES: i32 = 26;
const SOCKET_UID: i32 = 47;
const GROUP_ID: i32 = 79;
const ANCESTOR_ID: i32 = 83;
const NAMESPACE_COOKIE: i32 = 122;

// Offsets in `struct __sk_buff`: len, protocol, gso_segs.
const LEN: i16 = 0;
const PROTOCOL: i16 = 16;
const SEGMENTS: i16 = 164;
