// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The tap: stamps every packet that carries an id, or keeps the first bytes of every packet, and
 * sends it on its way.
 *
 * Attached to a hook of one link (tcx, or tc with direct action). For its id the packet is parsed
 * (Ethernet, unless the interface has none, up to two VLAN tags in line, IPv4 with options or IPv6 with extension headers, UDP):
 * MoonSniff's layout, a little-endian u32 at the start of the UDP payload followed by the type byte
 * 0x55. Or the id stands at a place that the user gave. The record goes into a ring that user space maps; the
 * program wakes nobody until half of that is used.
 *
 * The time. A packet that leaves here is stamped now, before anything else. A packet that ends
 * its way here is stamped when it was handed over, which may be long ago: the receive path of a
 * veth runs in a softirq, and that waits for the sender's own softirq, or for ksoftirqd. There are
 * two ways for a packet to be handed over:
 *
 * - As an skb, by netif_rx() or netif_receive_skb(). The kernel stamps it there, in the sender's
 *   context (skb->tstamp, CLOCK_REALTIME), for as long as somebody asks for stamps, which user
 *   space does.
 * - As an XDP frame, by ndo_xdp_xmit() of the other end of a veth, which keeps no stamps. The
 *   tracepoint after it says how many frames went over, and the program `flushed` notes when. The
 *   frames become skbs in their order, so that the n-th of them finds its time by its number.
 *
 * A packet of TCP brings the time at which its sender wants it sent (CLOCK_MONOTONIC), which the kernel
 * keeps instead of stamping it. Of a server most packets are such: where user space asks for it, the
 * tracepoint of netif_rx() notes when it was handed over, by its address.
 *
 * Not every packet need be stamped. A filter of the user's (libpcap's, turned into instructions that take
 * the place of `tap_filter`) says which are of interest; of these a sample may be taken (sample.h).
 *
 * The ring is that of ring.h. Where bytes of the packet follow the first two words of a slot, they are
 * stored before these. Hence, exactly: seen = head + lost, stored = head, and every packet is seen, other,
 * filtered or unsampled.
 *
 * The clock takes most of the program's time, and handing the packet on most of the rest: see
 * `make bench`.
 */
#include <linux/types.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "ring.h"
#include "sample.h"

/* Bytes that the parser may look at: Ethernet, two tags, IPv4 with all options, UDP, id, type. */
#define PARSED (14 + 8 + 60 + 8 + 5)
#define MAX_VLAN_TAGS 2
#define MOONSNIFF_TYPE 0x55
/* Extension headers of IPv6 that are followed. RFC 8200 has no use for more than five of them. */
#define MAX_EXTENSIONS 16
/* Bytes before a VLAN tag: both hardware addresses. */
#define ADDRESSES 12
#define TAG 4
/* Notes of flushes. A veth holds at most 256 frames, and each flush has at least one. */
#define FLUSHES 1024

enum verdict {
	VERDICT_PASS = 0,     /* passive: the packet goes on its way, to other programs too */
	VERDICT_DROP = 1,     /* the packet is absorbed */
	VERDICT_REDIRECT = 2, /* inline: the packet leaves through `forward` */
};

/* Set before loading, so that the verifier removes the branches that are not taken. The layout is
 * known to tap/program.rs. */
const volatile struct {
	__u32 verdict;
	__u32 forward; /* interface index */
	__u32 mask;    /* slots in the ring - 1 */
	__u32 slot;    /* bytes of a slot */
	__u32 snap;    /* bytes to keep of every packet; 0: stamps of packets with an id */
	__u32 key_offset;
	__u32 key_width; /* bytes of the id at that place, at most 4; 0: MoonSniff's layout */
	__u32 key_big_endian;
	__u32 arrival;   /* stamp packets when they were handed over, not now */
	__u32 index;     /* of the interface that is tapped, for `flushed`; 0: it is not loaded */
	__u32 namespace; /* inode number of its network namespace; for `flushed` and `handed` */
	__u32 noted;     /* `handed` is loaded */
	__u32 sampling;  /* what is in the hash of a sample: bits of sample.h; 0: all packets are stamped */
	__u32 without_ethernet; /* packets of this interface begin with IP */
} config SEC(".rodata");

