/* SPDX-License-Identifier: Apache-2.0 */
/* Which way each attention takes, and the rows of a launch. See attention_rows.h. */
#include "devices/ascend/attention_rows.h"
#include "base/log.h"
#include "devices/ascend/attention.h"
#include "devices/ascend/facts.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const way_names[ASCEND_WAY_MAX] = {
    [ASCEND_WAY_ROWS] = "one row for each sequence (BSH)",
    [ASCEND_WAY_PREFILL] = "one padded sequence (BSH)",
    [ASCEND_WAY_RAGGED] = "several sequences (TND)",
    [ASCEND_WAY_PARTS] = "made of other operators",
};

const char *ngd_ascend_way_name(enum ascend_way way)
{
    return way_names[way];
}

bool ngd_ascend_is_attention(const struct ngd_plan_call *call)
{
    /* The ways are those of this one operator of CANN. */
    return call->op->id == NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE;
}

/* ---- choosing ---------------------------------------------------------------------------------------- */

struct shape {
    int64_t rows, sequences, width, blocks, block;
};

static struct shape shape_of(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const struct ngd_plan_tensor *q = &plan->tensors[call->in[0]], *k = &plan->tensors[call->in[1]],
                                 *table = &plan->tensors[call->in[3]];

    return (struct shape){q->dims[0], table->dims[0], table->dims[1], k->dims[0], k->dims[1]};
}

/* No launch breaks the rules on lengths: the cache holds all contexts that the table can have, together. */
static bool always_fits(const struct shape *s, enum ascend_way way)
{
    switch (way) {
    case ASCEND_WAY_PREFILL:
        return s->sequences == 1 && s->rows > 1 && s->blocks >= s->width && s->rows <= s->width * s->block;
    case ASCEND_WAY_RAGGED:
        /* RAGGED_ROWS and RAGGED_LENGTHS of attention_rules.def are of the whole query, not of one sequence. */
        return s->sequences > 1 && s->rows > s->sequences && s->blocks / s->sequences >= s->width &&
               s->rows <= s->sequences * s->width * s->block && s->sequences <= 4096 && s->rows <= 1048576;
    default:
        return s->rows > 0 && s->sequences > 0 && s->width > 0 && s->blocks > 0;
    }
}

static bool has_ropes(const struct ngd_plan_call *call)
{
    return call->n_in > 6 && call->in[6] != NGD_PLAN_NONE;
}

/* The rules for the longest contexts. NULL: the way is taken. measured: as in struct ngd_attention_platform. */
static const struct ngd_attention_rule *refusal_of(const struct ascend_device *dev, const struct ngd_plan *plan,
                                                   const struct ngd_plan_call *call, enum ascend_way way, bool measured)
{
    const struct ngd_plan_tensor *k = &plan->tensors[call->in[1]],
                                 *rope = has_ropes(call) ? &plan->tensors[call->in[7]] : NULL;
    const struct shape s = shape_of(plan, call);
    const int64_t longest = (s.width < s.blocks ? s.width : s.blocks) * s.block;
    const bool tnd = way == ASCEND_WAY_RAGGED, rows = way == ASCEND_WAY_ROWS;
    /* The rows are of all sequences together: the case is one of them. */
    const int64_t queries = tnd && s.sequences > 0 ? (s.rows + s.sequences - 1) / s.sequences : s.rows;
    const struct ngd_attention_case a = {
        .tnd = tnd,
        .dtype = ngd_ascend_dtype(k->dtype),
        .rows = rows ? 1 : queries,
        .batches = rows ? s.rows : 1,
        .heads = ngd_call_int(call, "num_heads"),
        .kv_heads = ngd_call_int(call, "num_key_value_heads"),
        .d = k->dims[3],
        .rope = rope ? rope->dims[3] : 0,
        .rope_block = rope ? rope->dims[1] : 0,
        .rope_hidden = rope ? rope->dims[2] * rope->dims[3] : 0,
        .block = ngd_call_int(call, "block_size"),
        .blocks = rows ? INT64_MAX : s.blocks,
        .cache_block = s.block,
        .cache_hidden = k->dims[2] * k->dims[3],
        .table_rows = rows ? s.rows : 1,
        .table_width = s.width,
        .sparse_mode = rows ? 0 : 3,
        .mask_side = rows ? 0 : 2048,
        .queries = &queries,
        .contexts = &longest,
        .n_queries = rows ? 0 : 1,
        .n_contexts = 1,
    };
    const struct ngd_attention_platform p = {dev->chip, dev->cann, measured};

    return ngd_attention_refusal(&a, &p);
}

