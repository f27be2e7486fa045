/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_UNIT_H
#define NGD_TESTS_UNIT_H

/*
 * The main of a unit test: UNIT_MAIN("base/status", test_a, test_b). Test names are sentences of
 * subject, condition and outcome. Each test runs in a process of its own unless CK_FORK=no.
 */
#include "tests/unit/effort.h"
#include <check.h>
#include <stddef.h>
#include <stdlib.h>

/* The limit on frames is for the daemon's threads; tests may have large variables on the stack. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wframe-larger-than"
#else
#pragma GCC diagnostic ignored "-Wframe-larger-than="
#endif

static inline int unit_run(const char *name, const TTest *const *tests, size_t n)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, effort_seconds());
    for (size_t i = 0; i < n; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#define UNIT_MAIN(name, ...)                                            \
    int main(void)                                                      \
    {                                                                   \
        const TTest *const tests[] = {__VA_ARGS__};                     \
                                                                        \
        return unit_run(name, tests, sizeof(tests) / sizeof(tests[0])); \
    }

#endif
