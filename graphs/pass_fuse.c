/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse_first, fuse_early, fuse_late: apply the patterns of their phase (graphs/pattern.h), in the order of the set.
 * After fuse_first, views are simplified and equal nodes merged again: norms and rotations that were spelled out are
 * single operators by then, and layers share their operands. Between fuse_early and fuse_late, linears that share an
 * operand are merged.
 *
 * Correct if each pattern is. pattern_match.c says why a pattern may be applied where it matches. A pattern's author
 * guarantees that source and replacement compute the same; tests check it for the built-in patterns.
 */
#include "base/stop.h"
#include "graphs/pass.h"
#include "graphs/pattern_match.h"
#include <string.h>

#define MAX_ROUNDS 8 /* a replacement may be part of another match */

/* Which patterns to apply: those of a phase, or those with these names. */
struct choice {
    ngd_pattern_phase_t phase;
    const char *names; /* separated by commas; NULL: by phase */
};

static bool is_named(const char *names, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && memcmp(p, name, n) == 0)
            return true;
    return false;
}

static bool fusion_wanted(const struct ngd_pattern *p, const struct choice *choice, const struct ngd_node *n)
{
    return p->source.nodes[p->order[0]].op == n->op &&
           (choice->names ? is_named(choice->names, p->name) : p->phase == choice->phase);
}

/* Applies the first pattern that matches with its anchor at this node. */
static ngd_status_t try_all(struct ngd_pass_context *ctx, const struct choice *choice, uint32_t node, bool *replaced_p)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < ctx->patterns->n && !status && !*replaced_p; i++)
        if (fusion_wanted(ctx->patterns->patterns[i], choice, ngd_rewrite_node(ctx->rw, node)))
            status = ngd_pattern_apply(ctx, ctx->patterns->patterns[i], node, replaced_p);
    return status;
}

static ngd_status_t one_round(struct ngd_pass_context *ctx, const struct choice *choice, uint32_t limit,
                              uint32_t *replaced_p)
{
    ngd_status_t status = NGD_OK;
    uint32_t n = ctx->rw->first;

    while (n != NGD_NODE_NONE && !status && *replaced_p < limit) {
        uint32_t before = ctx->rw->nodes[n].prev;
        bool replaced = false;

        status = ngd_stop_check();
        if (status == NGD_OK)
            status = try_all(ctx, choice, n, &replaced);
        *replaced_p += replaced;
        /* The anchor is gone, and perhaps nodes before it. Continue behind the last node that is left. */
        while (replaced && before != NGD_NODE_NONE && ctx->rw->nodes[before].dead)
            before = ctx->rw->nodes[before].prev;
        n = !replaced ? ctx->rw->nodes[n].next : before == NGD_NODE_NONE ? ctx->rw->first : ctx->rw->nodes[before].next;
    }
    return status;
}

static ngd_status_t fuse(struct ngd_pass_context *ctx, const struct choice *choice)
{
    ngd_status_t status = NGD_OK;
    uint32_t replaced = 1, limit = ctx->rw->n_live; /* because a pattern could match its own replacement for ever */

    for (int round = 0; round < MAX_ROUNDS && replaced && !status && ctx->patterns; round++) {
        replaced = 0;
        status = one_round(ctx, choice, limit, &replaced);
        ctx->changed += replaced;
    }
    return status;
}

ngd_status_t ngd_pass_fuse_first(struct ngd_pass_context *ctx)
{
    return fuse(ctx, &(struct choice){.phase = NGD_PATTERN_FIRST});
}

ngd_status_t ngd_pass_fuse_early(struct ngd_pass_context *ctx)
{
    return fuse(ctx, &(struct choice){.phase = NGD_PATTERN_EARLY});
}

ngd_status_t ngd_pass_fuse_late(struct ngd_pass_context *ctx)
{
    return fuse(ctx, &(struct choice){.phase = NGD_PATTERN_LATE});
}

ngd_status_t ngd_pass_custom_pre(struct ngd_pass_context *ctx)
{
    return fuse(ctx, &(struct choice){.names = ctx->options->post_grad_custom_pre_pass});
}

ngd_status_t ngd_pass_custom_post(struct ngd_pass_context *ctx)
{
    return fuse(ctx, &(struct choice){.names = ctx->options->post_grad_custom_post_pass});
}
