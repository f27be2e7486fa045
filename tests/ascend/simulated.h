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
static inline ngd_status_t simulated_open_with(struct bench *b, const struct ngd_device_params *params,
                                               struct ngd_diag *diag)
{
    ngd_status_t status;

    memset(b, 0, sizeof(*b));
    status = ngd_device_open(params, &b->dev, diag);
    if (!status)
        status = ngd_stream_create(b->dev, "test", &b->stream, diag);
    if (!status)
        status = ngd_pool_create(b->dev, "test", &b->pool);
    return status;
}

static inline ngd_status_t simulated_open(struct bench *b, uint32_t index, const char *limit_ms, struct ngd_diag *diag)
{
    struct ngd_device_params params;

    simulated_params(&params, index, limit_ms);
    return simulated_open_with(b, &params, diag);
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

/* How many lines of the log are this name. */
static inline int times_in(const char *log, const char *name)
{
    size_t n = strlen(name);
    int found = 0;

    for (const char *p = log; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        found += strncmp(p, name, n) == 0 && p[n] == '\n';
    return found;
}

struct sweep {
    int tried, failed;
};

/*
 * A life, from the opening of its devices to their end, again and again, with each of the n calls of CANN that it makes
 * failing once with one of the codes: the life says itself whether its results are right, and nothing may be left of
 * it.
 */
static inline struct sweep each_call_fails_once(ngd_status_t (*life)(void), int64_t n, const int codes[4],
                                                const char *what)
{
    const int64_t step = (int64_t)effort_step((uint64_t)n, what);
    struct sweep sweep = {0};

    for (int64_t i = 0; i < n; i += step) {
        char when[64];

        SIMULATOR(ngd_aclsim_fail_call)(NULL, i, codes[i % 4]);
        sweep.failed += life() != NGD_OK;
        sweep.tried++;
        SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
        snprintf(when, sizeof(when), "call %lld failed with %d", (long long)i, codes[i % 4]);
        nothing_is_left(when);
    }
    printf("%s: %d lives, of which %d ended with an error\n", what, sweep.tried, sweep.failed);
    return sweep;
}

/* The life of one device: not all of them end early, nor none. */
static inline void each_call_of_a_device_fails_once(ngd_status_t (*life)(void))
{
    /* A refused parameter, no memory, no stream, a fault of the device. */
    static const int codes[] = {107000, 207001, 207008, 507015};
    int64_t before = simulator_count("calls"), n;
    struct sweep sweep;

    ck_assert_int_eq(life(), NGD_OK);
    nothing_is_left("without a fault");
    n = simulator_count("calls") - before;
    ck_assert_int_gt(n, 100);
    sweep = each_call_fails_once(life, n, codes, "calls that fail once");
    ck_assert_int_gt(sweep.failed, sweep.tried / 20);
    ck_assert_int_gt(sweep.tried - sweep.failed, sweep.tried / 20);
}

#endif
