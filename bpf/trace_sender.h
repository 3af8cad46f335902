/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the tracer follows of CPUs that are not traced, and hand packets over to those that are.
 *
 * A packet waits there until its core is told of it. The usual one has no record: the programs look at
 * what the hypervisor took when a core is told of packets, and store what held the CPU for AWAY_NS
 * without a break: steal, an interrupt, a task that tells nobody. Their records stand in the ring of the
 * first traced core.
 */
#ifndef TRACE_SENDER_H
#define TRACE_SENDER_H

/* Shorter than this, nothing makes a packet late. */
#define AWAY_NS 5000

static struct sender {
	__u64 steal_at; /* as in `struct core` */
	__u64 steal_ns;
	__u64 irq_ns;
	__u64 vector_ns;
	__u64 task_ns; /* since when its task has it; 0: not known */
	__u64 teller; /* the thread that told a core of packets last */
} senders[MAX_SENDERS];

static __always_inline void remember(__u32 pid, struct task_struct *task);

/* The CPU that this runs on, if it hands packets over and is not traced itself. */
static __always_inline struct sender *sending(void)
{
	__u32 cpu = bpf_get_smp_processor_id(), place;

	if (cpu >= MAX_CPUS)
		return 0;
	barrier_var(cpu);
	place = config.cores[cpu & (MAX_CPUS - 1)] >> SENDER_BITS;
	if (!place)
		return 0;
	return &senders[(place - 1) & (MAX_SENDERS - 1)];
}

/* Stores what held the CPU, with what was stolen of it. */
static __noinline int away(__u64 start, __u64 end, __u64 kind, __u64 id, __u64 stolen)
{
	__u32 first = 0;
	struct core *core = bpf_map_lookup_elem(&cores, &first);

	if (core)
		put_of(core, bpf_get_smp_processor_id(), start, end - start, kind, 0, id, stolen);
	return 0;
}

static __always_inline void away_if_long(struct sender *sender, __u64 start, __u64 kind, __u64 id)
{
	__u64 now;

	if (!start)
		return;
	now = bpf_ktime_get_ns();
	if (now - start >= AWAY_NS)
		away(start, now, kind, id, stolen_of(&sender->steal_at, &sender->steal_ns));
}

static __noinline int sender_irq_began(void)
{
	struct sender *sender = sending();

	if (sender)
		sender->irq_ns = bpf_ktime_get_ns();
	return 0;
}

static __noinline int sender_irq_ended(__u32 irq)
{
	struct sender *sender = sending();

	if (sender) {
		away_if_long(sender, sender->irq_ns, IRQ, irq);
		sender->irq_ns = 0;
	}
	return 0;
}

static __noinline int sender_vector_began(void)
{
	struct sender *sender = sending();

	if (sender)
		sender->vector_ns = bpf_ktime_get_ns();
	return 0;
}

static __noinline int sender_vector_ended(__u32 vector)
{
	struct sender *sender = sending();

	if (sender) {
		away_if_long(sender, sender->vector_ns, VECTOR, vector);
		sender->vector_ns = 0;
	}
	return 0;
}

/* A traced core is told of packets. */
static __noinline int sender_tells(__u64 core)
{
	struct sender *sender = sending();
	__u64 taken, now, first;

	if (!sender)
		return 0;
	/* Steal is laid between two records: the first one begins that. */
	first = !sender->teller;
	sender->teller = (__u32)bpf_get_current_pid_tgid();
	taken = stolen_of(&sender->steal_at, &sender->steal_ns);
	if (taken < AWAY_NS && !first)
		return 0;
	now = bpf_ktime_get_ns();
	return away(now, now, TOLD, core, taken);
}

static __always_inline void sender_switched(struct task_struct *from)
{
	struct sender *sender = sending();
	__u32 left = from->pid;
	__u64 now;

	if (!sender)
		return;
	now = bpf_ktime_get_ns();
	if (left && left != sender->teller && sender->task_ns && now - sender->task_ns >= AWAY_NS) {
		away(sender->task_ns, now, TASK, left,
		     stolen_of(&sender->steal_at, &sender->steal_ns));
		remember(left, from);
	}
	sender->task_ns = now;
}

#endif
