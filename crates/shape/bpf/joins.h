/* The kernel's reports of multicast groups, which no socket sends: the program that joins or leaves pays for them. */
#pragma once

#include "limit.h"

/* Bytes of a report of one group; a report for each state is repeated (the robustness variable of RFC 9776), also
   when the socket closes. */
#define REPORT 76
#define REPORTS 4

static __always_inline int is_join(int level, int option)
{
	/* IP_ADD_MEMBERSHIP to MCAST_MSFILTER; IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP, and those of anycast. */
	if (level == IPPROTO_IP)
		return option >= 35 && option <= 48;
	return level == IPPROTO_IPV6 && ((option >= 42 && option <= 48) || option == 20 || option == 21 ||
					 option == 27 || option == 28);
}

/* For each option that a program sets. */
SEC("cgroup/setsockopt") int tollway_join(struct bpf_sockopt *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct lease *lease = valid_lease(now);
	struct identity who = {};
	__u32 first = 0, length = ctx->optlen, bucket;
	struct scope *scope;
	struct sock *sk;

	/* The kernel has copied a page of a longer value. Zero stands for the program's own. */
	if (ctx->optlen > 4096)
		ctx->optlen = 0;
	if (!lease || !ctx->sk || !is_join(ctx->level, ctx->optname))
		return 1;
	sk = cast(struct sock, ctx->sk);
	if (!is_ours(lease, sk))
		return 1;
	scope = bpf_map_lookup_elem(&tollway_scope, &first);
	who.cell.uid = owner_of(sk);
	who.cell.cgroup = sk->sk_cgrp_data.cgroup->kn->id;
	find_group(&who, 1);
	bucket = classify(&who, 1);
	if (bucket == UNKNOWN) {
		find_group(&who, 0);
		bucket = classify(&who, 0);
	}
	if (spend(bucket, REPORTS * (REPORT + length + (scope ? scope->overhead : 0)), now, 1, 0))
		return 1;
	bpf_set_retval(-ENOBUFS);
	return 0;
}
