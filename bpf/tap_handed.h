/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Notes when packets are handed over that the kernel does not stamp: XDP frames to a veth (`flushed`), and
 * packets that bring a time of their own (`handed`). A part of tap.bpf.c, which reads the notes. */

/* What is read of the kernel's own structures; their layout comes from its BTF. */
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
struct rtnl_link_ops {
	const char *kind;
};
struct net_device {
	int ifindex;
	possible_net_t nd_net;
	const struct rtnl_link_ops *rtnl_link_ops;
	unsigned char priv[];
};
struct sk_buff {
	struct net_device *dev;
	__s64 tstamp;
};
struct napi_struct {
	unsigned int napi_id;
};
struct veth_rq {
	struct napi_struct xdp_napi;
};
struct veth_priv {
	struct net_device *peer;
	struct veth_rq *rq;
};
#pragma clang attribute pop

/* What a driver keeps of a device. Linux 6.8 gave it a name. */
static __always_inline struct veth_priv *private_of(const struct net_device *device)
{
	if (bpf_core_field_exists(device->priv))
		return (void *)__builtin_preserve_access_index(&device->priv);
	return (void *)device + ((bpf_core_type_size(struct net_device) + 31) & ~31ul);
}

/* Notes that a device has just been handed XDP frames, if they go to the interface that is tapped. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(flushed, const struct net_device *from, const struct net_device *to, int sent)
{
	__u64 now = bpf_ktime_get_ns();
	struct net_device *peer;
	struct flush *flush;
	char kind[5] = {};
	__u32 key;

	bpf_probe_read_kernel_str(kind, sizeof(kind), BPF_CORE_READ(to, rtnl_link_ops, kind));
	if (sent < 1 || kind[0] != 'v' || kind[1] != 'e' || kind[2] != 't' || kind[3] != 'h')
		return 0;
	peer = BPF_CORE_READ(private_of(to), peer);
	if (BPF_CORE_READ(peer, ifindex) != config.index ||
	    BPF_CORE_READ(peer, nd_net.net, ns.inum) != config.namespace)
		return 0;
	key = state.flushes % FLUSHES;
	flush = bpf_map_lookup_elem(&flushes, &key);
	if (!flush)
		return 0;
	flush->time_ns = now;
	flush->end = state.handed + sent;
	state.handed += sent;
	state.napi = BPF_CORE_READ(private_of(peer), rq, xdp_napi.napi_id);
	*(volatile __u64 *)&state.flushes = state.flushes + 1;
	return 0;
}

/* Notes that a packet is handed over which brings a time, if it goes to the interface that is tapped. */
SEC("tp_btf/netif_rx")
int BPF_PROG(handed, struct sk_buff *skb)
{
	__u64 key = (__u64)skb, now;

	if ((__u64)skb->tstamp > *(volatile __u64 *)&state.ahead || skb->dev->ifindex != config.index ||
	    skb->dev->nd_net.net->ns.inum != config.namespace)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&notes, &key, &now, BPF_ANY);
	return 0;
}
