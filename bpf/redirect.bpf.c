// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Sends every packet of an interface out of another one, as it is. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* Set before loading; the layout is known to datapath/src/bpf/redirection.rs. */
const volatile __u32 target SEC(".rodata"); /* interface index; 0: packets go on their way */

SEC("xdp")
int redirect(struct xdp_md *context)
{
	return target ? bpf_redirect(target, 0) : XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
