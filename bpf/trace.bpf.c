// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The tracer: what the kernel did on the chosen cores, one program a tracepoint.
 *
 * Where two tracepoints begin and end an interval, the first program keeps the time and the second
 * one stores the record (trace.h). Programs on tracepoints that a kernel lacks are left out by user
 * space, which says so. With `full` unset, whatever is not needed to name the context that had the
 * core is left out as well.
 */
#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "ring.h"
#include "trace.h"
#include "trace_sender.h"
#include "trace_usual.h"
#include "trace_tasks.h"
#include "trace_interrupts.h"
#include "trace_full.h"

#define IDLE_EXIT UNKNOWN
#define FLUSH_ON_SWITCH 0

SEC("tp_btf/cpu_idle")
int BPF_PROG(idle, __u32 state, __u32 cpu)
{
	struct core *core = core_of(cpu);
	__u64 now;

	if (!core)
		return 0;
	if (config.usual)
		return idled(core, state);
	now = bpf_ktime_get_ns();
	if (state != IDLE_EXIT) {
		core->idle_ns = now;
		core->idle_state = state;
		return 0;
	}
	if (core->idle_ns && now - core->idle_ns >= IDLE_NS) {
		settle(core, now);
		tell(core, core->idle_ns, now, IDLE, core->idle_state, 0);
	}
	core->idle_ns = 0;
	return 0;
}

SEC("tp_btf/nmi_handler")
int BPF_PROG(nmi, void *handler, __s64 took)
{
	struct core *core = here();
	__u64 now;

	if (!core)
		return 0;
	now = bpf_ktime_get_ns();
	tell(core, now - took, now, NMI, 0, (__u64)handler);
	return 0;
}

SEC("tp_btf/tlb_flush")
int BPF_PROG(tlb_flushed, int reason, unsigned long pages)
{
	struct core *core = here();
	__u64 now;

	if (!core || (!config.full && reason == FLUSH_ON_SWITCH))
		return 0;
	now = bpf_ktime_get_ns();
	settle(core, now);
	tell(core, now, now, TLB_FLUSH, reason, pages);
	return 0;
}

/* bpf_ktime_get_ns is reserved for programs under the GPL. */
char LICENSE[] SEC("license") = "GPL";