/* Whether the rules, or facts, allow a way, and why. */
struct verdict {
    bool taken;
    uint32_t line;    /* of the file of facts; 0: it says nothing */
    const char *rule; /* that refuses, or NULL */
};

/* Query heads for each head of the cache. */
static int64_t queries_of(const struct ngd_plan_call *call)
{
    return ngd_call_int(call, "num_heads") / ngd_call_int(call, "num_key_value_heads");
}

/* What the fused operator has not, or what no rule and no probe says about it. NULL: it may be asked. */
static const char *needs_parts(const struct ngd_plan_call *call, enum ascend_way way)
{
    if (ngd_call_float(call, "soft_cap") > 0)
        return "CANN's operator caps no scores";
    if (ngd_call_int(call, "sparse_mode") == 4)
        return "windows (sparse mode 4) of a paged cache were not tried on a chip";
    if (has_ropes(call) && (way != ASCEND_WAY_ROWS || call->in[1] != call->in[2]))
        return "second parts of queries (query_rope) are taken with a latent cache, one row for each sequence";
    if (call->n_in > 8 && call->in[8] != NGD_PLAN_NONE)
        return "sinks of a paged cache were not tried on a chip";
    return NULL;
}

/* What a probe found out about the kind of attention that the call is. */
static ascend_says_t facts_of(const struct ascend_device *dev, const struct ngd_plan *plan,
                              const struct ngd_plan_call *call, enum ascend_way way, uint32_t *line_p)
{
    const struct ngd_plan_tensor *k = &plan->tensors[call->in[1]];

    if (!has_ropes(call))
        return ngd_ascend_facts_attention(dev->facts, way, k->dims[3], k->dims[1], k->dtype, queries_of(call), line_p);
    if (way != ASCEND_WAY_ROWS || k->dims[3] != 512 || plan->tensors[call->in[7]].dims[3] != 64)
        return ASCEND_SAYS_NOTHING;
    return ngd_ascend_facts_latent(dev->facts, k->dims[1], k->dtype, ngd_call_int(call, "num_heads"), line_p);
}

static struct verdict judge_way(const struct ascend_device *dev, const struct ngd_plan *plan,
                                const struct ngd_plan_call *call, enum ascend_way way)
{
    const struct ngd_attention_rule *rule;
    struct verdict v = {.rule = needs_parts(call, way)};
    const ascend_says_t says = facts_of(dev, plan, call, way, &v.line);

    if (says == ASCEND_SAYS_NO || v.rule)
        return v;
    rule = refusal_of(dev, plan, call, way, says == ASCEND_SAYS_YES);
    v.rule = rule ? rule->text : NULL;
    v.taken = !rule;
    return v;
}

static void print_verdict(const struct verdict *v, struct ngd_strbuf *sb)
{
    if (v->line && !v->rule)
        ngd_strbuf_printf(sb, "line %u of the facts", (unsigned)v->line);
    else
        ngd_strbuf_append(sb, v->rule ? v->rule : "the rules");
}

/* Notes for people which way this kind of attention takes, and why not those of more worth. */
static void note_choice(struct ascend_device *dev, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                        enum ascend_way way)
{
    static const enum ascend_way fused[] = {ASCEND_WAY_PREFILL, ASCEND_WAY_RAGGED, ASCEND_WAY_ROWS};
    const struct ngd_plan_tensor *k = &plan->tensors[call->in[1]];
    const struct shape s = shape_of(plan, call);
    struct ngd_strbuf sb;
    struct verdict v;
    bool known = false;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb,
                      "%s, head dimension %" PRId64 ", %" PRId64 " query heads for each, blocks of %" PRId64 ": %s",
                      ngd_dtype_name(k->dtype), k->dims[3], queries_of(call), k->dims[1], way_names[way]);
    if (way != ASCEND_WAY_PARTS) {
        v = judge_way(dev, plan, call, way);
        ngd_strbuf_append(&sb, ", by ");
        print_verdict(&v, &sb);
    }
    for (size_t i = 0; i < sizeof(fused) / sizeof(fused[0]) && fused[i] != way; i++) {
        if (!always_fits(&s, fused[i]))
            continue;
        v = judge_way(dev, plan, call, fused[i]);
        ngd_strbuf_printf(&sb, "; not %s: ", way_names[fused[i]]);
        if (v.taken)
            ngd_strbuf_append(&sb, dev->acl->aclnnFusedInferAttentionScoreV3 ? "CANN refused it" : "CANN has it not");
        else
            print_verdict(&v, &sb);
    }
    ngd_mutex_lock(&dev->lock);
    for (uint32_t i = 0; i < dev->n_choices; i++)
        known |= strncmp(dev->choices[i], ngd_strbuf_str(&sb), sizeof(dev->choices[i]) - 1) == 0;
    if (!known && dev->n_choices < ASCEND_CHOICES)
        snprintf(dev->choices[dev->n_choices++], sizeof(dev->choices[0]), "%s", ngd_strbuf_str(&sb));
    ngd_mutex_unlock(&dev->lock);
    ngd_strbuf_fini(&sb);
}

