/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans as the store keeps them (graphs/plan_pack.h), without the checksum that stands in front of them. Whatever the
 * bytes are, the answer is an error or a plan in which nothing leaves the pool or its storage. The seed is a good plan.
 */
#include "graphs/plan_pack.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

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

static void prepare(void)
{
    static const int64_t symbols[2] = {9, 3};
    struct ngd_digest none = {{0}};

    if (source)
        return;
    ngd_graph_options_init(&options);
    fuzz_demand(ngd_graph_parse(source_text, sizeof(source_text) - 1, &source, NULL) == NGD_OK, "the source");
    fuzz_demand(ngd_key_make(source, &none, symbols, 2, &key, NULL) == NGD_OK, "the key");
}

static void check_plan(const struct ngd_plan *p)
{
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct ngd_plan_tensor *t = &p->tensors[i], *r = &p->tensors[t->root];

        fuzz_demand(t->root < p->n_tensors && r->space == t->space, "a root");
        fuzz_demand(!t->bytes || (t->offset >= r->offset && t->offset + t->bytes <= r->offset + r->bytes), "a view");
        fuzz_demand(t->space != NGD_SPACE_POOL || t->offset + t->bytes <= p->pool_bytes, "a tensor");
    }
    for (uint32_t i = 0; i < p->n_calls; i++)
        fuzz_demand(p->calls[i].workspace_offset + p->calls[i].workspace_bytes <= p->pool_bytes, "a workspace");
    fuzz_demand(p->pool_bytes < 1u << 20, "a pool of any size");
}

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    struct ngd_plan *plan = NULL;

    prepare();
    if (i > 0)
        return false;
    fuzz_demand(ngd_plan_create(source, &key, &options, &target, &plan, NULL) == NGD_OK, "the plan");
    ngd_plan_pack(plan, source, out);
    ngd_plan_unref(plan);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy = n ? ngd_memdup(data, n) : NULL; /* of exactly n bytes, so that a read past the end is seen */
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    prepare();
    status = ngd_plan_unpack(source, &key, &options, &target, copy ? copy : (const uint8_t *)"", n, &plan, &diag);
    if (status) {
        fuzz_demand(!plan && diag.status == status && diag.text[0], "an error has no diagnosis");
        fuzz_demand(status != NGD_ERR_INTERNAL && status != NGD_ERR_NO_MEMORY, diag.text);
    } else {
        check_plan(plan);
        ngd_plan_unref(plan);
    }
    ngd_free(copy);
    return 0;
}
