/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a safetensors file. The first 8 bytes are the file's, the next 8 say how large the file is. What is
 * accepted lies within the file, does not overlap, and has as many bytes as its shape and dtype say.
 */
#include "base/le.h"
#include "daemon/safetensors.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

static void check(const struct ngd_safetensors *index, uint64_t begin, uint64_t file_bytes)
{
    uint64_t end = begin;

    for (size_t i = 0; i < index->n; i++) {
        const struct ngd_safetensor *t = &index->items[i];
        uint64_t bytes = ngd_dtype_bytes(t->dtype);

        for (uint32_t k = 0; k < t->rank; k++)
            fuzz_demand(t->shape[k] >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)t->shape[k], &bytes),
                        "a shape overflows");
        fuzz_demand(bytes == t->bytes, "a tensor has other bytes than its shape says");
        fuzz_demand(t->offset >= end && t->bytes <= file_bytes && t->offset <= file_bytes - t->bytes,
                    "a tensor overlaps another one, or leaves the file");
        end = t->offset + t->bytes;
        fuzz_demand(ngd_safetensors_find(index, t->name) != NULL, "a tensor is not found by its name");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_safetensors index = {0};
    struct ngd_diag diag = {0};
    uint64_t header = 0, file_bytes;
    char *json;

    if (n < 16)
        return 0;
    file_bytes = ngd_le_get(data + 8, 8);
    (void)ngd_safetensors_header_bytes(data, file_bytes, &header, &diag); /* any answer; no memory is taken here */
    diag = (struct ngd_diag){0};
    if (file_bytes < 8 + (n - 16))
        file_bytes = 8 + (n - 16); /* the file has at least its header */
    json = fuzz_text(data + 16, n - 16);
    if (ngd_safetensors_parse(json, n - 16, file_bytes, &index, &diag) != NGD_OK)
        fuzz_demand(diag.text[0] != '\0', "a header is refused without a diagnosis");
    else
        check(&index, 8 + (n - 16), file_bytes);
    ngd_safetensors_fini(&index);
    ngd_free(json);
    return 0;
}
