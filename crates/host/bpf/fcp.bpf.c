/* FCP for the kernel's TCP: an option of our own under kind 253 (RFC 6994).

       return only  | 253 | 6 | 0x4643 | price |
       forward      | 253 | 12 | 0x4643 | price | balance | preload | RTT in ms |
       both         | 253 | 14 | 0x4643 | price | balance | preload | RTT in ms | price returned |

   Links add to the first price, which leaves as 0. Codes are those of price.h. */
#include "price.h"

struct law {
	struct spending spending;
	/* The price to return, and the last that was returned. */
	__u16 owed;
	__u16 price;
	/* The price paid, and the time of the last that was returned. */
	__u16 stake;
	__u64 heard;
	/* Packets acknowledged in this round trip and in the one before, and their count at its end. */
	__u32 acked;
	__u32 last_acked;
	__u32 round_ends;
};

#include "host.h"

#define EXPERIMENT 0x4643
#define FORWARD 12
#define BOTH 14
#define RETURN 6

/* Budgets in dollars a second, by the socket's cookie: user space divides them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct number);
} budgets SEC(".maps");

static __always_inline void reserve(struct bpf_sock_ops *s, struct flow *f)
{
	int any = s->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS;
	int forward = f->seen.active && (any || s->skb_len), back = any || f->arrived;

	f->payload = s->skb_len;
	if (forward || back)
		bpf_reserve_hdr_opt(s, forward ? (back ? BOTH : FORWARD) : RETURN, 0);
}

static __always_inline void write(struct bpf_sock_ops *s, struct flow *f)
{
	__u8 option[BOTH] = { 253 };
	struct spending *own = &f->law.spending;

	put(option + 2, EXPERIMENT);
	if (f->seen.active && f->payload) {
		/* Without a price a packet announces one more for the next round trip, whatever it costs. */
		put(option + 6, own->price ? f->law.stake : 0);
		put(option + 8, own->price ? own->preload : encode_preload(number(1, 0), 0));
		put(option + 10, own->price ? stated_rtt(f) : 0);
		put(option + 12, f->law.owed);
		option[1] = f->arrived ? BOTH : FORWARD;
		if (f->arrived)
			bpf_store_hdr_opt(s, option, BOTH, 0);
		else
			bpf_store_hdr_opt(s, option, FORWARD, 0);
	} else if (f->arrived) {
		put(option + 4, f->law.owed);
		option[1] = RETURN;
		bpf_store_hdr_opt(s, option, RETURN, 0);
	}
}

static __always_inline void read_return(struct flow *f, __u16 code)
{
	f->pending = 1;
	f->seen.echoed = code ? 2 : 1;
	if (code) {
		f->law.price = code;
		f->law.heard = bpf_ktime_get_ns();
	}
}

static __always_inline void parse(struct bpf_sock_ops *s, struct flow *f)
{
	__u8 option[BOTH] = { 253, 4 };
	long length;

	put(option + 2, EXPERIMENT);
	length = bpf_load_hdr_opt(s, option, sizeof(option), 0);
	if (length == FORWARD || length == BOTH) {
		f->law.owed = option[4] << 8 | option[5];
		f->arrived = f->law.owed ? 2 : 1;
	}
	if (length == BOTH)
		read_return(f, option[12] << 8 | option[13]);
	else if (length == RETURN)
		read_return(f, option[4] << 8 | option[5]);
}

/* The window before a price is known, over one round trip. */
static __always_inline void apply_first(struct tcp_sock *tp, struct flow *f)
{
	__u64 bytes = settings.initial_window * tp->mss_cache;

	apply(tp, f, (__u64)settings.initial_window << 12, f->seen.srtt_us ? bytes * 1000000 / f->seen.srtt_us : ~0ULL, 0);
}

static __always_inline void start(struct flow *f)
{
	f->law.last_acked = settings.initial_window;
}

/* Feedback has stopped: it starts again with a first price. */
static __always_inline void on_loss_timer(struct flow *f)
{
	f->seen.price = 0;
	f->law.spending.price = 0;
	f->law.price = 0;
	f->law.last_acked = 0;
	f->law.acked = 0;
}

static __always_inline void on_spurious(struct flow *f)
{
}

static __always_inline void on_open(struct flow *f)
{
}

static __always_inline void on_feedback(struct tcp_sock *tp, struct flow *f, __u32 acked)
{
	struct law *law = &f->law;
	struct number *budget = bpf_map_lookup_elem(&budgets, &f->seen.cookie);
	__u32 mss = tp->mss_cache, srtt = f->seen.srtt_us;
	__u64 now = bpf_ktime_get_ns(), least, rate, most, window;
	struct number own;

	law->acked += acked;
	/* A round trip by packets, not by time: an acknowledgement may be for half a window. */
	if ((__s32)(tp->delivered - law->round_ends) >= 0) {
		law->round_ends = tp->delivered + tp->packets_out;
		law->last_acked = law->acked;
		law->acked = 0;
	}
	/* Acknowledgements with three SACK blocks return no price: the last may be long outdated. */
	if (law->spending.price && now > law->heard + 2000ULL * max(4 * srtt, 250000))
		on_loss_timer(f);
	own = budget ? *budget : law->spending.now;
	spend(&law->spending, now, srtt, law->price, own, settings.initial_window * mss, mss,
	      max(law->acked, law->last_acked) <= settings.initial_window);
	least = slowest(&law->spending, now, mss, srtt);
	f->seen.price = law->price;
	/* Bounded in a round trip, whatever the price: a forged one buys anything. */
	most = LEAP * max(law->acked, law->last_acked) + settings.initial_window;
	if (!law->spending.price) {
		apply_first(tp, f);
		return;
	}
	law->stake = encode_price(stake(&law->spending, own, least));
	rate = min(max(bought(&law->spending), least), 1ULL << 40);
	/* The rate binds; the window if acknowledgements stop, or if the price is too good. */
	window = min(2 * rate / 1000 * srtt / 1000 / (mss ?: 1) + 2, most);
	apply(tp, f, window << 12, rate, 0);
}

/* A connection without a part of the budget starts anew: the others have had its part since it was idle. */
static __always_inline void on_send(struct tcp_sock *tp, struct flow *f)
{
	if (bpf_map_lookup_elem(&budgets, &f->seen.cookie))
		return;
	on_loss_timer(f);
	apply_first(tp, f);
	publish(f);
}

#include "programs.h"

/* For tests: the arithmetic on one event. */
struct event {
	struct spending spending;
	__u64 now;
	struct number budget;
	__u64 rate;
	__u32 rtt_us;
	__u32 first;
	__u16 price;
	__u16 answer;
	__u32 mss;
	__u16 few;
	__u16 stake;
};

SEC("syscall") int replay(struct event *e)
{
	struct spending s = e->spending;

	spend(&s, e->now, e->rtt_us, e->price, e->budget, e->first, e->mss, e->few);
	e->stake = encode_price(stake(&s, e->budget, slowest(&s, e->now, e->mss, e->rtt_us)));
	e->rate = bought(&s);
	e->answer = encode_price(decode_price(e->price));
	e->spending = s;
	return 0;
}
