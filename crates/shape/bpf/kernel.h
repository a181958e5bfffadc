/* The kernel's types, as far as the programs read them. Offsets come from the running kernel's BTF. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

typedef struct {
	__u32 val;
} kuid_t;

struct ns_common {
	unsigned int inum;
};

struct user_namespace {
	struct ns_common ns;
};

struct net {
	__u64 net_cookie;
	struct user_namespace *user_ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	struct sock *skc_listener;
};

struct ipv6_devconf {
	__s32 mtu6;
};

struct inet6_dev {
	struct ipv6_devconf cnf;
};

struct net_device {
	unsigned int mtu;
	int ifindex;
	struct inet6_dev *ip6_ptr;
};

struct dst_entry {
	struct net_device *dev;
	unsigned long _metrics;
};

struct dst_metrics {
	__u32 metrics[17];
};

struct rtable {
	struct dst_entry dst;
	__u32 rt_mtu_locked : 1, rt_pmtu : 31;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	struct sock_cgroup_data sk_cgrp_data;
	kuid_t sk_uid;
	__u16 sk_protocol;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
};

struct ipv6_pinfo {
	__u32 frag_size;
};

struct inet_sock {
	struct sock sk;
	struct ipv6_pinfo *pinet6;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u16 icsk_ext_hdr_len;
	void *icsk_ulp_data;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_sent;
	__u32 srtt_us; /* eight times the smoothed round trip */
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 packets_out;
	__u32 data_segs_out;
	__u32 total_retrans;
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u8 chrono_type;
	__u8 bpf_sock_ops_cb_flags;
	__u16 tcp_header_len;
	_Bool is_mptcp;
};

struct mptcp_subflow_context {
	struct sock *conn;
};

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	unsigned long _skb_refdst;
};

struct bpf_iter__tcp {
	struct sock_common *sk_common;
};

#pragma clang attribute pop

void *bpf_cast_to_kern_ctx(void *) __ksym;
void *bpf_rdonly_cast(const void *, __u32) __ksym;

/* An address in the kernel, of a structure whose fields may be read. */
#define cast(type, from) ((type *)bpf_rdonly_cast(from, bpf_core_type_id_kernel(type)))

#define AF_INET 2
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008 /* Linux 6.12 */
#define TCP_NEW_SYN_RECV 12
#define ENOBUFS 105
#define IPPROTO_IP 0
#define IPPROTO_HOPOPTS 0
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_IPV6 41
#define IPPROTO_ROUTING 43
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define IPPROTO_SCTP 132
#define IPPROTO_UDPLITE 136
