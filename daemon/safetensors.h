/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SAFETENSORS_H
#define NGD_DAEMON_SAFETENSORS_H

/*
 * The header of a safetensors file: 8 bytes of length (little endian), JSON, then the tensors' bytes. Nothing of it is
 * trusted: lengths, offsets, shapes and dtypes are checked against each other and against the file's size, and tensors
 * may neither overlap nor lie outside. Definition: github.com/huggingface/safetensors, "Format". Pure functions;
 * memory: the index owns all it points to.
 */
#include "base/dtype.h"
#include "base/status.h"
#include <stdint.h>

#define NGD_SAFETENSORS_MAX_HEADER ((uint64_t)100 << 20)
#define NGD_SAFETENSORS_MAX_RANK   8
/*
 * Values in a header's JSON, by its commas, colons and brackets. A tensor has about 14, so there may be 400,000
 * tensors; parsed, that is some 400 MB of the heap for a moment.
 */
#define NGD_SAFETENSORS_MAX_VALUES ((size_t)6000000)

struct ngd_safetensor {
    char *name;
    ngd_dtype_t dtype;
    uint32_t rank;
    int64_t shape[NGD_SAFETENSORS_MAX_RANK];
    uint64_t offset; /* in the file */
    uint64_t bytes;
};
struct ngd_safetensors {
    struct ngd_safetensor *items;          /* by offset */
    const struct ngd_safetensor **by_name; /* for ngd_safetensors_find */
    size_t n;
};

/* Length of the header from the first 8 bytes; FILE_TRUNCATED or FILE_CORRUPT say what is wrong with it. */
ngd_status_t ngd_safetensors_header_bytes(const uint8_t first[8], uint64_t file_bytes, uint64_t *header_bytes_p,
                                          struct ngd_diag *diag);
/* json: header_bytes bytes behind the first 8. Names have no control characters: they get into logs and terminals. */
ngd_status_t ngd_safetensors_parse(const char *json, uint64_t header_bytes, uint64_t file_bytes,
                                   struct ngd_safetensors *index_p, struct ngd_diag *diag);
void ngd_safetensors_fini(struct ngd_safetensors *index);
const struct ngd_safetensor *ngd_safetensors_find(const struct ngd_safetensors *index,
                                                  const char *name); /* NULL = none */

#endif
