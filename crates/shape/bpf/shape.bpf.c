/* The programs of `tollway shape`: the hook and walks of connections, the limit of packets and of
   joins. They last longer than
   their agent: what they set holds until the lease ends. */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader. */
const volatile struct {
	/* The user namespace whose network namespaces count. */
	__u32 users;
} settings;

#include "joins.h"
#include "sockets.h"