/* The ways in the order of their worth for the call; how many. The probe asks for one. */
static uint32_t list_ways(const struct ascend_device *dev, const struct ngd_plan *plan,
                          const struct ngd_plan_call *call, enum ascend_way ways[ASCEND_WAY_MAX])
{
    static const enum ascend_way fused[] = {ASCEND_WAY_PREFILL, ASCEND_WAY_RAGGED, ASCEND_WAY_ROWS};
    const struct shape s = shape_of(plan, call);
    uint32_t n = 0;

    if (dev->hold && dev->hold->only_way != ASCEND_WAY_MAX) {
        ways[0] = dev->hold->only_way;
        return 1;
    }
    for (size_t i = 0; i < sizeof(fused) / sizeof(fused[0]) && dev->acl->aclnnFusedInferAttentionScoreV3; i++)
        if (always_fits(&s, fused[i]) && judge_way(dev, plan, call, fused[i]).taken)
            ways[n++] = fused[i];
    ways[n++] = ASCEND_WAY_PARTS;
    return n;
}

/* Notes why the fused operator is not called; refused: what the last way to call it was answered. */
static void note_parts(struct ascend_exec *exec, const struct ngd_plan_call *call, const struct ngd_diag *refused)
{
    static struct ngd_log_limit limit;
    const struct verdict v = judge_way(exec->dev, exec->plan, call, ASCEND_WAY_ROWS);
    struct ngd_diag text = {0};
    struct ngd_strbuf why;

    ngd_strbuf_init(&why);
    print_verdict(&v, &why);
    ngd_diag_set(&text, NGD_ERR_OP_UNSUPPORTED, "device %s: node %u (%s) is made of other operators: %s",
                 exec->dev->name, call->node, call->op->name,
                 refused->text[0] ? refused->text
                 : !v.taken       ? ngd_strbuf_str(&why)
                                  : "CANN has no aclnnFusedInferAttentionScoreV3");
    ngd_strbuf_fini(&why);
    ngd_log_limited(&limit, NGD_LOG_WARNING, "devices", "%s; that is slower", text.text);
    if (!exec->note)
        exec->note = ngd_arena_strdup(&exec->arena, text.text);
}

ngd_status_t ngd_ascend_attention_measure(struct ascend_device *dev, const struct ngd_plan *plan,
                                          const struct ngd_plan_call *call, enum ascend_way *way_p,
                                          struct ngd_diag *refused_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_chip_info *chip = ngd_chip_info(dev->chip);
    enum ascend_way ways[ASCEND_WAY_MAX];
    const uint32_t n = list_ways(dev, plan, call, ways);
    struct ngd_diag refused = {0};
    ngd_status_t status = NGD_ERR_OP_UNSUPPORTED;

    if (dev->no_decoder[0] && !dev->hold)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device %s is a %s, which serves no paged decoder: %s",
                            dev->name, chip->name, dev->no_decoder);
    for (uint32_t i = 0; i < n && status == NGD_ERR_OP_UNSUPPORTED; i++) {
        struct ngd_diag why = {0};

        status = ngd_ascend_measure_way(dev, plan, call, ways[i], workspace_p, &why);
        /* For an executable, what has been planned is all there is. */
        if (status == NGD_OK && way_p && *workspace_p > call->workspace_bytes)
            status = ngd_diag_set(&why, NGD_ERR_OP_UNSUPPORTED,
                                  "device %s: node %u (%s): %" PRIu64 " bytes of workspace are needed, planned were "
                                  "%" PRIu64,
                                  dev->name, call->node, call->op->name, *workspace_p, call->workspace_bytes);
        if (status == NGD_OK && way_p)
            *way_p = ways[i];
        if (status)
            refused = why;
    }
    if (refused_p)
        *refused_p = refused;
    if (status && diag)
        *diag = refused;
    return status;
}

/* ---- the rows of an executable ----------------------------------------------------------------------- */