/* Shared with user space; the layout is known to tap/ring.rs. One cache line for each writer. */
struct {
	__u64 head; /* slots taken so far; unused where the kernel counts them */
	__u64 lost; /* packets with an id that found no slot */
	__u64 other; /* packets without an id */
	__u64 late; /* packets stamped on receipt, as nobody did when they were handed over */
	__u64 filtered; /* packets that the filter left out */
	__u64 unsampled; /* packets that are not in the sample */
	__u64 pad0[2];
	__u64 tail; /* slots emptied so far; written by user space */
	__u64 ahead; /* CLOCK_REALTIME - CLOCK_MONOTONIC, in ns; written by user space */
	__u64 bell_at; /* the slot at which user space is woken; written by it */
	__u64 sample; /* packets are stamped whose hash has none of these bits; written by user space */
	__u64 pad1[4];
	__u64 handed; /* XDP frames handed over; written by `flushed`, like all of this line */
	__u64 flushes; /* notes made of them */
	__u64 napi; /* the NAPI id of what receives them; 0: none came yet */
	__u64 pad2[5];
	__u64 taken; /* XDP frames that came out as skbs; written by the tap, like this line */
	__u64 note; /* where the next one's time is, or later */
	__u64 pad3[6];
} state SEC(".bss") __attribute__((aligned(64)));

/* A record of the stamp file. */
struct record {
	__u64 time_ns;
	__u64 packet; /* id in bits 0..31, frame length without FCS in bits 32..47 */
};

/* In place of a hash. */
#define NOT_HASHED (~0ull)

/* What is kept of a packet; the layout is known to tap/file.rs. */
struct packet {
	__u64 time_ns;
	__u64 lengths; /* bytes that follow in bits 0..15, the CPU and 1 in 16..31, frame length without FCS
			* in 32..63 */
	__u64 tag; /* tag that the kernel took out: bit 32, then protocol, then its content; from bit 33 on
		    * the lowest bits of the hash for samples, or of NOT_HASHED */
	__u8 bytes[];
};

/* A flush of XDP frames: when it ended, and how many frames there were until then. */
struct flush {
	__u64 time_ns;
	__u64 end;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLUSHES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct flush));
} flushes SEC(".maps");

/* When packets were handed over that bring a time, by their addresses. Few are under way at once; those
 * that were dropped there are the least recently used ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} notes SEC(".maps");

/* The kernel's own packet (Linux 6.2). */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __weak;

/* Reads the id behind extension headers of IPv6: from `at` on, the first of them `kind`. A function of
 * its own, as hardly any packet has them, so that it costs the others nothing. */
static __noinline int read_behind_extensions(struct __sk_buff *skb, __u32 at, __u32 kind, __u32 *id)
{
	__u8 bytes[5];

	for (int i = 0; i < MAX_EXTENSIONS && kind != IPPROTO_UDP; i++) {
		if (bpf_skb_load_bytes(skb, at, bytes, 4))
			return 0;
		switch (kind) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			/* In units of 8 bytes, of which the first does not count. */
			at += 8 * (bytes[1] + 1);
			break;
		case IPPROTO_FRAGMENT:
			/* Later fragments have no UDP header. */
			if (bytes[2] || bytes[3] & 0xf8)
				return 0;
			at += 8;
			break;
		default:
			return 0;
		}
		kind = bytes[0];
	}
	if (kind != IPPROTO_UDP || !id)
		return 0;
	if (bpf_skb_load_bytes(skb, at + sizeof(struct udphdr), bytes, sizeof(bytes)))
		return 0;
	if (bytes[4] != MOONSNIFF_TYPE)
		return 0;
	*id = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (__u32)bytes[3] << 24;
	return 1;
}

