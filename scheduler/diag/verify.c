/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verified replays (verify_every_n), and what happens to an executable whose replay was wrong.
 *
 * The shadow of a replay is the graph as it was registered, without passes but with the precision of its options, run
 * operator by operator on the same inputs and on copies that were made of the states before the replay. The two are
 * compared bit by bit if the device promises bits, else within rounding (graphs/compare.h). If they differ, the shadow
 * is taken to be right:
 *
 *   - its results are the answer, and its states replace the replay's;
 *   - the executable is dropped;
 *   - the key is in quarantine: from now on it runs as the shadow did, which is slow and right;
 *   - evidence is kept below the first directory of dump-dir.
 *
 * If the graph allows excess precision, a replay may differ from its shadow and still be right. Then two conditions
 * must hold. The replay equals a second shadow, which runs the graph as the passes rounded it, but eagerly and with
 * every result in storage of its own. And the replay equals the first shadow except for roundings. So the planned and
 * captured graph is checked as strictly as ever. Only mistakes of the passes that look like roundings are missed.
 */
#include "base/dumpdir.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/npy.h"
#include "graphs/compare.h"
#include "scheduler/diag/run_chain.h"
#include "scheduler/diag/verify_form.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (1u << 20)

/* An eager run on the same inputs. */
struct shadow {
    struct ngd_buffer **own; /* params, and copies of the states */
    struct ngd_verify_results want;
};

/* One verification. */
struct check {
    struct ngd_slot *slot;
    struct ngd_binding *binding;
    struct ngd_executable *x;
    struct ngd_launch *launch;
    struct shadow plain, rounded; /* without passes; with the passes' roundings, if the graph allows them */
    char text[300];               /* the first difference */
};

/* Compares values of a replay with those of a shadow. */
typedef bool same_fn(const struct check *c, ngd_dtype_t dtype, const void *got, const void *want, uint64_t n,
                     struct ngd_difference *diff_p);

static bool as_computed(const struct check *c, ngd_dtype_t dtype, const void *got, const void *want, uint64_t n,
                        struct ngd_difference *diff_p)
{
    return (ngd_program_keeps_bits(c->binding->prog) ? ngd_compare_bits : ngd_compare)(dtype, got, want, n, diff_p);
}

static bool but_for_roundings(const struct check *c, ngd_dtype_t dtype, const void *got, const void *want, uint64_t n,
                              struct ngd_difference *diff_p)
{
    return ngd_compare_rounded(dtype, ngd_compare_narrowest(c->binding->prog->graph), got, want, n, diff_p);
}

static void count_verified(const char *result)
{
    ngd_metric_row_add(ngd_metric_row(NGD_M_VERIFIED_REPLAYS, result), 1);
}

/* ---- comparing ---------------------------------------------------------------------------------------- */

