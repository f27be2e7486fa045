/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOADER_H
#define NGD_DAEMON_LOADER_H

/*
 * Loads tensors of safetensors files into device memory. Files are opened only below the configured directories, without
 * following links out of them; bytes go from the file to the device buffer without another copy.
 *
 * Tensors are shared: the same tensor of the same file (device, inode, size, time of change) that is still loaded is given
 * again. The loader's table holds no reference; an entry leaves it with its last holder.
 * Threads: any; ngd_load_run blocks. Memory: a load owns its list; holders are objects (object.h).
 */
#include "daemon/object.h"
#include "daemon/safetensors.h"

struct ngd_daemon;
struct ngd_loader;

struct ngd_loaded {
    const struct ngd_safetensor *tensor;
    struct ngd_buffer_object *object; /* a reference */
    bool shared;                      /* it was loaded before */
};

struct ngd_load {
    struct ngd_device *dev;
    const char *path;
    const char *const *names; /* wanted; n_names = 0: all */
    size_t n_names;
    bool (*progress)(void *ctx, uint64_t done, uint64_t total); /* false: stop, CANCELLED */
    void *ctx;
    /* out */
    struct ngd_safetensors index;
    struct ngd_loaded *tensors;
    size_t n_tensors;
    bool all_shared;
};

ngd_status_t ngd_loader_create(struct ngd_daemon *d, struct ngd_loader **loader_p);
void ngd_loader_destroy(struct ngd_loader *loader); /* every holder must be gone; NULL is fine */
/*
 * PATH_NOT_ALLOWED, FILE_*, TENSOR_MISSING, NO_DEVICE_MEMORY (before anything is allocated), CANCELLED. After an error
 * nothing is held.
 */
ngd_status_t ngd_load_run(struct ngd_loader *loader, struct ngd_load *load, struct ngd_diag *diag);
void ngd_load_fini(struct ngd_load *load); /* drops what was not taken (object = NULL) */

#endif
