/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Programs of the tracer: interrupts of devices, vectors, functions that other cores call, softirqs. */
#ifndef TRACE_INTERRUPTS_H
#define TRACE_INTERRUPTS_H

/* Device interrupts. Nothing interrupts them but NMIs. */
SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_began, int irq)
{
	struct core *core = here();

	if (!core)
		return sender_irq_began();
	core->irq_ns = bpf_ktime_get_ns();
	core->irq = irq;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_ended, int irq)
{
	struct core *core = here();
	__u64 now;

	if (!core)
		return sender_irq_ended(irq);
	if (!core->irq_ns)
		return 0;
	now = bpf_ktime_get_ns();
	settle(core, now);
	tell_or_add(core, core->irq_ns, now, IRQ, irq, 0, &core->sums[0]);
	core->irq_ns = 0;
	return 0;
}

/* Vectors: the local timer, and what other cores ask for. */
static __always_inline int vector_began(__u32 vector)
{
	struct core *core = here();

	if (!core)
		return sender_vector_began();
	core->vector_ns = bpf_ktime_get_ns();
	core->vector = vector;
	core->told = 0;
	return 0;
}

static __always_inline int vector_ended(__u32 vector)
{
	struct core *core = here();
	__u64 now;

	if (!core)
		return sender_vector_ended(vector);
	if (!core->vector_ns)
		return 0;
	/* In it the core was told of packets: that is part of their pass. */
	if (config.usual && !core->told &&
	    (core->own_ns == core->vector_ns || core->own_next_ns == core->vector_ns)) {
		core->vector_ns = 0;
		return 0;
	}
	now = bpf_ktime_get_ns();
	look_for_quota(core, now);
	if (core->own_ns && !core->told && !config.usual) {
		core->own_vector = vector;
		core->own_vector_ns = core->vector_ns;
		core->own_end_ns = now;
		core->vector_ns = 0;
		return 0;
	}
	settle(core, now);
	/* What was told of it has a place only in a record of its own. */
	if (core->told)
		tell(core, core->vector_ns, now, VECTOR, vector, 0);
	else
		tell_or_add(core, core->vector_ns, now, VECTOR, vector, 0, &core->sums[vector]);
	core->vector_ns = 0;
	return 0;
}