static void say_difference(struct check *c, const char *what, const char *name, const struct ngd_difference *diff,
                           uint64_t n)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_difference_print(diff, n, &sb);
    snprintf(c->text, sizeof(c->text), "%s \"%.80s\": %s", what, name, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

static bool outputs_same(struct check *c, const struct shadow *s, same_fn *same)
{
    for (uint32_t i = 0; i < s->want.n; i++) {
        const struct ngd_verify_result *r = &s->want.list[i];
        struct ngd_difference diff;

        if (!c->launch->outputs[i].data ||
            same(c, r->dtype, c->launch->outputs[i].data, r->data, ngd_verify_result_elements(r), &diff))
            continue;
        say_difference(c, "output", r->name, &diff, ngd_verify_result_elements(r));
        return false;
    }
    return true;
}

/* Compares a state piece by piece: states may be as large as the device's memory. */
static bool state_same(struct check *c, const struct shadow *s, same_fn *same, uint32_t i, char *got, char *want)
{
    const struct ngd_graph *g = c->binding->prog->graph;
    const struct ngd_value *v = &g->values[g->states[i - g->n_params]];
    uint64_t size = ngd_dtype_bytes(v->type.dtype), bytes = ngd_buffer_bytes(s->own[i]) / size * size;
    struct ngd_difference diff;

    for (uint64_t at = 0; at < bytes; at += CHUNK) {
        uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;

        if (ngd_buffer_read(c->binding->buffers[i], at, got, n, NULL) || ngd_buffer_read(s->own[i], at, want, n, NULL))
            return true; /* what cannot be read is not counted as wrong */
        if (same(c, v->type.dtype, got, want, n / size, &diff))
            continue;
        diff.index += at / size;
        say_difference(c, "state", v->label, &diff, n / size);
        return false;
    }
    return true;
}

static bool states_same(struct check *c, const struct shadow *s, same_fn *same_as)
{
    const struct ngd_graph *g = c->binding->prog->graph;
    char *got = ngd_malloc(CHUNK), *want = ngd_malloc(CHUNK);
    bool same = true;

    for (uint32_t i = g->n_params; got && want && i < g->n_params + g->n_states && same; i++)
        same = state_same(c, s, same_as, i, got, want);
    ngd_free(got);
    ngd_free(want);
    return same;
}

static bool agrees_with_shadow(struct check *c, const struct shadow *s, same_fn *same)
{
    return outputs_same(c, s, same) && states_same(c, s, same);
}

/* ---- evidence ----------------------------------------------------------------------------------------- */

struct evidence {
    struct ngd_dumps *dumps;
    struct ngd_payer *payer;
    int dir;
};

static void keep_evidence_text(const struct evidence *e, const char *name, struct ngd_strbuf *sb)
{
    (void)ngd_dumps_write(e->dumps, e->payer, e->dir, name, ngd_strbuf_str(sb), sb->len, NULL);
    ngd_strbuf_clear(sb);
}

static void keep_tensor(const struct evidence *e, const char *kind, const char *name, ngd_dtype_t dtype,
                        const int64_t *dims, uint32_t rank, const void *data)
{
    char file[200];
    void *npy;
    size_t n;

    if (ngd_npy_make(dtype, dims, rank, data, &npy, &n))
        return;
    snprintf(file, sizeof(file), "%s.%.150s.npy", kind, name);
    (void)ngd_dumps_write(e->dumps, e->payer, e->dir, file, npy, n, NULL);
    ngd_free(npy);
}

static void keep_inputs(const struct evidence *e, const struct check *c)
{
    const struct ngd_graph *g = c->binding->prog->graph;

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ngd_value *v = &g->values[g->inputs[i]];
        int64_t dims[NGD_MAX_RANK];
        bool known = true;

        for (uint32_t d = 0; d < v->type.rank; d++)
            known = known && ngd_expr_eval(g->exprs, v->type.dims[d], c->launch->symbols, &dims[d]) == NGD_OK;
        if (known)
            keep_tensor(e, "input", v->label, v->type.dtype, dims, v->type.rank, c->launch->inputs[i].data);
    }
}

static void keep_reason(const struct evidence *e, const struct check *c, struct ngd_strbuf *sb)
{
    const struct ngd_graph *g = c->binding->prog->graph;

    ngd_strbuf_printf(sb, "%s\n", c->text);
    for (uint32_t i = 0; i < g->n_symbols; i++)
        ngd_strbuf_printf(sb, "symbol %s = %" PRId64 "\n", g->symbols[i].name, c->launch->symbols[i]);
    for (uint32_t i = 0; i < g->n_hosts; i++) {
        ngd_strbuf_printf(sb, "host %s =", g->values[g->hosts[i]].label);
        for (uint32_t k = 0; k < c->launch->hosts[i].n; k++)
            ngd_strbuf_printf(sb, " %" PRId64, c->launch->hosts[i].values[k]);
        ngd_strbuf_putc(sb, '\n');
    }
    keep_evidence_text(e, "why.txt", sb);
}

