/* The programs of an image in tests: `forward IN OUT` and `answer PORT`, with nothing beside them. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char packet[65536];

static int at_port(const char *name)
{
    int made = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = name ? if_nametoindex(name) : 0,
    };
    struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};

    if (made < 0 || !at.sll_ifindex || bind(made, (void *)&at, sizeof at)) {
        perror(name ? name : "no port");
        exit(1);
    }
    setsockopt(made, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all);
    return made;
}

static void forward(const char *in, const char *out)
{
    int from = at_port(in), to = at_port(out);

    for (;;) {
        struct sockaddr_ll where;
        socklen_t length = sizeof where;
        ssize_t size = recvfrom(from, packet, sizeof packet, 0, (void *)&where, &length);

        if (size > 0 && where.sll_pkttype != PACKET_OUTGOING)
            send(to, packet, size, 0);
    }
}

static void answer(int port)
{
    int served = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

    if (bind(served, (void *)&at, sizeof at)) {
        perror("bind");
        exit(1);
    }
    for (;;) {
        struct sockaddr_in client;
        socklen_t length = sizeof client;
        ssize_t size = recvfrom(served, packet, sizeof packet, 0, (void *)&client, &length);

        if (size > 3) {
            packet[2] |= (char)0x80; /* a DNS query becomes an answer */
            sendto(served, packet, size, 0, (void *)&client, length);
        }
    }
}

int main(int count, char **words)
{
    const char *colour = getenv("COLOUR");

    fprintf(stderr, "uid %d, colour %s\n", getuid(), colour ? colour : "none");
    if (count == 4 && !strcmp(words[1], "forward"))
        forward(words[2], words[3]);
    if (count == 3 && !strcmp(words[1], "answer"))
        answer(atoi(words[2]));
    if (count == 2 && !strcmp(words[1], "forward"))
        forward(getenv("TAILTAP_INGRESS"), getenv("TAILTAP_EGRESS"));
    fprintf(stderr, "nothing to do\n");
    return 2;
}
