/* Takes something away for 50 ms: `outage link NAME` sets it down and up again, `outage pid PID` stops
 * and continues it. Prints when it began to and had, and began to give back and had, on the stamps'
 * clock. */
#include <glob.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

static long long now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* kill(2) returns before anything has stopped. The signal is the first thread's, when that gets a CPU,
 * and each other thread stops when it leaves the kernel. */
static int wait_until_stopped(const char *pid)
{
    char path[64], state;
    glob_t threads;

    snprintf(path, sizeof(path), "/proc/%s/task/*/stat", pid);
    if (glob(path, 0, NULL, &threads))
        return -1;
    for (size_t at = 0; at < threads.gl_pathc; at += state == 'T') {
        FILE *file = fopen(threads.gl_pathv[at], "r");

        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            return -1;
        fclose(file);
    }
    globfree(&threads);
    return 0;
}

static int change(const char *kind, const char *what, int on)
{
    struct ifreq port = {0};
    int asked;

    if (!strcmp(kind, "pid"))
        return kill(atoi(what), on ? SIGCONT : SIGSTOP) || (!on && wait_until_stopped(what));
    asked = socket(AF_INET, SOCK_DGRAM, 0);
    strncpy(port.ifr_name, what, IFNAMSIZ - 1);
    if (ioctl(asked, SIOCGIFFLAGS, &port))
        return -1;
    port.ifr_flags = on ? port.ifr_flags | IFF_UP : port.ifr_flags & ~IFF_UP;
    return ioctl(asked, SIOCSIFFLAGS, &port);
}

int main(int count, char **words)
{
    struct timespec pause = {.tv_nsec = 50000000};
    long long marks[4];

    if (count != 3)
        return 2;
    marks[0] = now();
    if (change(words[1], words[2], 0))
        return 1;
    marks[1] = now();
    nanosleep(&pause, NULL);
    marks[2] = now();
    if (change(words[1], words[2], 1))
        return 1;
    marks[3] = now();
    printf("%lld %lld %lld %lld\n", marks[0], marks[1], marks[2], marks[3]);
    return 0;
}