static void keep_evidence(struct check *c)
{
    struct ngd_program *prog = c->binding->prog;
    struct evidence e = {.dumps = prog->sched->params.dumps, .payer = ngd_program_owner_of(prog).payers.dumps};
    char hex[NGD_DIGEST_HEX], path[128];
    struct ngd_strbuf sb;

    if (!e.dumps)
        return;
    ngd_digest_hex(&prog->graph->digest, hex);
    snprintf(path, sizeof(path), "quarantine/%.12s-%016" PRIx64 "-%" PRId64, hex, c->x->key_hash, ngd_now());
    if (ngd_dumps_open(e.dumps, e.payer, path, &e.dir, NULL))
        return;
    ngd_strbuf_init(&sb);
    keep_reason(&e, c, &sb);
    ngd_graph_print(prog->graph, &sb);
    keep_evidence_text(&e, "graph.txt", &sb);
    ngd_graph_print(ngd_exec_plan(c->x->exec)->graph, &sb);
    keep_evidence_text(&e, "optimized.txt", &sb);
    ngd_plan_print(ngd_exec_plan(c->x->exec), &sb);
    keep_evidence_text(&e, "plan.txt", &sb);
    ngd_strbuf_fini(&sb);
    keep_inputs(&e, c);
    for (uint32_t i = 0; i < c->plain.want.n; i++) {
        const struct ngd_verify_result *r = &c->plain.want.list[i];

        keep_tensor(&e, "shadow", r->name, r->dtype, r->dims, r->rank, r->data);
        if (c->launch->outputs[i].data)
            keep_tensor(&e, "replay", r->name, r->dtype, r->dims, r->rank, c->launch->outputs[i].data);
    }
    close(e.dir);
}

/* ---- the verdict -------------------------------------------------------------------------------------- */

/* Replaces the replay's results and states by the shadow's. */
static ngd_status_t believe_shadow(struct check *c)
{
    const struct ngd_graph *g = c->binding->prog->graph;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < c->plain.want.n; i++)
        if (c->launch->outputs[i].data)
            memcpy(c->launch->outputs[i].data, c->plain.want.list[i].data, c->plain.want.list[i].bytes);
    for (uint32_t i = g->n_params; i < g->n_params + g->n_states && status == NGD_OK; i++)
        status = ngd_buffer_copy_all(c->binding->buffers[i], c->plain.own[i], &c->launch->diag);
    if (status)
        ngd_diag_prefix(&c->launch->diag, "the replay was wrong (%s), and its states cannot be corrected: ", c->text);
    return status;
}

static ngd_status_t condemn(struct check *c)
{
    static struct ngd_log_limit limit;
    struct ngd_program *prog = c->binding->prog;
    const struct ngd_key *key = &ngd_exec_plan(c->x->exec)->key;
    char name[NGD_LOG_VALUE_MAX];
    bool kept;

    count_verified("different");
    ngd_log_limited(&limit, NGD_LOG_ERROR, "scheduler",
                    "a replay of graph=%s differs from its shadow, the executable is dropped: %s",
                    ngd_log_value(prog->graph->name, name), c->text);
    keep_evidence(c);
    kept = ngd_program_quarantine(prog, key);
    ngd_program_note(prog, NGD_EVENT_QUARANTINED, key, c->launch->tag, "%s%s", c->text,
                     kept ? "" : "; no room in quarantine");
    ngd_program_poison(prog, c->x);
    return believe_shadow(c);
}

static void skip_check(struct check *c, const struct ngd_diag *diag)
{
    count_verified("skipped");
    ngd_program_note(c->binding->prog, NGD_EVENT_VERIFY_SKIPPED, &ngd_exec_plan(c->x->exec)->key, c->launch->tag, "%s",
                     diag->text);
}

