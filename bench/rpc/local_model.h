/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_LOCAL_MODEL_H
#define NGD_BENCH_RPC_LOCAL_MODEL_H

/* A checkpoint as npugraph_model_load registers it with a daemon, but in this process: the same graph text, no wire. */
#include "client/hf/checkpoint.h"
#include "client/hf/npugraph_hf.h"
#include "scheduler/model/model.h"

struct local_model {
    struct ngd_device *dev;
    struct ngd_sched *sched;
    struct ngd_model *model;
    struct npugraph__config config;
    struct npugraph__weights weights;
    struct npugraph__shape shape;
};

/* params as for npugraph_model_load; 0 means what it means there only for what is asserted to be given: context, batch,
 * chunk. */
void local_model_open(struct local_model *m, const char *dir, const struct npugraph_model_params *params,
                      uint32_t threads);
void local_model_close(struct local_model *m);

#endif
