/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the policies guarantee, at sizes and times that only virtual time allows (bench/sim). */
#include "bench/sim/sim.h"
#include <string.h>
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

/* The load is relative to full replays: it is nine times what replays of single requests could do. */
START_TEST(deadlines_are_met_and_no_time_is_wasted_when_requests_run_together)
{
    struct sim_params p;

    sim_params_init(&p);
    sim_params_together(&p);
    p.clients = 40;
    p.seconds = 2;
    p.load = 1.5;
    p.deadline_share = 1;
    p.deadline_max = 30;
    for (p.slots = 1; p.slots <= 2; p.slots++) {
        sim_run(&p, &result);
        ck_assert_uint_gt(result.refused, result.requests / 4);
        ck_assert_double_le((double)result.missed, 0.01 * (double)result.taken);
        ck_assert_double_le(result.wrongly_refused, 0.05);
        ck_assert_uint_gt(result.taken, 12 * result.replays);
    }
}
END_TEST

START_TEST(what_only_replays_together_can_do_is_not_refused)
{
    struct sim_params p;

    sim_params_init(&p);
    sim_params_together(&p);
    /* With two graphs, the one with fewer requests has smaller replays, and its clients exceed their shares. */
    p.graphs = 1;
    p.clients = 40;
    p.seconds = 5;
    p.load = 0.6; /* five times what these could do alone */
    p.deadline_share = 1;
    p.deadline_min = 40;
    sim_run(&p, &result);
    ck_assert_uint_eq(result.refused, 0);
    ck_assert_uint_eq(result.missed, 0);
    p.n_buckets = 0;
    p.load = 5;
    sim_run(&p, &result);
    ck_assert_uint_gt(result.refused, result.requests / 2);
}
END_TEST

START_TEST(clients_get_what_their_cap_allows_and_the_others_what_is_left)
{
    struct sim_params p;

    sim_params_init(&p);
    p.clients = 8;
    p.seconds = 20;
    p.load = 3;
    p.n_weights = 2;
    p.weights[0] = 100, p.weights[1] = 200;
    p.caps[1] = 5;
    for (p.slots = 1; p.slots <= 4; p.slots *= 2) {
        sim_run(&p, &result);
        /* In addition, the time that it has saved up, and the time by which its last replays exceeded the cap. */
        ck_assert_double_le(result.classes[1].most_share, 0.05 + (0.005 + 0.01) / p.seconds);
        ck_assert_double_ge(result.classes[1].used / result.classes[1].clients / (p.seconds * p.slots), 0.0475);
        ck_assert_double_ge(result.busy, 0.99);
    }
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

static bool read_text(const char *text, struct sim_arrivals *a, char *error, size_t room)
{
    FILE *f = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
    bool ok = sim_arrivals_read(f, a, error, room);

    fclose(f);
    return ok;
}

START_TEST(recorded_arrivals_are_replayed)
{
    static const char text[] = "npugraph-arrivals 1\n# a comment\n"
                               "2000.000 1000.000 1000.000 - 1 100 host:0 uid:1\n"
                               "0.000 1000.000 1000.000 - 1 100 host:0 uid:1\n"
                               "0.500 1000.000 1000.000 2900.000 1 200 host:0 tls:CN=a b\n"
                               "0.750 1000.000 1000.000 2500.000 1 100 host:0 uid:1\n"
                               "0.750 1000.000 0.000 - 2 100 host:1 uid:1\n";
    struct sim_arrivals a;
    struct sim_params p;
    char error[200];

    ck_assert_msg(read_text(text, &a, error, sizeof(error)), "%s", error);
    ck_assert_uint_eq(a.n, 5);
    ck_assert_uint_eq(a.n_clients, 3); /* uid:1 on two devices */
    ck_assert_uint_eq(a.n_devices, 2);
    sim_params_init(&p);
    p.arrivals = &a;
    p.clients = a.n_clients;
    p.devices = a.n_devices;
    p.seconds = 1;
    p.n_weights = 2;
    p.weights[0] = 100, p.weights[1] = 200;
    sim_run(&p, &result);
    ck_assert_uint_eq(result.requests, 5);
    ck_assert_uint_eq(result.with_deadline, 2);
    ck_assert_uint_eq(result.refused, 1); /* it would end in time, but make the other one late */
    ck_assert_uint_eq(result.missed, 0);
    ck_assert_double_eq_tol(result.classes[0].used, 0.003, 1e-6);
    ck_assert_double_eq_tol(result.classes[1].used, 0.001, 1e-6);
    sim_arrivals_free(&a);
}
END_TEST

START_TEST(bad_recordings_are_refused_by_line)
{
    static const char *const bad[] = {
        "",
        "npugraph-arrivals 2\n",
        "npugraph-arrivals 1\n",
        "npugraph-arrivals 1\n1 2 3\n",
        "npugraph-arrivals 1\n-1 2 3 - 1 100 host:0 uid:1\n",
        "npugraph-arrivals 1\n1 nan 3 - 1 100 host:0 uid:1\n",
        "npugraph-arrivals 1\n1 2 3 x 1 100 host:0 uid:1\n",
        "npugraph-arrivals 1\n1 2 3 - 3 100 host:0 uid:1\n",
        "npugraph-arrivals 1\n1 2 3 - 1 0 host:0 uid:1\n",
        "npugraph-arrivals 1\n1 2 3 - 1 100 host:0 uid:1", /* cut off */
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sim_arrivals a;
        char error[200] = "";
        FILE *f = tmpfile();

        fputs(bad[i], f);
        rewind(f);
        ck_assert_msg(!sim_arrivals_read(f, &a, error, sizeof(error)), "%zu", i);
        ck_assert_msg(strncmp(error, "line ", 5) == 0, "%s", error);
        fclose(f);
    }
}
END_TEST

UNIT_MAIN("scheduler/sim", shares_are_within_three_percent_of_the_weights,
          deadlines_that_are_accepted_are_met_and_no_time_is_wasted, below_its_capacity_nothing_is_refused,
          deadlines_are_met_and_no_time_is_wasted_when_requests_run_together,
          what_only_replays_together_can_do_is_not_refused,
          clients_get_what_their_cap_allows_and_the_others_what_is_left, ten_thousand_clients_on_64_devices_are_served,
          recorded_arrivals_are_replayed, bad_recordings_are_refused_by_line)
