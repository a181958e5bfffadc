/* The way of an interface's packets through user space, and past it while nobody answers there. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

/* The next program at the hook decides. */
#define NEXT (-1)
#define DROP 2

/* A direction. Set by the loader, like the rest: `Settings` in programs.rs has the same layout. */
struct way {
	/* Limit without a heartbeat: 2^-24 ns a byte, 0 for none. */
	__u64 ns_per_byte;
	/* The interface that user space reads; 0 if this direction is left alone. */
	__u32 to;
	__u32 unused;
};

/* A condition on a packet that its bytes do not show; zero for none. */
struct sight {
	__u32 mark;
	__u32 mask;
	__u32 interface;
};

#define SIGHTS 12

const volatile struct {
	/* The socket through which user space sends. */
	__u64 cookie;
	/* Time without a heartbeat after which packets pass, and the longest burst of the limit, ns. */
	__u64 lease;
	__u64 burst;
	struct way up;
	struct way down;
	/* The interface. */
	__u32 device;
	/* The mark of packets between the interface and user space, at no other place. */
	__u32 mark;
	/* Conditions that tenants name, and their number. */
	struct sight sights[SIGHTS];
	__u32 count;
	__u32 unused;
} settings;

/* By direction: the instant at which user space last gave a sign of life. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} heartbeats SEC(".maps");

/* By direction: the instant until which the limit is used up. */
struct bucket {
	struct bpf_spin_lock lock;
	__u64 used_until;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

/* By direction, of the packets that passed without a heartbeat. */
struct count {
	__u64 passed;
	__u64 refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

enum { UP, DOWN };

/* True if a packet of `len` bytes is within the limit, which it then uses up. */
static __always_inline int within(__u32 side, __u64 ns_per_byte, __u32 len, __u64 now)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &side);
	__u64 cost = (len * ns_per_byte) >> 24, burst = settings.burst, from;
	int fits;

	if (!bucket)
		return 1;
	bpf_spin_lock(&bucket->lock);
	from = bucket->used_until > now ? bucket->used_until : now;
	fits = from - now <= burst;
	if (fits)
		bucket->used_until = from + cost;
	bpf_spin_unlock(&bucket->lock);
	return fits;
}

/* Puts a tag on a packet, which user space removes: a bit for each condition that holds. */
static __always_inline void label(struct __sk_buff *skb)
{
	__u32 bits = 0, i;

	if (!settings.count)
		return;
#pragma unroll
	for (i = 0; i < SIGHTS; i++) {
		const volatile struct sight *sight = &settings.sights[i];

		if ((sight->mask && (skb->mark & sight->mask) == sight->mark) ||
		    (sight->interface && skb->ingress_ifindex == sight->interface))
			bits |= 1 << i;
	}
	bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021AD), bits);
}

static __always_inline int divert(struct __sk_buff *skb, __u32 side, const volatile struct way *way)
{
	__u64 now = bpf_ktime_get_ns(), *beat;
	struct count *count;
	int fits;

	switch (bpf_ntohs(skb->protocol)) {
	case ETH_P_IP:
	case ETH_P_IPV6:
	case ETH_P_8021Q:
	case ETH_P_8021AD:
		break;
	default:
		return NEXT;
	}
	beat = bpf_map_lookup_elem(&heartbeats, &side);
	if (beat && now - *(volatile __u64 *)beat <= settings.lease) {
		if (side == UP)
			label(skb);
		skb->mark = settings.mark;
		return bpf_redirect(way->to, 0);
	}
	fits = !way->ns_per_byte || within(side, way->ns_per_byte, skb->wire_len, now);
	count = bpf_map_lookup_elem(&counts, &side);
	if (count && fits)
		count->passed++;
	else if (count)
		count->refused++;
	return fits ? NEXT : DROP;
}

/* At the interface's egress. */
SEC("tc")
int up(struct __sk_buff *skb)
{
	if (bpf_get_socket_cookie(skb) == settings.cookie)
		return NEXT;
	return divert(skb, UP, &settings.up);
}

/* At its ingress. */
SEC("tc")
int down(struct __sk_buff *skb)
{
	if (skb->mark == settings.mark) {
		skb->mark = 0;
		return NEXT;
	}
	return divert(skb, DOWN, &settings.down);
}

/* At the egress of interfaces that user space reads: only what was redirected goes there. */
SEC("tc")
int gate(struct __sk_buff *skb)
{
	return skb->mark == settings.mark ? NEXT : DROP;
}

/* At the ingress of the downward one: frames of user space are received at the interface. */
SEC("tc")
int back(struct __sk_buff *skb)
{
	skb->mark = settings.mark;
	return bpf_redirect(settings.device, BPF_F_INGRESS);
}
