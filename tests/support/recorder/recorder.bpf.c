// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Writes down when the kernel is handed each packet for chosen ports, and every interrupt.
 *
 * It shares nothing with the taps: its hooks are tracepoints, its ring is the kernel's own, and it
 * reads the clock itself. */
#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "recorder.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
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
	int ifindex;
	possible_net_t nd_net;
};
struct sk_buff {
	struct net_device *dev;
};
struct rq {
	int cpu;
	__u64 prev_steal_time;
};
#pragma clang attribute pop

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *dynptr) __ksym;

const volatile struct port ports[MAX_PORTS];
__u64 lost;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 27);
} ring SEC(".maps");

static __always_inline void put(__u64 now, __u32 kind, __u32 what, __u32 id)
{
	struct record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	record->time_ns = now;
	record->id = id;
	record->kind = kind;
	record->what = what;
	record->cpu = bpf_get_smp_processor_id();
	record->unused = 0;
	record->took_ns = bpf_ktime_get_ns() - now;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* The place of a port in `ports`; MAX_PORTS for others. */
static __always_inline int place_of(struct net_device *dev, __u32 way)
{
	for (int i = 0; i < MAX_PORTS; i++)
		if (ports[i].way == way && ports[i].index == dev->ifindex &&
		    ports[i].namespace == dev->nd_net.net->ns.inum)
			return i;
	return MAX_PORTS;
}

/* `at`: where the id is. */
static __always_inline void packet(struct sk_buff *skb, __u32 way, __u32 at)
{
	__u64 now = bpf_ktime_get_ns();
	int place = place_of(skb->dev, way);
	struct bpf_dynptr bytes;
	__u32 id;

	if (place == MAX_PORTS)
		return;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &bytes) ||
	    bpf_dynptr_read(&id, sizeof(id), &bytes, at, 0))
		id = NO_ID;
	put(now, KIND_PACKET, place, id);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(sent, struct sk_buff *skb)
{
	packet(skb, WAY_SENT, ETHERNET + ID_BEHIND_ETHERNET);
	return 0;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(to_veth, struct sk_buff *skb)
{
	packet(skb, WAY_SKB, ID_BEHIND_ETHERNET);
	return 0;
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(to_tun, struct sk_buff *skb)
{
	packet(skb, WAY_TUN, ID_BEHIND_ETHERNET);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(received, struct sk_buff *skb)
{
	packet(skb, WAY_RECEIVED, ID_BEHIND_ETHERNET);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(frames, struct net_device *from, struct net_device *to, int sent)
{
	__u64 now = bpf_ktime_get_ns();
	int place = place_of(to, WAY_FRAME);

	if (place != MAX_PORTS && sent > 0)
		put(now, KIND_FRAMES, place, sent);
	return 0;
}

/* What the scheduler knows of each CPU: where it is, and the steal time that was told. */
struct known {
	struct rq *rq;
	__u64 told;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct known));
} cpus SEC(".maps");

SEC("tp_btf/sched_update_nr_running_tp")
int BPF_PROG(find_rq, struct rq *rq)
{
	__u32 cpu = rq->cpu;
	struct known *known = bpf_map_lookup_elem(&cpus, &cpu);

	if (known && !known->rq) {
		known->told = rq->prev_steal_time;
		known->rq = rq;
	}
	return 0;
}

/* After a tick, which accounts for what the hypervisor took. */
static __always_inline void steal(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct known *known = bpf_map_lookup_elem(&cpus, &cpu);
	struct rq *rq;
	__u64 now;

	if (!known || !known->rq)
		return;
	rq = known->rq;
	now = BPF_CORE_READ(rq, prev_steal_time);
	if (now > known->told)
		put(bpf_ktime_get_ns(), KIND_STEAL, 0, now - known->told);
	known->told = now;
}

#define INTERRUPT(name, which)                                                                 \
	SEC("tp_btf/" #name "_entry")                                                          \
	int name##_begins(void *ctx)                                                           \
	{                                                                                      \
		put(bpf_ktime_get_ns(), KIND_BEGIN, which, 0);                                 \
		return 0;                                                                      \
	}                                                                                      \
	SEC("tp_btf/" #name "_exit")                                                           \
	int name##_ends(void *ctx)                                                             \
	{                                                                                      \
		put(bpf_ktime_get_ns(), KIND_END, which, 0);                                   \
		if (which == INTERRUPT_TIMER)                                                  \
			steal();                                                               \
		return 0;                                                                      \
	}

INTERRUPT(irq_handler, INTERRUPT_DEVICE)
INTERRUPT(local_timer, INTERRUPT_TIMER)
INTERRUPT(reschedule, INTERRUPT_RESCHEDULE)
INTERRUPT(call_function, INTERRUPT_CALL)
INTERRUPT(call_function_single, INTERRUPT_CALL_SINGLE)
INTERRUPT(irq_work, INTERRUPT_WORK)

char LICENSE[] SEC("license") = "GPL";
