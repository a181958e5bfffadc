/* What the laws share: a connection's state, settings, the choice of the congestion control, the fallback. Each law
   defines `struct law`, its own part of a connection's state, before. */
#pragma once

#include "kernel.h"

/* Set by the loader. */
const volatile struct {
	/* This law's name in the kernel, and that of the law to fall back on. */
	char law[16];
	char ordinary[16];
	/* XCP's TCP option: 14 for the study's kinds 14 and 15, 253 for an experiment's (RFC 6994). */
	__u32 kind;
	/* Packets. */
	__u32 initial_window;
	/* Nanoseconds without a heartbeat after which connections fall back. */
	__u64 lease;
	/* Leaves sockets alone that have not selected this law themselves. */
	__u32 chosen;
	/* Leaves connections alone that belong to no tenant. */
	__u32 tenants;
} settings;

/* Silence after which a connection falls back, in ns and acknowledgements. */
#define PATIENCE 300000000
#define SILENT 8
/* Lossy round trips with a queue after which it does. */
#define LOSING 3

enum cause {
	NONE,
	PEER,   /* acknowledgements carry no option */
	PATH,   /* no router rewrites the option */
	QUEUE,  /* packets are lost, and queued: a bottleneck does not speak it */
	AGENT,  /* no heartbeat */
	OTHER,  /* the program has chosen another congestion control */
	FORGED, /* no cause: for counts */
};

/* What user space sees of a connection: `Connection` in connection.rs has the same layout. */
struct seen {
	__u64 cookie;
	__u64 cgroup;
	__u64 window; /* 1/4096 packet */
	__u64 rate;   /* bytes a second */
	__u64 acked;  /* bytes */
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u8 family; /* 2 for IPv4 */
	__u8 active;
	__u8 fallen; /* enum cause */
	/* State of the last echo: 0 none, 1 from no router, 2 from one. */
	__u8 echoed;
	__u32 uid;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 forged; /* echoes beyond what honest routers grant */
	__u32 price;  /* FCP's code */
	__u32 unused;
};

/* A connection. */
struct flow {
	struct seen seen;
	struct law law;
	__u64 silent_since;
	__u64 round_end; /* when the round trip ends in which losses count once */
	__u32 silent;  /* acknowledgements since the last feedback */
	__u32 arrived; /* like `echoed`, of the last data that arrived */
	__u32 pending; /* an echo arrived since the last acknowledgement */
	__u32 payload; /* of the segment whose options are written next */
	__u32 data_segments;
	__u32 delivered;
	__u32 lost;
	__u32 lossy;   /* this round trip has losses and a queue */
	__u32 losing;  /* such round trips, until there are 64 others */
	__u32 calm;    /* round trips since the last of them */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* What user space reads, by the socket's cookie, until the socket is closed. Some kernels refuse iterators over the
   memory of sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct seen);
} connections SEC(".maps");

/* The agent's last heartbeat, in ns of the monotonic clock. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} heartbeat SEC(".maps");

/* Connections opened under the law, those fallen back by `enum cause`, and forged echoes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FORGED + 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

char _license[] SEC("license") = "GPL";

/* A tenant's connections: of a control group and those below it, or 0; of a user, or ANYBODY. */
struct tenant {
	__u64 cgroup;
	__u32 uid;
	__u32 unused;
};
#define ANYBODY 0xffffffff
/* The deepest hierarchy of control groups in which tenants are found. */
#define DEPTH 32

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct tenant);
	__type(value, __u8);
} tenants SEC(".maps");

/* A plain memcpy would take the zeros of this file for constants. */
static __always_inline void copy(char to[16], const volatile char *from)
{
	for (int i = 0; i < 16; i++)
		to[i] = from[i];
}

static __always_inline int attended(void)
{
	__u32 first = 0;
	__u64 *beat = bpf_map_lookup_elem(&heartbeat, &first);

	return beat && bpf_ktime_get_ns() < *beat + settings.lease;
}

