/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Starts so many processes a second, evenly, for so many seconds, and waits for all.
 *
 * usage: storm RATE SECONDS PROGRAM [ARGUMENT...]
 *        storm                                      what it starts: a process that has libssl, and ends at once
 *
 * Prints how many were started, how many ended well, and how many milliseconds the starts took.
 */
#include <err.h>
#include <openssl/ssl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void sleep_until(int64_t t)
{
	struct timespec ts = { t / 1000000000, t % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

/* Children that have ended well, waiting for those that have not where `flags` says so. */
static long reap(int flags)
{
	long good = 0;
	int status;

	while (waitpid(-1, &status, flags) > 0)
		good += WIFEXITED(status) && !WEXITSTATUS(status);
	return good;
}

int main(int argc, char **argv)
{
	long started = 0, good = 0, count;
	int64_t began = now(), took;

	if (argc == 1)
		return !TLS_method();
	if (argc < 4 || atoi(argv[1]) <= 0)
		errx(2, "usage: storm [RATE SECONDS PROGRAM [ARGUMENT...]]");
	count = atol(argv[1]) * atol(argv[2]);
	for (; started < count; started++) {
		pid_t pid;

		sleep_until(began + started * 1000000000LL / atol(argv[1]));
		if (posix_spawn(&pid, argv[3], NULL, NULL, argv + 3, environ))
			err(1, "%s", argv[3]);
		good += reap(WNOHANG);
	}
	took = now() - began;
	good += reap(0);
	printf("%ld %ld %lld\n", started, good, (long long)(took / 1000000));
	return 0;
}
