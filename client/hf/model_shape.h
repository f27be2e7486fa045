/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_MODEL_SHAPE_H
#define NPUGRAPH_MODEL_SHAPE_H

#include "client/hf/checkpoint.h"
#include "client/hf/npugraph_hf.h"

/* Memory of the device that has the least left once the weights are there, in bytes. */
struct npugraph__room {
    char device[64];
    uint64_t memory, used;
};
/* What a KV cache may take of it: nine tenths of the memory, less what is used. */
uint64_t npugraph__room_left(const struct npugraph__room *room);

/* Refuses sizes that no device could have. Before anything is loaded. */
int npugraph__check_sizes(const struct npugraph_model_params *params, const struct npugraph__checkpoint *ck,
                          struct npugraph_error *err);
/*
 * Chooses all sizes of *shape but block_size and kv_dtype, which must be set. padding: KV blocks that the device keeps
 * from sequences. Without kv_bytes the cache has room for max_batch contexts, or takes what is left. A context that
 * does not fit is shortened, or refused if the caller asked for it.
 */
int npugraph__choose_shape(const struct npugraph_model_params *params, const struct npugraph__checkpoint *ck,
                           const struct npugraph__room *room, uint32_t padding, struct npugraph__shape *shape,
                           struct npugraph_error *err);
/* Chooses the dtype of the KV cache: that of the caller's kv_dtype, or `floats`, the dtype of the weights. Refuses a
 * dtype with scales if a layer of the family has none. */
int npugraph__choose_kv_dtype(const struct npugraph_model_params *params, const struct npugraph__checkpoint *ck,
                              const char *floats, struct npugraph__shape *shape, struct npugraph_error *err);
/* Bytes of state i of a layer's cache, on a rank. */
uint64_t npugraph__state_bytes(const struct npugraph__cache *cache, const struct npugraph__shape *shape, size_t i);

#endif
