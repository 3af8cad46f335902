/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the tracer's programs share: what they are told, the state of each core, and its ring.
 *
 * A record is written once, when its interval has ended, into the ring of its core. Intervals below
 * the floor are added up by kind, and written when they are 5 us together or the first of them is 1 ms
 * old, whichever event comes next; user space writes what is left at the end. What a usual packet causes is
 * added up as well (trace_usual.h).
 *
 * A packet waits for the interrupt by which its core is told of it, and for the softirq. What is to be
 * stored of the former is kept until the latter has ended, so that no packet waits for that, nor for the
 * cache line in which another core said when it told: that is read afterwards, too.
 *
 * What is open on a core (`struct core`) is written by that core only. A program that interrupts
 * another writes other members, so that nothing is locked.
 */
#ifndef TRACE_H
#define TRACE_H

/* CPUs that can be told from each other, as cpu_set_t has. */
#define MAX_CPUS 1024
/* CPUs that hand packets over, and where their place stands in a word of `config.cores`. */
#define MAX_SENDERS 64
#define SENDER_BITS 16
/* Functions that were queued for other cores and have not begun there. */
#define SENT 1024
/* Names of tasks, and work functions that were interrupted. */
#define MAX_NAMES 16384
#define MAX_WORKS 1024
/* Tasks that the forwarder is served by. */
#define MAX_SERVED 4096
/* Network namespaces whose packets are served. */
#define MAX_NETWORKS 1024
/* When short intervals that were added up are written: their sum, and the age of the first. */
#define FLUSH_SUM_NS 5000
#define FLUSH_AGE_NS 1000000
/* A function that began later than this after it was queued has a record about it. */
#define DELAY_NS 1000
/* An idle state that was left earlier has none. */
#define IDLE_NS 1000
#define UNKNOWN 0xffffffffu
/* Where the thread begins in the word that tells a sender; CPUs are below MAX_CPUS. */
#define SENDER_THREAD 10

/* The kinds of records; their meaning is in docs/reference/files.md. */
enum kind {
#define KIND(name, number, words) name = number,
#include "trace_kinds.h"
#undef KIND
};

enum vector {
	TIMER = 1,
	RESCHEDULE = 2,
	CALL = 3,
	CALL_SINGLE = 4,
	IRQ_WORK = 5,
	THERMAL = 6,
	PLATFORM_IPI = 7,
	OTHER_VECTOR = 8,
	VECTORS = 9,
};

#define SOFTIRQS 10
/* Sums of short intervals: of interrupts by number, of vectors, of softirqs. */
#define SUMS (1 + VECTORS + SOFTIRQS)

/* Set before loading. The layout is known to trace/program.rs. */
const volatile struct {
	__u32 mask; /* slots in a core's ring - 1 */
	__u32 floor_ns; /* intervals below are added up */
	__u32 full; /* record all, not only what had the core */
	__u32 served; /* whether tasks are in the map `served` */
	__u32 usual; /* what usual packets cause is added up, and so are pauses of idle */
	__u32 pad;
	__u64 steal_at; /* from a core's `runqueues` to its `steal_time`; 0: no hypervisor tells */
	__u64 own; /* the function by which a core is told of packets, which are its work */
	/* The place of a CPU in the map `cores`, counted from 1, or 0: it is not traced. The upper half
	 * has the same of those that hand packets over, in `senders`. */
	__u32 cores[MAX_CPUS];
} config SEC(".rodata");

struct record {
	__u64 start_ns;
	__u64 what; /* dur_ns in bits 0..31, kind in 32..39, flags in 40..47, cpu in 48..63 */
	__u64 aux;
	__u64 more; /* id in bits 0..31, steal_ns in 32..63 */
};

/* Intervals of one kind below the floor. */
struct sum {
	__u64 start_ns; /* of the first; 0: there is none */
	__u64 end_ns; /* of the last */
	__u64 total_ns;
	__u32 count;
	__u32 id;
};

/* A task that has the core. */
struct stretch {
	__u64 start_ns;
	__u64 aux;
	__u32 pid; /* UNKNOWN until the first switch */
	__u32 pad;
};

/* The function of a worker that has the core. */
struct work {
	__u64 start_ns; /* 0: none */
	__u64 function;
	__u32 pid;
	__u32 pad;
};

/* That another core tells this one of packets. */
struct telling {
	__u64 time_ns;
	__u64 sender;
};

