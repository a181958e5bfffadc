//! Offsets of the kernel's fields, from its BTF.

use std::io;

use super::btf::{Btf, FUNCTION, Field, STRUCT};
use super::owner::Owner;
use super::record::{self, SOCKET};

/// Offsets of the kernel's fields, from which the programs are built.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(super) record: Vec<(Field, usize, u32)>,
    /// A socket's pacing limit, its enabled callbacks, and its state.
    pub(super) limit: Field,
    pub(super) callbacks: Field,
    pub(super) state: Field,
    /// The cookie of its network namespace.
    pub(super) namespace: Field,
    /// The number of the device that its packets leave by.
    pub(super) device: Field,
    pub(crate) owner: Owner,
    pub(crate) packet: Packet,
    /// The socket option that enables callbacks; older kernels lack it.
    pub(super) set_callbacks: i32,
    /// The type number of the iterator.
    pub(crate) iterator: u32,
}

impl Layout {
    /// Reads the layout of the running kernel.
    ///
    /// # Errors
    /// The kernel lacks a field, which the error names.
    pub(crate) fn of_kernel() -> io::Result<Layout> {
        let btf = Btf::of_kernel()?;
        Ok(Layout {
            record: record::fields(&btf)?,
            limit: btf.field(SOCKET, "inet_conn.icsk_inet.sk.sk_max_pacing_rate")?,
            callbacks: btf.field(SOCKET, "bpf_sock_ops_cb_flags")?,
            state: btf.field(SOCKET, "inet_conn.icsk_inet.sk.__sk_common.skc_state")?,
            namespace: btf.field(SOCKET, "inet_conn.icsk_inet.sk.__sk_common.skc_net.net->net_cookie")?,
            device: btf.field(SOCKET, "inet_conn.icsk_inet.sk.sk_dst_cache->dev->ifindex")?,
            owner: Owner::of_kernel(&btf)?,
            packet: Packet::of_kernel(&btf)?,
            set_callbacks: btf.value("TCP_BPF_SOCK_OPS_CB_FLAGS")?,
            iterator: btf.find(FUNCTION, "bpf_iter_tcp")?,
        })
    }
}

/// Offsets of the kernel's fields of a packet, and numbers of its types and functions.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(super) to_kernel: u32,
    pub(super) socket: Field,
    pub(super) state: Field,
    pub(super) listener: Field,
    pub(super) namespace: Field,
    /// The number of the user namespace that owns the socket's network namespace.
    pub(super) users: Field,
    /// Upper bounds of a packet's size: the device's, for IPv6, of the route, and of the socket.
    pub(super) device: Field,
    pub(super) device6: Field,
    pub(super) route: Field,
    pub(super) path: Field,
    pub(super) metrics: Field,
    pub(super) metric: Field,
    pub(super) own: Field,
    pub(super) kinds: [u32; 4],
}

impl Packet {
    /// Reads the layout of the running kernel.
    ///
    /// # Errors
    /// The kernel lacks a field, which the error names.
    pub(crate) fn of_kernel(btf: &Btf) -> io::Result<Packet> {
        let kind = |name| btf.find(STRUCT, name);
        Ok(Packet {
            to_kernel: btf.find(FUNCTION, "bpf_cast_to_kern_ctx")?,
            socket: btf.field("sk_buff", "sk")?,
            state: btf.field("sock", "__sk_common.skc_state")?,
            listener: btf.field("sock", "__sk_common.skc_listener")?,
            namespace: btf.field("sock", "__sk_common.skc_net.net->net_cookie")?,
            users: btf.field("sock", "__sk_common.skc_net.net->user_ns->ns.inum")?,
            device: btf.field("sk_buff", "dev->mtu")?,
            device6: btf.field("sk_buff", "dev->ip6_ptr->cnf.mtu6")?,
            route: btf.field("sk_buff", "_skb_refdst")?,
            // A bit and 31 bits: the second is the path's size.
            path: btf.field("rtable", "rt_mtu_locked")?,
            metrics: btf.field("dst_entry", "_metrics")?,
            metric: btf.field("dst_metrics", "metrics[1]")?,
            own: btf.field("inet_sock", "pinet6->frag_size")?,
            kinds: [kind("sock")?, kind("inet_sock")?, kind("rtable")?, kind("dst_metrics")?],
        })
    }
}
