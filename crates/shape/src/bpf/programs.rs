//! The programs that run in the kernel.
//!
//! Both do the same for a socket in [`attend`]: write its record, and set its pacing rate. The rate
//! is the connection's share, or, after the lease, the limit that its application set.
//!
//! The *hook* does so when a connection opens and once per round trip. The *walk* does so for every
//! open connection of a network namespace, on request.

use std::io;
use std::mem::offset_of;

use super::asm::Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use super::asm::With::{Imm, Reg as Other};
use super::asm::{Assembler, Instruction, Label, Op, Reg, When};
use super::classes::{
    self, AT_LOCAL, AT_PORTS, AT_REMOTE, AT_STAYS, AT_UID, CELL, CELL_BYTES, NOBODY, Pass, SMALL, UNKNOWN,
    classify,
};
use super::fields::field;
use super::layout::Layout;
use super::record::{LOOPBACK, OPEN, Raw};

/// Descriptors of the maps that the programs use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// One value: the end of the lease by the monotonic clock, and the cookie of the namespace
    /// covered, zero for all.
    pub(crate) lease: i32,
    /// Records by cookie, from the kernel to the agent.
    pub(crate) seen: i32,
    /// Shares by cookie in bytes per second, from the agent to the kernel.
    pub(crate) shares: i32,
    /// For the hook: the map whose third value by bucket is the pace of a connection that opens;
    /// and the maps of classification.
    pub(crate) openings: Option<(i32, classes::Maps)>,
}

/// The work of a walk in addition to attending to known connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Adds unknown connections, and enables their callbacks.
    Adopt,
    /// No additional work.
    Apply,
}

/// Builds the program for a control group.
pub(crate) fn hook(layout: &Layout, maps: Maps) -> io::Result<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let (whose, ours, closed, known, out) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    asm.copy(R6, R1); // R6 = struct bpf_sock_ops, until the end
    asm.load(4, R9, R6, OP); // R9 = the reason of the call
    asm.jump(When::Equal, R9, Imm(STATE), closed);
    for why in [RTT, ACTIVE_ESTABLISHED, PASSIVE_ESTABLISHED] {
        asm.jump(When::Equal, R9, Imm(why), whose);
    }
    asm.go(out);

    asm.here(whose);
    asm.load(8, R1, R6, SOCK); // R1 = the socket, if it is a full one
    asm.jump(When::Equal, R1, Imm(0), out);
    asm.call(TO_TCP);
    asm.jump(When::Equal, R0, Imm(0), out);
    asm.copy(R7, R0); // R7 = struct tcp_sock, until the end
    lease(&mut asm, maps, R1, 8);
    asm.jump(When::Equal, R1, Imm(0), ours); // the lease covers every namespace
    field(&mut asm, &layout.namespace, R7, R2);
    asm.jump(When::NotEqual, R2, Other(R1), out);

    asm.here(ours);
    asm.jump(When::Equal, R9, Imm(RTT), known);
    asm.call(KTIME); // newly open: enable callbacks, unless the lease is over
    lease(&mut asm, maps, R1, 0);
    asm.jump(When::NoMore, R1, Other(R0), out);
    asm.load(4, R2, R6, CALLBACKS); // keep the callbacks of other programs
    asm.op(Op::Or, R2, WANTED);
    asm.copy(R1, R6);
    asm.call(SET_CALLBACKS);
    asm.go(known);

    asm.here(closed); // closed: remove its record
    asm.load(4, R1, R6, NEW_STATE);
    asm.jump(When::NotEqual, R1, Imm(CLOSE), out);
    cookie(&mut asm, R6);
    for map in [maps.seen, maps.shares] {
        asm.map(R1, map);
        asm.frame(R2, KEY);
        asm.call(MAP_DELETE);
    }
    asm.go(out);

    asm.here(known);
    cookie(&mut asm, R6);
    attend(&mut asm, layout, maps, true, R6, out);
    asm.here(out);
    asm.exit(1);
    asm.finish()
}

/// Builds the program for an iterator over TCP sockets.
pub(crate) fn walk(layout: &Layout, maps: Maps, walk: Walk) -> io::Result<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let (open, out) = (asm.label(), asm.label());
    asm.load(8, R1, R1, ITERATED); // R1 = struct sock_common; none at the end
    asm.jump(When::Equal, R1, Imm(0), out);
    asm.call(TO_TCP); // none for a connection that is not established
    asm.jump(When::Equal, R0, Imm(0), out);
    asm.copy(R7, R0); // R7 = struct tcp_sock, until the end
    if walk == Walk::Adopt {
        field(&mut asm, &layout.state, R7, R1);
        for state in OPEN {
            asm.jump(When::Equal, R1, Imm(state), open);
        }
        asm.go(out); // other states send no data
        asm.here(open);
        field(&mut asm, &layout.callbacks, R7, R1); // keep the callbacks of other programs
        asm.op(Op::Or, R1, WANTED);
        option(&mut asm, R7, libc::IPPROTO_TCP, layout.set_callbacks, R1);
    }
    cookie(&mut asm, R7);
    attend(&mut asm, layout, maps, walk == Walk::Adopt, R7, out);
    asm.here(out);
    asm.exit(0);
    asm.finish()
}

