/* The kernel's types, as far as the programs read them. Offsets come from the running kernel's BTF. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	__u32 val;
} kuid_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct {
		__u8 in6_u[16];
	} skc_v6_daddr, skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	kuid_t sk_uid;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_wnd;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	struct minmax rtt_min;
	__u32 srtt_us; /* eight times the smoothed round trip */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 max_packets_out;
	__u32 delivered;
	__u32 lost;
	__u64 bytes_acked;
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *);
	void (*set_state)(struct sock *, __u8);
	void (*cwnd_event)(struct sock *, int);
	__u32 (*min_tso_segs)(struct sock *);
	void (*cong_control)(struct sock *);
	__u32 (*undo_cwnd)(struct sock *);
	char name[16];
	void (*init)(struct sock *);
	void (*release)(struct sock *);
};

#pragma clang attribute pop

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TCP_CA_OPEN 0
#define TCP_CA_LOSS 4
#define CA_EVENT_TX_START 0
#define TCP_CLOSE 7
#define SK_PACING_NEEDED 1
#define TCP_INFINITE_SSTHRESH 0x7fffffff

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
