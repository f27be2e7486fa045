/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing of what is read from the store: entries (graphs/store_entry.h) and the plans in them (graphs/plan_pack.h),
 * here without the checksum that stands in front of the latter. Whatever the bytes are, the answer is an error or a
 * plan in which nothing leaves the pool or its storage.
 *
 * With libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DNGD_LIBFUZZER ... ; ./fuzz_plan_pack
 * Alone (make check): mutations of good plans from a fixed seed: NGD_FUZZ_RUNS of them (default 20000), or for
 * NGD_FUZZ_SECONDS. A failure aborts and leaves the bytes in fuzz_plan_pack.crash.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "graphs/plan_pack.h"
#include "graphs/store_entry.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char source_text[] =
    "npugraph 1\ngraph \"f\" {\n  sym B 1..16 buckets 4, 16\n  sym N 1..8\n  guard mod(B + N, 5) != 4\n  guard N <= "
    "6\n  param %w : f32[32,16]\n"
    "  state %s : f32[16,16]\n  input %x : f32[B,16]\n  input %z : f32[N,4]\n  %y = aten.linear(%x, %w)\n"
    "  %a = aten.silu(%y)\n  %b = aten.add.Tensor(%a, %y)\n  %c = aten.mul.Tensor(%z, %z)\n"
    "  %d = aten.view(%c) {size=[N*4]}\n  return \"b\" = %b, \"d\" = %d\n}\n";

static struct ngd_graph *source;
static struct ngd_key key;
static struct ngd_graph_options options;

static ngd_status_t any_select(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                               uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)ctx;
    (void)plan;
    (void)diag;
    *strided_p = call->op->flags & NGD_OPF_ELEMENTWISE ? UINT32_MAX : 0;
    *workspace_p = call->op->id == NGD_OP_ATEN_LINEAR ? 4000 : 0;
    return NGD_OK;
}

static const struct ngd_plan_target target = {.arch = "fuzz", .select = any_select, .inplace = true};

static void demand(bool ok, const char *what, const uint8_t *data, size_t n)
{
    FILE *f;

    if (ok)
        return;
    fprintf(stderr, "fuzz_plan_pack: %s\n", what);
    f = fopen("fuzz_plan_pack.crash", "wb");
    if (f) {
        fwrite(data, 1, n, f);
        fclose(f);
    }
    abort();
}

static void prepare(void)
{
    static const int64_t symbols[2] = {9, 3};
    struct ngd_digest none = {{0}};

    if (source)
        return;
    ngd_graph_options_init(&options);
    demand(ngd_graph_parse(source_text, sizeof(source_text) - 1, &source, NULL) == NGD_OK, "the source", NULL, 0);
    demand(ngd_key_make(source, &none, symbols, 2, &key, NULL) == NGD_OK, "the key", NULL, 0);
}

static void check_plan(const struct ngd_plan *p, const uint8_t *data, size_t n)
{
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ngd_plan_tensor *t = &p->tensors[i], *r = &p->tensors[t->root];

        demand(t->root < p->n_tensors && r->space == t->space, "a root", data, n);
        demand(!t->bytes || (t->offset >= r->offset && t->offset + t->bytes <= r->offset + r->bytes), "a view", data,
               n);
        demand(t->space != NGD_SPACE_POOL || t->offset + t->bytes <= p->pool_bytes, "a tensor", data, n);
    }
    for (uint32_t i = 0; i < p->n_calls; i++)
        demand(p->calls[i].workspace_offset + p->calls[i].workspace_bytes <= p->pool_bytes, "a workspace", data, n);
    demand(p->pool_bytes < 1u << 20, "a pool of any size", data, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy = n ? ngd_memdup(data, n) : NULL; /* of exactly n bytes, so that a read past the end is seen */
    struct ngd_store_entry entry;
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    prepare();
    (void)ngd_store_entry_parse(copy ? copy : (const uint8_t *)"", n, &entry);
    status = ngd_plan_unpack(source, &key, &options, &target, copy ? copy : (const uint8_t *)"", n, &plan, &diag);
    if (status) {
        demand(!plan && diag.status == status && diag.text[0], "an error has no diagnosis", data, n);
        demand(status != NGD_ERR_INTERNAL && status != NGD_ERR_NO_MEMORY, diag.text, data, n);
    } else {
        check_plan(plan, data, n);
        ngd_plan_unref(plan);
    }
    ngd_free(copy);
    return 0;
}

#ifndef NGD_LIBFUZZER

static uint64_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)(state >> 33) % n : 0;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);

    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* Flips, cuts, repeated pieces, and numbers at their limits. */
static size_t mutate(const struct ngd_strbuf *good, uint8_t *out)
{
    static const uint64_t limits[] = {0, 1, 64, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 63, 1u << 20};
    size_t n = good->len;

    memcpy(out, good->data, n);
    for (uint32_t i = 0, k = 1 + draw(3); i < k && n > 16; i++) {
        uint32_t at = draw((uint32_t)n - 8), from = draw((uint32_t)n - 8);

        switch (draw(4)) {
        case 0:
            out[at] ^= (uint8_t)(1 << draw(8));
            break;
        case 1:
            memcpy(out + at, &limits[draw(8)], draw(2) ? 8 : 4);
            break;
        case 2:
            memmove(out + at, out + from, draw(8));
            break;
        default:
            n -= draw(4) ? 0 : draw((uint32_t)n);
            break;
        }
    }
    return n;
}

int main(void)
{
    uint64_t runs = setting("NGD_FUZZ_RUNS", 20000), seconds = setting("NGD_FUZZ_SECONDS", 0), done = 0;
    ngd_nsec_t until = ngd_now() + (ngd_nsec_t)seconds * NGD_SEC;
    struct ngd_plan *plan = NULL;
    struct ngd_strbuf good;
    uint8_t *out;

    state = setting("NGD_FUZZ_SEED", 1);
    prepare();
    ngd_strbuf_init(&good);
    if (ngd_plan_create(source, &key, &options, &target, &plan, NULL) != NGD_OK)
        return EXIT_FAILURE;
    ngd_plan_pack(plan, source, &good);
    ngd_plan_unref(plan);
    plan = NULL;
    if (ngd_plan_unpack(source, &key, &options, &target, good.data, good.len, &plan, NULL) != NGD_OK)
        return EXIT_FAILURE;
    ngd_plan_unref(plan);
    out = ngd_malloc(good.len);
    if (!out)
        return EXIT_FAILURE;
    for (; seconds ? ngd_now() < until : done < runs; done++)
        LLVMFuzzerTestOneInput(out, mutate(&good, out));
    printf("ok - stored_plan_after_mutations_is_a_plan_that_holds_or_an_error\n");
    fprintf(stderr, "%llu mutations\n", (unsigned long long)done);
    ngd_free(out);
    ngd_strbuf_fini(&good);
    ngd_graph_unref(source);
    return EXIT_SUCCESS;
}

#endif