/* Reads the id of a packet in MoonSniff's layout. */
static __always_inline int read_moonsniff(struct __sk_buff *skb, __u32 *id)
{
	__u32 wanted = skb->len < PARSED ? skb->len : PARSED;
	__u32 network = config.without_ethernet ? 0 : sizeof(struct ethhdr);
	struct ethhdr *ethernet;
	__be16 protocol;
	void *at, *end;

	/* Some senders and drivers leave the headers in pages beside the packet. */
	if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, wanted);
	at = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ethernet = at;
	if (at + sizeof(*ethernet) > end)
		return 0;
	if (config.without_ethernet) {
		protocol = bpf_htons(type_of_version(*(__u8 *)at));
	} else {
		protocol = ethernet->h_proto;
		at += sizeof(*ethernet);
	}

	/* The kernel has moved the outer tag into the packet's metadata; further ones are in line. */
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if (at + 4 > end)
			return 0;
		protocol = *(__be16 *)(at + 2);
		at += TAG;
		network += TAG;
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

		if (at + sizeof(*ip) > end)
			return 0;
		if (ip->nexthdr != IPPROTO_UDP)
			return read_behind_extensions(skb, network + sizeof(*ip), ip->nexthdr, id);
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

/* Reads the id at the place that the user gave, counted as on the wire. */
static __always_inline int read_field(struct __sk_buff *skb, __u32 *id)
{
	__u32 at = config.key_offset;
	__u8 bytes[4] = {};
	__u32 value = 0;

	if (skb->vlan_present) {
		if (at >= ADDRESSES + TAG)
			at -= TAG;
		else if (at + config.key_width > ADDRESSES)
			return 0; /* it reaches into the tag, which is not in the packet */
	}
	if (bpf_skb_load_bytes(skb, at, bytes, config.key_width))
		return 0;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (i >= config.key_width)
			break;
		if (config.key_big_endian)
			value = value << 8 | bytes[i];
		else
			value |= (__u32)bytes[i] << 8 * i;
	}
	*id = value;
	return 1;
}

static __always_inline int read_id(struct __sk_buff *skb, __u32 *id)
{
	return config.key_width ? read_field(skb, id) : read_moonsniff(skb, id);
}

/* A slot of the ring; none when the ring is full. */
static __always_inline void *slot_of_packet(void)
{
	return take_slot(&state.head, &state.tail, &state.bell_at, config.mask, 0, config.slot);
}

/* Stores a packet's id and time, if it has an id. */
static __always_inline void stamp(struct __sk_buff *skb, __u64 now)
{
	__u64 frame_len = skb->len + (skb->vlan_present ? TAG : 0);
	struct record *record;
	__u32 id = 0;

	if (!read_id(skb, &id)) {
		__sync_fetch_and_add(&state.other, 1);
		return;
	}
	record = slot_of_packet();
	if (!record) {
		__sync_fetch_and_add(&state.lost, 1);
		return;
	}
	*(volatile __u64 *)&record->packet = id | (frame_len & 0xffff) << 32;
	*(volatile __u64 *)&record->time_ns = now;
	submit(record);
}

/* Stores a packet's time and first bytes. */
static __always_inline void keep(struct __sk_buff *skb, __u64 now, __u64 hash)
{
	__u32 len = skb->len;
	__u32 kept = len < config.snap ? len : config.snap;
	__u64 frame_len = len + (skb->vlan_present ? TAG : 0);
	struct packet *packet = slot_of_packet();

	if (!packet) {
		__sync_fetch_and_add(&state.lost, 1);
		return;
	}
	/* The verifier does not follow the choice of the smaller one; nor, before Linux 6.12, from one less
	 * than a number to that number. */
	kept--;
	barrier_var(kept);
	if (kept < config.snap)
		bpf_skb_load_bytes(skb, 0, packet->bytes, kept + 1);
	kept++;
	packet->tag = hash << 33;
	if (skb->vlan_present)
		packet->tag |= 1ull << 32 | (__u32)bpf_ntohs(skb->vlan_proto) << 16 | skb->vlan_tci;
	*(volatile __u64 *)&packet->time_ns = now;
	store_last(&packet->lengths,
		   (kept & 0xffff) | (bpf_get_smp_processor_id() + 1ull) << 16 | frame_len << 32);
	submit(packet);
}

/* When the next XDP frame was handed over; 0 when its note is not made yet. */
static __always_inline __u64 handed_over(void)
{
	__u64 number = state.taken++;

	/* Frames of one flush share a note, so that it is mostly the first one that is looked at. */
	for (int i = 0; i < FLUSHES; i++) {
		__u64 note = state.note;
		__u32 key = note % FLUSHES;
		struct flush *flush;

		if (note == *(volatile __u64 *)&state.flushes)
			return 0;
		flush = bpf_map_lookup_elem(&flushes, &key);
		if (!flush)
			return 0;
		if (number < flush->end)
			return flush->time_ns;
		state.note = note + 1;
	}
	return 0;
}

