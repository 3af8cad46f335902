/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Which packets are in a sample: one of 2^n, by a hash of what the packets' key is made of, so that all
 * taps choose the same ones whatever a device changes of the rest. Samples nest: the hash of a packet of
 * the thinner one ends in more zeros.
 *
 * It is that of crates/analysis/src/key/sample.rs, to the bit: there it is described, and held against
 * this one by a test. The innermost packet of IP counts, behind tags, labels and tunnels.
 */
#ifndef SAMPLE_H
#define SAMPLE_H

/* What is in the hash: bits of config.sampling. */
#define SAMPLE_ADDRESSES 2
#define SAMPLE_IP_ID 4
#define SAMPLE_PAYLOAD 8
/* The hash is that of the packet's id. */
#define SAMPLE_ID 16

/* Headers that are passed on the way to the innermost packet. */
#define SAMPLE_HEADERS 16
#define SAMPLE_BYTES 32
#define SAMPLE_START 0x7461696c746170ull

/* What follows, where it is no ethertype: all of those are larger. */
#define NEXT_ETHERNET 1
#define NEXT_EXTENSION 2
#define NEXT_NOTHING 3

#define MPLS_UNICAST 0x8847
#define MPLS_MULTICAST 0x8848
#define PPPOE_SESSION 0x8864
#define TRANSPARENT_ETHERNET 0x6558
#define ERSPAN 0x88be
#define PROTOCOL_UDP_LITE 136

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

static __always_inline __u32 be16(const __u8 *at)
{
	return (__u32)at[0] << 8 | at[1];
}

