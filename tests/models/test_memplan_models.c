/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the pool of plans with the least that any placement needs, on real and on generated graphs. */
#include "base/log.h"
#include "devices/device.h"
#include "tests/models/memplan_cases.h"
#include "tests/unit/unit.h"
#include <stdlib.h>

#define GENERATED 200

static struct ngd_device *open_device(void)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};

    ngd_log_set_level(NGD_LOG_ERROR);
    ngd_device_params_init(&params);
    params.backend = "host";
    params.threads = 2;
    if (ngd_device_open(&params, &dev, &diag))
        ck_abort_msg("%s", diag.text);
    return dev;
}

static double ratio_of(struct ngd_plan *plan, const struct ngd_diag *diag)
{
    double ratio;

    if (!plan)
        ck_abort_msg("%s", diag->text);
    ck_assert_uint_ge(plan->pool_bytes, plan->live_peak_bytes);
    ck_assert_uint_gt(plan->live_peak_bytes, 0);
    ratio = memplan_ratio(plan);
    ngd_plan_unref(plan);
    return ratio;
}

START_TEST(pools_of_real_models_are_within_5_percent_of_the_live_bytes)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 64, 128, 512};
    struct ngd_device *dev = open_device();

    for (uint32_t m = 0; m < memplan_n_models; m++) {
        for (int prefill = 0; prefill < 2; prefill++) {
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                struct ngd_diag diag = {0};
                double ratio =
                    ratio_of(memplan_plan_model(dev, &memplan_models[m], prefill != 0, rows[r], &diag), &diag);

                ck_assert_msg(ratio <= 1.05, "%s, %s of %u rows: %.4f", memplan_models[m].name,
                              prefill ? "prefill" : "decode", (unsigned)rows[r], ratio);
            }
        }
    }
    ngd_device_close(dev);
}
END_TEST

static int cmp_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

START_TEST(pools_of_generated_graphs_are_within_10_percent_at_the_95th_percentile)
{
    struct ngd_device *dev = open_device();
    double ratios[GENERATED];

    for (uint64_t seed = 0; seed < GENERATED; seed++) {
        struct ngd_diag diag = {0};

        ratios[seed] = ratio_of(memplan_plan_generated(dev, seed, &diag), &diag);
    }
    qsort(ratios, GENERATED, sizeof(ratios[0]), cmp_double);
    ck_assert_msg(ratios[GENERATED * 95 / 100] <= 1.10, "95th percentile %.4f, worst %.4f",
                  ratios[GENERATED * 95 / 100], ratios[GENERATED - 1]);
    ngd_device_close(dev);
}
END_TEST

UNIT_MAIN("memplan_models", pools_of_real_models_are_within_5_percent_of_the_live_bytes,
          pools_of_generated_graphs_are_within_10_percent_at_the_95th_percentile)
