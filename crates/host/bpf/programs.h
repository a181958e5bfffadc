/* The programs. Each law defines before: `reserve`, `write`, `parse` of options; `start`, `on_feedback`,
   `on_loss_timer`, `on_spurious`, `on_open`, `on_send` of a connection. LEAST_TRAIN is the least
   number of segments sent at once, where the kernel's is not to apply. */
#pragma once

SEC("sockops") int options(struct bpf_sock_ops *s)
{
	struct bpf_sock *sk = s->sk;
	struct tcp_sock *tp;
	struct flow *f;

	switch (s->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		open(s, BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG |
				BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
		return 1;
	case BPF_SOCK_OPS_RTT_CB:
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
	case BPF_SOCK_OPS_STATE_CB:
		break;
	default:
		return 1;
	}
	f = sk ? bpf_sk_storage_get(&flows, sk, 0, 0) : 0;
	if (!f)
		return 1;
	if (s->op == BPF_SOCK_OPS_HDR_OPT_LEN_CB)
		reserve(s, f);
	else if (s->op == BPF_SOCK_OPS_WRITE_HDR_OPT_CB)
		write(s, f);
	else if (s->op == BPF_SOCK_OPS_PARSE_HDR_OPT_CB)
		parse(s, f);
	else if (s->op == BPF_SOCK_OPS_RTT_CB && !f->seen.active && (tp = bpf_skc_to_tcp_sock(sk)))
		follow(tp, f);
	else if (s->op == BPF_SOCK_OPS_STATE_CB && s->args[1] == BPF_TCP_CLOSE)
		bpf_map_delete_elem(&connections, &f->seen.cookie);
	return 1;
}

SEC("struct_ops/init") void BPF_PROG(init, struct sock *sk)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);

	if (f) {
		begin(sk, f);
		start(f);
	}
}

SEC("struct_ops/release") void BPF_PROG(release, struct sock *sk)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);

	/* A socket that closes is released too. */
	if (f && f->seen.active && sk->__sk_common.skc_state != TCP_CLOSE) {
		count(OTHER, 1);
		f->seen.active = 0;
		f->seen.fallen = OTHER;
		publish(f);
	}
}

SEC("struct_ops/control") void BPF_PROG(control, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);
	__u32 acked;

	if (!f)
		return;
	if (measure(tp, f, &acked))
		on_feedback(tp, f, acked);
	publish(f);
}

/* A loss found by acknowledgements changes nothing (the study's `force_cwnd`), a timeout does. */
SEC("struct_ops/state") void BPF_PROG(state, struct sock *sk, __u8 new_state)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);

	if (f && new_state == TCP_CA_LOSS)
		on_loss_timer(f);
	else if (f && new_state == TCP_CA_OPEN)
		on_open(f);
}

/* The first packet after a time with none in flight is being sent. */
SEC("struct_ops/event") void BPF_PROG(event, struct sock *sk, int which)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);

	if (f && which == CA_EVENT_TX_START)
		on_send((struct tcp_sock *)sk, f);
}

SEC("struct_ops/ssthresh") __u32 BPF_PROG(ssthresh, struct sock *sk)
{
	return TCP_INFINITE_SSTHRESH;
}

/* The kernel has found that what it took for lost had arrived (RFC 3522, RFC 5682, duplicate SACK). It counts all packets
   as in flight again: a window of one would wait for the next timeout. */
SEC("struct_ops/undo") __u32 BPF_PROG(undo, struct sock *sk)
{
	struct flow *f = bpf_sk_storage_get(&flows, sk, 0, 0);

	if (f)
		on_spurious(f);
	return ((struct tcp_sock *)sk)->snd_cwnd;
}

#ifdef LEAST_TRAIN
SEC("struct_ops/train") __u32 BPF_PROG(train, struct sock *sk)
{
	return LEAST_TRAIN;
}
#endif

SEC(".struct_ops.link") struct tcp_congestion_ops law = {
	.init = (void *)init,
	.release = (void *)release,
	.cong_control = (void *)control,
	.set_state = (void *)state,
	.cwnd_event = (void *)event,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo,
#ifdef LEAST_TRAIN
	.min_tso_segs = (void *)train,
#endif
	.name = "tollway_000000",
};
