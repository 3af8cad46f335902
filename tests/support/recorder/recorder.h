/* What the recorder's program hands to the process that writes it down. */
#ifndef RECORDER_H
#define RECORDER_H

#define MAX_PORTS 4
/* Where the id of a packet is, behind Ethernet: IPv4 without options and UDP come before it. */
#define ID_BEHIND_ETHERNET 28
#define ETHERNET 14
/* The id of what is too short to have one. */
#define NO_ID 0xffffffffu

/* Where packets pass. */
enum way {
	WAY_SENT = 1,  /* the port's driver is given an skb to send */
	WAY_SKB = 2,   /* the other end of the port's veth pair has sent it an skb: netif_rx() */
	WAY_TUN = 3,   /* it is a tap device that was written to: netif_receive_skb() */
	WAY_FRAME = 4, /* the port, one end of a veth pair, has been given XDP frames to send */
	WAY_RECEIVED = 5, /* the kernel begins to receive the skb, which its driver handed over by NAPI */
};

enum kind {
	KIND_PACKET = 0, /* `what` is the place of the port, `id` the packet's */
	KIND_FRAMES = 1, /* `what` is the place of the port, `id` says how many frames */
	KIND_BEGIN = 2,  /* an interrupt begins: `what` is one of `enum interrupt` */
	KIND_END = 3,    /* and ends */
	KIND_STEAL = 4,  /* the hypervisor took the CPU away for `id` ns; told at the next tick */
};

enum interrupt {
	INTERRUPT_DEVICE,
	INTERRUPT_TIMER,
	INTERRUPT_RESCHEDULE,
	INTERRUPT_CALL,
	INTERRUPT_CALL_SINGLE,
	INTERRUPT_WORK,
};

struct record {
	unsigned long long time_ns; /* CLOCK_MONOTONIC */
	unsigned int id;
	unsigned char kind;
	unsigned char what;
	unsigned short cpu;
	unsigned int took_ns; /* from that time until the rest of the record was known */
	unsigned int unused;
};

struct port {
	unsigned int way;
	unsigned int index;
	unsigned int namespace; /* inode number of its network namespace */
};

#endif
