// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The tap: stamps every packet that carries an id and sends it on its way.
 *
 * Attached to the ingress hook of one link (tc, direct action). The stamp is taken before
 * anything else; then the packet is parsed (Ethernet, up to two VLAN tags in line, IPv4 with
 * options or IPv6, UDP) and its id read: MoonSniff's layout, a little-endian u32 at the start of
 * the UDP payload followed by the type byte 0x55. The stamp goes into a ring that user space
 * maps; the program wakes nobody.
 *
 * The ring. Producers (one for each CPU at most) take a slot by moving `head` with compare and
 * exchange, which never takes a slot that is not free, so nothing has to be undone when the ring
 * is full. A record is two words, both stored whole and neither ever zero: it is complete when
 * both are nonzero, in whatever order they become visible. The consumer zeroes both, then moves
 * `tail`. Hence, exactly: seen = head + lost, stored = head.
 */
#include <linux/types.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Bytes that the parser may look at: Ethernet, two tags, IPv4 with all options, UDP, id, type. */
#define PARSED (14 + 8 + 60 + 8 + 5)
/* Tries to take a slot. Each failure means that another CPU took one, so more than a few in a row
 * are next to impossible; a packet that fails them all is counted as lost. */
#define TRIES 16
#define MAX_VLAN_TAGS 2
#define MOONSNIFF_TYPE 0x55

enum verdict {
	VERDICT_PASS = 0,     /* passive: the packet goes on its way */
	VERDICT_DROP = 1,     /* the packet is absorbed */
	VERDICT_REDIRECT = 2, /* inline: the packet leaves through `forward` */
};

/* Set before loading, so that the verifier removes the branches that are not taken. The layout is
 * known to program.rs. */
const volatile struct {
	__u32 verdict;
	__u32 forward; /* interface index */
	__u32 mask;    /* slots in the ring - 1 */
} config SEC(".rodata");

/* Shared with user space; the layout is known to ring.rs. One cache line for each writer. */
struct {
	__u64 head; /* slots taken so far */
	__u64 lost; /* packets with an id that found no slot */
	__u64 other; /* packets without an id */
	__u64 pad0[5];
	__u64 tail; /* slots emptied so far; written by user space */
	__u64 pad1[7];
} state SEC(".bss") __attribute__((aligned(64)));

/* A record of the stamp file. */
struct record {
	__u64 time_ns;
	__u64 packet; /* id in bits 0..31, frame length without FCS in bits 32..47 */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct record);
} ring SEC(".maps");

/* Reads the id of a packet in MoonSniff's layout. */
static __always_inline int read_id(struct __sk_buff *skb, __u32 *id)
{
	void *at = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *ethernet = at;
	__be16 protocol;

	if (at + sizeof(*ethernet) > end)
		return 0;
	protocol = ethernet->h_proto;
	at += sizeof(*ethernet);

	/* The kernel has moved the outer tag into the packet's metadata; further ones are in line. */
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if (at + 4 > end)
			return 0;
		protocol = *(__be16 *)(at + 2);
		at += 4;
	}

	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = at;

		if (at + sizeof(*ip) > end)
			return 0;
		/* Later fragments have no UDP header. */
		if (ip->protocol != IPPROTO_UDP || ip->ihl < 5 || ip->frag_off & bpf_htons(0x1fff))
			return 0;
		at += ip->ihl * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = at;

		if (at + sizeof(*ip) > end || ip->nexthdr != IPPROTO_UDP)
			return 0;
		at += sizeof(*ip);
	} else {
		return 0;
	}

	at += sizeof(struct udphdr);
	if (at + 5 > end || *(__u8 *)(at + 4) != MOONSNIFF_TYPE)
		return 0;
	*id = *(__u32 *)at;
	return 1;
}

/* Takes a slot of the ring: its number, or -1 when the ring is full. */
static __always_inline __s64 take_slot(void)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 head = *(volatile __u64 *)&state.head;
		__u64 tail = *(volatile __u64 *)&state.tail;

		if (head - tail > config.mask)
			return -1;
		if (__sync_val_compare_and_swap(&state.head, head, head + 1) == head)
			return head;
	}
	return -1;
}

SEC("tc")
int tap(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 len = skb->len;
	__u32 wanted = len < PARSED ? len : PARSED;
	__u32 id = 0;

	/* Some senders and drivers leave the headers in pages beside the packet. */
	if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, wanted);

	if (read_id(skb, &id)) {
		__s64 slot = take_slot();
		__u32 key = slot & config.mask;
		struct record *record = slot < 0 ? 0 : bpf_map_lookup_elem(&ring, &key);

		if (record) {
			__u64 frame_len = len + (skb->vlan_present ? 4 : 0);

			*(volatile __u64 *)&record->packet = id | (frame_len & 0xffff) << 32;
			*(volatile __u64 *)&record->time_ns = now;
		} else {
			__sync_fetch_and_add(&state.lost, 1);
		}
	} else {
		__sync_fetch_and_add(&state.other, 1);
	}

	if (config.verdict == VERDICT_REDIRECT)
		return bpf_redirect(config.forward, 0);
	return config.verdict == VERDICT_DROP ? TC_ACT_SHOT : TC_ACT_OK;
}

/* bpf_ktime_get_ns is reserved for programs under the GPL. */
char LICENSE[] SEC("license") = "GPL";
