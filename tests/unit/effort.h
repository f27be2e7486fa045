/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_EFFORT_H
#define NGD_TESTS_EFFORT_H

/*
 * How long a test may take, and how many of its rounds run: rounds that differ only in random numbers or instruction
 * sets. All rounds run unless NGD_TEST_EFFORT, a percentage, says less; tests/environment.sh sets it for sanitizers,
 * which take ten times as long. What is left out is printed, and shown again in the summary of the tests.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the time limit of a test in seconds. It must find a hang, but not a sanitizer on a busy machine. */
static inline int effort_seconds(void)
{
    return getenv("SANITIZER") ? 600 : 120;
}

static inline uint64_t effort_percent(void)
{
    const char *env = getenv("NGD_TEST_EFFORT");
    uint64_t percent = env ? strtoull(env, NULL, 10) : 100;

    return percent >= 1 && percent <= 100 ? percent : 100;
}

/* Returns how many of n rounds run, at least 1. */
static inline uint64_t effort(uint64_t n, const char *what)
{
    uint64_t less = (n * effort_percent() + 99) / 100;

    if (less < n)
        printf("reduced - %s: %llu of %llu\n", what, (unsigned long long)less, (unsigned long long)n);
    return less;
}

/* Returns the step with which a loop goes through n similar cases. It is odd, so that cases of alternating kinds all
 * occur. */
static inline uint64_t effort_step(uint64_t n, const char *what)
{
    uint64_t step = 100 / effort_percent();

    if (step <= 1)
        return 1;
    step |= 1;
    printf("reduced - %s: %llu of %llu\n", what, (unsigned long long)((n + step - 1) / step), (unsigned long long)n);
    return step;
}

#endif
