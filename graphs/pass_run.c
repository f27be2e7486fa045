/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the passes in order, and describes them. */
#include "graphs/pass.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/stop.h"
#include <stdio.h>
#include <string.h>

/* One function for each word in the column `option` of the table. */
static bool on_always(const struct ngd_graph_options *options)
{
    (void)options;
    return true;
}

static bool on_pattern_fusion_pass(const struct ngd_graph_options *options)
{
    return options->pattern_fusion_pass;
}

static bool on_remove_noop_ops(const struct ngd_graph_options *options)
{
    return options->remove_noop_ops;
}

static bool on_assign_streams(const struct ngd_graph_options *options)
{
    return options->assign_streams > 0;
}

static const struct ngd_pass passes[] = {
#define NGD_PASS(ID, name, version, option, doc) \
    [NGD_PASS_##ID] = {#name, doc, #option, version, ngd_pass_##name, on_##option},
#include "graphs/passes.def"
#undef NGD_PASS
};

const struct ngd_pass *ngd_pass_info(ngd_pass_id_t id)
{
    return &passes[id];
}

int ngd_pass_find(const char *name, size_t n)
{
    for (int i = 0; i < NGD_PASS_MAX; i++)
        if (strlen(passes[i].name) == n && memcmp(passes[i].name, name, n) == 0)
            return i;
    return -1;
}

void ngd_passes_digest(struct ngd_digest *digest_p)
{
    struct ngd_digest parts[NGD_PASS_MAX];

    for (int i = 0; i < NGD_PASS_MAX; i++) {
        char text[128];
        int n = snprintf(text, sizeof(text), "%d %s %u", i, passes[i].name, passes[i].version);

        ngd_digest_of(text, (size_t)n, &parts[i]);
    }
    ngd_digest_of(parts, sizeof(parts), digest_p);
}

static bool named_in(const char *list, const char *name)
{
    size_t n = strlen(name);

    if (strcmp(list, "all") == 0)
        return true;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && memcmp(p, name, n) == 0)
            return true;
    return false;
}

/* Validates the graph after a pass, and shows it to the report's callback. */
static ngd_status_t check_now(const struct ngd_pass_context *ctx, const struct ngd_pass *pass,
                              const struct ngd_pass_report *report)
{
    struct ngd_graph *now;
    ngd_status_t status = ngd_rewrite_seal(ctx->rw, &now, ctx->diag);

    if (status) {
        ngd_diag_prefix(ctx->diag, "after pass %s: ", pass ? pass->name : "(none)");
        return status;
    }
    if (report && report->look)
        report->look(report->ctx, pass, now);
    ngd_graph_unref(now);
    return NGD_OK;
}

static bool checks_each_pass(const struct ngd_pass_report *report)
{
#ifdef NDEBUG
    return report && report->look;
#else
    (void)report;
    return true;
#endif
}

/* Changes the sign of the last float, to test that wrong passes are found. */
static ngd_status_t spoil_last(struct ngd_pass_context *ctx)
{
    struct ngd_rewrite *rw = ctx->rw;
    uint32_t n = rw->last, value, node;
    ngd_status_t status;

    while (n != NGD_NODE_NONE && (ngd_rewrite_node(rw, n)->n_out == 0 ||
                                  ngd_rewrite_type(rw, ngd_rewrite_node(rw, n)->out[0])->dtype != NGD_F32))
        n = rw->nodes[n].prev;
    if (n == NGD_NODE_NONE)
        return NGD_OK;
    value = ngd_rewrite_node(rw, n)->out[0];
    status = ngd_rewrite_add(rw, rw->nodes[n].next, ngd_op_by_id(NGD_OP_ATEN_NEG), &value, 1, NULL, &node, ctx->diag);
    if (status)
        return status;
    ngd_rewrite_replace(rw, value, ngd_rewrite_node(rw, node)->out[0]);
    ngd_rewrite_set_operand(rw, node, 0, value);
    ctx->changed++;
    return NGD_OK;
}

static ngd_status_t run_one(struct ngd_pass_context *ctx, ngd_pass_id_t id, struct ngd_pass_report *report)
{
    const struct ngd_pass *pass = &passes[id];
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    ctx->changed = ctx->excess = 0;
    status = ngd_stop_check();
    if (status == NGD_OK)
        status = pass->run(ctx);
    if (status == NGD_OK && NGD_FAULT(PASS_WRONG))
        status = spoil_last(ctx);
    if (status)
        return status;
    if (report) {
        report->of[id].ran = true;
        report->of[id].changed = ctx->changed;
        report->of[id].excess = ctx->excess;
        report->of[id].nodes = ctx->rw->n_live;
        report->of[id].nanoseconds = ngd_now() - begin;
    }
    return ctx->changed && checks_each_pass(report) ? check_now(ctx, pass, report) : NGD_OK;
}

static ngd_status_t run_all(struct ngd_pass_context *ctx, struct ngd_pass_report *report)
{
    ngd_status_t status = NGD_OK;

    if (report)
        report->nodes_before = ctx->rw->n_live;
    if (report && report->look)
        status = check_now(ctx, NULL, report);
    for (int i = 0; i < NGD_PASS_MAX && !status; i++)
        if (passes[i].on(ctx->options) && !named_in(ctx->options->disable_passes, passes[i].name))
            status = run_one(ctx, (ngd_pass_id_t)i, report);
    if (report)
        report->nodes_after = ctx->rw->n_live;
    return status;
}

ngd_status_t ngd_passes_run(const struct ngd_graph *graph, const int64_t *symbols,
                            const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                            struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                            struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct ngd_pattern_set *set = patterns ? ngd_pattern_set_ref(patterns) : ngd_pattern_set_builtin();
    struct ngd_diag why = {0};
    struct ngd_pass_context ctx = {
        .options = options, .target = target, .patterns = set, .symbols = symbols, .diag = &why};
    ngd_status_t status = ngd_rewrite_create(graph, symbols, &ctx.rw, &why);

    if (!status)
        status = run_all(&ctx, report);
    if (!status)
        status = ngd_rewrite_seal(ctx.rw, graph_p, &why);
    ngd_rewrite_destroy(ctx.rw);
    ngd_pattern_set_unref(set);
    if (status && diag)
        ngd_diag_set(diag, status, "passes of graph %.100s: %.400s", graph->name, why.text);
    return status;
}
