/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOADER_H
#define NGD_DAEMON_LOADER_H

/*
 * Loads tensors of safetensors files into device memory. Files are opened below the configured directories only
 * (sandbox.h); bytes go from the file to the device buffer without another copy.
 *
 * What is loaded is charged before it is read, and to everybody who loads it: each load has a view (ngd_buffer_view) of
 * its own of what is shared.
 * Tensors are shared: the same tensor, or slice of one, of the same file with the same contents (base/file_id.h) that
 * is still loaded is given again (load_share.h), whoever holds it (a session, a graph, a kept model), and is therefore
 * read-only. Loads of one file wait for each other. Threads: any; ngd_load_run blocks. Memory: a load owns its list.
 */
#include "daemon/load.h"

struct ngd_daemon;
struct ngd_loader;

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
