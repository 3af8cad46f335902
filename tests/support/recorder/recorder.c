// SPDX-License-Identifier: Apache-2.0
/* recorder OBJECT FILE [WAY:INDEX:NAMESPACE]...
 *
 * Loads recorder.bpf.c, says "ready", appends its records to FILE until SIGINT or SIGTERM, and
 * prints how many found no room. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>

#include "recorder.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static int write_down(void *file, void *data, size_t size)
{
	return fwrite(data, size, 1, file) == 1 ? 0 : -EIO;
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "recorder: cannot %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

int main(int argc, char **argv)
{
	struct port ports[MAX_PORTS] = {0};
	struct bpf_object *object;
	struct bpf_program *program;
	struct bpf_map *map;
	struct ring_buffer *ring;
	unsigned long long lost = 0;
	unsigned int zero = 0;
	FILE *file;
	int error;

	if (argc < 3 || argc > 3 + MAX_PORTS) {
		fprintf(stderr, "usage: recorder OBJECT FILE [WAY:INDEX:NAMESPACE]...\n");
		return 2;
	}
	for (int i = 3; i < argc; i++)
		if (sscanf(argv[i], "%u:%u:%u", &ports[i - 3].way, &ports[i - 3].index,
			   &ports[i - 3].namespace) != 3)
			fail("read the ports", EINVAL);
	file = fopen(argv[2], "wb");
	if (!file)
		fail("create the file", errno);
	object = bpf_object__open_file(argv[1], NULL);
	if (!object)
		fail("open the program", errno);
	bpf_object__for_each_map(map, object) {
		if (strstr(bpf_map__name(map), ".rodata")) {
			error = bpf_map__set_initial_value(map, ports, sizeof(ports));
			if (error)
				fail("name the ports", error);
		}
	}
	error = bpf_object__load(object);
	if (error)
		fail("load the program", error);
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "ring"), write_down, file,
				NULL);
	if (!ring)
		fail("map the ring", errno);
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	bpf_object__for_each_program(program, object)
		if (!bpf_program__attach(program))
			fail(bpf_program__name(program), errno);
	printf("ready\n");
	fflush(stdout);
	while (!stopped) {
		/* Nobody is woken up by records: look now and then. */
		error = ring_buffer__poll(ring, 50);
		if (error < 0 && error != -EINTR)
			fail("read the ring", error);
		error = ring_buffer__consume(ring);
		if (error < 0 && error != -EINTR)
			fail("write the file", error);
	}
	ring_buffer__consume(ring);
	map = bpf_object__find_map_by_name(object, ".bss");
	if (!map || bpf_map__lookup_elem(map, &zero, sizeof(zero), &lost, sizeof(lost), 0))
		fail("read how many were lost", errno);
	if (fclose(file))
		fail("write the file", errno);
	printf("%llu\n", lost);
	return 0;
}
