/* The limit of each tenant's packets, in addition to the pacing of its connections.

   Each tenant has a token bucket, kept as the instant at which all its packets would have left at its rate (GCRA). A
   packet too far ahead of that instant is dropped. TCP keeps the segment and sends it again, as when a queue of the
   interface is full.

   A packet stays on this machine if its device is the loopback device; its addresses, which the sender chooses, do
   not matter. Exceptions narrow that: an IPv6 packet to this machine from another address, which an unprivileged
   socket may bind, makes the kernel answer to that address; a routing header makes the kernel forward it. What the
   kernel sends on account of a packet counts with it. */
#pragma once

#include "classes.h"
#include "lease.h"

#define BUCKETS (1 << 13)

struct limit {
	__u64 cost;    /* of a byte, 2^-16 ns; 0 for no limit */
	__u64 depth;   /* ns */
	__u64 opening; /* the pace of a connection that opens, bytes a second */
};

struct count {
	__u64 due; /* the instant of the last byte, ns */
	__u64 passed;
	__u64 dropped;
};

MAP(tollway_limits, BPF_MAP_TYPE_ARRAY, 0, __u32, struct limit, BUCKETS);
MAP(tollway_counts, BPF_MAP_TYPE_ARRAY, 0, __u32, struct count, BUCKETS);

/* Extension headers at most: unprivileged sockets can add one. */
#define EXTENSIONS 4
#define FRAGMENT_HEADER 8
/* The IPv6 and ICMPv6 headers before a packet that an error quotes. */
#define ERROR_HEADERS 48
/* The smallest bound of a packet's size that a path can have (ip_rt_min_pmtu). */
#define LEAST_SIZE 552
/* Bytes on the wire of one packet that may be mostly headers. */
#define BURST (1 << 17)
/* Bytes of a packet that may use the reserve, and the reserve in ns. */
#define SHORT 128
#define RESERVE 10000000
/* Levels of control groups at most. */
#define DEEPEST 1024

/* A packet's headers. */
struct packet {
	__u32 ip;       /* bytes of IP's headers */
	__u32 headers;  /* and with the transport's */
	__u32 fragment; /* bytes of a fragment's header beside IP's */
	__u32 error;    /* bytes by which an error that answers exceeds the packet */
	__u32 echo;     /* 1 if an answer is as long as the packet */
};

/* True if an IPv6 packet to this machine comes from another of its addresses, or from none of them: the answer may
   leave. */
static __always_inline int is_foreign(const struct cell *cell)
{
	const union address *from = &cell->local, *to = &cell->remote;

	if (from->halves[0] == to->halves[0] && from->halves[1] == to->halves[1])
		return 0;
	return from->halves[0] || from->words[2] || from->words[3] != bpf_htonl(1);
}

/* Fills in the ports, and the lengths of headers. The transport's header is at offset `at`. */
static __always_inline void read_transport(struct __sk_buff *skb, __u32 at, __u32 protocol, struct cell *cell,
					   struct packet *packet)
{
	__u8 bytes[14];
	__u32 length;

