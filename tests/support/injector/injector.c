// SPDX-License-Identifier: Apache-2.0
/* injector KIND CPU FROM PERIOD_NS SPREAD_NS BUSY_NS COUNT SECONDS LOG [FILE|PORT ON OFF]
 *
 * Disturbs one CPU every PERIOD_NS, give or take up to SPREAD_NS, and writes each injection as one JSON line into LOG when it
 * ends: after SECONDS, or by SIGTERM or SIGINT. It keeps the times in memory until then, so that
 * its log disturbs nobody. Times are of CLOCK_MONOTONIC, integer ns. FROM is the CPU on which it
 * works where it does not have to work on CPU itself. It prints "ready" before the first injection,
 * and why it cannot inject on standard error. ../injectors.py says what the kinds do. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MOST_SECONDS 120
#define MOST_TIMERS 10000
#define CALLS 4 /* of a thread, in a row */
#define FIFO_PRIORITY 50
#define PROTOCOL 0x88b5 /* of frames; IEEE 802's for experiments */
#define FRAME_LEN 60
#define LOOK_NS 20000 /* how often it looks whether frames have arrived */
#define MOST_WAIT_NS 20000000

struct injection {
	int64_t start, end, reached;
};

static struct {
	int cpu, from, count, timers[MOST_TIMERS], sender, counter, process;
	pthread_barrier_t all_begin, all_ended;
	int64_t busy;
	const char *file, *on, *off, *policy;
} with;

static volatile sig_atomic_t stopped;
static volatile uint64_t turns; /* of the spinner */

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

static void sleep_until(int64_t due)
{
	struct timespec time = {due / 1000000000, due % 1000000000};

	while (!stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* A number from -limit to limit: the same numbers each time. */
static int64_t some(int64_t limit)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state >> 32) % (2 * limit + 1)) - limit;
}

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus)) /* of the calling thread */
		die("sched_setaffinity");
}

/* Whoever injects does so at once, whatever else works on its CPU. */
static void become_urgent(void)
{
	struct sched_param fifo = {.sched_priority = FIFO_PRIORITY};

	/* A control group without a budget for real-time tasks refuses. */
	with.policy = "fifo";
	if (sched_setscheduler(0, SCHED_FIFO, &fifo)) {
		with.policy = "nice";
		if (setpriority(PRIO_PROCESS, 0, -20))
			die("setpriority");
	}
}

/* A thread of this process on the disturbed CPU, so that its memory map is in use there. It works
 * only where nobody else wants to but other idle work, such as a build in the background. */
static void *spin(void *unused)
{
	(void)unused;
	pin(with.cpu);
	if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19))
		die("setpriority");
	for (;;)
		turns++;
	return NULL;
}

static void begin_spinner(void)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, spin, NULL);
	if (errno)
		die("pthread_create");
}

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static void begin_membarrier(void)
{
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
		die("membarrier");
	begin_spinner();
}

static void inject_membarrier(void)
{
	for (int i = 0; i < with.count; i++)
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

static void inject_hog(void)
{
	int64_t until = now() + with.busy;

	while (now() < until && !stopped)
		;
}

static void begin_timers(void)
{
	if (with.count > MOST_TIMERS)
		with.count = MOST_TIMERS;
	for (int i = 0; i < with.count; i++) {
		with.timers[i] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
		if (with.timers[i] < 0)
			die("timerfd_create");
	}
}

/* BUSY_NS apart. A timer expires on the CPU that arms it. Nobody reads, so that nobody is woken. */
static void inject_timers(void)
{
	int64_t due = now() + 100000 + with.count * 1000ll;

	for (int i = 0; i < with.count; i++, due += with.busy) {
		struct itimerspec when = {.it_value = {due / 1000000000, due % 1000000000}};

		timerfd_settime(with.timers[i], TFD_TIMER_ABSTIME, &when, NULL);
	}
	sleep_until(due);
}

static void write_file(const char *text)
{
	int file = open(with.file, O_WRONLY | O_CLOEXEC);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		die(with.file);
	close(file);
}

static void inject_file(void)
{
	for (int i = 0; i < with.count; i++)
		write_file(with.on);
	if (with.busy)
		sleep_until(now() + with.busy);
	if (*with.off)
		write_file(with.off);
}

static int listen_at(const char *port)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(PROTOCOL),
		.sll_ifindex = (int)if_nametoindex(port),
	};
	int made = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (made < 0 || bind(made, (struct sockaddr *)&address, sizeof(address)))
		die(port);
	return made;
}

/* A socket that frames are sent through, one that counts them where they arrive, and OFF others there
 * that want none of them: each frame is shown to all, in the softirq that receives. */
static void begin_flow(void)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog filter = {1, &none};

	with.sender = listen_at(with.file);
	with.counter = listen_at(with.on);
	for (int i = 0; i < atoi(with.off); i++)
		if (setsockopt(listen_at(with.on), SOL_SOCKET, SO_ATTACH_FILTER, &filter,
			       sizeof(filter)))
			die("SO_ATTACH_FILTER");
}

/* Over when all frames have arrived. Nobody sleeps on the socket: each of them would wake it. */
static void inject_flow(void)
{
	unsigned char frame[FRAME_LEN] = {
		0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, PROTOCOL >> 8, PROTOCOL & 0xff,
	};
	int64_t until = now() + MOST_WAIT_NS;
	int arrived = 0;

	for (int i = 0; i < with.count; i++)
		if (send(with.sender, frame, sizeof(frame), 0) < 0)
			die(with.file);
	while (arrived < with.count && now() < until && !stopped) {
		sleep_until(now() + LOOK_NS);
		while (recv(with.counter, frame, sizeof(frame), MSG_DONTWAIT) >= 0)
			arrived++;
	}
}

