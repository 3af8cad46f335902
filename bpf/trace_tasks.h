/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Programs of the tracer: tasks, those that serve packets, and the functions of workers. */
#ifndef TRACE_TASKS_H
#define TRACE_TASKS_H

#define TASK_FLAG_WORKER 0x20
#define TASK_FLAG_KERNEL 0x200000

/* The word of a task that could run and did not: its control group had used up its quota. */
#define THROTTLED 1

/* Tasks that serve packets: when they were woken, or lost their core. */
struct served {
	__u64 waking_ns;
	__u64 runnable_ns;
	__u64 woken_by;
	__u64 throttled; /* whether it then had to wait for its group's quota */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVED);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct served));
} served SEC(".maps");

/* What the tasks that had a traced core are called, how they are scheduled, and in which group. */
struct name {
	__u64 letters[2];
	__u64 scheduled; /* see scheduling() */
	__u64 group; /* the inode of its control group, version 2; 0: not known */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NAMES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct name));
} names SEC(".maps");

/* The functions of workers that lost the core or sleep. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WORKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u64));
} works SEC(".maps");

/* Policy, priority in real time, priority without, and process; crates/datapath/src/trace/tasks.rs reads it. */
static __always_inline __u64 scheduling(__u64 policy, __u64 real_time, __u64 priority, __u64 process)
{
	return (policy & 0xff) | (real_time & 0xff) << 8 | (priority & 0xffff) << 16 | process << 32;
}

static __always_inline __u64 group_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->cgroups) ||
	    !bpf_core_field_exists(task->cgroups->dfl_cgrp->kn->id))
		return 0;
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

/* Programs run commands in groups of these, so that a group is new where a name is. */
static __always_inline void remember_as(__u32 pid, struct task_struct *task, __u64 scheduled)
{
	struct name *known = bpf_map_lookup_elem(&names, &pid);
	struct name name = { .scheduled = scheduled };

	bpf_probe_read_kernel(&name.letters, sizeof(name.letters), &task->comm);
	if (known && known->letters[0] == name.letters[0] && known->letters[1] == name.letters[1] &&
	    known->scheduled == scheduled)
		return;
	name.group = group_of(task);
	bpf_map_update_elem(&names, &pid, &name, BPF_ANY);
}

static __always_inline void remember(__u32 pid, struct task_struct *task)
{
	remember_as(pid, task,
		    scheduling(BPF_CORE_READ(task, policy), BPF_CORE_READ(task, rt_priority),
			       BPF_CORE_READ(task, static_prio), BPF_CORE_READ(task, tgid)));
}

static __always_inline __u32 state_of(struct task_struct *task)
{
	struct task_struct___states *newer = (void *)task;

	if (bpf_core_field_exists(newer->__state))
		return newer->__state;
	return ((struct task_struct___state *)task)->state;
}

static __always_inline __u32 cpu_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return ((struct task_struct___cpu *)task)->cpu;
}

/* A worker leaves the core: its function goes on when it comes back. */
static __always_inline void work_paused(struct core *core, __u64 now)
{
	__u32 pid = core->work.pid;

	if (!core->work.start_ns)
		return;
	tell(core, core->work.start_ns, now, WORK, pid, core->work.function);
	core->work.start_ns = 0;
	bpf_map_update_elem(&works, &pid, &core->work.function, BPF_ANY);
}

static __always_inline void work_resumed(struct core *core, __u64 now, __u32 pid)
{
	__u64 *function = bpf_map_lookup_elem(&works, &pid);

	if (!function)
		return;
	core->work.function = *function;
	core->work.pid = pid;
	core->work.start_ns = now;
	bpf_map_delete_elem(&works, &pid);
}

/* Notes whether a task that could run has to wait until its control group has quota again. Until Linux
 * 6.17 its whole run queue is then taken away; since, it is told to wait when it would return to user
 * space, which it may not come to while others have the core. */
static __always_inline void look_for_throttling(struct core *core, struct served *serves,
						struct task_struct *task)
{
	struct cfs_rq *queue;

	serves->throttled = 0;
	if (!bpf_core_field_exists(task->se.cfs_rq) ||
	    !bpf_core_field_exists(task->se.cfs_rq->throttle_count))
		return;
	queue = BPF_CORE_READ(task, se.cfs_rq);
	if (BPF_CORE_READ(queue, throttle_count) <= 0)
		return;
	serves->throttled = 1;
	if (core) {
		core->unthrottled_ns = 0;
		core->throttled_queue = (__u64)queue;
	}
}

static __always_inline void served_left(struct core *core, struct served *serves,
					struct task_struct *task, __u64 now, __u32 state)
{
	serves->runnable_ns = state ? 0 : now;
	if (state)
		return;
	serves->waking_ns = 0;
	look_for_throttling(core, serves, task);
}

static __always_inline void served_came(struct core *core, struct served *task, __u64 now, __u32 pid)
{
	__u64 since = task->runnable_ns ? task->runnable_ns : task->waking_ns;
	__u64 until = now;

	if (core && since) {
		if (task->throttled) {
			/* Once the scheduler could have chosen it, it waits for others. */
			if (core->unthrottled_ns > since && core->chosen_ns && core->chosen_ns < now)
				until = core->chosen_ns;
			core->chosen_ns = now;
			tell(core, since, until, RUNNABLE, pid, THROTTLED);
			if (until < now)
				tell(core, until, now, RUNNABLE, pid, 0);
		} else if (task->runnable_ns) {
			tell(core, since, now, RUNNABLE, pid, 0);
		} else {
			tell(core, since, now, WAKEUP, pid, task->woken_by);
		}
	}
	task->runnable_ns = 0;
	task->waking_ns = 0;
	task->throttled = 0;
}

