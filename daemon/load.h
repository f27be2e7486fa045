/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_H
#define NGD_DAEMON_LOAD_H

/*
 * One load: the tensors that are wanted of a file, and what becomes of them. loader.h runs it.
 * Memory: what is wanted is borrowed; the rest is the load's until ngd_load_fini.
 */
#include "daemon/object.h"
#include "daemon/safetensors.h"

struct ngd_file_id;

/* A part of a tensor: [begin, end) of one dimension, all of the others. */
struct ngd_load_slice {
    const char *name;
    uint32_t dim;
    int64_t begin, end;
};

struct ngd_loaded {
    const struct ngd_safetensor *tensor;
    const struct ngd_load_slice *slice; /* NULL: all of it */
    int64_t shape[NGD_SAFETENSORS_MAX_RANK];
    uint64_t bytes;
    struct ngd_charge charge;         /* until there is a buffer, which takes it over */
    struct ngd_buffer_object *object; /* a reference */
    bool shared;                      /* it was loaded before */
};

struct ngd_load {
    struct ngd_device *dev;
    struct ngd_payer *payer; /* of the bytes, also of those that were loaded before */
    const char *path;
    const char *const *names; /* wanted; n_names = 0: all */
    size_t n_names;
    const struct ngd_load_slice *slices; /* of what is wanted, one for a name at most */
    size_t n_slices;
    bool (*progress)(void *ctx, uint64_t done, uint64_t total); /* false: stop, CANCELLED */
    void *ctx;
    /* out */
    struct ngd_safetensors index;
    struct ngd_loaded *tensors;
    size_t n_tensors;
    bool all_shared;
    /* The loader's, while the load runs. */
    bool settled; /* the file's contents are known by its id, so what is loaded may be shared */
    struct ngd_list link;
    const struct ngd_file_id *file;
};

#endif