/// Writes the record of the socket in `R7`, whose cookie is in the frame, and sets its pacing if it
/// has a share. Without a record, makes one if `insert`. `target` is the object on which options
/// are set.
fn attend(asm: &mut Assembler, layout: &Layout, maps: Maps, insert: bool, target: Reg, out: Label) {
    let (record, ours, valid, narrow) = (asm.label(), asm.label(), asm.label(), asm.label());
    lookup(asm, maps.seen);
    asm.jump(When::NotEqual, R0, Imm(0), record);
    if insert {
        for word in 1..=BLANK / 8 {
            asm.store_value(8, R10, -OPTION - 8 * word, 0);
        }
        field(asm, &layout.limit, R7, R1); // the limit so far is its program's
        for at in [OWN, APPLIED] {
            asm.store(8, R10, -OPTION - BLANK + at, R1);
        }
        asm.map(R1, maps.seen);
        asm.frame(R2, KEY);
        asm.frame(R3, OPTION + BLANK);
        asm.set(R4, 0);
        asm.call(MAP_UPDATE);
        lookup(asm, maps.seen);
        asm.jump(When::NotEqual, R0, Imm(0), record);
    }
    asm.go(out); // there is no room for another record, or none was requested

    asm.here(record);
    asm.copy(R8, R0); // R8 = its record, until the end
    for (from, at, bytes) in &layout.record {
        field(asm, from, R7, R1);
        asm.store(*bytes, R8, *at as i16, R1);
    }
    layout.owner.of_tcp(asm, R7, R8, offset_of!(Raw, uid) as i16, Some(offset_of!(Raw, mptcp) as i16));
    let routed = asm.label();
    field(asm, &layout.device, R7, R1);
    asm.jump(When::Equal, R1, Imm(0), routed); // it has no route now
    asm.store(4, R8, offset_of!(Raw, device) as i16, R1);
    asm.here(routed);
    asm.call(JIFFIES);
    asm.store(8, R8, std::mem::offset_of!(Raw, jiffies) as i16, R0);
    field(asm, &layout.limit, R7, R9); // R9 = its pacing limit
    asm.load(8, R1, R8, APPLIED);
    asm.jump(When::Equal, R1, Other(R9), ours);
    asm.store(8, R8, OWN, R9); // its program has set that
    asm.store(8, R8, APPLIED, R9);

    asm.here(ours);
    asm.call(KTIME);
    lease(asm, maps, R1, 0);
    asm.load(8, R9, R8, OWN); // after the lease: its program's limit
    asm.jump(When::NoMore, R1, Other(R0), valid);
    let shared = asm.label();
    lookup(asm, maps.shares);
    asm.jump(When::NotEqual, R0, Imm(0), shared);
    match maps.openings {
        Some((limits, classes)) => opening(asm, limits, &classes, valid, out),
        None => asm.go(out),
    }
    asm.here(shared);
    asm.load(8, R9, R0, 0); // R9 = its share
    asm.here(valid);
    asm.load(8, R1, R8, APPLIED);
    asm.jump(When::Equal, R1, Other(R9), out); // the limit is already set
    asm.copy(R1, R9);
    asm.op(Op::ShiftRight, R1, 32);
    asm.jump(When::Equal, R1, Imm(0), narrow);
    asm.set(R9, -1); // four bytes are too few: unlimited
    asm.here(narrow);
    asm.store(8, R8, APPLIED, R9);
    option(asm, target, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, R9);
}

