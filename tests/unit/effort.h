/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_EFFORT_H
#define NGD_TESTS_EFFORT_H

/*
 * How often tests do what only differs in its random numbers or its instruction set. All of it, unless the
 * environment's NGD_TEST_EFFORT (a percentage; tests/environment.sh sets it for sanitizers, which take ten times as
 * long) says less. What is left out is printed, and shown again with the sum of the tests.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

#endif
