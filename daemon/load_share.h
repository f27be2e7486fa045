/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_SHARE_H
#define NGD_DAEMON_LOAD_SHARE_H

/*
 * Table of loaded tensors. A load finds a tensor, or a slice of one, here if it is loaded already from the same file
 * with the same contents, whoever holds it.
 *
 * The table holds a reference on each buffer. If that is the only one, only a lookup can make another, and lookups run
 * under the table's lock. So the table may release such a buffer under its lock (ngd_load_share_forget).
 *
 * Threads: any. Memory: the caller owns a reference on each object it gets. Each object is charged to its own load.
 */
#include "daemon/load.h"

struct ngd_load_share;

ngd_status_t ngd_load_share_create(struct ngd_load_share **share_p);
void ngd_load_share_destroy(struct ngd_load_share *share); /* NULL is fine */
/* Releases buffers that only the table holds. */
void ngd_load_share_forget(struct ngd_load_share *share);
/* Finds the tensor on the device. *found_p says whether it is loaded; NULL with *found_p set: no host memory for an
 * object. */
struct ngd_buffer_object *ngd_load_share_find(struct ngd_load_share *share, struct ngd_device *dev,
                                              const struct ngd_file_id *file, struct ngd_loaded *t, bool *found_p);
/* Adds the tensor with its bytes. Takes the caller's reference on buffer, also if it fails (NULL: no memory). */
struct ngd_buffer_object *ngd_load_share_add(struct ngd_load_share *share, const struct ngd_file_id *file,
                                             struct ngd_loaded *t, struct ngd_buffer *buffer);
/* Makes an object that is not shared. Takes the caller's reference on buffer, also if it fails. */
struct ngd_buffer_object *ngd_load_object(struct ngd_loaded *t, struct ngd_buffer *buffer);

#endif
