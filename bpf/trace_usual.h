/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What usual packets cause, in a thin trace of cores on which softirqs serve.
 *
 * A pass is from when another core begins to tell this one of packets to the end of the softirq that serves
 * them. So a packet that came to the core during a pass stayed no longer than that. Half of the passes of a
 * core take `pass_ns` at most. A usual pass takes at most twice that and 1 us, receives no packets of others,
 * and nothing was stolen from the core in it. Of usual passes only the softirqs are stored, added up; all
 * others have records of their own, and no sum goes beyond these.
 *
 * Idle that interrupts alone interrupt is one stretch. What they do in between lies on it.
 */
#ifndef TRACE_USUAL_H
#define TRACE_USUAL_H

/* Passes of one sum, and how far from each other they may be: so they are laid out near where they were. */
#define PASSES 16
#define PASSES_NS 100000
/* Half of the passes are taken to last no longer before some were seen: the first one may be a long one. */
#define FIRST_PASS_NS 10000

/* Stores idle up to now; it goes on, in a state that is not left. */
static __noinline int tell_idle(struct core *core, __u64 now)
{
	if (!core)
		return 0;
	put(core, core->idle_ns, now - core->idle_ns, IDLE, 0, core->idle_state, 0);
	core->idle_ns = now;
	return 0;
}

/* An idle state is entered or left. The deepest one names the stretch. */
static __always_inline int idled(struct core *core, __u32 state)
{
	if (state == UNKNOWN)
		return 0;
	if (!core->idle_ns)
		core->idle_ns = bpf_ktime_get_ns();
	if (core->idle_state < state)
		core->idle_state = state;
	return 0;
}

/* A task comes after idle. */
static __always_inline void idle_over(struct core *core, __u64 now)
{
	if (!core->idle_ns)
		return;
	if (now - core->idle_ns >= IDLE_NS)
		tell(core, core->idle_ns, now, IDLE, core->idle_state, 0);
	core->idle_ns = 0;
	core->idle_state = 0;
}

/* Whether a pass is usual, and what half of them take: a step towards each one, which is the larger the
 * longer they take. */
static __always_inline int is_usual(struct core *core, __u64 pass)
{
	__u64 half = core->pass_ns;
	int usual = pass <= 2 * half + 1000;

	if (!half)
		core->pass_ns = pass < FIRST_PASS_NS ? pass : FIRST_PASS_NS;
	else if (pass > half)
		core->pass_ns = half + (half >> 6) + 1;
	else if (pass < half)
		core->pass_ns = half - (half >> 6);
	return usual;
}

/* A softirq that another core had asked for is over. Whether it was usual, and needs no record. */
static __always_inline int passed(struct core *core, __u64 told, __u64 began, __u64 now, __u32 vector,
				  struct sum *sum)
{
	__u64 steal = core->steal_ns;

	if (config.steal_at && core->steal_at) {
		bpf_probe_read_kernel(&steal, sizeof(steal), (void *)core->steal_at);
		if (steal != core->steal_ns)
			return 0;
	}
	if (!is_usual(core, now - told))
		return 0;
	core->passes += 1;
	if (core->idle_ns && now - core->idle_ns > FLUSH_AGE_NS)
		tell_idle(core, now);
	if (sum->start_ns && began - sum->end_ns > PASSES_NS)
		tell_sum(core, sum, SOFTIRQ);
	add(core, began, now, SOFTIRQ, vector, sum);
	if (sum->count >= PASSES)
		tell_sum(core, sum, SOFTIRQ);
	return 1;
}

#endif
