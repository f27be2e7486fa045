/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "tests/unit/unit.h"
#include <string.h>

START_TEST(armed_point_skips_then_fails_the_given_times)
{
    ngd_fault_disarm_all();
    ck_assert(!ngd_fault_hit(NGD_FAULT_CONFIG_READ));
    ngd_fault_arm(NGD_FAULT_CONFIG_READ, 2, 3);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(ngd_fault_hit(NGD_FAULT_CONFIG_READ), i >= 2 && i < 5);
}
END_TEST

START_TEST(environment_arms_points_or_says_why_not)
{
    struct ngd_diag diag = {0};

    unsetenv("NPUGRAPHD_FAULT");
    ck_assert_int_eq(ngd_fault_init(&diag), NGD_OK);
    setenv("NPUGRAPHD_FAULT", "config-read:1:2", 1);
    if (!NGD_FAULT_COMPILED) {
        ck_assert_int_eq(ngd_fault_init(&diag), NGD_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(diag.text, "--enable-fault"));
        return;
    }
    ck_assert_int_eq(ngd_fault_init(&diag), NGD_OK);
    ck_assert(!ngd_fault_hit(NGD_FAULT_CONFIG_READ));
    ck_assert(ngd_fault_hit(NGD_FAULT_CONFIG_READ));
    ck_assert(ngd_fault_hit(NGD_FAULT_CONFIG_READ));
    ck_assert(!ngd_fault_hit(NGD_FAULT_CONFIG_READ));
}
END_TEST

START_TEST(bad_environment_is_refused_and_named)
{
    static const char *const bad[] = {
        "nonsense", "config-read:", "config-read:x", "config-read:1:2:3", "config-read:99999999999", "config-read,",
        ","};

    if (!NGD_FAULT_COMPILED)
        return;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ngd_diag diag = {0};

        setenv("NPUGRAPHD_FAULT", bad[i], 1);
        ck_assert_int_eq(ngd_fault_init(&diag), NGD_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(diag.text, "fault.def"));
    }
}
END_TEST

UNIT_MAIN("base/fault", armed_point_skips_then_fails_the_given_times, environment_arms_points_or_says_why_not,
          bad_environment_is_refused_and_named)
