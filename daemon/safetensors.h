/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SAFETENSORS_H
#define NGD_DAEMON_SAFETENSORS_H

/*
 * Reads the header of a safetensors file. The file has 8 bytes of length (little endian), the header as JSON, then the
 * tensors' bytes. Nothing of it is trusted: lengths, offsets, shapes and dtypes are checked against each other and
 * against the file's size, and tensors may neither overlap nor lie outside. Definition:
 * github.com/huggingface/safetensors, "Format".
 *
 * Pure functions. Memory: the index owns all that it points to.
 */
#include "base/dtype.h"
#include "base/status.h"
#include <stdint.h>

#define NGD_SAFETENSORS_MAX_HEADER ((uint64_t)100 << 20)
#define NGD_SAFETENSORS_MAX_RANK   8
/*
 * Most values in a header's JSON, counted by its commas, colons and brackets. A tensor has about 14, so 400,000 tensors
 * fit. Parsing that many takes some 400 MB of the heap for a moment.
 */
#define NGD_SAFETENSORS_MAX_VALUES ((size_t)6000000)

struct ngd_gguf_plane;

struct ngd_safetensor {
    char *name;
    ngd_dtype_t dtype;
    uint32_t rank;
    int64_t shape[NGD_SAFETENSORS_MAX_RANK];
    uint64_t offset; /* in the file */
    uint64_t bytes;
    const struct ngd_gguf_plane *plane; /* of a GGUF file: the bytes are taken out of blocks at `offset`; else NULL */
};
/* The tensors of a safetensors file, or of a GGUF file (daemon/gguf.h). */
struct ngd_safetensors {
    struct ngd_safetensor *items;          /* by offset */
    const struct ngd_safetensor **by_name; /* for ngd_safetensors_find */
    size_t n;
};

/* Reads the length of the header from the first 8 bytes. FILE_TRUNCATED and FILE_CORRUPT say what is wrong. */
ngd_status_t ngd_safetensors_header_bytes(const uint8_t first[8], uint64_t file_bytes, uint64_t *header_bytes_p,
                                          struct ngd_diag *diag);
/* Parses the header. json: the header_bytes bytes after the first 8. Names with control characters are refused: names
 * are printed in logs and on terminals. */
ngd_status_t ngd_safetensors_parse(const char *json, uint64_t header_bytes, uint64_t file_bytes,
                                   struct ngd_safetensors *index_p, struct ngd_diag *diag);
/* Sorts a list that is complete, for ngd_safetensors_find. FILE_CORRUPT: two tensors have one name. */
ngd_status_t ngd_safetensors_order(struct ngd_safetensors *index, struct ngd_diag *diag);
void ngd_safetensors_fini(struct ngd_safetensors *index);
const struct ngd_safetensor *ngd_safetensors_find(const struct ngd_safetensors *index,
                                                  const char *name); /* NULL = none */

#endif