static __always_inline void count(__u32 what, __u64 by)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		__sync_fetch_and_add(value, by);
}

static __always_inline void publish(const struct flow *f)
{
	struct seen *to = bpf_map_lookup_elem(&connections, &f->seen.cookie);

	if (to)
		*to = f->seen;
}

/* True with an eighth of the least round trip in queues, and 5 ms: the laws keep queues shorter. */
static __always_inline int queued(const struct flow *f)
{
	return f->seen.srtt_us > f->seen.min_rtt_us + max(f->seen.min_rtt_us / 8, 5000);
}

/* Hands the connection to the ordinary law for good. */
static __always_inline void fall_back(struct tcp_sock *tp, struct flow *f, enum cause cause)
{
	char name[16], reno[] = "reno";

	count(cause, 1);
	f->seen.fallen = cause;
	f->seen.active = 0;
	if (cause == QUEUE) {
		tp->snd_cwnd = max(tp->snd_cwnd / 2, 2);
		tp->snd_ssthresh = tp->snd_cwnd;
	} else {
		tp->snd_cwnd = max(tp->snd_cwnd, settings.initial_window);
		tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	}
	copy(name, settings.ordinary);
	if (bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno));
}

/* Updates the measurements, and decides on the fallback. Returns true if the connection stays under the law;
   then `*acked` is the number of packets acknowledged. */
static __always_inline int measure(struct tcp_sock *tp, struct flow *f, __u32 *acked)
{
	__u64 now = bpf_ktime_get_ns();

	*acked = tp->delivered - f->delivered;
	f->delivered = tp->delivered;
	f->seen.acked = tp->bytes_acked;
	f->seen.srtt_us = tp->srtt_us >> 3;
	f->seen.min_rtt_us = tp->rtt_min.s[0].v;
	if (tp->lost != f->lost && queued(f))
		f->lossy = 1;
	f->lost = tp->lost;
	if (now >= f->round_end) {
		f->round_end = now + f->seen.srtt_us * 1000ULL;
		f->calm = f->lossy ? 0 : f->calm + 1;
		f->losing = f->calm > 64 ? 0 : f->losing + f->lossy;
		f->lossy = 0;
	}
	if (f->pending && f->seen.echoed == 2)
		f->silent = 0;
	/* An acknowledgement with three SACK blocks has no room for an option. */
	else if (*acked && !tp->sacked_out && !f->silent++)
		f->silent_since = now;
	if (f->losing >= LOSING)
		fall_back(tp, f, QUEUE);
	else if (f->silent >= SILENT && now > f->silent_since + PATIENCE)
		fall_back(tp, f, f->pending ? PATH : PEER);
	else if (!attended())
		fall_back(tp, f, AGENT);
	f->pending = 0;
	return !f->seen.fallen;
}

/* Puts a window, in 1/4096 packet, and a rate into force. */
static __always_inline void apply(struct tcp_sock *tp, struct flow *f, __u64 window, __u64 rate, __u32 forged)
{
	f->seen.rate = rate;
	f->seen.window = window;
	if (f->seen.forged != forged)
		count(FORGED, forged - f->seen.forged);
	f->seen.forged = forged;
	tp->snd_cwnd = max(window >> 12, 1);
	((struct sock *)tp)->sk_pacing_rate = rate;
}

/* Starts the law on a connection. */
static __always_inline void begin(struct sock *sk, struct flow *f)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	f->seen.active = 1;
	f->delivered = tp->delivered;
	f->lost = tp->lost;
	f->seen.srtt_us = tp->srtt_us >> 3;
	f->seen.min_rtt_us = tp->rtt_min.s[0].v;
	sk->sk_pacing_status = SK_PACING_NEEDED;
	tp->snd_cwnd = settings.initial_window;
}

