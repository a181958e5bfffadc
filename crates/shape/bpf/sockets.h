/* Records and paces of connections.

   The hook and the walks do the same for a socket in `attend`: write its record, and set its pacing rate. The rate is
   the connection's share, or, after the lease, the limit that its program set. */
#pragma once

#include "limit.h"

/* A connection's record: `Raw` in record.rs has the same layout. */
struct record {
	__u64 jiffies; /* the time of writing */
	__u64 own;     /* the pacing limit that the program set, bytes a second; all bits set is unlimited */
	__u64 applied; /* the limit that was set here last */
	__u64 cgroup;
	__u64 pacing;
	__u64 sent;
	__u32 uid;
	__u32 device; /* that its packets leave by; zero if unknown yet */
	__u32 srtt;
	__u32 mss;
	__u32 cwnd;
	__u32 in_flight;
	__u32 segments;
	__u32 resent;
	__u32 written;
	__u32 next;
	__u32 chrono_start;
	__u32 by_receiver;
	__be32 local4;
	__be32 remote4;
	union address local6;
	union address remote6;
	__u16 local_port;
	__u16 remote_port; /* network order */
	__u16 family;
	__u16 state;
	__u16 chrono;
	__u16 tcp_header;
	__u16 ip_options;
	__u16 mptcp; /* 1 for a subflow of MPTCP */
};

/* Records by cookie, from the kernel to the agent, and shares in bytes a second, from the agent to the kernel. The
   loader sets their size. */
MAP(tollway_seen, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, __u64, struct record, 1);
MAP(tollway_shares, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, __u64, __u64, 1);

/* Set where the kernel refuses to enable the callbacks of a connection that is open already. */
__u32 refused;

#define WANTED (BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_RTT_CB_FLAG)
#define UNLIMITED (~0ULL)

static __always_inline void copy_address(union address *to, const struct in6_addr *from)
{
	to->words[0] = from->in6_u.u6_addr32[0];
	to->words[1] = from->in6_u.u6_addr32[1];
	to->words[2] = from->in6_u.u6_addr32[2];
	to->words[3] = from->in6_u.u6_addr32[3];
}

static __always_inline void write_record(struct record *r, const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	const struct sock_common *c = &sk->__sk_common;
	__u32 device = sk->sk_dst_cache->dev->ifindex;

	r->jiffies = bpf_jiffies64();
	r->cgroup = sk->sk_cgrp_data.cgroup->kn->id;
	r->pacing = sk->sk_pacing_rate;
	r->sent = tp->bytes_sent;
	r->uid = owner_of_tcp(tp, &r->mptcp);
	/* Without a route now, it keeps the last one's. */
	if (device)
		r->device = device;
	r->srtt = tp->srtt_us;
	r->mss = tp->mss_cache;
	r->cwnd = tp->snd_cwnd;
	r->in_flight = tp->packets_out;
	r->segments = tp->data_segs_out;
	r->resent = tp->total_retrans;
	r->written = tp->write_seq;
	r->next = tp->snd_nxt;
	r->chrono_start = tp->chrono_start;
	r->by_receiver = tp->chrono_stat[1];
	r->local4 = c->skc_rcv_saddr;
	r->remote4 = c->skc_daddr;
	copy_address(&r->local6, &c->skc_v6_rcv_saddr);
	copy_address(&r->remote6, &c->skc_v6_daddr);
	r->local_port = c->skc_num;
	r->remote_port = c->skc_dport;
	r->family = c->skc_family;
	r->state = c->skc_state;
	r->chrono = tp->chrono_type;
	r->tcp_header = tp->tcp_header_len;
	r->ip_options = tp->inet_conn.icsk_ext_hdr_len;
}

/* The pacing limit of a connection without a share: its tenant's pace for connections that open. Zero if that is not
   known. */
static __always_inline __u64 opening_pace(const struct record *r)
{
	struct identity who = {};
	struct limit *limit;
	__u32 bucket;

	who.cell.cgroup = r->cgroup;
	who.cell.uid = r->uid;
	who.cell.local_port = r->local_port;
	who.cell.remote_port = bpf_ntohs(r->remote_port);
	if (r->family == AF_INET) {
		who.cell.local.words[2] = who.cell.remote.words[2] = bpf_htonl(0xffff);
		who.cell.local.words[3] = r->local4;
		who.cell.remote.words[3] = r->remote4;
	} else {
		who.cell.local = r->local6;
		who.cell.remote = r->remote6;
	}
	who.cell.stays = r->device == LOOPBACK;
	/* The packets of an unknown group are limited by the group above. */
	if (!find_group(&who, 1))
		return 0;
	bucket = classify(&who, 1);
	if (bucket == NOBODY)
		return r->own;
	limit = bucket == UNKNOWN ? 0 : bpf_map_lookup_elem(&tollway_limits, &bucket);
	return limit ? (r->own < limit->opening ? r->own : limit->opening) : 0;
}

