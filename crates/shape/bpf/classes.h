/* Classification by tenant. The rules stay in user space (classes.rs): here each address, port, user and control
   group becomes a small index, and the indexes are one key. All identities of a key are equal to the rules. */
#pragma once

#include "kernel.h"

union address {
	__u32 words[4];
	__u64 halves[2];
};

/* An identity that made a key, and the key's verdict: `Cell` in classes.rs has the same layout. */
struct cell {
	__u64 cgroup;
	union address local; /* IPv4 as ::ffff:a.b.c.d */
	union address remote;
	__u32 uid;
	__u32 verdict; /* a bucket */
	__u16 local_port;
	__u16 remote_port;
	__u32 stays; /* 1 if its packets leave by the loopback device */
};

struct key {
	__u32 version;
	__u32 local;
	__u32 remote;
	__u32 local_port;
	__u32 remote_port;
	__u32 user;
	__u32 group;
	__u32 stays;
};

struct identity {
	struct cell cell;
	struct key key;
};

/* Prefix length of the rest, version and end, address. */
struct prefix {
	__u32 len;
	__u32 side;
	union address address;
};

struct user {
	__u32 uid;
	__u32 version;
};

struct group {
	__u64 id;
	__u64 version;
};

/* The rules in force. */
struct scope {
	__u64 overhead; /* bytes of a packet on the link in addition to IP's */
	__u32 version;
	__u32 flags;
};

#define BY_GROUP 1
#define LOCAL_COUNTS 2

/* Buckets of no tenant. */
#define UNKNOWN 0
#define NOBODY 1

enum { LOCAL, REMOTE };
#define PREFIX_BITS (32 + 128)
#define MOST (1 << 16)
#define LOOPBACK 1

#define MAP(name, kind, bits, key_type, value_type, count) \
	struct {                                               \
		__uint(type, kind);                                \
		__uint(map_flags, bits);                           \
		__uint(max_entries, count);                        \
		__type(key, key_type);                             \
		__type(value, value_type);                         \
	} name SEC(".maps")

MAP(tollway_scope, BPF_MAP_TYPE_ARRAY, 0, __u32, struct scope, 1);
MAP(tollway_nets, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC, struct prefix, __u32, 2 * MOST);
/* By port, and 2^16 for an odd version: the index as local port in the low half, as remote port in the high half. */
MAP(tollway_ports, BPF_MAP_TYPE_ARRAY, 0, __u32, __u32, 2 << 16);
MAP(tollway_users, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, struct user, __u32, 2 * MOST);
MAP(tollway_groups, BPF_MAP_TYPE_LRU_HASH, 0, struct group, __u32, 2 * MOST);
/* Control groups seen that have no index yet. */
MAP(tollway_strange, BPF_MAP_TYPE_LRU_HASH, 0, __u64, __u32, 1 << 10);
MAP(tollway_cells, BPF_MAP_TYPE_LRU_HASH, 0, struct key, struct cell, MOST);

static __always_inline __u32 index_of(void *map, const void *key)
{
	__u32 *index = bpf_map_lookup_elem(map, key);

	return index ? *index : 0;
}

/* Fills in the version and the index of the control group. Returns true if the group has one, or groups don't
   count. In the version before, `current` is false, and nothing is recorded. */
static __always_inline int find_group(struct identity *who, int current)
{
	struct group group = { .id = who->cell.cgroup };
	__u32 first = 0, none = 0;

	if (current) {
		struct scope *scope = bpf_map_lookup_elem(&tollway_scope, &first);

		if (!scope)
			return 1;
		who->key.version = scope->version;
		who->key.group = 0;
		if (!(scope->flags & BY_GROUP))
			return 1;
	} else {
		who->key.version--;
	}
	group.version = who->key.version;
	who->key.group = index_of(&tollway_groups, &group);
	if (!who->key.group && current)
		bpf_map_update_elem(&tollway_strange, &group.id, &none, BPF_ANY);
	return who->key.group != 0;
}

/* The verdict on an identity whose key has its version and group. A new one is recorded in the current version. */
static __always_inline __u32 classify(struct identity *who, int current)
{
	__u32 version = who->key.version, odd = (version & 1) << 16, port;
	struct prefix prefix = { .len = PREFIX_BITS };
	struct user user = { who->cell.uid, version };
	struct cell *cell;

	prefix.side = version << 1 | LOCAL;
	prefix.address = who->cell.local;
	who->key.local = index_of(&tollway_nets, &prefix);
	prefix.side = version << 1 | REMOTE;
	prefix.address = who->cell.remote;
	who->key.remote = index_of(&tollway_nets, &prefix);
	port = odd | who->cell.local_port;
	who->key.local_port = index_of(&tollway_ports, &port) & 0xffff;
	port = odd | who->cell.remote_port;
	who->key.remote_port = index_of(&tollway_ports, &port) >> 16;
	who->key.user = index_of(&tollway_users, &user);
	who->key.stays = who->cell.stays;
	cell = bpf_map_lookup_elem(&tollway_cells, &who->key);
	if (cell)
		return cell->verdict;
	if (current)
		bpf_map_update_elem(&tollway_cells, &who->key, &who->cell, BPF_NOEXIST);
	return UNKNOWN;
}

/* The user that owns a TCP socket, by the kernel's own number, which no user namespace maps. A subflow of MPTCP
   belongs to its MPTCP socket: the kernel may have made it in a thread of root. */
static __always_inline __u32 owner_of_tcp(const struct tcp_sock *tp, __u16 *subflow)
{
	void *context;

	*subflow = 0;
	if (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp) {
		*subflow = 1;
		context = tp->inet_conn.icsk_ulp_data;
		if (context)
			return cast(struct mptcp_subflow_context, context)->conn->sk_uid.val;
	}
	return tp->inet_conn.icsk_inet.sk.sk_uid.val;
}

static __always_inline __u32 owner_of(const struct sock *sk)
{
	__u16 subflow;

	return sk->sk_protocol == IPPROTO_TCP ? owner_of_tcp(cast(struct tcp_sock, sk), &subflow) : sk->sk_uid.val;
}
