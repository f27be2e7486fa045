/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_READ_AT_H
#define NGD_BASE_READ_AT_H

#include "base/status.h"
#include <stdint.h>

/* Reads n bytes from an offset of a file, all or none. FILE_TRUNCATED: it ends before. Any thread. */
ngd_status_t ngd_read_at(int fd, void *to, uint64_t n, uint64_t offset, struct ngd_diag *diag);

#endif
