/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOADER_H
#define NGD_DAEMON_LOADER_H

/*
 * Loads tensors of safetensors and GGUF files into device memory. Files are opened only below the configured
 * directories (sandbox.h). Bytes go from the file to the device buffer without another copy.
 *
 * Tensors are shared. A tensor, or a slice of one, that is still loaded from the same file with the same contents
 * (base/file_id.h) is not loaded again (load_share.h), whoever holds it: a session, a graph or a kept model. It is
 * therefore read-only. Each load has its own view of a shared buffer (ngd_buffer_view), and its identity is charged for
 * it before anything is read. Loads of one file wait for each other.
 *
 * Threads: any; ngd_load_run blocks. Memory: a load owns its list.
 */
#include "daemon/load.h"

struct ngd_daemon;
struct ngd_loader;

ngd_status_t ngd_loader_create(struct ngd_daemon *d, struct ngd_loader **loader_p);
void ngd_loader_destroy(struct ngd_loader *loader); /* no load may run; NULL is fine */
/* Releases tensors that only the table holds; for a timer. */
void ngd_loader_forget(struct ngd_loader *loader);
/*
 * Runs the load. PATH_NOT_ALLOWED, FILE_*, TENSOR_MISSING, QUOTA and NO_DEVICE_MEMORY (before anything is allocated),
 * CANCELLED. After an error the load holds nothing.
 */
ngd_status_t ngd_load_run(struct ngd_loader *loader, struct ngd_load *load, struct ngd_diag *diag);
void ngd_load_fini(struct ngd_load *load); /* releases objects that the caller did not take (object = NULL) */

#endif
