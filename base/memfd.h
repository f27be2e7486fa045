/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_MEMFD_H
#define NGD_BASE_MEMFD_H

/*
 * Memory that processes share through a memfd. Its seals say what nobody can change any more, so what is checked once
 * holds as long as the descriptor. Threads: any.
 */
#include "base/status.h"
#include <fcntl.h>
#include <stdint.h>

#define NGD_MEMFD_MAX     ((uint64_t)1 << 46)                         /* bytes */
#define NGD_MEMFD_SIZED   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) /* seals: its size is fixed */
#define NGD_MEMFD_WRITTEN (NGD_MEMFD_SIZED | F_SEAL_WRITE)            /* ... and so are its bytes */

/*
 * Checks a descriptor that another process sent: a memfd of exactly `bytes` bytes, 1 to NGD_MEMFD_MAX, with these seals
 * and open for reading. Huge pages are refused, because a write to a hole of theirs may find none.
 * INVALID_ARGUMENT: the diagnosis says what is wrong.
 */
ngd_status_t ngd_memfd_check(int fd, uint64_t bytes, int seals, struct ngd_diag *diag);

#endif
