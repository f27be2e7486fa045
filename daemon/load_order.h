/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_ORDER_H
#define NGD_DAEMON_LOAD_ORDER_H

/*
 * Columns of numbers in another order than the file has (TensorSlice.order of the protocol): after act-order, columns
 * that share a scale do not lie side by side, and operators want them so.
 * Threads: the caller synchronises. Memory: orders are borrowed.
 */
#include "daemon/load.h"

/* Checks that the order of a slice names each column of numbers of a weight once. t has its whole shape, in which the
 * slice lies. */
ngd_status_t ngd_load_order_check(const struct ngd_loaded *t, const struct ngd_load_slice *slice,
                                  struct ngd_diag *diag);
/* Brings the columns of a tensor that was loaded into the order of its slice. */
ngd_status_t ngd_load_order_apply(const struct ngd_loaded *t, struct ngd_buffer *buffer, struct ngd_diag *diag);

#endif
