/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_SHARE_H
#define NGD_DAEMON_LOAD_SHARE_H

/*
 * The tensors that are loaded: the same tensor, or slice of one, of the same file with the same contents is found here
 * again, whoever holds it.
 *
 * The table holds a reference on every buffer. When it is the only one, nobody but a lookup could get another, and
 * lookups take theirs under the table's lock; so under that lock the buffer may go (forget).
 *
 * Threads: any. Memory: objects that are given are the caller's references; each is charged to who gets it.
 */
#include "daemon/load.h"

struct ngd_load_share;

ngd_status_t ngd_load_share_create(struct ngd_load_share **share_p);
void ngd_load_share_destroy(struct ngd_load_share *share); /* NULL is fine */
/* Gives back what nobody but the table holds. */
void ngd_load_share_forget(struct ngd_load_share *share);
/* The tensor, if it is loaded on the device: *found_p. NULL all the same: no host memory for an object. */
struct ngd_buffer_object *ngd_load_share_find(struct ngd_load_share *share, struct ngd_device *dev,
                                              const struct ngd_file_id *file, struct ngd_loaded *t, bool *found_p);
/* Adds the tensor with its bytes. Takes the caller's reference on buffer, also when it fails (NULL: no memory). */
struct ngd_buffer_object *ngd_load_share_add(struct ngd_load_share *share, const struct ngd_file_id *file,
                                             struct ngd_loaded *t, struct ngd_buffer *buffer);
/* An object that nobody else gets. Takes the caller's reference on buffer, also when it fails. */
struct ngd_buffer_object *ngd_load_object(struct ngd_loaded *t, struct ngd_buffer *buffer);

#endif
