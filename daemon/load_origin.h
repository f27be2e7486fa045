/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_ORIGIN_H
#define NGD_DAEMON_LOAD_ORIGIN_H

/*
 * Where the contents of a loaded buffer came from: the file with its id, the tensor, and what was done with it. The
 * next daemon reads it from there again (proto/handover.proto, Origin).
 * Threads: any. Memory: an origin belongs to its buffer.
 */
#include "base/digest.h"
#include "daemon/load.h"
#include <stddef.h>

struct ngd_load_origin {
    /* Of the tensor, what was done with it, and the file's size and time of modification: the same in a copy of the
     * file that keeps them, and wherever the file lies. */
    struct ngd_digest contents;
    size_t n;
    uint8_t packed[]; /* npugraph.handover.v1.Origin */
};

/* Notes the origin of a tensor that was read from a file whose id stands for its contents. Without memory for it there
 * is none: the bytes are handed over then. */
void ngd_load_origin_note(const struct ngd_load *load, const struct ngd_file_id *file, const struct ngd_loaded *t,
                          struct ngd_buffer *buffer);

#endif
