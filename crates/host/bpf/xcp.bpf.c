/* XCP for the kernel's TCP: the study's options 14 and 15 (Zhang & Henderson, INFOCOM 2005).

       forward  | 14 | 8 | H_feedback | H_rtt | H_cwnd |      return  | 15 | 4 | H_feedback |
       or both  | 253 | 12 | number | H_feedback | H_rtt | H_cwnd | H_feedback returned |

   A return alone under kind 253 has length 6. */
#include "feedback.h"

struct law {
	struct growth growth;
	/* Feedback that has arrived and is not applied. */
	__s64 feedback;
	/* Feedback to return. */
	__s64 owed;
	/* The window before a timeout, while the kernel may still find it spurious. */
	__s64 before;
};

#include "host.h"

#define EXPERIMENT 0x5843
#define FORWARD 8
#define RETURN 4

/* The advertised window in packets, and twice what the program uses of its own: up to a packet more than is in flight. */
static __always_inline __s64 limit(struct tcp_sock *tp)
{
	__s64 used = 2 * ((__s64)max(tp->max_packets_out, settings.initial_window) + 1);

	return min(tp->snd_wnd / (tp->mss_cache ?: 1), used) * PACKET;
}

static __always_inline void reserve(struct bpf_sock_ops *s, struct flow *f)
{
	/* Without a segment the kernel asks for the most. */
	int any = s->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS;
	int forward = f->seen.active && (any || s->skb_len), back = any || f->arrived;
	int room = (forward ? FORWARD : 0) + (back ? RETURN : 0);

	f->payload = s->skb_len;
	if (room && settings.kind != 14)
		room = forward ? 12 : 6;
	if (room)
		bpf_reserve_hdr_opt(s, room, 0);
}

static __always_inline void write(struct bpf_sock_ops *s, struct flow *f)
{
	__u8 forward[12] = { 14, FORWARD }, back[RETURN] = { 15, RETURN };
	__u32 segments = segments_of(s, f);
	__u16 code;

	/* Each segment of a train repeats the option. */
	code = f->law.owed || f->arrived == 2 ? encode(divide(f->law.owed, segments)) : encode_request(0);
	if (f->seen.active && f->payload) {
		struct bpf_sock *sk = s->sk;
		struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : 0;
		__s64 most, stated;

		if (!tp)
			return;
		most = limit(tp);
		stated = min(f->law.growth.window, most) >> SHIFT;
		put(forward + 2, request(f->law.growth.window, most - f->law.growth.window));
		put(forward + 4, stated_rtt(f));
		put(forward + 6, min(max(stated, 1), 65535));
		if (settings.kind != 14) {
			__builtin_memmove(forward + 4, forward + 2, 6);
			forward[0] = 253;
			forward[1] = 12;
			put(forward + 2, EXPERIMENT);
			put(forward + 10, code);
			if (bpf_store_hdr_opt(s, forward, 12, 0))
				return;
			goto returned;
		}
		bpf_store_hdr_opt(s, forward, FORWARD, 0);
	}
	if (!f->arrived)
		return;
	if (settings.kind == 14) {
		put(back + 2, code);
		if (bpf_store_hdr_opt(s, back, RETURN, 0))
			return;
	} else {
		forward[0] = 253;
		forward[1] = 6;
		put(forward + 2, EXPERIMENT);
		put(forward + 4, code);
		if (bpf_store_hdr_opt(s, forward, 6, 0))
			return;
	}
returned:
	if (!unrewritten(code))
		f->law.owed -= decode(code) * segments;
}

static __always_inline void read_forward(struct flow *f, __u16 code, __u32 segments)
{
	f->arrived = unrewritten(code) ? 1 : 2;
	if (f->arrived == 2)
		f->law.owed += decode(code) * segments;
}

static __always_inline void read_return(struct flow *f, __u16 code, __u32 segments)
{
	f->pending = 1;
	f->seen.echoed = unrewritten(code) ? 1 : 2;
	if (f->seen.echoed == 2)
		f->law.feedback += decode(code) * segments;
}

static __always_inline void parse(struct bpf_sock_ops *s, struct flow *f)
{
	__u32 header = (long)s->skb_data_end - (long)s->skb_data, segments = 1;
	__u8 option[12] = { 14 };
	long length;

	/* The kernel merges segments with equal options, and calls once for all. */
	if (s->skb_len > header) {
		segments = s->data_segs_in - f->data_segments;
		f->data_segments = s->data_segs_in;
	}
	if (settings.kind == 14) {
		if (bpf_load_hdr_opt(s, option, FORWARD, 0) == FORWARD && s->skb_len > header)
			read_forward(f, option[2] << 8 | option[3], segments);
		option[0] = 15;
		option[1] = 0;
		if (bpf_load_hdr_opt(s, option, RETURN, 0) == RETURN)
			read_return(f, option[2] << 8 | option[3], segments);
		return;
	}
	option[0] = 253;
	option[1] = 4;
	put(option + 2, EXPERIMENT);
	length = bpf_load_hdr_opt(s, option, sizeof(option), 0);
	if (length == 12) {
		if (s->skb_len > header)
			read_forward(f, option[4] << 8 | option[5], segments);
		read_return(f, option[10] << 8 | option[11], segments);
	} else if (length == 6) {
		read_return(f, option[4] << 8 | option[5], segments);
	}
}

static __always_inline void start(struct flow *f)
{
	f->law.growth.window = settings.initial_window * PACKET;
}

static __always_inline void on_feedback(struct tcp_sock *tp, struct flow *f, __u32 acked)
{
	struct growth *g = &f->law.growth;
	__s64 feedback = f->law.feedback;

	f->law.feedback = 0;
	on_ack(g, feedback, acked);
	apply(tp, f, g->window, pace(g->window, tp->mss_cache, f->seen.min_rtt_us), g->forged);
}

static __always_inline void on_loss_timer(struct flow *f)
{
	f->law.before = max(f->law.before, f->law.growth.window);
	on_timeout(&f->law.growth);
}

static __always_inline void on_spurious(struct flow *f)
{
	f->law.growth.window = max(f->law.before, f->law.growth.window);
}

static __always_inline void on_open(struct flow *f)
{
	f->law.before = 0;
}

static __always_inline void on_send(struct tcp_sock *tp, struct flow *f)
{
}

/* Trains of two segments at once are a queue at a slow link. On some kernels (6.18) this is
   ignored about once a second, and all that the window allows goes at once: here that is little,
   while FCP's window has room for half of what is in flight. */
#define LEAST_TRAIN 1

#include "programs.h"

/* For tests: the arithmetic on one event. Kind 0 is an acknowledgement, 1 a timeout, 2 a request with `credit` as room,
   3 the pace of packets of `acked` bytes at a round trip of 100 ms, as the credit. */
struct event {
	struct growth growth;
	__u32 acked;
	__u16 code;
	__u16 kind;
	__u16 answer;
	__u16 request;
};

SEC("syscall") int replay(struct event *e)
{
	struct growth g = e->growth;

	if (e->kind == 1)
		on_timeout(&g);
	else if (e->kind == 3)
		g.credit = pace(g.window, e->acked, 100000);
	else if (!e->kind)
		on_ack(&g, decode(e->code), e->acked);
	e->answer = e->kind == 2 ? request(g.window, g.credit) : encode(decode(e->code));
	e->request = unrewritten(e->code);
	e->growth = g;
	return 0;
}
