/* FCP's sender in integers (CMU-CS-12-125, 4.1). `law::sender::fcp` has the same arithmetic in floats. */
#pragma once

#include "kernel.h"

/* Times that a window may grow in a round trip, and a rate may exceed the first packets' without an announcement. */
#define LEAP 16ULL

/* m * 2^e with the top bit of m set, or zero: 32 bits of precision. */
struct number {
	__u32 m;
	__s32 e;
};

/* The mantissa above the exponent. A global function: the verifier checks it once, and not for each path to it. */
__noinline __u64 normalise(__u64 m, __s32 e)
{
	if (!m)
		return 0;
	for (int step = 32; step; step >>= 1)
		if (!(m >> (64 - step))) {
			m <<= step;
			e -= step;
		}
	return (m >> 32) << 32 | (__u32)(e + 32);
}

static __always_inline struct number number(__u64 m, __s32 e)
{
	__u64 packed = normalise(m, e);

	return (struct number){ packed >> 32, (__s32)packed };
}

static __always_inline struct number times(struct number a, struct number b)
{
	return number((__u64)a.m * b.m, a.e + b.e);
}

static __always_inline struct number over(struct number a, struct number b)
{
	return number(((__u64)a.m << 32) / (b.m ?: 1), a.e - b.e - 32);
}

static __always_inline int above(struct number a, struct number b)
{
	return a.m && (!b.m || a.e > b.e || (a.e == b.e && a.m > b.m));
}

/* a + b, or a - b, for a no less than b. */
static __always_inline struct number plus(struct number a, struct number b, int minus)
{
	__u32 shift = a.e - b.e;
	__u64 small = b.m && shift < 63 ? ((__u64)b.m << 31) >> shift : 0;

	return number(((__u64)a.m << 31) + (minus ? -small : small), a.e - 31);
}

static __always_inline __u64 whole(struct number a)
{
	return a.e >= 32 ? ~0ULL : a.e >= 0 ? (__u64)a.m << a.e : a.e > -32 ? a.m >> -a.e : 0;
}

/* A code of `bits` bits of mantissa above an exponent of 6, for m * 2^(e - bias); the nearest. Zero is zero. */
static __always_inline __u16 encode_number(struct number a, int bits, int bias)
{
	__u64 m = ((__u64)a.m + (1ULL << (31 - bits))) >> (32 - bits);
	__s32 e = a.e + 32 - bits + bias;

	if (m >> bits) {
		m >>= 1;
		e++;
	}
	if (!a.m)
		return 0;
	return e < 0 ? 1 << (bits + 5) : e > 63 ? ((1 << bits) - 1) << 6 | 63 : m << 6 | e;
}

/* Dollars a byte: 10 bits of mantissa, 2^-60 to 2^4; 0 where no link has stated one. */
#define PRICE_BIAS 69
static __always_inline struct number decode_price(__u16 code)
{
	return number(code >> 6, (code & 63) - PRICE_BIAS);
}

static __always_inline __u16 encode_price(struct number price)
{
	return encode_number(price, 10, PRICE_BIAS);
}

/* A preload: a sign, 9 bits of mantissa, 2^-10 to 2^54. */
#define PRELOAD_BIAS 18
static __always_inline __u16 encode_preload(struct number size, int negative)
{
	return encode_number(size, 9, PRELOAD_BIAS) | (negative ? 0x8000 : 0);
}

/* A connection's spending, in dollars a second, and the round that changes it: announced by every packet of a span, it
   takes effect in an equal one that begins a round trip later. */
struct spending {
	struct number now, from, to;
	__u64 began;
	__u32 rtt_us;   /* of the round; 0 between rounds */
	__u16 preload;  /* announced by packets now */
	__u16 price;    /* code of the path's price; 0 until it is known */
	__u64 span_ns;
};

/* Bytes a second of a packet every four round trips or quarter of a second, so that feedback goes on. In the second
   after an announcement prices move fast, and the kernel sends a packet no sooner than it was due at the rate of the
   one before: then it is every four round trips. */
