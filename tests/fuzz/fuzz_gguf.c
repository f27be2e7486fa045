/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file, whole or its first part: the header, and what the client makes of the metadata. The first byte says how
 * much larger than the data the file is. Tensors that are accepted lie within the file and have the bytes of their
 * shape; a config and a tokenizer are objects, or refused with a sentence.
 */
#include "base/mem.h"
#include "client/hf/gguf.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const uint32_t fuzz_runs = 20000;

static void check_gguf_tensors(const struct ngd_gguf *g, uint64_t file_bytes)
{
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct ngd_gguf_tensor *t = &g->tensors[i];
        uint64_t n = 1;

        for (uint32_t k = 0; k < t->rank; k++)
            fuzz_demand(t->shape[k] > 0 && !__builtin_mul_overflow(n, (uint64_t)t->shape[k], &n), "a shape overflows");
        fuzz_demand(n / t->type->elements * t->type->bytes == t->bytes, "a tensor has other bytes than its shape says");
        fuzz_demand(t->bytes <= file_bytes && t->offset <= file_bytes - t->bytes, "a tensor leaves the file");
        fuzz_demand(ngd_gguf_tensor(g, t->name) == t, "a tensor is not found by its name");
    }
}

static void check_made(int rc, const json_t *made, const struct npugraph_error *err)
{
    fuzz_demand(rc == 0 ? json_is_object(made) : err->message[0] != '\0', "neither an object nor a refusal");
}

typedef int maker_fn(struct npugraph__gguf *, json_t **);

static uint64_t json_left; /* allocations that succeed; the next one fails */

static void *json_alloc(size_t n)
{
    return json_left-- == 0 ? NULL : malloc(n);
}

/* Without memory for a part, nothing is made, or the same. */
static void fail_each_allocation(struct npugraph__gguf *g, maker_fn *maker, const json_t *whole)
{
    for (uint64_t k = 0, over = 0; k < 300 && !over; k++) {
        json_t *made = NULL;
        int rc;

        json_left = k;
        json_set_alloc_funcs(json_alloc, free);
        rc = maker(g, &made);
        over = json_left <= k;
        json_set_alloc_funcs(malloc, free);
        fuzz_demand(rc != 0 || json_equal(made, whole), "a failed allocation makes something else");
        json_decref(made);
    }
}

static void use_metadata(const struct ngd_gguf *header)
{
    static maker_fn *const makers[] = {npugraph__gguf_config, npugraph__gguf_tokenizer,
                                       npugraph__gguf_tokenizer_config};
    struct npugraph__gguf g = {.header = *header, .fd = -1, .path = "x"};

    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        struct npugraph_error err = {0};
        json_t *made = NULL;
        int rc;

        g.from = (struct npugraph__source){g.path, &err};
        rc = makers[i](&g, &made);
        check_made(rc, made, &err);
        if (rc == 0 && header->n_values < 64)
            fail_each_allocation(&g, makers[i], made);
        json_decref(made);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_gguf gguf = {0};
    struct ngd_diag diag = {0};
    uint64_t file_bytes;
    bool more = false;
    uint8_t *bytes;

    if (n < 1)
        return 0;
    file_bytes = n - 1 + ((uint64_t)data[0] << 8);
    bytes = ngd_malloc(n); /* of its own size, so that a sanitizer sees reads behind it */
    if (!bytes)
        return 0;
    memcpy(bytes, data + 1, n - 1);
    if (ngd_gguf_parse(bytes, n - 1, file_bytes, &gguf, &more, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a header is refused without a diagnosis");
        fuzz_demand(!more || file_bytes > n - 1, "more is wanted of a file that was read to its end");
    } else {
        check_gguf_tensors(&gguf, file_bytes);
        use_metadata(&gguf);
    }
    ngd_gguf_fini(&gguf);
    ngd_free(bytes);
    return 0;
}
