/* Writes when it began and when it is about to end, as CLOCK_MONOTONIC and CLOCK_BOOTTIME in nanoseconds.
 *
 *   tick FILE MILLISECONDS [BUSY PERCENT]
 *                             one line at the start, one at the end; no file if FILE is "-"; sleeps in between, or
 *                             works: first all the time, for so many milliseconds, then that share of the time
 *   pause                     sleeps until it is killed, as a pod's pause container does
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct timespec monotonic, boottime;

static void look(void) {
    clock_gettime(CLOCK_BOOTTIME, &boottime);
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
}

static void note(int file, const char *word) {
    char line[128];
    int length = snprintf(line, sizeof line, "%s %lld%09ld %lld%09ld\n", word, (long long)monotonic.tv_sec,
                          monotonic.tv_nsec, (long long)boottime.tv_sec, boottime.tv_nsec);
    if (file >= 0 && write(file, line, length) != length)
        _exit(3);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void rest(long long nanoseconds) {
    struct timespec span = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    nanosleep(&span, NULL);
}

static void work(long long end, long long busy, long percent) {
    while (now() < busy && now() < end)
        ;
    for (long long period = 20000000, next = now(); next < end; next += period) {
        while (now() < next + period * percent / 100)
            ;
        if (next + period > now())
            rest(next + period - now());
    }
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

int main(int count, char **words) {
    look();
    signal(SIGTERM, leave); /* process 1 of a pid namespace ignores what it does not handle */
    if (strstr(words[0], "pause") != NULL)
        for (;;)
            pause();
    if (count != 3 && count != 5)
        return 2;
    int file = strcmp(words[1], "-") ? open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    note(file, "began");
    long long begin = now(), left = atol(words[2]) * 1000000LL;
    if (count == 5)
        work(begin + left, begin + atol(words[3]) * 1000000LL, atol(words[4]));
    else
        rest(left);
    look();
    note(file, "ended");
    _exit(0);
}
