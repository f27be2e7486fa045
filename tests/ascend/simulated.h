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

#endif
