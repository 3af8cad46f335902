/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Programs of the tracer that only a full trace has. */
#ifndef TRACE_FULL_H
#define TRACE_FULL_H

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(hrtimer_began, struct hrtimer *timer)
{
	struct core *core = here();

	if (core) {
		core->hrtimer_function = (__u64)timer->function;
		core->hrtimer_ns = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(hrtimer_ended)
{
	struct core *core = here();

	if (core && core->hrtimer_ns) {
		tell(core, core->hrtimer_ns, bpf_ktime_get_ns(), HRTIMER, 0, core->hrtimer_function);
		core->hrtimer_ns = 0;
	}
	return 0;
}

static __always_inline int faulted(__u64 address)
{
	struct core *core = here();
	__u64 now;

	if (core) {
		now = bpf_ktime_get_ns();
		tell(core, now, now, PAGE_FAULT, bpf_get_current_pid_tgid(), address);
	}
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(user_faulted, unsigned long address)
{
	return faulted(address);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(kernel_faulted, unsigned long address)
{
	return faulted(address);
}

SEC("tp_btf/cpu_frequency")
int BPF_PROG(frequency, __u32 khz, __u32 cpu)
{
	struct core *core = core_of(cpu);

	/* It may be another core that sets it. */
	if (core)
		put(core, bpf_ktime_get_ns(), 0, FREQUENCY, 0, khz, 0);
	return 0;
}

/* Reclaim and compaction: they sleep, and may end on another core, where they have no beginning. */
static __always_inline int pass_began(__u64 *began, __u32 *pid)
{
	*pid = bpf_get_current_pid_tgid();
	*began = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int pass_ended(struct core *core, __u64 *began, __u32 pid, __u32 kind)
{
	if (*began && pid == (__u32)bpf_get_current_pid_tgid())
		tell(core, *began, bpf_ktime_get_ns(), kind, pid, 0);
	*began = 0;
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(reclaim_began)
{
	struct core *core = here();

	return core ? pass_began(&core->reclaim_ns, &core->reclaim_pid) : 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(reclaim_ended)
{
	struct core *core = here();

	return core ? pass_ended(core, &core->reclaim_ns, core->reclaim_pid, RECLAIM) : 0;
}

SEC("tp_btf/mm_compaction_begin")
int BPF_PROG(compaction_began)
{
	struct core *core = here();

	return core ? pass_began(&core->compaction_ns, &core->compaction_pid) : 0;
}

SEC("tp_btf/mm_compaction_end")
int BPF_PROG(compaction_ended)
{
	struct core *core = here();

	return core ? pass_ended(core, &core->compaction_ns, core->compaction_pid, COMPACTION) : 0;
}

/* A virtual CPU is out of its guest. */
SEC("tp_btf/kvm_exit")
int BPF_PROG(guest_left)
{
	struct core *core = here();

	if (core)
		core->guest_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(guest_entered)
{
	struct core *core = here();

	if (core && core->guest_ns) {
		tell(core, core->guest_ns, bpf_ktime_get_ns(), KVM_EXIT, UNKNOWN, 0);
		core->guest_ns = 0;
	}
	return 0;
}

#endif
