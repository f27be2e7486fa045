/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pattern parser, and what is done with what it accepts. Whatever the bytes are, the answer is patterns or an error
 * with a diagnosis; what was accepted parses again, from its own text, to the same digest, and may be tried on a graph,
 * which stays valid. The seeds are the built-in patterns.
 */
#include "graphs/pass.h"
#include "graphs/pattern.h"
#include "graphs/pattern_match.h"
#include "tests/fuzz/fuzz.h"

#define PATTERNS 64

const uint32_t fuzz_runs = 3000;

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    struct ngd_pattern_set *set = ngd_pattern_set_builtin();
    bool more = set && i < set->n;

    if (more)
        ngd_strbuf_append(out, set->patterns[i]->text);
    ngd_pattern_set_unref(set);
    return more;
}

static const char graph_text[] =
    "npugraph 1\ngraph \"g\" {\n  sym B 1..8 buckets 8\n  param %w : f32[4,4]\n  param %g : f32[4]\n  input %x : "
    "f32[B,4]\n"
    "  state %s : f32[4]\n  %a = aten.linear(%x, %w)\n  %b = aten.silu(%a)\n  %c = aten.linear(%x, %w)\n"
    "  %d = aten.mul.Tensor(%b, %c)\n  %e = aten.add.Tensor(%d, %x)\n  %n, %r = npu.rms_norm(%e, %g)\n"
    "  %f = aten.linear(%n, %w)\n  aten.copy_(%s, %g)\n  %h = aten.add.Tensor(%f, %s)\n  return \"h\" = %h\n}\n";

static ngd_status_t accept(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)ctx, (void)plan, (void)call, (void)diag;
    *strided_p = 0;
    *workspace_p = 0;
    return NGD_OK;
}

static void try_on_graph(const struct ngd_pattern *p, bool excess)
{
    static const struct ngd_plan_target target = {.arch = "fuzz", .select = accept};
    const int64_t symbols[] = {8};
    struct ngd_graph *g = NULL, *after = NULL;
    struct ngd_diag diag = {0};
    struct ngd_graph_options options;
    struct ngd_pass_context ctx = {.target = &target, .options = &options, .symbols = symbols, .diag = &diag};

    fuzz_demand(!ngd_graph_parse(graph_text, sizeof(graph_text) - 1, &g, &diag), diag.text);
    ngd_graph_options_init(&options);
    options.allow_excess_precision = excess;
    fuzz_demand(!ngd_rewrite_create(g, symbols, &ctx.rw, &diag), diag.text);
    for (uint32_t node = ctx.rw->first, next; node != NGD_NODE_NONE; node = next) {
        bool replaced = false;

        next = ctx.rw->nodes[node].next;
        fuzz_demand(!ngd_pattern_apply(&ctx, p, node, &replaced), diag.text);
        if (replaced)
            break;
    }
    fuzz_demand(!ngd_rewrite_seal(ctx.rw, &after, &diag), diag.text);
    ngd_graph_unref(after);
    ngd_rewrite_destroy(ctx.rw);
    ngd_graph_unref(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_pattern *p[PATTERNS], *again[1];
    struct ngd_diag diag = {0};
    uint32_t count = 0, one = 0;

    if (ngd_patterns_parse((const char *)data, n, p, PATTERNS, &count, &diag)) {
        fuzz_demand(diag.text[0] != '\0', "refused without a diagnosis");
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        fuzz_demand(!ngd_patterns_parse(p[i]->text, strlen(p[i]->text), again, 1, &one, &diag) && one == 1, diag.text);
        fuzz_demand(ngd_digest_equal(&p[i]->digest, &again[0]->digest), "its own text has another digest");
        ngd_pattern_unref(again[0]);
        try_on_graph(p[i], n % 2); /* either way, and the same each time */
        ngd_pattern_unref(p[i]);
    }
    return 0;
}
