/* The lease: what holds ends when its agent no longer puts off the end. */
#pragma once

#include "classes.h"

struct lease {
	__u64 until;     /* by the monotonic clock, ns */
	__u64 namespace; /* cookie of the network namespace covered, zero for all */
};

MAP(tollway_lease, BPF_MAP_TYPE_ARRAY, 0, __u32, struct lease, 1);

/* The lease, or nothing once it is over. */
static __always_inline struct lease *valid_lease(__u64 now)
{
	__u32 first = 0;
	struct lease *lease = bpf_map_lookup_elem(&tollway_lease, &first);

	return lease && lease->until > now ? lease : 0;
}

/* True if the lease covers the namespace of a socket. A lease on all covers those of the agent's user namespace. */
static __always_inline int is_ours(const struct lease *lease, const struct sock *sk)
{
	const struct net *net = sk->__sk_common.skc_net.net;

	return lease->namespace ? net->net_cookie == lease->namespace : net->user_ns->ns.inum == settings.users;
}
