/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_LOCAL_MODEL_H
#define NGD_BENCH_RPC_LOCAL_MODEL_H

/*
 * A checkpoint as npugraph_model_load registers it with a daemon, but in this process: the same graph text without the
 * wire.
 */
#include "client/hf/checkpoint.h"
#include "client/hf/npugraph_hf.h"
#include "scheduler/model/model.h"

struct local_model {
    struct ngd_device *dev;
    struct ngd_sched *sched;
    struct ngd_model *model;
    struct npugraph__checkpoint *ck;
    struct npugraph__shape shape;
};

/* params are those of npugraph_model_load, but max_context, block_size, max_batch and prefill_chunk must not be 0. */
void local_model_open(struct local_model *m, const char *dir, const struct npugraph_model_params *params,
                      uint32_t threads);
void local_model_close(struct local_model *m);

#endif