/* Runs the shadow. */
static ngd_status_t cast_shadow(struct check *c, const struct ngd_graph_options *options, bool passes, struct shadow *s,
                                struct ngd_diag *diag)
{
    struct ngd_program *prog = c->binding->prog;
    struct ngd_verify_form form = {.slot = c->slot,
                                   .graph = prog->graph,
                                   .key = &ngd_exec_plan(c->x->exec)->key,
                                   .options = options,
                                   .passes = passes,
                                   .patterns = prog->patterns,
                                   .eager = true,
                                   .buffers = s->own,
                                   .launch = c->launch};

    return ngd_verify_form_run(&form, &s->want, NULL, diag);
}

/* Sets *same_p if the replay differs from the plain shadow only by roundings that the graph allows: see the top. */
static ngd_status_t compare_rounded(struct check *c, bool *same_p, struct ngd_diag *diag)
{
    struct ngd_graph_options options = c->binding->prog->options;
    ngd_status_t status;

    options.inplace_pass = options.input_inplace_pass = options.remove_cat_ops = false;
    options.assign_streams = 0;
    *same_p = agrees_with_shadow(c, &c->plain, but_for_roundings);
    if (!*same_p)
        return NGD_OK;
    status = cast_shadow(c, &options, true, &c->rounded, diag);
    *same_p = status == NGD_OK && agrees_with_shadow(c, &c->rounded, as_computed);
    return status;
}

static ngd_status_t compare_with_shadow(struct check *c)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = cast_shadow(c, &c->binding->prog->options, false, &c->plain, &diag);
    const char *result = "same";
    bool same = status == NGD_OK && agrees_with_shadow(c, &c->plain, as_computed);

    if (status == NGD_OK && !same && c->rounded.own) {
        status = compare_rounded(c, &same, &diag);
        result = "rounded";
    }
    if (status) {
        skip_check(c, &diag);
        return NGD_OK;
    }
    if (!same)
        return condemn(c);
    count_verified(result);
    return NGD_OK;
}

/* Copies the states before the replay, once for each shadow that may be needed. */
static ngd_status_t copy_states(struct check *c, struct ngd_diag *diag)
{
    const struct ngd_program *prog = c->binding->prog;
    ngd_status_t status = ngd_buffers_with_own_states(prog->graph, c->binding->buffers, &c->plain.own, diag);

    if (status == NGD_OK && prog->options.allow_excess_precision)
        status = ngd_buffers_with_own_states(prog->graph, c->binding->buffers, &c->rounded.own, diag);
    return status;
}

static void shadow_fini(struct shadow *s, uint32_t n_bound)
{
    ngd_verify_results_fini(&s->want);
    ngd_buffers_free(s->own, n_bound);
}

static bool is_due(struct ngd_executable *x, const struct ngd_launch *launch)
{
    const int64_t n = x->prog->options.verify_every_n;

    return n && !launch->eager && x->cached &&
           (atomic_fetch_add_explicit(&x->verify_turns, 1, memory_order_relaxed) + 1) % (uint64_t)n == 0;
}

static ngd_status_t verify_replay(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                  struct ngd_launch *launch)
{
    struct check c = {.slot = slot, .binding = binding, .x = x, .launch = launch};
    struct ngd_diag diag = {0};
    const bool copied = copy_states(&c, &diag) == NGD_OK;
    bool quarantined = false;
    ngd_status_t status;

    if (!copied)
        skip_check(&c, &diag);
    status = ngd_executable_run(slot, binding, x, launch, &quarantined);
    if (status == NGD_OK && copied)
        status = compare_with_shadow(&c);
    shadow_fini(&c.plain, binding->n);
    shadow_fini(&c.rounded, binding->n);
    return status;
}

ngd_status_t ngd_verify_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                            struct ngd_launch *launch, bool *quarantined_p)
{
    return is_due(x, launch) ? verify_replay(slot, binding, x, launch)
                             : ngd_executable_run(slot, binding, x, launch, quarantined_p);
}