/* True if the socket has selected this law. */
static __always_inline int chosen(struct bpf_sock_ops *s)
{
	char name[16] = {};

	if (bpf_getsockopt(s, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return 0;
	for (int i = 0; i < 16 && settings.law[i]; i++)
		if (name[i] != settings.law[i])
			return 0;
	return 1;
}

static __always_inline int is_tenant(__u64 group, __u32 uid)
{
	struct tenant own = { group, uid }, all = { group, ANYBODY };

	return bpf_map_lookup_elem(&tenants, &own) || bpf_map_lookup_elem(&tenants, &all);
}

/* True if the connection belongs to a tenant. */
static __always_inline int has_tenant(struct cgroup *group, __u32 uid)
{
	if (is_tenant(0, uid))
		return 1;
	for (int i = 0; i < DEPTH && group; i++) {
		if (is_tenant(BPF_CORE_READ(group, kn, id), uid))
			return 1;
		/* A group begins with this. */
		group = (struct cgroup *)BPF_CORE_READ(group, self.parent);
	}
	return 0;
}

/* Records whose connection it is, and selects the law for it. */
static __always_inline void open(struct bpf_sock_ops *s, __u32 flags)
{
	struct bpf_sock *sk = s->sk;
	struct flow *f;
	struct tcp_sock *tp;
	struct sock_common *c;
	struct cgroup *group;
	__u32 uid;
	char name[16];

	if (!sk || !attended() || (settings.chosen && !chosen(s)))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	group = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup;
	uid = tp->inet_conn.icsk_inet.sk.sk_uid.val;
	if (settings.tenants && !has_tenant(group, uid))
		return;
	f = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!f)
		return;
	c = &tp->inet_conn.icsk_inet.sk.__sk_common;
	f->seen.cookie = bpf_get_socket_cookie(s);
	f->seen.cgroup = group ? group->kn->id : 0;
	f->seen.uid = uid;
	f->seen.family = c->skc_family;
	if (f->seen.family == 2) {
		*(__u32 *)f->seen.local = c->skc_rcv_saddr;
		*(__u32 *)f->seen.remote = c->skc_daddr;
	} else {
		bpf_probe_read_kernel(f->seen.local, 16, &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(f->seen.remote, 16, &c->skc_v6_daddr);
	}
	f->seen.local_port = c->skc_num;
	f->seen.remote_port = bpf_ntohs(c->skc_dport);
	/* Beyond the table's room the ordinary law stays. */
	if (bpf_map_update_elem(&connections, &f->seen.cookie, &f->seen, BPF_ANY))
		return;
	copy(name, settings.law);
	if (bpf_setsockopt(s, SOL_TCP, TCP_CONGESTION, name, sizeof(name))) {
		bpf_map_delete_elem(&connections, &f->seen.cookie);
		return;
	}
	publish(f);
	count(NONE, 1);
	bpf_sock_ops_cb_flags_set(s, s->bpf_sock_ops_cb_flags | flags);
}

static __always_inline void put(__u8 *to, __u16 value)
{
	to[0] = value >> 8;
	to[1] = value;
}

/* The round trip that an option states, in ms; 0 is unknown. */
static __always_inline __u16 stated_rtt(const struct flow *f)
{
	__u32 rtt = (f->seen.srtt_us + 500) / 1000;

	return f->seen.srtt_us ? min(max(rtt, 1), 65535) : 0;
}

/* Segments that repeat the options written next. */
static __always_inline __u32 segments_of(struct bpf_sock_ops *s, const struct flow *f)
{
	__u32 mss = s->mss_cache;

	return mss && f->payload > mss ? (f->payload + mss - 1) / mss : 1;
}

/* After a fallback the ordinary law's figures are in the socket. */
static __always_inline void follow(struct tcp_sock *tp, struct flow *f)
{
	f->seen.window = (__u64)tp->snd_cwnd << 12;
	f->seen.rate = tp->inet_conn.icsk_inet.sk.sk_pacing_rate;
	f->seen.acked = tp->bytes_acked;
	f->seen.srtt_us = tp->srtt_us >> 3;
	f->seen.min_rtt_us = tp->rtt_min.s[0].v;
	publish(f);
}
