/* Takes something away for 50 ms: `outage link NAME` sets it down and up again, `outage pid PID` stops
 * and continues it. Prints when it began to and had, and began to give back and had, on the stamps'
 * clock. */
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

/* kill(2) returns before a process that runs on another CPU has stopped. */
static int wait_until_stopped(const char *pid)
{
    char path[64], state = 0;

    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    while (state != 'T') {
        FILE *file = fopen(path, "r");

        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            return -1;
        fclose(file);
    }
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
