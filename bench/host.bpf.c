/* A router that never refuses, for bench/host.py: it writes a constant into XCP's and FCP's options. Segments on a veth
   pair have no checksum yet. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

/* Ethernet, IP, TCP, timestamps. */
#define OPTION (14 + 20 + 20 + 12)

SEC("tc") int grant(struct __sk_buff *skb)
{
	unsigned char option[4];
	/* A packet for each packet: 4095/4096. And 2^-36 $/byte: 64 GiB/s for a budget of 1, more than any processor sends. */
	unsigned char feedback[2] = { 0x7f, 0xf8 }, price[2] = { 0x80, 24 };

	if (bpf_skb_load_bytes(skb, OPTION, option, sizeof(option)))
		return TC_ACT_OK;
	if (option[0] == 14 && option[1] == 8)
		bpf_skb_store_bytes(skb, OPTION + 2, feedback, 2, 0);
	else if (option[0] == 253 && option[1] >= 12 && option[2] == 0x46 && option[3] == 0x43)
		bpf_skb_store_bytes(skb, OPTION + 4, price, 2, 0);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