/* A core and its ring. Until `open` the layout is known to trace/core.rs. */
struct core {
	__u64 head; /* slots taken so far */
	__u64 lost; /* records that found no slot */
	__u64 lost_since; /* when the first of them did not; user space takes it */
	__u64 first; /* where the core's ring begins in the map `ring`; written by user space, like all below */
	__u64 cpu;
	__u64 pad0[3];
	__u64 tail; /* slots emptied so far; written by user space */
	__u64 bell_at; /* the slot at which user space is woken; written by it */
	__u64 pad1[6];
	struct telling tellings[2]; /* by turns; written by other cores, like all of this line */
	__u64 told_times;
	__u64 rescheduled_ns; /* when another core sent a reschedule IPI */
	__u64 rescheduled_by;
	__u64 pad2;
	struct sum sums[SUMS]; /* written by the core again */
	struct stretch task;
	__u64 idle_ns;
	__u64 idle_state;
	__u64 passes; /* usual ones that were added up */
	__u64 pass_ns; /* what half of all take at most */
	__u64 open; /* nothing: what begins here is the programs' alone */
	__u64 came; /* the address of the task that `task` tells of */
	__u64 steal_at; /* the address of the hypervisor's counter; 0: not known yet */
	__u64 steal_ns; /* what it was */
	__u64 irq_ns;
	__u64 irq;
	__u64 vector_ns;
	__u64 vector;
	__u64 told; /* whether the vector has a record about what was called in it */
	__u64 function;
	__u64 function_ns;
	__u64 function_sent_ns;
	__u64 function_sender;
	__u64 raised_ns[SOFTIRQS];
	__u64 raised_by[SOFTIRQS]; /* see `raiser` */
	__u64 softirq_ns;
	__u64 softirq_raised_ns;
	__u64 softirq_raised_by;
	__u64 softirq_vector; /* of the softirq that runs, or ran last */
	__u64 foreign_ns; /* since when a softirq receives packets of others; 0: it does not */
	__u64 foreign; /* whether it did so before */
	__u64 hrtimer_ns;
	__u64 hrtimer_function;
	__u64 guest_ns; /* since when the virtual CPU is out of its guest */
	__u64 oldest_ns; /* since when a sum waits to be written; 0: none does */
	__u64 received_ns; /* when packets were received for the last time */
	__u64 own_next_ns; /* the same as `own_ns`, told while packets were received */
	__u64 own_device; /* the last one whose packet was of a served network */
	__u64 own_ns; /* when the core was told of packets; 0: nothing of that waits to be written */
	__u64 own_vector; /* the vector in which it was told, if that has ended */
	__u64 own_vector_ns;
	__u64 own_end_ns;
	__u64 throttled_queue; /* the run queue of the served task that was throttled last; 0: none is */
	__u64 unthrottled_ns; /* when that queue was seen to have quota again */
	__u64 unthrottled_jiffies;
	__u64 chosen_ns; /* when the scheduler next chose who has the core; 0: it did not yet */
	__u64 reclaim_ns;
	__u64 compaction_ns;
	__u32 reclaim_pid;
	__u32 compaction_pid;
	struct work work;
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before loading: the cores */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct core));
} cores SEC(".maps");

/* What is read of the kernel's own structures; their layout comes from its BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct irqaction {
	unsigned int irq;
};
struct rq {
	__u64 clock;
};
/* Without the count where groups have no quotas (CONFIG_CFS_BANDWIDTH). */
struct cfs_rq {
	struct rq *rq;
	int throttle_count;
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
};
/* Without members where the kernel does not account for waiting. */
struct sched_info {
	unsigned long long last_arrival;
};
struct thread_info {
	unsigned int cpu;
};
/* Without members before Linux 5.5. */
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
/* Without groups where the kernel has none (CONFIG_CGROUPS). */
struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int static_prio;
	unsigned int rt_priority;
	struct sched_entity se;
	unsigned int policy;
	struct sched_info sched_info;
	int pid;
	int tgid;
	char comm[16];
	struct css_set *cgroups;
};
/* Before Linux 5.14, and since. */
struct task_struct___state {
	long state;
};
struct task_struct___states {
	unsigned int __state;
};
/* On some architectures before Linux 5.16. */
struct task_struct___cpu {
	unsigned int cpu;
};
struct work_struct {
	void *func;
};
struct hrtimer {
	void *function;
};
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	possible_net_t nd_net;
};
struct sk_buff {
	struct net_device *dev;
};
#pragma clang attribute pop

/* The place of a CPU in `cores`, counted from 1; 0 if it is not traced. */
static __always_inline __u32 place_of(__u32 cpu)
{
	if (cpu >= MAX_CPUS)
		return 0;
	/* The verifier does not follow how the compiler asks that. */
	barrier_var(cpu);
	return config.cores[cpu & (MAX_CPUS - 1)] & ((1 << SENDER_BITS) - 1);
}

