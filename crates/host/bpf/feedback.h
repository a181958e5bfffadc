/* XCP's sender and receiver in integers: units of 1/4096 packet. `law::sender::xcp` has the same arithmetic. */
#pragma once

#include "kernel.h"

#define SHIFT 12
#define PACKET (1LL << SHIFT)
#define MIN_WINDOW PACKET
#define MAX_WINDOW (PACKET << 20)
#define PACED (8 * PACKET)
/* Growth that acknowledged packets allow, and feedback has not used yet: the most that is kept. */
#define MAX_CREDIT (16 * PACKET)

/* H_feedback: a mantissa of 13 bits and an exponent of 3 (XCP study, "XCP Option Format"). */
static __always_inline __s64 decode(__u16 code)
{
	return (__s64)((__s16)code >> 3) << (4 * (code & 7));
}

/* The nearest code, with the smallest exponent: routers write this form only. */
static __always_inline __u16 encode(__s64 units)
{
	__u64 magnitude = units < 0 ? -units : units;

	for (int exponent = 0; exponent < 8; exponent++) {
		int shift = 4 * exponent;
		__u64 mantissa = (magnitude + ((1ULL << shift) >> 1)) >> shift;

		if (mantissa <= 4095 || (units < 0 && mantissa == 4096))
			return (__u16)(units < 0 ? -mantissa : mantissa) << 3 | exponent;
	}
	return units < 0 ? 0x8007 : 0x7fff;
}

/* A sender's request in 1/256 packet, 0 to 255, in a form that `encode` never returns. So a receiver sees whether a
   router has rewritten it. */
static __always_inline __u16 encode_request(__s64 parts)
{
	return (__u16)(parts < 0 ? 0 : parts > 255 ? 255 : parts) << 3 | 1;
}

/* True for a request that no router has rewritten, also for the largest value, the request of other senders. */
static __always_inline int unrewritten(__u16 code)
{
	return ((code & 7) == 1 && code >> 3 < 256) || code == 0x7fff;
}

/* The request per packet for `room` units over `window` units: at most 255/256 packet, so that a window at most
   doubles in a round trip. */
static __always_inline __u16 request(__s64 window, __s64 room)
{
	__u64 whole = (__u64)window >> 8;

	return encode_request(room <= 0 ? 0 : (__u64)room / (whole ?: 1));
}

/* BPF before its version 4 divides unsigned numbers only. */
static __always_inline __s64 divide(__s64 dividend, __u32 divisor)
{
	return dividend < 0 ? -(__s64)((__u64)-dividend / divisor) : (__s64)((__u64)dividend / divisor);
}

struct growth {
	__s64 window;
	/* Growth allowed by acknowledged packets. */
	__s64 credit;
	/* Times that feedback exceeded it, which no honest router causes. */
	__u32 forged;
};

/* The window after an acknowledgement of `acked` packets with feedback of `units`. */
static __always_inline void on_ack(struct growth *g, __s64 units, __u32 acked)
{
	g->credit += acked * PACKET;
	if (units > g->credit) {
		units = g->credit;
		g->forged++;
	}
	if (units > 0)
		g->credit -= units;
	if (g->credit > MAX_CREDIT)
		g->credit = MAX_CREDIT;
	g->window += units;
	if (g->window < MIN_WINDOW)
		g->window = MIN_WINDOW;
	if (g->window > MAX_WINDOW)
		g->window = MAX_WINDOW;
}

/* The window after a timeout. Other losses leave it. */
static __always_inline void on_timeout(struct growth *g)
{
	g->window = MIN_WINDOW;
}

/* Bytes a second that send a window of packets of `mss` bytes in a round trip. A window below PACED leaves at once:
   spaced packets would state its last change up to a round trip late, and receivers delay their acknowledgements. */
static __always_inline __u64 pace(__s64 window, __u32 mss, __u32 rtt_us)
{
	if (window < PACED)
		return ~0ULL;
	return (__u64)(window >> 6) * mss * 1000000 / (64ULL * (rtt_us ?: 1));
}