/* When a packet was handed over that brings a time of its sender's; 0 when nobody noted that. */
static __always_inline __u64 noted(struct __sk_buff *skb)
{
	__u64 *time, found, key;

	if (!config.noted)
		return 0;
	key = (__u64)bpf_cast_to_kern_ctx(skb);
	time = bpf_map_lookup_elem(&notes, &key);
	if (!time)
		return 0;
	found = *time;
	bpf_map_delete_elem(&notes, &key);
	return found;
}

/* When a packet was handed over that is being received here. */
static __always_inline __u64 arrival(struct __sk_buff *skb)
{
	__u64 ahead = *(volatile __u64 *)&state.ahead;
	__u64 napi = *(volatile __u64 *)&state.napi;

	if (napi && skb->napi_id == napi) {
		__u64 time = handed_over();

		if (time)
			return time;
	}
	if (skb->tstamp <= ahead) {
		__u64 time = noted(skb);

		if (time)
			return time;
		__sync_fetch_and_add(&state.late, 1);
		return bpf_ktime_get_ns();
	}
	/* What was an XDP frame has the stamp of its receipt. Of a card's packets this is right. */
	if (!config.index && skb->napi_id)
		__sync_fetch_and_add(&state.late, 1);
	return skb->tstamp - ahead;
}

/* Sends a packet on its way. */
static __always_inline int onward(void)
{
	if (config.verdict == VERDICT_REDIRECT)
		return bpf_redirect(config.forward, 0);
	return config.verdict == VERDICT_DROP ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Lets a packet by that is not stamped; of XDP frames each must be counted. */
static __always_inline int let_by(struct __sk_buff *skb, __u64 *count)
{
	__u64 napi = *(volatile __u64 *)&state.napi;

	__sync_fetch_and_add(count, 1);
	if (config.index && napi && skb->napi_id == napi)
		state.taken++;
	return onward();
}

/* The hash by which samples are taken; 0 where a packet has no key. */
static __always_inline __u64 hash_of(struct __sk_buff *skb)
{
	__u32 id = 0;

	if (!(config.sampling & SAMPLE_ID))
		return hash_for_sample(skb, config.sampling, config.without_ethernet);
	return read_id(skb, &id) ? mix(SAMPLE_START, id) : 0;
}

static __always_inline int tapped(struct __sk_buff *skb)
{
	__u64 hash = 0, time;

	if (config.sampling) {
		__u64 sample = *(volatile __u64 *)&state.sample;

		/* As long as all packets are stamped, user space computes it alone. */
		hash = sample ? hash_of(skb) : NOT_HASHED;
		if (sample & hash)
			return let_by(skb, &state.unsampled);
	}
	time = config.arrival ? arrival(skb) : bpf_ktime_get_ns();
	if (config.snap)
		keep(skb, time, hash);
	else
		stamp(skb, time);
	return onward();
}

SEC("tc")
int tap(struct __sk_buff *skb)
{
	return tapped(skb);
}

/* The same under a name of its own, by which user space tells it apart: it stands beside `tap` on
 * one hook, and stamps packets as they are received there. */
SEC("tc")
int receipt(struct __sk_buff *skb)
{
	return tapped(skb);
}

/* What the filter leaves out. */
SEC("tc")
int filtered_out(struct __sk_buff *skb)
{
	return let_by(skb, &state.filtered);
}

/* The user's filter takes the place of these. It calls `tap` or `receipt`, or `filtered_out`. */
SEC("tc")
int tap_filter(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

SEC("tc")
int receipt_filter(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

#include "tap_handed.h"

/* Does nothing. What the kernel says that it costs is the cost of asking. */
SEC("tc")
int nothing(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

/* Reads the clock, and nothing else. */
SEC("tc")
int only_clock(struct __sk_buff *skb)
{
	return bpf_ktime_get_ns() ? TC_ACT_UNSPEC : TC_ACT_OK;
}

/* bpf_ktime_get_ns is reserved for programs under the GPL. */
char LICENSE[] SEC("license") = "GPL";
