/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_QUANTIZE_FILE_H
#define NPUGRAPH_QUANTIZE_FILE_H

/* One safetensors file of a checkpoint that is quantised. Its header is checked before anything is written. */
#include "client/hf/npugraph_hf.h"
#include <jansson.h>

struct npugraph__quantize_run {
    struct npugraph_quantize *q;
    json_t *ignored; /* names of matrices that are no linears, or are not quantised */
    json_t *map;     /* of a new index: tensor to file */
    npugraph_progress_fn progress;
    void *user;
    uint64_t done, total; /* bytes of the source's files */
    struct npugraph_error *err;
};
/* Writes `to`, which is new, from `from`. file: its name in the index. to NULL: checks `from` alone. */
int npugraph__quantize_file(struct npugraph__quantize_run *run, const char *from, const char *to, const char *file);

#endif