/* Threads that ask the disturbed CPU for its features, all at once. They sleep until it has told
 * them, so that whoever else works on theirs goes on. */
static void *ask(void *unused)
{
	char path[64], features[CALLS * 16];
	int file;

	(void)unused;
	snprintf(path, sizeof(path), "/dev/cpu/%d/cpuid", with.cpu);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		die(path);
	become_urgent();
	for (;;) {
		pthread_barrier_wait(&with.all_begin);
		if (pread(file, features, sizeof(features), 0) < 0)
			die(path);
		pthread_barrier_wait(&with.all_ended);
	}
	return NULL;
}

static void begin_calls(void)
{
	pthread_barrier_init(&with.all_begin, NULL, (unsigned)with.count + 1);
	pthread_barrier_init(&with.all_ended, NULL, (unsigned)with.count + 1);
	for (int i = 0; i < with.count; i++) {
		pthread_t thread;

		errno = pthread_create(&thread, NULL, ask, NULL);
		if (errno)
			die("pthread_create");
	}
}

static void inject_calls(void)
{
	pthread_barrier_wait(&with.all_begin);
	pthread_barrier_wait(&with.all_ended);
}

/* The process COUNT, by a handle that is never another's. */
static void begin_stop(void)
{
	with.process = (int)syscall(SYS_pidfd_open, with.count, 0);
	if (with.process < 0)
		die("pidfd_open");
}

static void send_signal(int number)
{
	if (!syscall(SYS_pidfd_send_signal, with.process, number, NULL, 0))
		return;
	if (errno != ESRCH)
		die("pidfd_send_signal");
	stopped = 1; /* the process ended before this one was told to */
}

/* Of all its threads. It goes on as well when this process is told to end. */
static void inject_stop(void)
{
	send_signal(SIGSTOP);
	sleep_until(now() + with.busy);
	send_signal(SIGCONT);
}

static const struct kind {
	const char *name;
	void (*begin)(void), (*inject)(void);
	int there; /* whether it works on the disturbed CPU itself */
	int spins; /* whether it reaches that CPU only while its spinner has it */
} KINDS[] = {
	{"membarrier", begin_membarrier, inject_membarrier, 0, 1},
	{"hog", NULL, inject_hog, 1, 0},
	{"timers", begin_timers, inject_timers, 1, 0},
	{"file", NULL, inject_file, 0, 0},
	{"flow", begin_flow, inject_flow, 0, 0},
	{"calls", begin_calls, inject_calls, 0, 0},
	{"stop", begin_stop, inject_stop, 0, 0},
};

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = stop}; /* without SA_RESTART: sleeping ends */
	const struct kind *kind = NULL;
	struct injection *injections;
	int64_t period, spread, first, until;
	size_t room, number = 0;
	FILE *log;

	if (argc != 10 && argc != 13)
		return 2;
	for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++)
		if (!strcmp(KINDS[i].name, argv[1]))
			kind = &KINDS[i];
	with.cpu = atoi(argv[2]);
	with.from = atoi(argv[3]);
	period = atoll(argv[4]);
	spread = atoll(argv[5]);
	with.busy = atoll(argv[6]);
	with.count = atoi(argv[7]);
	until = atoll(argv[8]);
	if (!kind || spread < 0 || period - spread < 1000000 || until < 1 || until > MOST_SECONDS)
		return 2;
	if (argc == 13) {
		with.file = argv[10];
		with.on = argv[11];
		with.off = argv[12];
	}
	log = fopen(argv[9], "w");
	if (!log)
		die(argv[9]);
	room = until * 1000000000 / (period - spread) + 1;
	injections = calloc(room, sizeof(*injections));
	if (!injections)
		die("calloc");
	memset(injections, 0xff, room * sizeof(*injections)); /* no page fault later on */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_TIMERSLACK, 1);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	pin(kind->there ? with.cpu : with.from);
	if (kind->begin)
		kind->begin();
	/* Arming timers must not take the CPU from others: their interrupts do. */
	if (kind->inject != inject_timers)
		become_urgent();
	puts("ready");
	fflush(stdout);

	first = now() + period;
	until = first + until * 1000000000;
	for (int64_t due = first; number < room && due < until; due += period + some(spread)) {
		if (due < now())
			continue; /* it took longer than a period: this one is left out */
		sleep_until(due);
		if (stopped)
			break;
		injections[number].reached = -(int64_t)turns;
		injections[number].start = now();
		kind->inject();
		injections[number].end = now();
		injections[number++].reached += turns;
	}
	for (size_t i = 0; i < number; i++)
		fprintf(log,
			"{\"cpu\": %d, \"start_ns\": %lld, \"end_ns\": %lld, \"reached\": %s%s%s%s}\n",
			with.cpu, (long long)injections[i].start, (long long)injections[i].end,
			!kind->spins || injections[i].reached ? "true" : "false",
			with.policy ? ", \"policy\": \"" : "", with.policy ? with.policy : "",
			with.policy ? "\"" : "");
	if (fclose(log))
		die(argv[9]);
	_exit(0); /* with the spinner */
}