static __always_inline __u32 be32(const __u8 *at)
{
	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

/* The innermost packet of IP, as far as it was found. */
struct innermost {
	__u32 network;   /* where its header begins */
	__u32 transport; /* where what it carries begins; 0: none was found */
	__u32 end;
	__u32 id;
	__u32 fragment; /* 1 << 16 and the offset in units of 8 bytes, of fragments */
	__u32 protocol;
	__u32 v6;
	__u32 at;   /* the header that is looked at */
	__u32 next; /* what it is */
	__u32 base; /* where begins what is behind the outer tags */
	__u32 base_type;
};

/* Whether the next header of IPv6 is one of its extensions. */
static __always_inline int is_extension(__u32 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_FRAGMENT ||
	       protocol == IPPROTO_DSTOPTS;
}

static __always_inline __u32 type_of_version(__u8 byte)
{
	if (byte >> 4 == 4)
		return ETH_P_IP;
	return byte >> 4 == 6 ? ETH_P_IPV6 : NEXT_NOTHING;
}

/* What a tunnel by UDP carries. */
static __always_inline void behind_udp(struct __sk_buff *skb, struct innermost *found)
{
	__u32 at = found->transport, port;
	__u8 bytes[16] = {};

	found->next = NEXT_NOTHING;
	if (bpf_skb_load_bytes(skb, at, bytes, 16))
		return;
	port = be16(bytes + 2);
	at += 16;
	switch (port) {
	case 4789:
	case 8472:
		if (!(bytes[8] & 0x08) || bytes[15])
			return;
		found->next = NEXT_ETHERNET;
		break;
	case 6081:
		if (bytes[8] >> 6 || bytes[15])
			return;
		found->next = be16(bytes + 10);
		if (found->next == TRANSPARENT_ETHERNET)
			found->next = NEXT_ETHERNET;
		else if (found->next != ETH_P_IP && found->next != ETH_P_IPV6)
			found->next = NEXT_NOTHING;
		at += 4 * (bytes[8] & 0x3f);
		break;
	case 2152:
		if ((bytes[8] & 0xf0) != 0x30 || bytes[9] != 0xff)
			return;
		if (bytes[8] & 0x07) {
			if (bpf_skb_load_bytes(skb, at, bytes, 4))
				return;
			at += 4;
			for (int i = 0; i < 4 && bytes[3]; i++) {
				__u32 words;

				if (bpf_skb_load_bytes(skb, at, bytes, 1))
					return;
				words = bytes[0];
				if (!words)
					return;
				at += 4 * words;
				if (bpf_skb_load_bytes(skb, at - 1, bytes + 3, 1))
					return;
			}
			if (bytes[3])
				return;
		}
		if (bpf_skb_load_bytes(skb, at, bytes, 1))
			return;
		found->next = type_of_version(bytes[0]);
		break;
	}
	found->at = at;
}

/* What GRE carries. */
static __always_inline void behind_gre(struct __sk_buff *skb, struct innermost *found)
{
	__u32 at = found->transport;
	__u8 bytes[4];

	found->next = NEXT_NOTHING;
	if (bpf_skb_load_bytes(skb, at, bytes, 4) || bytes[1] & 0x07)
		return;
	at += 4;
	if (bytes[0] & 0x80)
		at += 4;
	if (bytes[0] & 0x20)
		at += 4;
	if (bytes[0] & 0x10)
		at += 4;
	found->next = be16(bytes + 2);
	if (found->next == TRANSPARENT_ETHERNET) {
		found->next = NEXT_ETHERNET;
	} else if (found->next == ERSPAN) {
		found->next = NEXT_ETHERNET;
		at += bytes[0] & 0x10 ? 8 : 0;
	}
	found->at = at;
}

/* What a packet of IP carries, if that is a packet again. */
static __always_inline void behind_ip(struct __sk_buff *skb, struct innermost *found)
{
	__u8 bytes[2];

	found->next = NEXT_NOTHING;
	if (found->fragment & 0xffff)
		return;
	found->at = found->transport;
	switch (found->protocol) {
	case IPPROTO_UDP:
		behind_udp(skb, found);
		break;
	case IPPROTO_IPIP:
		found->next = ETH_P_IP;
		break;
	case IPPROTO_IPV6:
		found->next = ETH_P_IPV6;
		break;
	case IPPROTO_GRE:
		behind_gre(skb, found);
		break;
	case IPPROTO_AH:
		if (bpf_skb_load_bytes(skb, found->transport, bytes, 2))
			return;
		if (bytes[0] == IPPROTO_IPIP)
			found->next = ETH_P_IP;
		else if (bytes[0] == IPPROTO_IPV6)
			found->next = ETH_P_IPV6;
		found->at += 4 * (bytes[1] + 2);
		break;
	}
}

/* Passes one header, and notes where what is behind tags begins. 0 when there is none to pass. */
static __noinline int pass_header(struct __sk_buff *skb, struct innermost *found)
{
	__u8 bytes[40];
	__u32 at, len;

	if (!found)
		return 0;
	if (!found->base && found->next != NEXT_ETHERNET && found->next != ETH_P_8021Q &&
	    found->next != ETH_P_8021AD && found->next != ETH_P_QINQ1) {
		found->base = found->at;
		found->base_type = found->next;
	}
	if (found->next == NEXT_NOTHING)
		return 0;
	at = found->at;
	switch (found->next) {
	case NEXT_ETHERNET:
		if (bpf_skb_load_bytes(skb, at + 12, bytes, 2))
			return 0;
		found->next = be16(bytes);
		found->at = at + sizeof(struct ethhdr);
		return 1;
	case ETH_P_8021Q:
	case ETH_P_8021AD:
	case ETH_P_QINQ1:
		if (bpf_skb_load_bytes(skb, at, bytes, 4))
			return 0;
		found->next = be16(bytes + 2);
		found->at = at + 4;
		return 1;
	case PPPOE_SESSION:
		if (bpf_skb_load_bytes(skb, at, bytes, 8))
			return 0;
		len = be16(bytes + 6);
		found->next = len == 0x21 ? ETH_P_IP : len == 0x57 ? ETH_P_IPV6 : NEXT_NOTHING;
		found->at = at + 8;
		return 1;
	case MPLS_UNICAST:
	case MPLS_MULTICAST:
		if (bpf_skb_load_bytes(skb, at, bytes, 5))
			return 0;
		found->at = at + 4;
		if (!(bytes[2] & 1))
			return 1;
		if (bytes[4] >> 4) {
			found->next = type_of_version(bytes[4]);
		} else {
			found->next = NEXT_ETHERNET;
			found->at += 4;
		}
		return 1;
	case ETH_P_IP:
		if (bpf_skb_load_bytes(skb, at, bytes, 20) || bytes[0] >> 4 != 4 || (bytes[0] & 0xf) < 5)
			return 0;
		found->v6 = 0;
		found->network = at;
		found->transport = at + 4 * (bytes[0] & 0xf);
		len = be16(bytes + 2);
		found->end = len < 4 * (bytes[0] & 0xf) ? skb->len : at + len;
		found->id = be16(bytes + 4);
		len = be16(bytes + 6);
		found->fragment = len & 0x3fff ? 1 << 16 | (len & 0x1fff) : 0;
		found->protocol = bytes[9];
		behind_ip(skb, found);
		return 1;
	case ETH_P_IPV6:
		if (bpf_skb_load_bytes(skb, at, bytes, 40) || bytes[0] >> 4 != 6)
			return 0;
		found->v6 = 1;
		found->network = at;
		found->transport = at + 40;
		len = be16(bytes + 4);
		found->end = len ? at + 40 + len : skb->len;
		found->id = 0;
		found->fragment = 0;
		found->protocol = bytes[6];
		if (is_extension(found->protocol))
			found->next = NEXT_EXTENSION;
		else
			behind_ip(skb, found);
		return 1;
	case NEXT_EXTENSION:
		at = found->transport;
		if (bpf_skb_load_bytes(skb, at, bytes, 8))
			return 0;
		if (found->protocol == IPPROTO_FRAGMENT) {
			/* A packet that is the only fragment of itself is none. */
			if (be16(bytes + 2) & ~6) {
				found->fragment = 1 << 16 | be16(bytes + 2) >> 3;
				found->id = be32(bytes + 4);
			}
			found->transport = at + 8;
		} else {
			found->transport = at + 8 * (bytes[1] + 1);
		}
		found->protocol = bytes[0];
		if (!(found->fragment & 0xffff) && is_extension(found->protocol))
			return 1;
		behind_ip(skb, found);
		return 1;
	}
	return 0;
}

/* Bytes at a place, at most SAMPLE_BYTES, into the hash as words with zeros behind them. */
static __always_inline __u64 mix_bytes(struct __sk_buff *skb, __u64 hash, __u32 at, __u32 len)
{
	union {
		__u64 words[SAMPLE_BYTES / 8];
		__u8 bytes[SAMPLE_BYTES];
	} content = {};

	if (len > SAMPLE_BYTES)
		len = SAMPLE_BYTES;
	len--;
	barrier_var(len);
	if (len < SAMPLE_BYTES)
		bpf_skb_load_bytes(skb, at, content.bytes, len + 1);
#pragma unroll
	for (int i = 0; i < SAMPLE_BYTES / 8; i++)
		hash = mix(hash, content.words[i]);
	return hash;
}

/* The hash of a packet that begins with Ethernet, or else with IP; 0, which is in every sample, where it
 * has no key. */
static __noinline __u64 hash_for_sample(struct __sk_buff *skb, __u32 keeps, __u32 without_ethernet)
{
	struct innermost found = {.next = NEXT_ETHERNET};
	__u64 hash = SAMPLE_START;
	__u32 header = 0, len;
	__u8 bytes[32] = {};
	int first;

	if (without_ethernet)
		found.next = bpf_skb_load_bytes(skb, 0, bytes, 1) ? NEXT_NOTHING : type_of_version(bytes[0]);
	/* All in one call: before Linux 6.7 the verifier takes no loop whose end falls into its middle. */
	for (int i = 0; i < SAMPLE_HEADERS; i++)
		if (!pass_header(skb, &found))
			break;
	if (!found.transport) {
		if (!(keeps & SAMPLE_PAYLOAD) || !found.base || found.base_type == ETH_P_IP ||
		    found.base_type == ETH_P_IPV6 || skb->len < found.base)
			return 0;
		hash = mix(hash, found.base_type);
		return mix_bytes(skb, hash, found.base, skb->len - found.base);
	}
	first = !(found.fragment & 0xffff);
	hash = mix(hash, found.protocol << 8 | found.v6);
	if (keeps & SAMPLE_ADDRESSES) {
		if (found.v6) {
			if (bpf_skb_load_bytes(skb, found.network + 8, bytes, 32))
				return 0;
#pragma unroll
			for (int i = 0; i < 4; i++)
				hash = mix(hash, (__u64)be32(bytes + 8 * i) << 32 | be32(bytes + 8 * i + 4));
		} else {
			if (bpf_skb_load_bytes(skb, found.network + 12, bytes, 8))
				return 0;
			hash = mix(hash, (__u64)be32(bytes) << 32 | be32(bytes + 4));
		}
	}
	if (keeps & SAMPLE_IP_ID)
		hash = mix(hash, found.id);
	if (!(keeps & SAMPLE_PAYLOAD))
		return hash;
	hash = mix(hash, found.fragment);
	if (first) {
		__u64 numbers = 0;

		switch (found.protocol) {
		case IPPROTO_TCP:
			if (bpf_skb_load_bytes(skb, found.transport, bytes, 20))
				return 0;
			numbers = (__u64)be32(bytes + 4) << 32 | be32(bytes + 8);
			header = 4 * (bytes[12] >> 4);
			if (header < 20)
				header = 20;
			break;
		case IPPROTO_SCTP:
			if (bpf_skb_load_bytes(skb, found.transport, bytes, 12))
				return 0;
			numbers = be32(bytes + 4);
			header = 12;
			break;
		case IPPROTO_UDP:
		case PROTOCOL_UDP_LITE:
			header = 8;
			break;
		case IPPROTO_ICMP:
		case IPPROTO_ICMPV6:
			if (bpf_skb_load_bytes(skb, found.transport, bytes, 8))
				return 0;
			numbers = be16(bytes) << 16 | be16(bytes + 6);
			header = 8;
			break;
		}
		hash = mix(hash, numbers);
	}
	header += found.transport;
	len = found.end > header ? found.end - header : 0;
	hash = mix(hash, len);
	return mix_bytes(skb, hash, header, len);
}

#endif
