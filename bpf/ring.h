/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The rings that eBPF programs and user space share; the consumer is crates/datapath/src/ring.rs.
 *
 * Producers take a slot by moving `head` with compare and exchange, which never takes a slot that is
 * not free, so nothing has to be undone when the ring is full, and a producer may interrupt another.
 * A slot begins with two words, both stored whole and neither ever zero: it is complete when both are
 * nonzero. The consumer zeroes both words, then moves `tail`. It sleeps until the slot is taken that it
 * has named in `bell_at`: then so much of the ring is used that it should be emptied.
 *
 * Before Linux 5.12 programs know no exchange, and are compiled once more with RESERVE: they reserve their
 * slots in ring buffers of the kernel, which takes longer.
 */
#ifndef RING_H
#define RING_H

/* What wakes the consumer. It reads nothing of what is said here. The kernel wakes it by an interrupt of
 * its own (irq_work), so that this may be done anywhere. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536); /* a multiple of any page */
} bell SEC(".maps");

/* A function of its own, as it is rarely called. */
static __noinline int ring_bell(__u64 taken)
{
	return bpf_ringbuf_output(&bell, &taken, sizeof(taken), BPF_RB_FORCE_WAKEUP);
}

#ifdef RESERVE

/* The bell rings at so many records from where a ring should be emptied: whoever reserves one beside others
 * may see theirs as well. */
#define BELLS 16
/* What the kernel puts before each record. */
#define HEADER 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* set before loading, with the ring buffers */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ring SEC(".maps");

/* Takes a slot of `size` bytes in the ring at the place `first`, of which `mask` + 1 are to be had; none when
 * the ring is full. */
static __always_inline void *take_slot(__u64 *head, __u64 *tail, __u64 *bell_at, __u64 mask, __u32 first,
				       __u32 size)
{
	__u64 step = size + HEADER, used;
	void *one = bpf_map_lookup_elem(&ring, &first), *slot;

	if (!one)
		return 0;
	slot = bpf_ringbuf_reserve(one, size, 0);
	if (!slot)
		return 0;
	used = bpf_ringbuf_query(one, BPF_RB_AVAIL_DATA);
	if (used - (mask + 1) / 2 * step - 1 < BELLS * step)
		ring_bell(used);
	return slot;
}

static __always_inline void store_last(__u64 *word, __u64 value)
{
	*(volatile __u64 *)word = value;
}

/* Has the consumer see a slot whose words are stored. */
static __always_inline void submit(void *slot)
{
	bpf_ringbuf_submit(slot, BPF_RB_NO_WAKEUP);
}

#else

/* Tries to take a slot. Each failure means that somebody else took one, so more than a few in a row
 * are next to impossible; what fails them all is counted as lost. */
#define TRIES 16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before loading: the slots of all rings, and the size of each */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 16);
} ring SEC(".maps");

/* Takes a slot of the ring of `mask` + 1 slots that begins at the slot `first`; none when the ring is full. */
static __always_inline void *take_slot(__u64 *head, __u64 *tail, __u64 *bell_at, __u64 mask, __u32 first,
				       __u32 size)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 taken = *(volatile __u64 *)head;
		__u64 emptied = *(volatile __u64 *)tail;

		/* Where others were quicker between the two reads, the ring is emptied behind `taken`: that is
		 * no full ring, and the exchange fails. */
		if ((__s64)(taken - emptied) > (__s64)mask)
			return 0;
		if (__sync_val_compare_and_swap(head, taken, taken + 1) == taken) {
			__u32 key = first + (taken & mask);

			if (taken == *(volatile __u64 *)bell_at)
				ring_bell(taken);
			return bpf_map_lookup_elem(&ring, &key);
		}
	}
	return 0;
}

/* Stores a word behind the stores before it: an exchange orders them, on every architecture. */
static __always_inline void store_last(__u64 *word, __u64 value)
{
	__sync_lock_test_and_set(word, value);
}

/* The consumer sees that the words are not zero. */
static __always_inline void submit(void *slot)
{
}

#endif

#endif
