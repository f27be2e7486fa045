/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_GROUP_SPAN_H
#define NGD_DEVICES_ASCEND_GROUP_SPAN_H

/*
 * Groups whose ranks are in several daemons.
 *
 * The daemons have no connection of their own: HCCL connects the ranks by root information, and before each launch
 * every rank tells the others what it is about to do by an all-gather of HCCL (a word). Every rank of every daemon
 * sends one word for each launch, also if its launch has failed before. So a failure, or ranks that do different
 * things, end the launch on all daemons with the same reason, nothing of it reaches a device, and the group works on.
 * Only a rank that sends no word, because its daemon or device is gone, leaves the others waiting until the group's
 * time limit.
 *
 * What other daemons send is checked before it is used, and their text is cut and cleaned.
 */
#include "devices/ascend/group.h"

/* As ngd_backend_comm.root. */
ngd_status_t ngd_ascend_root(void *dev, void *root, size_t *bytes_p, struct ngd_diag *diag);
/* Checks the span's root information. *hccl_p points into it. */
ngd_status_t ngd_ascend_check_root(const char *name, const struct ngd_comm_span *span, const void **hccl_p,
                                   struct ngd_diag *diag);

/* In the daemon of rank 0, when nothing else keeps the group from being made: it has made this root, and uses it once.
 * end_root follows. give_back: HCCL does not know of the use, and the root can be used again. */
ngd_status_t ngd_ascend_use_root(const char *name, const void *hccl, struct ngd_diag *diag);
void ngd_ascend_end_root(const void *hccl, bool give_back);

/* The memory of a seat's words. */
ngd_status_t ngd_ascend_words_open(struct ascend_seat *seat, uint32_t ranks, struct ngd_diag *diag);
void ngd_ascend_words_close(struct ascend_seat *seat);

/* Sends this rank's word for the launch and waits for all ranks'. failed: why the launch does not run, or NULL. An
 * error is of the whole group, whose meeting is broken then. */
ngd_status_t ngd_ascend_exchange_words(const struct ascend_group *g, const struct ngd_launch *launch,
                                       const char *failed, struct ngd_diag *diag);

#endif
