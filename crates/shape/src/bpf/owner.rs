//! The user that owns a socket, the same for connections and for packets.
//!
//! The user is the kernel's own number, which no user namespace maps. A subflow of MPTCP belongs to
//! its MPTCP socket: the kernel may have made it in a thread of root.

use std::io;

use super::asm::Reg::{R0, R1, R2};
use super::asm::With::Imm;
use super::asm::{Assembler, Reg, When};
use super::btf::{Btf, FUNCTION, Field, STRUCT};
use super::fields::field;
use super::record::SOCKET;

/// Fields of a socket's owner.
#[derive(Debug)]
pub(crate) struct Owner {
    /// From a `struct tcp_sock`, and from a `struct sock`.
    of_tcp: Field,
    of_any: Field,
    protocol: Field,
    tcp: u32,
    cast: u32,
    /// None for a kernel without MPTCP.
    mptcp: Option<Subflow>,
}

/// The way from a subflow to its MPTCP socket.
#[derive(Debug)]
struct Subflow {
    is: Field,
    context: Field,
    kind: u32,
    owner: Field,
}

impl Owner {
    /// Reads the layout of the running kernel.
    ///
    /// # Errors
    /// The kernel lacks a field, which the error names.
    pub(crate) fn of_kernel(btf: &Btf) -> io::Result<Owner> {
        let mptcp = btf.field(SOCKET, "is_mptcp").ok().map(|is| {
            Ok::<_, io::Error>(Subflow {
                is,
                context: btf.field(SOCKET, "inet_conn.icsk_ulp_data")?,
                kind: btf.find(STRUCT, "mptcp_subflow_context")?,
                owner: btf.field("mptcp_subflow_context", "conn->sk_uid.val")?,
            })
        });
        Ok(Owner {
            of_tcp: btf.field(SOCKET, "inet_conn.icsk_inet.sk.sk_uid.val")?,
            of_any: btf.field("sock", "sk_uid.val")?,
            protocol: btf.field("sock", "sk_protocol")?,
            tcp: btf.find(STRUCT, SOCKET)?,
            cast: btf.find(FUNCTION, "bpf_rdonly_cast")?,
            mptcp: mptcp.transpose()?,
        })
    }

    /// Stores in `to + at` the owner of the `struct tcp_sock` in `socket`; and in `to + subflow`, if
    /// given, 1 for a subflow of MPTCP. Changes `R0` to `R5`.
    pub(crate) fn of_tcp(&self, asm: &mut Assembler, socket: Reg, to: Reg, at: i16, subflow: Option<i16>) {
        field(asm, &self.of_tcp, socket, R1);
        asm.store(4, to, at, R1);
        let Some(mptcp) = &self.mptcp else { return };
        let plain = asm.label();
        field(asm, &mptcp.is, socket, R1);
        asm.jump(When::Equal, R1, Imm(0), plain);
        if let Some(subflow) = subflow {
            asm.store_value(2, to, subflow, 1);
        }
        field(asm, &mptcp.context, socket, R1);
        asm.jump(When::Equal, R1, Imm(0), plain);
        self.cast(asm, R1, mptcp.kind);
        field(asm, &mptcp.owner, R0, R1);
        asm.store(4, to, at, R1);
        asm.here(plain);
    }

    /// Stores in `to + at` the owner of the `struct sock` in `socket`. Changes `R0` to `R5`, and
    /// `spare`.
    pub(crate) fn of_any(&self, asm: &mut Assembler, socket: Reg, spare: Reg, to: Reg, at: i16) {
        let (other, done) = (asm.label(), asm.label());
        field(asm, &self.protocol, socket, R1);
        asm.jump(When::NotEqual, R1, Imm(libc::IPPROTO_TCP), other);
        self.cast(asm, socket, self.tcp);
        asm.copy(spare, R0);
        self.of_tcp(asm, spare, to, at, None);
        asm.go(done);
        asm.here(other);
        field(asm, &self.of_any, socket, R1);
        asm.store(4, to, at, R1);
        asm.here(done);
    }

    /// `R0` = the address in `from`, of a structure with this number in BTF. Changes `R1` and `R2`.
    pub(crate) fn cast(&self, asm: &mut Assembler, from: Reg, kind: u32) {
        if from != R1 {
            asm.copy(R1, from);
        }
        asm.set(R2, kind as i32);
        asm.call_kernel(self.cast);
    }
}
