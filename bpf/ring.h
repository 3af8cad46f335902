/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The ring that eBPF programs and user space share; the consumer is crates/datapath/src/ring.rs.
 *
 * Producers take a slot by moving `head` with compare and exchange, which never takes a slot that is
 * not free, so nothing has to be undone when the ring is full, and a producer may interrupt another.
 * A slot begins with two words, both stored whole and neither ever zero: it is complete when both are
 * nonzero. The consumer zeroes both words, then moves `tail`. It sleeps until the slot is taken that it
 * has named in `bell_at`: then so much of the ring is used that it should be emptied.
 */
#ifndef RING_H
#define RING_H

/* Tries to take a slot. Each failure means that somebody else took one, so more than a few in a row
 * are next to impossible; what fails them all is counted as lost. */
#define TRIES 16

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

/* Takes a slot of a ring of `mask` + 1 slots: its number, or -1 when the ring is full. */
static __always_inline long take_slot(__u64 *head, __u64 *tail, __u64 *bell_at, __u64 mask)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 taken = *(volatile __u64 *)head;
		__u64 emptied = *(volatile __u64 *)tail;

		/* Where others were quicker between the two reads, the ring is emptied behind `taken`: that is
		 * no full ring, and the exchange fails. */
		if ((__s64)(taken - emptied) > (__s64)mask)
			return -1;
		if (__sync_val_compare_and_swap(head, taken, taken + 1) == taken) {
			if (taken == *(volatile __u64 *)bell_at)
				ring_bell(taken);
			return taken & mask;
		}
	}
	return -1;
}

#endif
