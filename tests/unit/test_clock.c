/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/unit/unit.h"

START_TEST(real_clock_does_not_go_back)
{
    ngd_nsec_t last = ngd_now();

    for (int i = 0; i < 1000; i++) {
        ngd_nsec_t now = ngd_now();

        ck_assert_int_ge(now, last);
        last = now;
    }
}
END_TEST

START_TEST(fake_clock_stands_until_it_is_set_again)
{
    ngd_nsec_t real = ngd_now();

    ngd_clock_set_fake(5 * NGD_SEC);
    ck_assert_int_eq(ngd_now(), 5 * NGD_SEC);
    ck_assert_int_eq(ngd_now(), 5 * NGD_SEC);
    ngd_clock_set_fake(0);
    ck_assert_int_eq(ngd_now(), 0);
    ngd_clock_set_fake(-1);
    ck_assert_int_ge(ngd_now(), real);
}
END_TEST

UNIT_MAIN("base/clock", real_clock_does_not_go_back, fake_clock_stands_until_it_is_set_again)