/* Since when a task that leaves its core had it; 0: not known. */
static __always_inline __u64 came_at(struct task_struct *task, __u64 now)
{
	__u64 had;

	if (!bpf_core_field_exists(task->sched_info.last_arrival) ||
	    !bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	/* Another clock than that of `now`, but as fast. */
	had = BPF_CORE_READ(task, se.cfs_rq, rq, clock) - task->sched_info.last_arrival;
	return had < now ? now - had : 0;
}

/* There are tasks that leave without a word of the kernel. One of these had the core before `task`
 * came, which leaves now. Without the kernel's account of its coming, the time is nobody's. */
static __noinline int left_untold(struct core *core, struct task_struct *task, __u64 now)
{
	struct task_struct *before;
	__u64 came, start;
	__u32 pid, is = 0;

	if (!core || !task)
		return 0;
	before = (struct task_struct *)core->came;
	start = core->task.start_ns;
	pid = core->task.pid;
	came = came_at(task, now);
	core->task.start_ns = came > start ? came : now;
	if (came <= start || !pid)
		return 0;
	put(core, start, came - start, TASK, core->task.aux, pid, 0);
	/* It may have ended. */
	bpf_probe_read_kernel(&is, sizeof(is), &before->pid);
	if (is == pid)
		remember(pid, before);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, int preempted, struct task_struct *from, struct task_struct *to)
{
	struct core *core = here();
	__u32 left = from->pid, came = to->pid;
	struct served *serves = 0;
	__u32 flags, state;
	__u64 now, is;

	if (!core)
		sender_switched(from);
	if (!core && !config.served)
		return 0;
	now = bpf_ktime_get_ns();
	if (core) {
		look_for_quota(core, now);
		if (core->unthrottled_ns && !core->chosen_ns &&
		    !(config.served && bpf_map_lookup_elem(&served, &came)))
			core->chosen_ns = now;
	}
	/* Whoever was woken before it left is runnable. */
	state = preempted ? 0 : state_of(from) & 0xff;
	if (config.served)
		serves = bpf_map_lookup_elem(&served, &left);
	if (core && core->task.pid != left && core->task.pid != UNKNOWN) {
		left_untold(core, from, now);
		if (serves && serves->waking_ns < core->task.start_ns)
			served_came(core, serves, core->task.start_ns, left);
		core->task.pid = left;
	}
	if (serves)
		served_left(core, serves, from, now, state);
	if (core) {
		settle(core, now);
		if (config.usual && !left)
			idle_over(core, now);
		flags = from->flags;
		if (flags & TASK_FLAG_WORKER)
			work_paused(core, now);
		if (left && (core->task.pid == left || core->task.pid == UNKNOWN)) {
			is = (__u32)from->tgid | (__u64)state << 32;
			is |= (__u64)!!(flags & TASK_FLAG_KERNEL) << 40 | (__u64)!!serves << 48;
			tell(core, core->task.start_ns, now, TASK, left, is);
			remember_as(left, from,
				    scheduling(from->policy, from->rt_priority, from->static_prio,
					       from->tgid));
		}
		flags = to->flags;
		core->task.start_ns = now;
		core->task.pid = came;
		core->came = (__u64)to;
		core->task.aux = (__u32)to->tgid | (__u64)!!(flags & TASK_FLAG_KERNEL) << 40;
		if (flags & TASK_FLAG_WORKER)
			work_resumed(core, now, came);
	}
	if (config.served) {
		serves = bpf_map_lookup_elem(&served, &came);
		if (serves) {
			served_came(core, serves, now, came);
			if (core)
				core->task.aux |= 1ull << 48;
		}
	}
	return 0;
}

/* Left out when nothing is served by tasks. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct served *serves = bpf_map_lookup_elem(&served, &pid);

	if (serves) {
		serves->runnable_ns = 0;
		serves->woken_by = (__u32)bpf_get_current_pid_tgid();
		serves->waking_ns = bpf_ktime_get_ns();
		sender_tells(cpu_of(task));
	}
	return 0;
}

/* Left out with the one before: that it was put into its run queue may have shown that there is no quota. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct served *serves = bpf_map_lookup_elem(&served, &pid);

	if (serves)
		look_for_throttling(core_of(cpu_of(task)), serves, task);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrated, struct task_struct *task, int to)
{
	__u32 from = cpu_of(task), pid = task->pid;
	struct core *core = core_of(to);

	if (!core)
		core = core_of(from);
	if (!core || (!config.full && !bpf_map_lookup_elem(&served, &pid)))
		return 0;
	/* It may be another core that moves the task. */
	put(core, bpf_ktime_get_ns(), 0, MIGRATE, (__u64)from << 32 | (__u32)to, pid, 0);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(work_began, struct work_struct *work)
{
	struct core *core = here();

	if (!core)
		return 0;
	core->work.function = (__u64)work->func;
	core->work.pid = bpf_get_current_pid_tgid();
	core->work.start_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(work_ended)
{
	__u32 pid = bpf_get_current_pid_tgid();
	struct core *core = here();
	__u64 now;

	if (!core || !core->work.start_ns || core->work.pid != pid)
		return 0;
	now = bpf_ktime_get_ns();
	settle(core, now);
	tell(core, core->work.start_ns, now, WORK, pid, core->work.function);
	core->work.start_ns = 0;
	return 0;
}

#endif