/* All that reads the input is attention that takes rows, of the same lengths and blocks. */
static bool is_only_for(const struct ascend_exec *exec, const struct ngd_plan_call *call)
{
    const struct ngd_plan *plan = exec->plan;
    const uint32_t table = call->in[3], root = plan->tensors[table].root;

    for (uint32_t o = 0; o < plan->graph->n_outputs; o++)
        if (plan->tensors[plan->outputs[o].tensor].root == root)
            return false;
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *other = &plan->calls[i];
        const bool alike = exec->way_of[i] != ASCEND_WAY_MAX && other->in[3] == table &&
                           other->host[4] == call->host[4] && other->host[5] == call->host[5] &&
                           (exec->way_of[i] == ASCEND_WAY_ROWS || exec->way_of[i] == ASCEND_WAY_PARTS) &&
                           plan->tensors[other->in[0]].dims[0] == plan->tensors[call->in[0]].dims[0] &&
                           ngd_call_int(other, "block_size") == ngd_call_int(call, "block_size");

        for (uint32_t k = 0; k < other->n_in; k++)
            if (other->in[k] != NGD_PLAN_NONE && plan->tensors[other->in[k]].root == root && !(alike && k == 3))
                return false;
    }
    return true;
}

/* Calls of the same table, lengths and size of a block share their rows. */
static const struct ascend_rows *find_shared_rows(const struct ascend_exec *exec, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < exec->n_rows; i++) {
        const struct ngd_plan_call *first = exec->rows[i].call;

        if (first->in[3] == call->in[3] && first->host[4] == call->host[4] && first->host[5] == call->host[5] &&
            exec->rows[i].rows == exec->plan->tensors[call->in[0]].dims[0] &&
            ngd_call_int(first, "block_size") == ngd_call_int(call, "block_size"))
            return &exec->rows[i];
    }
    return NULL;
}

static void add_rows(struct ascend_exec *exec, const struct ngd_plan_call *call)
{
    const struct ngd_plan_tensor *table = &exec->plan->tensors[call->in[3]];
    struct ascend_rows *r = &exec->rows[exec->n_rows];

    if (find_shared_rows(exec, call))
        return;
    *r = (struct ascend_rows){.call = call, .rows = exec->plan->tensors[call->in[0]].dims[0]};
    for (uint32_t i = 0; i < exec->n_checks && !r->check; i++)
        if (exec->checks[i].call == call && exec->checks[i].kind == ASCEND_CHECK_TABLE)
            r->check = &exec->checks[i];
    r->in_place = table->dims[0] == r->rows && r->check->tensor == call->in[3] && ngd_plan_contiguous(table) &&
                  is_only_for(exec, call);
    r->table_at = exec->staging_bytes;
    exec->staging_bytes += ngd_ascend_align((uint64_t)(r->rows * table->dims[1]) * sizeof(int32_t));
    r->contexts_at = exec->staging_bytes;
    exec->staging_bytes += ngd_ascend_align((uint64_t)r->rows * sizeof(int64_t));
    r->narrow_at = exec->staging_bytes;
    exec->staging_bytes += ngd_ascend_align((uint64_t)r->rows * sizeof(int32_t));
    exec->n_rows++;
}

ngd_status_t ngd_ascend_find_ways(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    ngd_status_t status = NGD_OK;
    struct ngd_diag refused;
    uint64_t workspace = 0;

    exec->way_of = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->way_of));
    exec->rows = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->rows));
    if (!exec->way_of || !exec->rows)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < plan->n_calls && status == NGD_OK; i++) {
        exec->way_of[i] = ASCEND_WAY_MAX;
        if (!ngd_ascend_is_attention(&plan->calls[i]) || ngd_plan_elements(&plan->tensors[plan->calls[i].out[0]]) == 0)
            continue;
        status = ngd_ascend_attention_measure(exec->dev, plan, &plan->calls[i], &exec->way_of[i], &refused, &workspace,
                                              diag);
        if (status == NGD_OK) {
            atomic_fetch_add(&exec->dev->ways[exec->way_of[i]], 1);
            note_choice(exec->dev, plan, &plan->calls[i], exec->way_of[i]);
        }
        if (status == NGD_OK && exec->way_of[i] == ASCEND_WAY_PARTS)
            note_parts(exec, &plan->calls[i], &refused);
    }
    for (uint32_t i = 0; i < plan->n_calls && status == NGD_OK; i++)
        if (exec->way_of[i] == ASCEND_WAY_ROWS || exec->way_of[i] == ASCEND_WAY_PARTS)
            add_rows(exec, &plan->calls[i]);
    return status;
}