/* A traced CPU; none for others. */
static __always_inline struct core *core_of(__u32 cpu)
{
	__u32 key = place_of(cpu);

	if (!key)
		return 0;
	key -= 1;
	return bpf_map_lookup_elem(&cores, &key);
}

/* The core that this runs on, if it is traced. */
static __always_inline struct core *here(void)
{
	return core_of(bpf_get_smp_processor_id());
}

/* What the hypervisor took of this CPU since `steal_ns` was read, in ns; `steal_at` is where it counts.
 * Two records that interrupt each other may both tell of it. */
static __always_inline __u64 stolen_of(__u64 *steal_at, __u64 *steal_ns)
{
	__u64 before = *steal_ns, now = 0;

	if (!config.steal_at)
		return 0;
	if (!*steal_at) {
		/* The kernel does not tell programs where a core's variables are; a task's run queue is one
		 * of them. */
		struct task_struct *task = (struct task_struct *)bpf_get_current_task();

		if (!bpf_core_field_exists(task->se.cfs_rq))
			return 0;
		/* Read, not followed: for each pointer that a program follows, on each path to it, the verifier
		 * looks through all types of the kernel. Of these that took more than a second. */
		*steal_at = (__u64)BPF_CORE_READ(task, se.cfs_rq, rq) + config.steal_at;
		bpf_probe_read_kernel(steal_ns, sizeof(__u64), (void *)*steal_at);
		return 0;
	}
	bpf_probe_read_kernel(&now, sizeof(now), (void *)*steal_at);
	*steal_ns = now;
	now -= before;
	return now < UNKNOWN ? now : UNKNOWN;
}

static __always_inline __u64 stolen(struct core *core)
{
	return stolen_of(&core->steal_at, &core->steal_ns);
}

/* The same if it fits into so long a time. What does not stays for the next record. */
static __always_inline __u64 stolen_within(struct core *core, __u64 dur)
{
	__u64 before = core->steal_ns, now = stolen(core);

	if (now <= dur)
		return now;
	core->steal_ns = before;
	return 0;
}

/* Stores a record of a CPU in the ring of a core. */
static __always_inline void put_of(struct core *core, __u64 cpu, __u64 start, __u64 dur, __u64 kind,
				   __u64 aux, __u64 id, __u64 steal)
{
	struct record *record = take_slot(&core->head, &core->tail, &core->bell_at, config.mask,
					  core->first, sizeof(*record));

	if (!record) {
		/* In this order: whoever sees that some were lost also sees since when. */
		if (!core->lost_since)
			*(volatile __u64 *)&core->lost_since = start + dur;
		__sync_fetch_and_add(&core->lost, 1);
		return;
	}
	if (dur > UNKNOWN)
		dur = UNKNOWN;
	*(volatile __u64 *)&record->aux = aux;
	*(volatile __u64 *)&record->more = (id & UNKNOWN) | steal << 32;
	*(volatile __u64 *)&record->start_ns = start;
	store_last(&record->what, dur | kind << 32 | cpu << 48);
	submit(record);
}

/* Stores a record of a core. */
static __always_inline void put(struct core *core, __u64 start, __u64 dur, __u64 kind, __u64 aux,
				__u64 id, __u64 steal)
{
	put_of(core, core->cpu, start, dur, kind, aux, id, steal);
}

#define ADDED_UP (1 << 8)

/* Stores a sum of short intervals. */
static __always_inline void tell_sum(struct core *core, struct sum *sum, __u32 kind)
{
	__u64 window = sum->end_ns - sum->start_ns;

	/* What is stolen in a usual pass makes it no usual one: it is told with the record that comes next. */
	put(core, sum->start_ns, sum->total_ns, kind | ADDED_UP, sum->count | window << 32, sum->id,
	    config.usual ? 0 : stolen(core));
	sum->start_ns = 0;
}

static __always_inline __u32 kind_of_sum(int place)
{
	return place == 0 ? IRQ : place <= VECTORS ? VECTOR : SOFTIRQ;
}

/* No static functions: so the verifier goes through them once in a program, and not on each path to them. Before
 * Linux 5.12 it does so with numbers as their arguments alone. */
#ifdef RESERVE
#define ONCE static __noinline
#else
#define ONCE __noinline
#endif

/* Stores one of the sums. */
ONCE int tell_sum_at(struct core *core, __u32 place)
{
	if (!core || place >= SUMS)
		return 0;
	barrier_var(place);
	tell_sum(core, &core->sums[place], kind_of_sum(place));
	return 0;
}