/// `R9` = the pacing limit of a connection without a share, whose record is `R8`: its tenant's pace
/// for connections that open. Jumps to `valid` with it, or to `out` if it is not known.
fn opening(asm: &mut Assembler, limits: i32, maps: &classes::Maps, valid: Label, out: Label) {
    let (v6, filled, named, tenant) = (asm.label(), asm.label(), asm.label(), asm.label());
    for word in 0..CELL_BYTES / 8 {
        asm.store_value(8, R10, -CELL + 8 * word, 0);
    }
    let copy = |asm: &mut Assembler, bytes, from: usize, to| {
        asm.load(bytes, R1, R8, from as i16);
        asm.store(bytes, R10, to, R1);
    };
    copy(asm, 8, offset_of!(Raw, cgroup), -CELL);
    copy(asm, 4, offset_of!(Raw, uid), AT_UID);
    copy(asm, 2, offset_of!(Raw, local_port), AT_PORTS);
    asm.load(2, R1, R8, offset_of!(Raw, remote_port) as i16);
    asm.swap_half(R1);
    asm.store(2, R10, AT_PORTS + 2, R1);
    asm.load(2, R1, R8, offset_of!(Raw, family) as i16);
    asm.jump(When::NotEqual, R1, Imm(libc::AF_INET), v6);
    for (from, to) in [(offset_of!(Raw, local4), AT_LOCAL), (offset_of!(Raw, remote4), AT_REMOTE)] {
        asm.store_value(2, R10, to + 10, 0xffff);
        copy(asm, 4, from, to + 12);
    }
    asm.go(filled);
    asm.here(v6);
    for (from, to) in [(offset_of!(Raw, local6a), AT_LOCAL), (offset_of!(Raw, remote6a), AT_REMOTE)] {
        for word in [0, 4, 8, 12] {
            copy(asm, 4, from + word, to + word as i16);
        }
    }
    asm.here(filled);
    let leaves = asm.label();
    asm.load(4, R1, R8, offset_of!(Raw, device) as i16);
    asm.jump(When::NotEqual, R1, Imm(LOOPBACK as i32), leaves);
    asm.store_value(4, R10, AT_STAYS, 1);
    asm.here(leaves);
    classes::group(asm, maps, Pass::Current, named);
    asm.go(out); // its packets are limited by the group above
    asm.here(named);
    classify(asm, maps, Pass::Current);
    asm.jump(When::Equal, R1, Imm(UNKNOWN as i32), out);
    asm.jump(When::NotEqual, R1, Imm(NOBODY as i32), tenant);
    asm.go(valid); // R9 is its program's limit
    asm.here(tenant);
    asm.store(4, R10, -SMALL, R1);
    asm.map(R1, limits);
    asm.frame(R2, SMALL);
    asm.call(MAP_LOOKUP);
    asm.jump(When::Equal, R0, Imm(0), out);
    asm.load(8, R1, R0, 16);
    asm.jump(When::NoMore, R9, Other(R1), valid);
    asm.copy(R9, R1);
    asm.go(valid);
}

/// Stores in the frame the cookie of the socket in `of`.
fn cookie(asm: &mut Assembler, of: Reg) {
    asm.copy(R1, of);
    asm.call(GET_COOKIE);
    asm.store(8, R10, -KEY, R0);
}

/// `R0 = &map[cookie]`
fn lookup(asm: &mut Assembler, map: i32) {
    asm.map(R1, map);
    asm.frame(R2, KEY);
    asm.call(MAP_LOOKUP);
}

/// `to` = the end of the lease (`at` 0), or the namespace it covers (`at` 8)
fn lease(asm: &mut Assembler, maps: Maps, to: Reg, at: i16) {
    asm.value_of(to, maps.lease);
    asm.load(8, to, to, at);
}

/// Sets a socket option of four bytes to `value`.
fn option(asm: &mut Assembler, target: Reg, level: i32, name: i32, value: Reg) {
    asm.store(4, R10, -OPTION, value);
    asm.copy(R1, target);
    asm.set(R2, level);
    asm.set(R3, name);
    asm.frame(R4, OPTION);
    asm.set(R5, 4);
    asm.call(SET_OPTION);
}

// Offsets in the frame, in bytes below its top: the cookie, an option's value, and below that a new
// record.
const KEY: i16 = 8;
const OPTION: i16 = 16;
const BLANK: i16 = size_of::<Raw>() as i16;
const OWN: i16 = std::mem::offset_of!(Raw, own) as i16;
const APPLIED: i16 = std::mem::offset_of!(Raw, applied) as i16;
const _: () = assert!(OPTION + BLANK <= 512 && BLANK % 8 == 0, "a frame has 512 bytes");

// Numbers of helpers in `linux/bpf.h`.
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const KTIME: i32 = 5;
const GET_COOKIE: i32 = 46;
const SET_OPTION: i32 = 49;
const SET_CALLBACKS: i32 = 59;
const JIFFIES: i32 = 118;
const TO_TCP: i32 = 137;

// Offsets in `struct bpf_sock_ops`: op, args[1], bpf_sock_ops_cb_flags, sk; and in
// `struct bpf_iter__tcp`: sk_common.
const OP: i16 = 0;
const NEW_STATE: i16 = 8;
const CALLBACKS: i16 = 84;
const SOCK: i16 = 184;
const ITERATED: i16 = 8;

// Reasons of a hook's call, and the flags that enable them: BPF_SOCK_OPS_STATE_CB_FLAG and
// BPF_SOCK_OPS_RTT_CB_FLAG.
const ACTIVE_ESTABLISHED: i32 = 4;
const PASSIVE_ESTABLISHED: i32 = 5;
const STATE: i32 = 10;
const RTT: i32 = 12;
const WANTED: i32 = 1 << 2 | 1 << 3;

// A TCP state of `net/tcp_states.h`.
const CLOSE: i32 = 7;