/* ---- the rows of a launch ---------------------------------------------------------------------------- */

/* Row `row` of sequence s: what it sees of the sequence's context, and which blocks that is. */
static int64_t put_row(const struct ascend_inst *inst, const struct ascend_rows *r, int64_t s, int64_t context,
                       int32_t *to)
{
    const int64_t block = ngd_call_int(r->call, "block_size"),
                  width = inst->exec->plan->tensors[r->check->tensor].dims[1];

    for (int64_t b = 0; b < width; b++) {
        if (context > b * block)
            to[b] = (int32_t)ngd_ascend_staged_index(inst, r->check, s * width + b);
        else
            to[b] = b ? to[0] : 0; /* never read, but an index nevertheless */
    }
    return context > 0 ? context : 1;
}

static void spread(const struct ascend_inst *inst, const struct ascend_rows *r, const struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;
    const struct ngd_plan_tensor *table = &plan->tensors[r->check->tensor];
    const struct ngd_host_value *ends = &launch->hosts[r->call->host[4]], *keys = &launch->hosts[r->call->host[5]];
    char *input = inst->staging + r->check->at + (table->offset - plan->tensors[table->root].offset);
    int32_t *tables = (int32_t *)(void *)(inst->staging + r->table_at),
            *narrow = (int32_t *)(void *)(inst->staging + r->narrow_at);
    int64_t *contexts = (int64_t *)(void *)(inst->staging + r->contexts_at);
    uint32_t s = 0;

    for (int64_t row = 0; row < r->rows; row++) {
        while (s < ends->n && ends->values[s] <= row)
            s++;
        contexts[row] = put_row(inst, r, s, s < ends->n ? keys->values[s] - (ends->values[s] - 1 - row) : 0,
                                tables + row * table->dims[1]);
        narrow[row] = (int32_t)contexts[row];
    }
    if (r->in_place)
        memcpy(input, tables, (size_t)(r->rows * table->dims[1]) * sizeof(int32_t));
}

void ngd_ascend_spread_rows(const struct ascend_inst *inst, const struct ngd_launch *launch)
{
    for (uint32_t i = 0; i < inst->exec->n_rows; i++)
        spread(inst, &inst->exec->rows[i], launch);
}

bool ngd_ascend_leaves_rows(const struct ascend_inst *inst, const struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;

    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *call = &plan->calls[i];
        int64_t last;

        if (inst->exec->way_of[i] == ASCEND_WAY_MAX)
            continue;
        last = ngd_ascend_last_row(&launch->hosts[call->host[4]]);
        if (last == 0 || last < ngd_ascend_launch_rows(&plan->tensors[call->in[0]], launch))
            return true;
    }
    return false;
}

/* ---- for the builder --------------------------------------------------------------------------------- */

const struct ascend_rows *ngd_ascend_rows_of(const struct ascend_issue *c)
{
    return c->mode == ASCEND_MEASURE ? NULL : find_shared_rows(c->inst->exec, c->call);
}

int64_t ngd_ascend_row_context(const struct ascend_inst *inst, const struct ascend_rows *rows, int64_t row)
{
    return ((const int64_t *)(const void *)(inst->staging + rows->contexts_at))[row];
}

static void copy_rows(struct ascend_issue *c, const struct ascend_view *to, uint64_t at)
{
    const uint64_t bytes = (uint64_t)ngd_ascend_count(to) * sizeof(int32_t);

    if (c->status || c->mode != ASCEND_ISSUE)
        return;
    ngd_ascend_called(
        c, "a copy of the rows of attention",
        c->acl->aclrtMemcpyAsync(to->base, bytes, c->inst->staging + at, bytes, NGD_ACL_COPY_H2D, c->stream));
}

struct ascend_view ngd_ascend_row_tables(struct ascend_issue *c, const struct ascend_view *table, int64_t rows)
{
    const struct ascend_rows *r = ngd_ascend_rows_of(c);
    struct ascend_view tables;

    if (r && r->in_place)
        return *table;
    tables = ngd_ascend_temp(c, NGD_I32, 2, (const int64_t[]){rows, table->dims[1]});
    if (r)
        copy_rows(c, &tables, r->table_at);
    return tables;
}

struct ascend_view ngd_ascend_row_contexts(struct ascend_issue *c, int64_t rows)
{
    const struct ascend_rows *r = ngd_ascend_rows_of(c);
    struct ascend_view contexts = ngd_ascend_temp(c, NGD_I32, 1, &rows);

    if (r)
        copy_rows(c, &contexts, r->narrow_at);
    return contexts;
}
