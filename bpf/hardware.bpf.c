// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Hands over when a network card received each packet: the card's stamp from the metadata that the
 * driver has for XDP programs, and the first bytes of the packet, in which user space finds the id.
 *
 * The program is bound to one device when it is loaded, which is what gives it the metadata
 * (Documentation/networking/xdp-rx-metadata.rst; Linux 6.3).
 */
#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* Ethernet, three tags, IPv4 with all options, UDP, id, type; rounded up. Known to metadata.rs. */
#define CAPTURED 104

/* Set before loading. The layout is known to metadata.rs. */
const volatile struct {
	__u32 absorb; /* packets end here, else they go on their way */
	__u32 kernel; /* take CLOCK_MONOTONIC instead of the card's clock */
} config SEC(".rodata");

/* Packets that found no room. */
__u64 lost SEC(".bss");

/* The layout is known to metadata.rs. */
struct record {
	__u64 time_ns; /* 0: the card has no stamp for this packet */
	__u32 len;
	__u32 captured;
	__u8 bytes[CAPTURED];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* set before loading */
} ring SEC(".maps");

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

SEC("xdp.frags")
int stamp(struct xdp_md *ctx)
{
	__u32 len = bpf_xdp_get_buff_len(ctx);
	__u32 captured = len < CAPTURED ? len : CAPTURED;
	struct record *record;
	__u64 time = 0;

	if (config.kernel)
		time = bpf_ktime_get_ns();
	else if (bpf_xdp_metadata_rx_timestamp(ctx, &time))
		time = 0;

	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&lost, 1);
		goto out;
	}
	record->time_ns = time;
	record->len = len;
	record->captured = captured;
	/* The compiler knows the bounds and the verifier does not: neither may forget the check. */
	barrier_var(captured);
	if (captured < 1 || captured > CAPTURED ||
	    bpf_xdp_load_bytes(ctx, 0, record->bytes, captured))
		record->captured = 0;
	/* User space looks by itself now and then: waking it up would take time here. */
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
out:
	return config.absorb ? XDP_DROP : XDP_PASS;
}

/* bpf_ktime_get_ns is reserved for programs under the GPL. */
char LICENSE[] SEC("license") = "GPL";
