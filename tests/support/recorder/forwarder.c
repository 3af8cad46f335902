// SPDX-License-Identifier: Apache-2.0
/* forwarder INGRESS EGRESS FILE [bypass]
 *
 * Hands packets from one port to the other by AF_PACKET sockets, and writes down by its own clock
 * when each was received, and when sending began and ended. Every BUSY_EVERY packets it does
 * something else for BUSY_NS, as an application may. Ends by SIGINT or SIGTERM. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUSY_EVERY 500
#define BUSY_NS 1500000
#define ID_AT 42
#define TYPE_AT 46
#define TYPE 0x55

struct times {
	int64_t received, begin, end;
	uint32_t id, unused;
};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int port(const char *name, int protocol)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(protocol),
		.sll_ifindex = if_nametoindex(name),
	};
	int room = 64 << 20;
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		perror(name);
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop}; /* without SA_RESTART: recv() ends */
	unsigned char frame[2048];
	unsigned long count = 0;
	int in, out, on = 1;
	FILE *file;

	if (argc < 4)
		return 2;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	in = port(argv[1], ETH_P_ALL);
	out = port(argv[2], 0);
	if (argc > 4 && setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on))) {
		perror("bypass");
		return 1;
	}
	file = fopen(argv[3], "wb");
	if (!file) {
		perror(argv[3]);
		return 1;
	}
	setvbuf(file, NULL, _IOFBF, 1 << 20);
	while (!stopped) {
		struct times times = {0};
		struct sockaddr_ll from;
		socklen_t length = sizeof(from);
		ssize_t size = recvfrom(in, frame, sizeof(frame), 0, (struct sockaddr *)&from,
					&length);

		times.received = now();
		if (size < 0 || from.sll_pkttype == PACKET_OUTGOING)
			continue;
		if (++count % BUSY_EVERY == 0)
			while (now() < times.received + BUSY_NS && !stopped)
				;
		times.begin = now();
		if (send(out, frame, size, 0) < 0)
			continue;
		times.end = now();
		if (size <= TYPE_AT || frame[TYPE_AT] != TYPE)
			continue;
		memcpy(&times.id, frame + ID_AT, sizeof(times.id));
		fwrite(&times, sizeof(times), 1, file);
	}
	return fclose(file) ? 1 : 0;
}
