/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOADER_H
#define NGD_DAEMON_LOADER_H

/*
 * Loads tensors of safetensors files into device memory. Files are opened only below the configured directories,
 * without following links out of them; bytes go from the file to the device buffer without another copy.
 *
 * What is loaded is charged before it is read, and to everybody who loads it: each load has a view (ngd_buffer_view) of
 * its own of what is shared.
 * Tensors are shared: the same tensor, or slice of one, of the same file with the same contents (base/file_id.h) that
 * is still loaded is given again, whoever holds it (a session, a graph, a kept model), and is therefore read-only.
 * Loads of one file wait for each other. The table has a reference of its own, which ngd_loader_forget drops when it is
 * the last. Threads: any; ngd_load_run blocks. Memory: a load owns its list.
 */
#include "daemon/object.h"
#include "daemon/safetensors.h"

struct ngd_file_id;
struct ngd_daemon;
struct ngd_loader;

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

ngd_status_t ngd_loader_create(struct ngd_daemon *d, struct ngd_loader **loader_p);
void ngd_loader_destroy(struct ngd_loader *loader); /* no load may run; NULL is fine */
/* Gives back tensors that nobody but the table holds; for a timer. */
void ngd_loader_forget(struct ngd_loader *loader);
/*
 * PATH_NOT_ALLOWED, FILE_*, TENSOR_MISSING, QUOTA and NO_DEVICE_MEMORY (before anything is allocated), CANCELLED. After
 * an error nothing is held.
 */
ngd_status_t ngd_load_run(struct ngd_loader *loader, struct ngd_load *load, struct ngd_diag *diag);
void ngd_load_fini(struct ngd_load *load); /* drops what was not taken (object = NULL) */

#endif