#define FOLLOW_VECTOR(name, vector)                                                                \
	SEC("tp_btf/" #name "_entry")                                                              \
	int BPF_PROG(name##_began)                                                                 \
	{                                                                                          \
		return vector_began(vector);                                                       \
	}                                                                                          \
	SEC("tp_btf/" #name "_exit")                                                               \
	int BPF_PROG(name##_ended)                                                                 \
	{                                                                                          \
		return vector_ended(vector);                                                       \
	}

FOLLOW_VECTOR(local_timer, TIMER)
FOLLOW_VECTOR(call_function, CALL)
FOLLOW_VECTOR(call_function_single, CALL_SINGLE)
FOLLOW_VECTOR(irq_work, IRQ_WORK)
FOLLOW_VECTOR(thermal_apic, THERMAL)
FOLLOW_VECTOR(x86_platform_ipi, PLATFORM_IPI)
FOLLOW_VECTOR(error_apic, OTHER_VECTOR)
FOLLOW_VECTOR(spurious_apic, OTHER_VECTOR)
FOLLOW_VECTOR(threshold_apic, OTHER_VECTOR)
FOLLOW_VECTOR(deferred_error_apic, OTHER_VECTOR)

/* The one whose sender is noted by `ipi_sent`. */
SEC("tp_btf/reschedule_entry")
int BPF_PROG(reschedule_began)
{
	struct core *core = here();
	__u64 sent;

	if (!core)
		return sender_vector_began();
	core->vector_ns = bpf_ktime_get_ns();
	core->vector = RESCHEDULE;
	core->told = 0;
	/* Of these, none is told in a thin trace. */
	if (!config.full)
		return 0;
	sent = core->rescheduled_ns;
	core->rescheduled_ns = 0;
	if (!sent || core->vector_ns - sent <= DELAY_NS)
		return 0;
	settle(core, core->vector_ns);
	tell(core, sent, core->vector_ns, IPI_DELAY, core->rescheduled_by, 0);
	return 0;
}

SEC("tp_btf/reschedule_exit")
int BPF_PROG(reschedule_ended)
{
	return vector_ended(RESCHEDULE);
}

/* Only in full: it runs for every IPI, that of a packet as well. */
SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_sent, __u32 cpu, unsigned long caller, void *function)
{
	struct core *core;

	/* The other ones call functions, which are noted as they are queued. */
	if (function)
		return 0;
	core = core_of(cpu);
	if (core) {
		core->rescheduled_by = bpf_get_smp_processor_id();
		*(volatile __u64 *)&core->rescheduled_ns = bpf_ktime_get_ns();
	}
	return 0;
}

/* Functions that are queued for a traced core, by the address of their call. Two that share a place
 * are next to impossible at the same time; the first one's sender is then not known. */
struct sent {
	__u64 call;
	__u64 time_ns;
	__u64 sender;
};

static struct sent sent[SENT];

/* Who sends: its CPU in bits 0..9, and the thread that has that CPU in bits 10..31. */
static __always_inline __u32 sender(void)
{
	return bpf_get_smp_processor_id() | (__u32)bpf_get_current_pid_tgid() << SENDER_THREAD;
}

static __always_inline struct sent *sent_at(__u64 call)
{
	/* Multiplicative hashing, Knuth 6.4. */
	return &sent[call * 0x9e3779b97f4a7c15ull >> 54 & (SENT - 1)];
}

/* Raw ones, whose arguments are numbers: the verifier neither calculates with pointers, nor shows those of
 * functions. */
SEC("raw_tp/csd_queue_cpu")
int function_queued(struct bpf_raw_tracepoint_args *ctx)
{
	struct core *core = core_of(ctx->args[0]);
	__u64 function = ctx->args[2], call = ctx->args[3];
	struct task_struct *task;
	struct telling *telling;
	struct sent *place;

	if (!core)
		return 0;
	/* Whoever tells of packets is not named: they would wait for that. Until this core has entered the
	 * call, nobody tells it again. */
	if (function == config.own) {
		telling = &core->tellings[core->told_times & 1];
		telling->sender = sender();
		*(volatile __u64 *)&telling->time_ns = bpf_ktime_get_ns();
		core->told_times += 1;
		sender_tells(ctx->args[0]);
		return 0;
	}
	task = (struct task_struct *)bpf_get_current_task();
	remember(bpf_get_current_pid_tgid(), task);
	place = sent_at(call);
	place->time_ns = bpf_ktime_get_ns();
	place->sender = sender();
	*(volatile __u64 *)&place->call = call;
	return 0;
}

SEC("raw_tp/csd_function_entry")
int function_began(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 function = ctx->args[0], call = ctx->args[1];
	__u64 time = 0, from = UNKNOWN;
	struct core *core = here();
	struct sent *place;

	if (!core)
		return 0;
	/* That a packet has come is the core's own work. */
	if (function == config.own) {
		time = core->vector_ns ? core->vector_ns : bpf_ktime_get_ns();
		if (core->own_ns && config.usual) {
			core->own_next_ns = time;
			return 0;
		}
		if (core->own_ns)
			tell_own(core);
		core->own_ns = time;
		return 0;
	}
	place = sent_at(call);
	if (*(volatile __u64 *)&place->call == call) {
		time = place->time_ns;
		from = place->sender;
		place->call = 0;
	}
	core->function = function;
	core->function_sent_ns = time;
	core->function_sender = from;
	core->function_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/csd_function_exit")
int BPF_PROG(function_ended)
{
	struct core *core = here();
	__u64 began, now, queued;

	if (!core || !core->function_ns)
		return 0;
	now = bpf_ktime_get_ns();
	began = core->function_ns;
	core->function_ns = 0;
	queued = core->function_sent_ns;
	settle(core, now);
	if (queued && began - queued > DELAY_NS)
		tell(core, queued, began, IPI_DELAY, core->function_sender, core->function);
	tell(core, began, now, IPI_FUNCTION, core->function_sender, core->function);
	core->told = 1;
	return 0;
}

/* Packets of others that a softirq receives while it may serve. */

#define NET_RX 3

/* Network namespaces, by the inode that tells them apart, whose packets are those that are served. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NETWORKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u8));
} networks SEC(".maps");

/* A stretch of such packets ends with one that is served, with its poll, or with the softirq. It has a
 * record however short it is: there are no more of these than of what ends them. */
static __noinline int foreign_ended(struct core *core)
{
	__u64 began, now;

	if (!core)
		return 0;
	began = core->foreign_ns;
	core->foreign_ns = 0;
	now = bpf_ktime_get_ns();
	settle(core, now);
	tell(core, began, now, FOREIGN_RX, 0, 0);
	return 0;
}

/* Left out unless user space says which packets are served, like the next one. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *packet)
{
	struct core *core = here();
	struct net_device *device;
	__u32 network;

	/* A task may receive as well: it has the time of that. */
	if (!core || !core->softirq_ns || core->softirq_vector != NET_RX)
		return 0;
	device = packet->dev;
	/* Mostly it is the one of the packet before. */
	if (core->own_device == (__u64)device && !core->foreign_ns)
		return 0;
	network = device->nd_net.net->ns.inum;
	if (!bpf_map_lookup_elem(&networks, &network)) {
		core->own_device = 0;
		core->foreign = 1;
		if (!core->foreign_ns)
			core->foreign_ns = bpf_ktime_get_ns();
		return 0;
	}
	core->own_device = (__u64)device;
	if (core->foreign_ns)
		foreign_ended(core);
	return 0;
}

/* Packets that a driver passes on itself (XDP) are not received above. */
SEC("tp_btf/napi_poll")
int BPF_PROG(polled)
{
	struct core *core = here();

	if (core && core->foreign_ns)
		foreign_ended(core);
	return 0;
}

/* Whether this is the thread that softirqs are left to. */
static __always_inline int is_softirq_thread(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	char name[2] = {};

	/* ksoftirqd/N. */
	bpf_probe_read_kernel(name, sizeof(name), &task->comm);
	return BPF_CORE_READ(task, flags) & TASK_FLAG_KERNEL && name[0] == 'k' && name[1] == 's';
}

/* What raised a softirq, for the upper half of its record's aux: kind in bits 60..62, id in 32..59. */
static __always_inline __u64 raiser(__u64 kind, __u64 id)
{
	return kind << 60 | (id & ((1 << 28) - 1)) << 32;
}

/* Softirqs. */
SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raised, __u32 vector)
{
	struct core *core = here();

	if (!core || vector >= SOFTIRQS || core->raised_ns[vector])
		return 0;
	/* In an interrupt: its begin, which saves reading the clock. */
	if (core->vector_ns) {
		core->raised_ns[vector] = core->vector_ns;
		core->raised_by[vector] = raiser(VECTOR, core->vector);
	} else if (core->irq_ns) {
		core->raised_ns[vector] = core->irq_ns;
		core->raised_by[vector] = raiser(IRQ, core->irq);
	} else {
		core->raised_ns[vector] = bpf_ktime_get_ns();
		core->raised_by[vector] = core->softirq_ns ?
						  raiser(SOFTIRQ, core->softirq_vector) :
						  raiser(TASK, (__u32)bpf_get_current_pid_tgid());
	}
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_began, __u32 vector)
{
	struct core *core = here();

	if (!core || vector >= SOFTIRQS)
		return 0;
	core->softirq_ns = bpf_ktime_get_ns();
	core->softirq_vector = vector;
	/* It may be raised again while it runs. */
	core->softirq_raised_ns = core->raised_ns[vector];
	core->softirq_raised_by = core->raised_by[vector];
	core->raised_ns[vector] = 0;
	core->raised_by[vector] = 0;
	return 0;
}

/* When a softirq that receives packets was asked for, where that is known better than by its being raised:
 * the core was told, or packets were left to ksoftirqd. A kernel may be silent about the interrupt that
 * raised it. */
static __always_inline __u64 asked_for(struct core *core, __u64 raised)
{
	struct telling *told;

	if (core->own_ns && core->own_ns <= core->softirq_ns) {
		told = telling(core);
		return told ? told->time_ns : core->own_ns;
	}
	if (!raised && core->received_ns && is_softirq_thread())
		return core->received_ns;
	return raised;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ended, __u32 vector)
{
	struct core *core = here();
	__u64 began, raised, now, waited, told;
	struct sum *sum;

	if (!core || vector >= SOFTIRQS || !core->softirq_ns)
		return 0;
	if (core->foreign_ns)
		foreign_ended(core);
	now = bpf_ktime_get_ns();
	began = core->softirq_ns;
	raised = core->softirq_raised_ns;
	sum = &core->sums[VECTORS + 1 + vector];
	if (vector == NET_RX) {
		raised = asked_for(core, raised);
		core->received_ns = now;
	}
	core->softirq_ns = 0;
	if (config.usual && vector == NET_RX && core->own_ns && core->own_ns <= began) {
		if (!core->foreign && passed(core, raised, began, now, vector, sum)) {
			core->own_ns = core->own_next_ns;
			core->own_next_ns = 0;
			return 0;
		}
		tell_own(core);
		core->own_ns = core->own_next_ns;
		core->own_next_ns = 0;
	}
	core->foreign = 0;
	settle(core, now);
	waited = raised ? began - raised : 0;
	told = core->softirq_raised_by | (waited < UNKNOWN ? waited : UNKNOWN);
	/* A sum does not tell since when packets waited. */
	if (vector == NET_RX && waited > DELAY_NS)
		tell(core, began, now, SOFTIRQ, vector, told);
	else
		tell_or_add(core, began, now, SOFTIRQ, vector, told, sum);
	return 0;
}

#endif