static __always_inline __u64 slowest(const struct spending *s, __u64 now, __u32 mss, __u32 rtt_us)
{
	return mss * 1000000ULL / max(4 * rtt_us, now < s->began + 1000000000 ? 1000 : 250000);
}

/* The price paid for a byte: the path's, but at the least rate at most what the budget buys. More would keep the
   price up for as long as the connection cannot pay it. */
static __always_inline struct number stake(const struct spending *s, struct number budget, __u64 slowest)
{
	struct number price = decode_price(s->price), most = over(above(s->now, budget) ? s->now : budget, number(slowest, 0));

	return above(price, most) ? most : price;
}

/* Dollars a second that pay for so many bytes in a round trip. */
static __always_inline struct number cost(__u64 bytes, struct number price, __u32 rtt_us)
{
	return over(times(times(number(bytes, 0), price), number(1000000, 0)), number(rtt_us, 0));
}

/* Goes on with time: the present spending, and a new round if the budget differs by a thousandth. A budget of zero
   is not known yet. `first` is what the first packets announce, in bytes; `mss` is the size of one. `few` is true if no
   more was sent lately. */
static __always_inline void spend(struct spending *s, __u64 now, __u32 rtt_us, __u16 price, struct number budget, __u32 first,
				  __u32 mss, int few)
{
	struct number part, pays;
	__u64 since, round, span;
	int less;

	if (!price || !rtt_us)
		return;
	if (!s->price) {
		part = cost(first, decode_price(price), rtt_us);
		s->now = budget.m && above(part, budget) ? budget : part;
		s->rtt_us = 0;
		s->preload = 0;
	}
	s->price = price;
	since = now - s->began;
	round = s->rtt_us * 1000ULL;
	span = s->span_ns;
	less = above(s->from, s->to);
	if (since >= span)
		s->preload = 0;
	if (s->rtt_us && since >= round + span) {
		s->now = s->to;
		s->rtt_us = 0;
	} else if (s->rtt_us && since >= round) {
		part = less ? plus(s->from, s->to, 1) : plus(s->to, s->from, 1);
		part = over(times(part, number(since - round, 0)), number(span, 0));
		s->now = above(part, s->from) && less ? s->to : plus(above(part, s->from) ? part : s->from,
								     above(part, s->from) ? s->from : part, less);
	}
	if (s->rtt_us || !budget.m || !s->now.m)
		return;
	/* A link on which hardly any connection pays forgets its price: what was announced would buy more than it has. */
	part = cost(LEAP * first, decode_price(price), rtt_us);
	if (few && since > 4000ULL * rtt_us && above(s->now, part))
		s->now = part;
	less = above(s->now, budget);
	part = less ? plus(s->now, budget, 1) : plus(budget, s->now, 1);
	if (!above(times(part, number(1, 10)), s->now))
		return;
	/* Where a round trip has less than a packet, the one that it has announces the whole change. */
	pays = cost(mss, stake(s, budget, slowest(s, now, mss, rtt_us)), rtt_us);
	s->span_ns = rtt_us * 1000ULL;
	/* A decrease needs no room, and others wait for it: in a quarter of a round trip, or in what takes back all. */
	if (less && above(s->now, cost(8 * mss, decode_price(price), rtt_us))) {
		part = over(part, s->now);
		pays = number(1, -2);
		s->span_ns = whole(times(above(pays, part) ? pays : part, number(rtt_us * 1000ULL, 0)));
		part = above(pays, part) ? times(part, number(4, 0)) : number(1, 0);
	} else {
		part = over(part, above(s->now, pays) ? s->now : pays);
	}
	s->from = s->now;
	s->to = budget;
	s->began = now;
	s->rtt_us = rtt_us;
	s->preload = encode_preload(part, less);
}

/* Bytes a second that the spending buys. */
static __always_inline __u64 bought(const struct spending *s)
{
	return s->price ? whole(over(s->now, decode_price(s->price))) : 0;
}
