/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_ASCEND_SIMULATED_H
#define NGD_TESTS_ASCEND_SIMULATED_H

/* For tests of the Ascend backend: a device of the simulator with a stream and a pool, and that nothing is left of it.
 */
#include "tests/backend/simulator.h"
#include "tests/ops/device_run.h"
#include "tests/unit/unit.h"

static inline void must(ngd_status_t status, const struct ngd_diag *diag)
{
    ck_assert_msg(status == NGD_OK, "%s: %s", ngd_status_name(status), diag->text);
}

/* limit_ms: after which a replay counts as hanging. */
static inline void simulated_params(struct ngd_device_params *params, uint32_t index, const char *limit_ms)
{
    setenv("NGD_ASCEND_LIMIT_MS", limit_ms, 1);
    ngd_device_params_init(params);
    params->backend = "ascend";
    params->index = index;
    params->memory_bytes = (uint64_t)1 << 28;
    params->ascend_libs = simulator_dir();
}

/* After an error too, what there is of it is to be closed. */
static inline ngd_status_t simulated_open(struct bench *b, uint32_t index, const char *limit_ms, struct ngd_diag *diag)
{
    struct ngd_device_params params;
    ngd_status_t status;

    memset(b, 0, sizeof(*b));
    simulated_params(&params, index, limit_ms);
    status = ngd_device_open(&params, &b->dev, diag);
    if (!status)
        status = ngd_stream_create(b->dev, "test", &b->stream, diag);
    if (!status)
        status = ngd_pool_create(b->dev, "test", &b->pool);
    return status;
}

static inline void close_device(struct bench *b)
{
    ngd_stream_destroy(b->stream);
    ngd_pool_destroy(b->pool);
    ngd_device_close(b->dev);
}

static inline void nothing_is_left(const char *when)
{
    static const char *const kinds[] = {"streams", "events",   "bytes",     "pinned", "contexts",
                                        "models",  "operands", "executors", "ranges"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%s: %lld %s are left", when,
                      (long long)simulator_count(kinds[i]), kinds[i]);
}

/*
 * The life of a device, from its opening to its end, with each call of CANN that it makes failing once: the life says
 * itself whether its results are right; nothing may be left of it, and not all of them end early, nor none.
 */
static inline void each_call_fails_once(ngd_status_t (*life)(void))
{
    /* A refused parameter, no memory, no stream, a fault of the device. */
    static const int codes[] = {107000, 207001, 207008, 507015};
    int64_t before = simulator_count("calls"), n, step;
    int failed = 0, survived = 0;

    ck_assert_int_eq(life(), NGD_OK);
    nothing_is_left("without a fault");
    n = simulator_count("calls") - before;
    ck_assert_int_gt(n, 100);
    step = (int64_t)effort_step((uint64_t)n, "calls that fail once");
    for (int64_t i = 0; i < n; i += step) {
        char when[64];
        ngd_status_t status;

        SIMULATOR(ngd_aclsim_fail_call)(NULL, i, codes[i % 4]);
        status = life();
        SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
        failed += status != NGD_OK;
        survived += status == NGD_OK;
        snprintf(when, sizeof(when), "call %lld failed with %d", (long long)i, codes[i % 4]);
        nothing_is_left(when);
    }
    printf("%lld calls, failed once: %d lives ended with an error, %d went on\n", (long long)((n + step - 1) / step),
           failed, survived);
    ck_assert_int_gt(failed, (failed + survived) / 20);
    ck_assert_int_gt(survived, (failed + survived) / 20);
}

#endif
