/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_GGUF_H
#define NGD_DAEMON_GGUF_H

/*
 * A GGUF file as a list of tensors (docs/gguf.md). A quantised tensor NAME is a list of blocks, each of which has
 * numbers and scales. It becomes several tensors, its planes, that operators take as they are:
 *
 *   NAME          the numbers: i8, or i32 with eight 4-bit numbers n + 8 each, or u8 with two codes of FP4 each
 *   NAME.i8       the numbers of a 4-bit type as i8, for a table that is gathered
 *   NAME.scales   f16, or the exponents of FP4 (u8), one for each group of numbers; i8 in types of 256 numbers a block
 *   NAME.minima   likewise, of the types that have them; those of i8 are negative
 *   NAME.block_scales, NAME.block_minima
 *                 f16, one for each block of 256: factors of the i8
 *
 * An element is (number + middle) * scale + minimum, where the middle is 8 for numbers of four bits with minima, 16 for
 * those of five, and else 0.
 * Pure functions, but for ngd_gguf_index. Memory: the list owns its names; planes are constants.
 */
#include "daemon/safetensors.h"

/* How a plane is taken out of blocks: a constant. */
struct ngd_gguf_plane {
    uint32_t type;        /* of GGML */
    uint32_t block_bytes; /* in the file */
    uint32_t bytes;       /* of the plane, that a block gives */
    enum {
        NGD_PLANE_PACKED,
        NGD_PLANE_I8,
        NGD_PLANE_SCALES,
        NGD_PLANE_MINIMA,
        NGD_PLANE_BLOCK_SCALES,
        NGD_PLANE_BLOCK_MINIMA,
        NGD_PLANES
    } kind;
};

/* Reads the header of a file and lists its tensors. FILE_*: the sentence names the field. */
ngd_status_t ngd_gguf_index(int fd, uint64_t file_bytes, struct ngd_safetensors *index_p, struct ngd_diag *diag);
/* Takes the plane out of n blocks: n * plane->bytes bytes. */
void ngd_gguf_unpack(const struct ngd_gguf_plane *plane, const uint8_t *blocks, uint64_t n, uint8_t *to);

#endif
