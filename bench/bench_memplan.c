/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the planner's layouts need compared with the least that any placement could do with (the largest sum
 * of live bytes), and how long planning takes. The graphs are the models of bench/ and 200 generated graphs with
 * branches. The aims are a ratio of 1.05 on each model, and of 1.10 at the 95th percentile of the generated graphs.
 */
#include "base/clock.h"
#include "base/log.h"
#include "devices/device.h"
#include "tests/models/memplan_cases.h"
#include <stdio.h>
#include <stdlib.h>

#define GENERATED 200

static struct ngd_device *dev;

static struct ngd_plan *must(struct ngd_plan *plan, const struct ngd_diag *diag)
{
    if (!plan) {
        fprintf(stderr, "bench_memplan: %s\n", diag->text);
        exit(EXIT_FAILURE);
    }
    return plan;
}

static void measure_model(const struct memplan_model *model, bool prefill, uint32_t rows)
{
    struct ngd_diag diag = {0};
    ngd_nsec_t begin = ngd_now();
    struct ngd_plan *plan = must(memplan_plan_model(dev, model, prefill, rows, &diag), &diag);

    printf("%-26s %-8s %5u %6u %14llu %14llu %7.4f %9.2f\n", model->name, prefill ? "prefill" : "decode",
           (unsigned)rows, (unsigned)plan->n_calls, (unsigned long long)plan->pool_bytes,
           (unsigned long long)plan->live_peak_bytes, memplan_ratio(plan), (double)(ngd_now() - begin) / 1e6);
    ngd_plan_unref(plan);
}

static int cmp_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void measure_generated(void)
{
    static const int percentiles[] = {50, 75, 90, 95, 99, 100};
    double ratios[GENERATED];

    for (uint64_t seed = 0; seed < GENERATED; seed++) {
        struct ngd_diag diag = {0};
        struct ngd_plan *plan = must(memplan_plan_generated(dev, seed, &diag), &diag);

        ratios[seed] = memplan_ratio(plan);
        ngd_plan_unref(plan);
    }
    qsort(ratios, GENERATED, sizeof(ratios[0]), cmp_double);
    printf("\n%d generated graphs with branches, pool / live bytes:", GENERATED);
    for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
        printf("  p%d %.4f", percentiles[i], ratios[(GENERATED - 1) * percentiles[i] / 100]);
    printf("\n");
}

int main(void)
{
    static const uint32_t rows[] = {1, 16, 64, 512};
    struct ngd_device_params params;
    struct ngd_diag diag = {0};

    ngd_log_set_level(NGD_LOG_ERROR);
    ngd_device_params_init(&params);
    params.backend = "host";
    params.threads = 2;
    if (ngd_device_open(&params, &dev, &diag)) {
        fprintf(stderr, "bench_memplan: %s\n", diag.text);
        return EXIT_FAILURE;
    }
    printf("%-26s %-8s %5s %6s %14s %14s %7s %9s\n", "model", "step", "rows", "calls", "pool bytes", "live bytes",
           "ratio", "plan ms");
    for (uint32_t m = 0; m < memplan_n_models; m++)
        for (int prefill = 0; prefill < 2; prefill++)
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
                measure_model(&memplan_models[m], prefill != 0, rows[r]);
    measure_generated();
    ngd_device_close(dev);
    return EXIT_SUCCESS;
}
