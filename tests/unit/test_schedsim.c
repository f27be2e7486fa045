/* SPDX-License-Identifier: Apache-2.0 */
/* What the policies promise at sizes and times that only virtual time has (bench/sim). */
#include "bench/sim/sim.h"
#include "tests/unit/unit.h"
#include <math.h>

static struct sim_result result;

START_TEST(shares_are_within_three_percent_of_the_weights)
{
    static const double parts[3] = {1 / 7.0, 2 / 7.0, 4 / 7.0};
    struct sim_params p;

    sim_params_init(&p);
    p.backlogged = true;
    p.clients = 30;
    p.seconds = 30;
    p.n_weights = 3;
    p.weights[0] = 100, p.weights[1] = 200, p.weights[2] = 400;
    for (p.slots = 1; p.slots <= 4; p.slots *= 2) {
        double all = 0;

        sim_run(&p, &result);
        for (int k = 0; k < 3; k++)
            all += result.classes[k].used;
        for (int k = 0; k < 3; k++) {
            ck_assert_double_le(fabs(result.classes[k].used / all / parts[k] - 1), 0.03);
            ck_assert_double_ge(result.classes[k].least, 0.97);
            ck_assert_double_le(result.classes[k].most, 1.03);
        }
    }
}
END_TEST

START_TEST(deadlines_that_are_accepted_are_met_and_no_time_is_wasted)
{
    struct sim_params p;

    sim_params_init(&p);
    p.clients = 40;
    p.seconds = 20;
    p.load = 1.5;
    p.deadline_share = 1;
    for (p.slots = 1; p.slots <= 4; p.slots *= 2) {
        sim_run(&p, &result);
        ck_assert_uint_gt(result.refused, result.requests / 4);
        ck_assert_double_le((double)result.missed, 0.01 * (double)result.taken);
        ck_assert_double_le(result.wrongly_refused, 0.05);
    }
}
END_TEST

START_TEST(below_its_capacity_nothing_is_refused)
{
    struct sim_params p;

    sim_params_init(&p);
    p.clients = 40;
    p.seconds = 20;
    p.load = 0.7;
    p.deadline_share = 1;
    p.deadline_min = 60;
    sim_run(&p, &result);
    ck_assert_uint_eq(result.refused, 0);
    ck_assert_uint_eq(result.missed, 0);
}
END_TEST

START_TEST(ten_thousand_clients_on_64_devices_are_served)
{
    struct sim_params p;

    sim_params_init(&p);
    p.clients = 10000;
    p.devices = 64;
    p.slots = 2;
    p.seconds = 2;
    p.load = 0.9;
    p.deadline_share = 0.3;
    sim_run(&p, &result);
    ck_assert_double_ge(result.busy, 0.85);
    ck_assert_double_le((double)result.missed, 0.01 * (double)result.with_deadline);
    ck_assert_int_le(result.classes[0].p50, 20 * NGD_MSEC);
}
END_TEST

UNIT_MAIN("scheduler/sim", shares_are_within_three_percent_of_the_weights,
          deadlines_that_are_accepted_are_met_and_no_time_is_wasted, below_its_capacity_nothing_is_refused,
          ten_thousand_clients_on_64_devices_are_served)
