/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_H
#define NGD_DAEMON_LOAD_H

/*
 * One load: the tensors that a client wants from a file, and what became of them. loader.h runs it.
 * Memory: the inputs are borrowed; the rest belongs to the load until ngd_load_fini.
 */
#include "daemon/load_change.h"
#include "daemon/object.h"
#include "daemon/safetensors.h"

struct ngd_file_id;

/* A slice of a tensor: [begin, end) of one dimension, and all of the others. */
struct ngd_load_slice {
    const char *name;
    uint32_t dim;
    int64_t begin, end;
    const struct ngd_change *change; /* NULL: none; else the slice is one of what the tensor becomes */
    const int64_t *whole;            /* what the shape of the whole tensor must be, once it is changed */
    size_t rank;                     /* of that shape; 0: any */
    const int32_t *order;            /* column i of numbers becomes the file's column order[i]; NULL: columns stay */
    size_t n_order;
};

struct ngd_loaded {
    const struct ngd_safetensor *tensor;
    const struct ngd_load_slice *slice; /* NULL: the whole tensor, unchanged */
    ngd_dtype_t dtype;
    int64_t whole[NGD_SAFETENSORS_MAX_RANK]; /* the shape without the slice */
    int64_t shape[NGD_SAFETENSORS_MAX_RANK];
    uint64_t bytes;
    struct ngd_charge charge;         /* until a buffer takes it over */
    struct ngd_buffer_object *object; /* a reference */
    bool shared;                      /* another load had loaded it */
};

struct ngd_load {
    struct ngd_device *dev;
    struct ngd_payer *payer; /* pays for all bytes, also for those that were loaded before */
    const char *path;
    const char *const *names; /* wanted tensors; n_names = 0: all */
    size_t n_names;
    const struct ngd_load_slice *slices; /* slices of wanted tensors, at most one for each name */
    size_t n_slices;
    const struct ngd_file_id *expected;                         /* refuse a file with another id; NULL: any file */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total); /* false: stop, CANCELLED */
    void *ctx;
    /* out */
    struct ngd_safetensors index;
    struct ngd_loaded *tensors;
    size_t n_tensors;
    bool all_shared;
    /* Owned by the loader while the load runs. */
    bool settled; /* the file's id identifies its contents, so its tensors may be shared */
    struct ngd_list link;
    const struct ngd_file_id *file;
};

#endif
