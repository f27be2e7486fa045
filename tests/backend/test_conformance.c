/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of the conformance suite: it runs every test case of the other files over every backend. */
#include "tests/backend/conform.h"
#include "base/log.h"

/* Fails if the environment names a backend that is not compiled in, since nothing would be tested. */
static void check_selection(void)
{
    const char *selected = getenv("NGD_TEST_BACKENDS");
    char list[256], *save = NULL;

    snprintf(list, sizeof(list), "%s", selected ? selected : "");
    for (const char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const char *const *p = ngd_device_backends();

        while (*p && strcmp(*p, name) != 0)
            p++;
        if (*p)
            continue;
        fprintf(stderr, "NGD_TEST_BACKENDS: backend \"%s\" is not compiled in\n", name);
        exit(EXIT_FAILURE);
    }
}

int main(void)
{
    Suite *suite = suite_create("backends");
    SRunner *runner;
    int failed;

    check_selection();
    ngd_log_set_level(NGD_LOG_ERROR);
    suite_add_tcase(suite, conform_lifecycle());
    suite_add_tcase(suite, conform_memory());
    suite_add_tcase(suite, conform_streams());
    suite_add_tcase(suite, conform_replay());
    suite_add_tcase(suite, conform_pools());
    suite_add_tcase(suite, conform_errors());
    suite_add_tcase(suite, conform_indices());
    suite_add_tcase(suite, conform_operators());
    suite_add_tcase(suite, conform_decoder());
    suite_add_tcase(suite, conform_collectives());
    suite_add_tcase(suite, conform_groups());
    suite_add_tcase(suite, conform_side_streams());
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