/* Stores all sums. A function of its own, as it is rarely called. */
ONCE int tell_sums(struct core *core)
{
	if (!core)
		return 0;
	core->oldest_ns = 0;
	for (int i = 0; i < SUMS; i++) {
		if (core->sums[i].start_ns)
			tell_sum_at(core, i);
	}
	return 0;
}

/* Stores an interval of the core that this runs on. Where usual packets are added up, no sum goes beyond
 * what is told by itself: it would be laid out over that. */
static __always_inline void tell(struct core *core, __u64 start, __u64 end, __u32 kind, __u32 id,
				 __u64 aux)
{
	if (config.usual && core->oldest_ns)
		tell_sums(core);
	put(core, start, end - start, kind, aux, id, stolen(core));
}

/* Adds a short interval to a sum. */
static __always_inline void add(struct core *core, __u64 start, __u64 end, __u32 kind, __u32 id,
				struct sum *sum)
{
	if (sum->start_ns && sum->id != id)
		tell_sum(core, sum, kind);
	if (!sum->start_ns) {
		sum->start_ns = start;
		sum->total_ns = 0;
		sum->count = 0;
		sum->id = id;
		if (!core->oldest_ns)
			core->oldest_ns = start;
	}
	sum->end_ns = end;
	sum->total_ns += end - start;
	sum->count += 1;
}

/* Stores an interval, or adds it to a sum if it is short. */
static __always_inline void tell_or_add(struct core *core, __u64 start, __u64 end, __u32 kind,
					__u32 id, __u64 aux, struct sum *sum)
{
	if (end - start >= config.floor_ns) {
		tell(core, start, end, kind, id, aux);
		return;
	}
	add(core, start, end, kind, id, sum);
	if (sum->total_ns >= FLUSH_SUM_NS)
		tell_sum(core, sum, kind);
}

/* The last time that another core began to tell this one of packets before it did so; none if that is not
 * known. */
static __always_inline struct telling *telling(struct core *core)
{
	struct telling *one = &core->tellings[0], *other = &core->tellings[1];

	if (other->time_ns > one->time_ns && other->time_ns <= core->own_ns)
		one = other;
	return one->time_ns && one->time_ns <= core->own_ns ? one : 0;
}

/* Stores how the core was told of packets. */
static __noinline int tell_own(struct core *core)
{
	struct telling *told;
	__u64 vector, delay;

	if (!core)
		return 0;
	told = telling(core);
	delay = told ? core->own_ns - told->time_ns : 0;
	if (told && delay > DELAY_NS) {
		if (config.usual && core->oldest_ns)
			tell_sums(core);
		put(core, told->time_ns, delay, IPI_DELAY, config.own, told->sender,
		    stolen_within(core, delay));
	}
	vector = core->own_vector;
	/* Older verifiers follow `vector < VECTORS`, not what the compiler makes of two conditions. */
	barrier_var(vector);
	if (vector < VECTORS && core->own_vector)
		tell_or_add(core, core->own_vector_ns, core->own_end_ns, VECTOR, vector, 0,
			    &core->sums[vector]);
	core->own_vector = 0;
	core->own_ns = 0;
	return 0;
}

/* Stores what has waited: before every record, so that none that is much later stands before it. */
static __always_inline void settle(struct core *core, __u64 now)
{
	if (core->own_ns && !config.usual)
		tell_own(core);
	if (core->oldest_ns && now - core->oldest_ns > FLUSH_AGE_NS)
		tell_sums(core);
}

/* Notes when the queue that a served task waits in has quota again. No tracepoint tells: it is given
 * quota by a timer's interrupt or a function call, or the task that comes next is already its own.
 *
 * Nobody else leaves the core for that: the kernel looks at who should have it at its next tick
 * (unthrottle_cfs_rq in kernel/sched/fair.c wakes an idle core only). Once two boundaries of jiffies are
 * past, this core had its tick. */
static __always_inline void look_for_quota(struct core *core, __u64 now)
{
	struct cfs_rq *queue = (struct cfs_rq *)core->throttled_queue;
	int count = 1;

	if (core->unthrottled_ns && !core->chosen_ns &&
	    bpf_jiffies64() - core->unthrottled_jiffies > 1)
		core->chosen_ns = now;
	if (!queue || !bpf_core_field_exists(queue->throttle_count))
		return;
	bpf_probe_read_kernel(&count, sizeof(count), &queue->throttle_count);
	if (count)
		return;
	core->throttled_queue = 0;
	core->unthrottled_ns = now;
	core->unthrottled_jiffies = bpf_jiffies64();
	core->chosen_ns = 0;
}

#endif
