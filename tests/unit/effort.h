/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_EFFORT_H
#define NGD_TESTS_EFFORT_H

/*
 * How long a test may take, and how often tests do what only differs in its random numbers or its instruction set. All
 * of it, unless the environment's NGD_TEST_EFFORT (a percentage; tests/environment.sh sets it for sanitizers, which
 * take ten times as long) says less. What is left out is printed, and shown again with the sum of the tests.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* In seconds. For a hang; a sanitizer on a busy machine is no hang. */
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

/* So many of n rounds, 1 at least. */
static inline uint64_t effort(uint64_t n, const char *what)
{
    uint64_t less = (n * effort_percent() + 99) / 100;

    if (less < n)
        printf("reduced - %s: %llu of %llu\n", what, (unsigned long long)less, (unsigned long long)n);
    return less;
}

/* For n cases in a row that are all alike: how far to go on each time. Odd, so that what alternates is met all the
 * same. */
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