/* Writes the record of a socket, and sets its pacing if it has a share; with `opens`, also without one. Without a
   record, makes one if `insert`. Options are set on `target`. */
static __always_inline void attend(struct tcp_sock *tp, void *target, __u64 cookie, int insert, int opens)
{
	struct record *r = bpf_map_lookup_elem(&tollway_seen, &cookie);
	__u64 limit = tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate, *share;
	__u32 rate;

	if (!r && insert) {
		struct record blank = { .own = limit, .applied = limit };

		bpf_map_update_elem(&tollway_seen, &cookie, &blank, BPF_ANY);
		r = bpf_map_lookup_elem(&tollway_seen, &cookie);
	}
	if (!r)
		return; /* there is no room for another record, or none was requested */
	write_record(r, tp);
	if (r->applied != limit)
		r->own = r->applied = limit; /* its program has set that */
	if (valid_lease(bpf_ktime_get_ns())) {
		share = bpf_map_lookup_elem(&tollway_shares, &cookie);
		if (share)
			limit = *share;
		else
			limit = opens ? opening_pace(r) : 0;
		if (!limit)
			return;
	} else {
		limit = r->own;
	}
	if (limit == r->applied)
		return;
	/* The kernel takes four bytes, all bits set for no limit. */
	if (limit >> 32)
		limit = UNLIMITED;
	r->applied = limit;
	rate = limit;
	bpf_setsockopt(target, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

/* For a connection as it opens, once per round trip, and as it closes. */
SEC("sockops") int tollway_hook(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk;
	struct lease *lease;
	struct tcp_sock *tp;
	__u32 first = 0;
	__u64 cookie;

	switch (ops->op) {
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE) {
			cookie = bpf_get_socket_cookie(ops);
			bpf_map_delete_elem(&tollway_seen, &cookie);
			bpf_map_delete_elem(&tollway_shares, &cookie);
		}
		return 1;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		break;
	default:
		return 1;
	}
	sk = ops->sk;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
	lease = bpf_map_lookup_elem(&tollway_lease, &first);
	if (!tp || !lease)
		return 1;
	if (lease->namespace && tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->net_cookie != lease->namespace)
		return 1;
	if (ops->op != BPF_SOCK_OPS_RTT_CB) {
		if (!valid_lease(bpf_ktime_get_ns()))
			return 1;
		/* Beside the callbacks of other programs. */
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | WANTED);
	}
	attend(tp, ops, bpf_get_socket_cookie(ops), 1, 1);
	return 1;
}

static __always_inline void walk(struct bpf_iter__tcp *ctx, int adopt)
{
	struct sock_common *c = ctx->sk_common;
	/* None for a connection that is not established. */
	struct tcp_sock *tp = c ? bpf_skc_to_tcp_sock(c) : 0;
	int flags;

	if (!tp)
		return;
	if (adopt) {
		switch (tp->inet_conn.icsk_inet.sk.__sk_common.skc_state) {
		case BPF_TCP_ESTABLISHED:
		case BPF_TCP_FIN_WAIT1:
		case BPF_TCP_CLOSE_WAIT:
		case BPF_TCP_LAST_ACK:
		case BPF_TCP_CLOSING:
			break;
		default:
			return; /* sends no data */
		}
		flags = tp->bpf_sock_ops_cb_flags | WANTED;
		if (bpf_setsockopt(tp, IPPROTO_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
			refused = 1;
	}
	attend(tp, tp, bpf_get_socket_cookie(tp), adopt, 0);
}

/* Over connections that are open already: adds them, and enables their callbacks. */
SEC("iter/tcp") int tollway_adopt(struct bpf_iter__tcp *ctx)
{
	walk(ctx, 1);
	return 0;
}

/* Over connections that are known. */
SEC("iter/tcp") int tollway_walk(struct bpf_iter__tcp *ctx)
{
	walk(ctx, 0);
	return 0;
}
