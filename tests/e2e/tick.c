/* Writes when it began and when it is about to end, as CLOCK_MONOTONIC and CLOCK_BOOTTIME in nanoseconds.
 *
 *   tick FILE MILLISECONDS    one line at the start, one at the end; no file if FILE is "-"
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
    if (count != 3)
        return 2;
    int file = strcmp(words[1], "-") ? open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    note(file, "began");
    long left = atol(words[2]);
    struct timespec span = {left / 1000, left % 1000 * 1000000};
    nanosleep(&span, NULL);
    look();
    note(file, "ended");
    _exit(0);
}