	packet->ip = packet->headers = at;
	switch (protocol) {
	case IPPROTO_TCP:
		if (bpf_skb_load_bytes(skb, at, bytes, 14))
			return;
		length = (bytes[12] >> 4) * 4;
		break;
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
		if (bpf_skb_load_bytes(skb, at, bytes, 4))
			return;
		length = protocol == IPPROTO_SCTP ? 12 : 8;
		break;
	case IPPROTO_ICMPV6:
		/* Of an echo request to a group, this machine may get a copy, and answer it to another one. */
		packet->echo = (cell->remote.words[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
		return;
	default:
		return;
	}
	packet->headers = at + length;
	cell->local_port = bytes[0] << 8 | bytes[1];
	cell->remote_port = bytes[2] << 8 | bytes[3];
}

/* Fills in the addresses and ports, whether the packet stays here, and the lengths of its headers. Returns false for
   other packets than IP's. */
static __always_inline int read_headers(struct __sk_buff *skb, struct cell *cell, struct packet *packet)
{
	__u32 at, next;

	cell->stays = skb->ifindex == LOOPBACK;
	if (skb->protocol == bpf_htons(0x0800)) {
		__u32 words[5];

		if (bpf_skb_load_bytes(skb, 0, words, 20))
			return 0;
		cell->local.words[2] = cell->remote.words[2] = bpf_htonl(0xffff);
		cell->local.words[3] = words[3];
		cell->remote.words[3] = words[4];
		at = (*(__u8 *)words & 0xf) * 4;
		next = bpf_ntohl(words[2]) >> 16 & 0xff;
	} else if (skb->protocol == bpf_htons(0x86dd)) {
		__u8 head[40];

		if (bpf_skb_load_bytes(skb, 0, head, 40))
			return 0;
		__builtin_memcpy(&cell->local, head + 8, 16);
		__builtin_memcpy(&cell->remote, head + 24, 16);
		if (cell->stays && is_foreign(cell)) {
			cell->stays = 0;
			packet->error = ERROR_HEADERS;
		}
		packet->fragment = FRAGMENT_HEADER;
		at = 40;
		next = head[6];
#pragma unroll
		for (int i = 0; i < EXTENSIONS; i++) {
			__u8 extension[2];

			if (next != IPPROTO_ROUTING && next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS)
				break;
			if (next == IPPROTO_ROUTING)
				cell->stays = 0;
			if (bpf_skb_load_bytes(skb, at, extension, 2))
				return 1;
			next = extension[0];
			at += (extension[1] + 1) * 8;
		}
	} else {
		return 0;
	}
	read_transport(skb, at, next, cell, packet);
	return 1;
}

struct ancestors {
	struct __sk_buff *skb;
	struct group group;
	__u32 index; /* of the nearest group that has one */
};

static long look_up(__u64 level, struct ancestors *ancestors)
{
	__u32 index;

	ancestors->group.id = bpf_skb_ancestor_cgroup_id(ancestors->skb, level);
	if (!ancestors->group.id)
		return 1;
	index = index_of(&tollway_groups, &ancestors->group);
	if (index)
		ancestors->index = index;
	return 0;
}

/* Finds the index of the nearest ancestor group that has one. */
static __always_inline void find_ancestor(struct __sk_buff *skb, struct identity *who)
{
	struct ancestors ancestors = { .skb = skb, .group.version = who->key.version };

	bpf_loop(DEEPEST, look_up, &ancestors, 0);
	who->key.group = ancestors.index;
}

static __always_inline __u32 lower(__u32 bound, __u32 other)
{
	return other && other < bound ? other : bound;
}

/* The size of the largest packet that leaves in one piece: the least of the bounds that may apply. */
static __always_inline __u32 largest(const struct sk_buff *b, const struct sock *sk, int is_v6)
{
	/* A bit of the reference marks a borrowed one; two of the metrics are flags. */
	const struct rtable *route = cast(struct rtable, (void *)(b->_skb_refdst & ~1UL));
	const struct dst_metrics *metrics = cast(struct dst_metrics, (void *)(route->dst._metrics & ~3UL));
	__u32 most = b->dev->mtu;

	if (is_v6) {
		most = lower(most, cast(struct inet_sock, sk)->pinet6->frag_size);
		most = lower(most, b->dev->ip6_ptr->cnf.mtu6);
	} else {
		most = lower(most, BPF_CORE_READ_BITFIELD(route, rt_pmtu));
	}
	return lower(most, metrics->metrics[1]);
}

/* Bytes of the packet on the wire. It may leave as several segments, and a segment as several fragments, each with
   its headers and the link's. */
static __always_inline __u64 on_wire(struct __sk_buff *skb, const struct sk_buff *b, const struct sock *sk,
				     const struct packet *packet)
{
	__u64 bytes = skb->len, segments = skb->gso_segs, segment = bytes, fragments = 1, most, room;
	__u32 first = 0;
	struct scope *scope = bpf_map_lookup_elem(&tollway_scope, &first);

	if (segments > 1) {
		bytes += (segments - 1) * packet->headers;
		segment = skb->gso_size + packet->headers;
	} else {
		segments = 1;
	}
	if (segment > LEAST_SIZE) {
		most = largest(b, sk, packet->fragment);
		room = (most - packet->ip - packet->fragment) & ~7ULL;
		if (segment > most && room) {
			fragments = (segment - packet->ip + room - 1) / room;
			bytes += segments * (fragments * packet->fragment + (fragments - 1) * packet->ip);
		}
	}
	if (scope)
		bytes += scope->overhead * fragments * segments;
	return (bytes + packet->error) << packet->echo;
}

/* Takes the cost of `bytes` on the wire from a bucket. Returns false if the bucket lacks it. */
static __always_inline int spend(__u32 bucket, __u64 bytes, __u64 now, int reserved, int refused)
{
	struct limit *limit = bpf_map_lookup_elem(&tollway_limits, &bucket);
	struct count *count = bpf_map_lookup_elem(&tollway_counts, &bucket);
	__u64 cost, due, latest;

	if (!limit || !count)
		return 1;
	if (limit->cost) {
		if (refused)
			goto refuse;
		cost = limit->cost * bytes >> 16;
		due = *(volatile __u64 *)&count->due;
		/* Idle: tokens beyond the depth are lost. */
		if (due < now)
			__sync_val_compare_and_swap(&count->due, due, now);
		latest = now + limit->depth + (reserved ? RESERVE : 0);
		if (__sync_fetch_and_add(&count->due, cost) > latest) {
			__sync_fetch_and_add(&count->due, -cost);
			goto refuse;
		}
	}
	__sync_fetch_and_add(&count->passed, bytes);
	return 1;
refuse:
	__sync_fetch_and_add(&count->dropped, bytes);
	return 0;
}

/* The bucket of an identity, which has all but its control group's ancestors. */
static __always_inline __u32 bucket_of(struct __sk_buff *skb, struct identity *who)
{
	__u32 bucket;

	if (!find_group(who, 1))
		find_ancestor(skb, who);
	bucket = classify(who, 1);
	if (bucket != UNKNOWN)
		return bucket;
	if (!find_group(who, 0))
		find_ancestor(skb, who);
	return classify(who, 0);
}

/* For each IP packet that a socket sends, once it has its device. */
SEC("cgroup_skb/egress") int tollway_egress(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns(), bytes;
	struct lease *lease = valid_lease(now);
	struct identity who = {};
	struct packet packet = {};
	__u32 first = 0, bucket;
	struct scope *scope;
	struct sk_buff *b;
	struct sock *sk;

	if (!lease)
		return 1;
	b = bpf_cast_to_kern_ctx(skb);
	if (!b->sk)
		return 1;
	sk = cast(struct sock, b->sk);
	/* That of a connection request is its listener. */
	if (sk->__sk_common.skc_state == TCP_NEW_SYN_RECV)
		sk = cast(struct sock, sk->__sk_common.skc_listener);
	if (!is_ours(lease, sk)) {
		if (lease->namespace || skb->ifindex == LOOPBACK)
			return 1;
		bucket = NOBODY;
	} else {
		if (!read_headers(skb, &who.cell, &packet))
			return 1;
		scope = bpf_map_lookup_elem(&tollway_scope, &first);
		if (who.cell.stays && scope && !(scope->flags & LOCAL_COUNTS))
			return 1;
		who.cell.uid = owner_of(sk);
		who.cell.cgroup = bpf_skb_cgroup_id(skb);
		bucket = bucket_of(skb, &who);
	}
	bytes = on_wire(skb, b, sk, &packet);
	/* A packet whose headers make it a burst that no queue expects is refused. */
	return spend(bucket, bytes, now, bytes <= SHORT, bytes > 2ULL * skb->len && bytes > BURST);
}
