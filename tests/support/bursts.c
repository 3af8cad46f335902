/* Sends packets in bursts and sleeps between them, so that its CPU is others' for most of the time.
 *
 * bursts INTERFACE HARDWARE-ADDRESS RATE SECONDS: 64 B frames of UDP from 10.0.0.1 to 10.1.0.1, with ids as
 * `tailtap generate` writes them, through a packet socket that passes the queueing discipline by.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MOST 256
#define LEN 60
#define NUMBER 42
#define TYPE 46

static uint8_t frames[MOST][LEN];

static void number(uint8_t *frame, uint32_t count)
{
	memcpy(frame + NUMBER, &count, sizeof(count));
}

int main(int argc, char **argv)
{
	static const uint8_t rest[] = {0x02, 0x74, 0x74, 0, 0, 2, 8, 0, 0x45, 0, 0, LEN - 14, 0, 0,
				       0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 1, 0, 1,
				       4, 0, 0, 53, 0, LEN - 34, 0, 0};
	struct mmsghdr messages[MOST] = {};
	struct iovec parts[MOST];
	struct sockaddr_ll to = {.sll_family = AF_PACKET};
	struct timespec now;
	double rate, seconds, due;
	uint64_t sent = 0, wanted;
	unsigned char mac[6];
	int wire, on = 1;

	if (argc != 5 || sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3,
				mac + 4, mac + 5) != 6)
		errx(2, "INTERFACE HARDWARE-ADDRESS RATE SECONDS");
	rate = atof(argv[3]);
	seconds = atof(argv[4]);
	wire = socket(AF_PACKET, SOCK_RAW, 0);
	to.sll_ifindex = (int)if_nametoindex(argv[1]);
	if (wire < 0 || bind(wire, (struct sockaddr *)&to, sizeof(to)))
		err(1, "%s", argv[1]);
	if (setsockopt(wire, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)))
		err(1, "PACKET_QDISC_BYPASS");
	for (int i = 0; i < MOST; i++) {
		uint32_t sum = 0;

		memcpy(frames[i], mac, 6);
		memcpy(frames[i] + 6, rest, sizeof(rest));
		frames[i][TYPE] = 0x55;
		parts[i] = (struct iovec){frames[i], LEN};
		messages[i].msg_hdr.msg_iov = parts + i;
		messages[i].msg_hdr.msg_iovlen = 1;
		for (int at = 14; at < 34; at += 2)
			sum += (uint32_t)frames[i][at] << 8 | frames[i][at + 1];
		sum = ~(sum % 0xffff);
		frames[i][24] = (uint8_t)(sum >> 8);
		frames[i][25] = (uint8_t)sum;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	due = now.tv_sec + now.tv_nsec / 1e9;
	for (double began = due;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		due = now.tv_sec + now.tv_nsec / 1e9 - began;
		if (due >= seconds)
			break;
		wanted = (uint64_t)(due * rate);
		while (sent < wanted) {
			unsigned count = wanted - sent < MOST ? (unsigned)(wanted - sent) : MOST;
			int done;

			for (unsigned i = 0; i < count; i++)
				number(frames[i], (uint32_t)(sent + i));
			done = sendmmsg(wire, messages, count, 0);
			if (done < 0)
				err(1, "sendmmsg");
			sent += (unsigned)done;
		}
		nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	printf("%llu\n", (unsigned long long)sent);
	return 0;
}
