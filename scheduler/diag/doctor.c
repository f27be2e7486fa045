/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor: an isolation ladder over one graph and one set of inputs.
 *
 * Each step runs a form of the graph that differs from the form of the step before in one thing, and compares its
 * results with the reference's: first the results of nodes, in the order of execution, where both forms have the value
 * under the same name; then outputs; then states. So the first difference names the step, which is the cause, and the
 * first node that shows it.
 *
 * If a pass makes the graph round less, as the graph allows, the step's results are compared except for roundings. They
 * are the reference for all later steps.
 */
#include "base/mem.h"
#include "graphs/compare.h"
#include "graphs/pass.h"
#include "scheduler/diag/doctor_int.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_STAGES (NGD_PASS_MAX + 1)

struct doctor {
    struct ngd_doctor_subject subject;
    struct ngd_doctor_report *report;
    struct ngd_verify_results reference; /* of a tapped graph (ngd_graph_tap) */
    struct ngd_buffer **states;          /* as they are after the reference run */
    ngd_dtype_t narrow;                  /* the dtype whose roundings a pass may remove */
    const struct ngd_pass_report *passes;
    /* The graph after each pass that changed something. */
    struct {
        char name[48];
        struct ngd_graph *tapped, *plain;
        uint32_t excess; /* operators that this pass made round less */
    } stages[MAX_STAGES];
    uint32_t n_stages;
    ngd_status_t look_status;
    bool over; /* a step has differed */
};

/* ---- the report --------------------------------------------------------------------------------------- */

static struct ngd_doctor_step *add_doctor_step(struct doctor *d, const char *name)
{
    struct ngd_doctor_report *r = d->report;
    struct ngd_doctor_step *s = &r->steps[r->n_steps < NGD_DOCTOR_STEPS ? r->n_steps++ : NGD_DOCTOR_STEPS - 1];

    memset(s, 0, sizeof(*s));
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->verdict = "same";
    return s;
}

static void blame(struct doctor *d, struct ngd_doctor_step *s, const char *verdict, const char *node, const char *fmt,
                  ...) __attribute__((format(printf, 5, 6)));

static void blame(struct doctor *d, struct ngd_doctor_step *s, const char *verdict, const char *node, const char *fmt,
                  ...)
{
    va_list ap;

    s->verdict = verdict;
    va_start(ap, fmt);
    vsnprintf(s->text, sizeof(s->text), fmt, ap);
    va_end(ap);
    d->over = true;
    snprintf(d->report->step, sizeof(d->report->step), "%s", s->name);
    snprintf(d->report->node, sizeof(d->report->node), "%s", node);
}

/* ---- comparing ---------------------------------------------------------------------------------------- */

/*
 * Finds a result by name, searching from *at_p on and around. Sets *at_p behind the result: two forms of a graph have
 * most values in the same order.
 */
static const struct ngd_verify_result *find_result(const struct ngd_verify_results *results, const char *name,
                                                   uint32_t *at_p)
{
    for (uint32_t k = 0; k < results->n; k++) {
        uint32_t i = (*at_p + k) % results->n;

        if (strcmp(results->list[i].name, name) != 0)
            continue;
        *at_p = i + 1;
        return &results->list[i];
    }
    return NULL;
}

static void node_name(const struct ngd_graph *graph, const char *value, char *to, size_t room)
{
    for (uint32_t i = 0; i < graph->n_values; i++) {
        const struct ngd_value *v = &graph->values[i];

        if (v->cls != NGD_VALUE_NODE || strcmp(v->name, value) != 0)
            continue;
        snprintf(to, room, "%%%.80s of %s", value, graph->nodes[v->node].op->name);
        return;
    }
    snprintf(to, room, "%%%.80s", value);
}

/* Names an output and the node that computes it in this form of the graph. */
static void output_name(const struct ngd_graph *graph, const char *name, char *to, size_t room)
{
    int i = ngd_graph_find_output(graph, name);
    char node[120] = "?";

    if (i >= 0)
        node_name(graph, graph->values[graph->outputs[i].value].name, node, sizeof(node));
    snprintf(to, room, "output \"%.50s\", %.80s", name, node);
}

/*
 * Returns true if the values agree, as closely as the program promises. rounded: `got` may lack roundings that `want`
 * has.
 */
static bool values_agree(const struct doctor *d, bool rounded, ngd_dtype_t dtype, const void *got, const void *want,
                         uint64_t n, struct ngd_difference *diff_p)
{
    return rounded                                   ? ngd_compare_rounded(dtype, d->narrow, got, want, n, diff_p)
           : ngd_program_keeps_bits(d->subject.prog) ? ngd_compare_bits(dtype, got, want, n, diff_p)
                                                     : ngd_compare(dtype, got, want, n, diff_p);
}

/*
 * Blames the step and returns true if a result differs. The results of nodes are compared first: they stand behind the
 * outputs in the list, but are computed before them.
 */
static bool results_differ(struct doctor *d, struct ngd_doctor_step *s, const struct ngd_graph *graph,
                           const struct ngd_verify_results *got, bool rounded)
{
    uint32_t n_outputs = d->subject.prog->graph->n_outputs, at = n_outputs;

    for (uint32_t k = 0; k < got->n; k++) {
        const uint32_t i = (k + n_outputs) % got->n;
        const struct ngd_verify_result *r = &got->list[i], *want = find_result(&d->reference, r->name, &at);
        struct ngd_difference diff;
        struct ngd_strbuf sb;
        char node[160];

        if (!want || want->dtype != r->dtype || want->bytes != r->bytes ||
            values_agree(d, rounded, r->dtype, r->data, want->data, ngd_verify_result_elements(r), &diff))
            continue;
        if (i >= n_outputs)
            node_name(graph, ngd_tap_value(r->name), node, sizeof(node));
        else
            output_name(graph, r->name, node, sizeof(node));
        ngd_strbuf_init(&sb);
        ngd_difference_print(&diff, ngd_verify_result_elements(r), &sb);
        blame(d, s, "differs", node, "%s: %s", node, ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
        return true;
    }
    return false;
}

static bool state_differs(const struct doctor *d, bool rounded, const struct ngd_value *v, struct ngd_buffer *got,
                          struct ngd_buffer *want, struct ngd_difference *diff)
{
    uint64_t size = ngd_dtype_bytes(v->type.dtype), bytes = ngd_buffer_bytes(want) / size * size;
    char *a = ngd_malloc(bytes + 1), *b = ngd_malloc(bytes + 1);
    bool differs = a && b && !ngd_buffer_read(got, 0, a, bytes, NULL) && !ngd_buffer_read(want, 0, b, bytes, NULL) &&
                   !values_agree(d, rounded, v->type.dtype, a, b, bytes / size, diff);

    ngd_free(a);
    ngd_free(b);
    return differs;
}

static void compare_states(struct doctor *d, struct ngd_doctor_step *s, struct ngd_buffer **got, bool rounded)
{
    const struct ngd_graph *g = d->subject.prog->graph;

    for (uint32_t i = g->n_params; i < d->subject.n_bound && !d->over; i++) {
        const struct ngd_value *v = &g->values[g->states[i - g->n_params]];
        struct ngd_difference diff;
        char node[120];

        if (!state_differs(d, rounded, v, got[i], d->states[i], &diff))
            continue;
        snprintf(node, sizeof(node), "state \"%.80s\"", v->label);
        blame(d, s, "differs", node, "%s: element %llu is %.9g afterwards, not %.9g", node,
              (unsigned long long)diff.index, diff.got, diff.want);
    }
}

/* ---- running a form of the graph ---------------------------------------------------------------------- */

struct form {
    struct doctor *d;
    struct ngd_graph *graph;
    bool passes, eager;
    uint32_t excess;       /* operators that round less than in the step before */
    struct ngd_exec *exec; /* runs this executable instead of capturing the graph; or NULL */
    struct ngd_buffer **own;
    struct ngd_verify_results results;
    ngd_nsec_t time;
    ngd_status_t status;
    struct ngd_diag diag;
};

static void form_run(void *arg, struct ngd_slot *slot)
{
    struct form *f = arg;
    struct ngd_verify_form form = {.slot = slot,
                                   .graph = f->graph,
                                   .key = &f->d->subject.key,
                                   .options = &f->d->subject.prog->options,
                                   .passes = f->passes,
                                   .patterns = f->d->subject.prog->patterns,
                                   .eager = f->eager,
                                   .buffers = f->own,
                                   .launch = &f->d->subject.launch};

    f->status = f->exec ? ngd_verify_form_run_exec(&form, f->exec, &f->results, &f->time, &f->diag)
                        : ngd_verify_form_run(&form, &f->results, &f->time, &f->diag);
}

static void form_fini(struct form *f)
{
    ngd_verify_results_fini(&f->results);
    ngd_buffers_free(f->own, f->d->subject.n_bound);
    f->own = NULL;
}

static ngd_status_t run_form(struct form *f)
{
    ngd_status_t status =
        ngd_buffers_with_own_states(f->d->subject.prog->graph, f->d->subject.buffers, &f->own, &f->diag);

    if (status == NGD_OK)
        status = ngd_doctor_subject_on_slot(&f->d->subject, form_run, f, &f->diag);
    return status ? status : f->status;
}

/* Makes the form's results and states the reference for all later steps. */
static void become_reference(struct form *f, struct ngd_doctor_step *s)
{
    struct doctor *d = f->d;
    const struct ngd_verify_results old_results = d->reference;
    struct ngd_buffer **old_states = d->states;

    d->reference = f->results;
    d->states = f->own;
    f->results = old_results;
    f->own = old_states;
    s->verdict = "rounded";
    snprintf(s->text, sizeof(s->text),
             "%u operators round less, which the graph allows; later steps are compared with this one", f->excess);
}

/* Runs the form as one step and compares it with the reference. Returns true if they agree. */
static bool run_ladder_step(struct doctor *d, const char *name, struct form *f)
{
    struct ngd_doctor_step *s;

    if (d->over)
        return false;
    s = add_doctor_step(d, name);
    f->d = d;
    f->status = run_form(f);
    s->duration = f->time;
    if (f->status)
        blame(d, s, "failed", "", "%s", f->diag.text[0] ? f->diag.text : ngd_status_text(f->status));
    else if (!results_differ(d, s, f->graph, &f->results, f->excess > 0))
        compare_states(d, s, f->own, f->excess > 0);
    if (f->excess && !d->over)
        become_reference(f, s);
    form_fini(f);
    return !d->over;
}

/* ---- the ladder --------------------------------------------------------------------------------------- */

static void keep_stage(void *ctx, const struct ngd_pass *pass, const struct ngd_graph *graph)
{
    struct doctor *d = ctx;
    struct ngd_strbuf sb;

    if (!pass || d->n_stages == MAX_STAGES || d->look_status)
        return;
    snprintf(d->stages[d->n_stages].name, sizeof(d->stages[0].name), "%s", pass->name);
    for (int i = 0; i < NGD_PASS_MAX; i++)
        if (ngd_pass_info((ngd_pass_id_t)i) == pass)
            d->stages[d->n_stages].excess = d->passes->of[i].excess;
    d->look_status = ngd_graph_tap(graph, &d->stages[d->n_stages].tapped, NULL);
    ngd_strbuf_init(&sb);
    ngd_graph_print(graph, &sb);
    if (d->look_status == NGD_OK)
        d->look_status = sb.failed ? NGD_ERR_NO_MEMORY
                                   : ngd_graph_parse_rewritten(sb.data, sb.len, &d->stages[d->n_stages].plain, NULL);
    ngd_strbuf_fini(&sb);
    d->n_stages++;
}

static ngd_status_t run_reference(struct doctor *d, struct ngd_diag *diag)
{
    struct ngd_doctor_step *s = add_doctor_step(d, "eager, no passes");
    struct form f = {.d = d, .eager = true};
    ngd_status_t status = ngd_graph_tap(d->subject.prog->graph, &f.graph, diag);

    if (status)
        return status;
    status = run_form(&f);
    s->verdict = "reference";
    s->duration = f.time;
    if (status) {
        blame(d, s, "failed", "", "%s", f.diag.text[0] ? f.diag.text : ngd_status_text(status));
        form_fini(&f);
    } else {
        d->reference = f.results;
        d->states = f.own;
    }
    ngd_graph_unref(f.graph);
    return NGD_OK;
}

static ngd_status_t collect_stages(struct doctor *d, struct ngd_diag *diag)
{
    struct ngd_program *prog = d->subject.prog;
    struct ngd_pass_report report = {.look = keep_stage, .ctx = d};
    struct ngd_graph *last = NULL;
    ngd_status_t status;

    d->passes = &report;
    d->narrow = ngd_compare_narrowest(prog->graph);
    status = ngd_passes_run(prog->graph, d->subject.key.symbols, &prog->options, ngd_device_target(prog->queue->dev),
                            prog->patterns, &report, &last, diag);
    d->passes = NULL;
    ngd_graph_unref(last);
    if (status == NGD_OK && d->look_status)
        return ngd_diag_set(diag, d->look_status, "the graph after a pass cannot be copied");
    return status;
}

static void run_passes(struct doctor *d)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = collect_stages(d, &diag);

    if (status) {
        blame(d, add_doctor_step(d, "passes"), "failed", "", "%s", diag.text);
        return;
    }
    for (uint32_t i = 0; i < d->n_stages; i++) {
        struct form f = {.graph = d->stages[i].tapped, .eager = true, .excess = d->stages[i].excess};
        char name[64];

        snprintf(name, sizeof(name), "pass %s", d->stages[i].name);
        if (!run_ladder_step(d, name, &f))
            return;
    }
}

/*
 * Finds the node to blame after a replay whose outputs differ: replays the tapped graph, which has each node's result.
 */
static void name_node(struct doctor *d)
{
    struct ngd_graph *tapped = d->n_stages ? ngd_graph_ref(d->stages[d->n_stages - 1].tapped) : NULL;
    struct ngd_doctor_step *s = &d->report->steps[d->report->n_steps - 1];
    struct form f = {.d = d};
    char text[sizeof(s->text)];

    if (!tapped && ngd_graph_tap(d->subject.prog->graph, &tapped, NULL))
        return;
    memcpy(text, s->text, sizeof(text));
    f.graph = tapped;
    if (run_form(&f) == NGD_OK && !results_differ(d, s, tapped, &f.results, false))
        snprintf(s->text, sizeof(s->text),
                 "%.200s; it agrees when every result has its own memory, so results share memory wrongly", text);
    form_fini(&f);
    ngd_graph_unref(tapped);
}

static void run_wholes(struct doctor *d)
{
    struct ngd_program *prog = d->subject.prog;
    struct form eager = {.graph = prog->graph, .passes = true, .eager = true};
    struct form replay = {.graph = prog->graph, .passes = true};
    struct ngd_gcache_entry *entry;

    if (!d->over)
        (void)run_ladder_step(d, "eager, with passes", &eager);
    if (!d->over && !run_ladder_step(d, "replay of a new capture", &replay) && replay.status == NGD_OK)
        name_node(d);
    entry = d->over ? NULL : ngd_program_lookup(prog, &d->subject.key, NULL);
    if (entry) {
        struct form cached = {.graph = prog->graph, .exec = ngd_entry_executable(entry)->exec};

        (void)run_ladder_step(d, "replay of the cached executable", &cached);
        ngd_gcache_put(entry);
    }
}

static void write_verdict(struct doctor *d)
{
    struct ngd_doctor_report *r = d->report;

    r->healthy = !d->over;
    if (r->healthy)
        snprintf(r->verdict, sizeof(r->verdict), "all %u steps agree", (unsigned)r->n_steps);
    else
        snprintf(r->verdict, sizeof(r->verdict), "\"%s\" is the first step that %s: %s", r->step,
                 r->steps[r->n_steps - 1].verdict, r->steps[r->n_steps - 1].text);
}

static void doctor_free(struct doctor *d)
{
    for (uint32_t i = 0; i < d->n_stages; i++) {
        ngd_graph_unref(d->stages[i].tapped);
        ngd_graph_unref(d->stages[i].plain);
    }
    ngd_verify_results_fini(&d->reference);
    ngd_buffers_free(d->states, d->subject.n_bound);
    ngd_doctor_subject_fini(&d->subject);
    ngd_free(d);
}

static ngd_status_t climb(struct doctor *d, struct ngd_diag *diag)
{
    struct ngd_doctor_step *s = add_doctor_step(d, "validate");
    struct ngd_diag why = {0};
    ngd_status_t status = ngd_graph_validate(d->subject.prog->graph, &why);

    s->verdict = "passed";
    if (status)
        blame(d, s, "failed", "", "%s", why.text);
    status = d->over ? NGD_OK : run_reference(d, diag);
    if (status == NGD_OK && !d->over)
        run_passes(d);
    if (status == NGD_OK && !d->over)
        run_wholes(d);
    write_verdict(d);
    return status;
}

ngd_status_t ngd_doctor_run(const struct ngd_doctor_params *params, struct ngd_doctor_report *report_p,
                            struct ngd_diag *diag)
{
    struct doctor *d = NGD_NEW(struct doctor);
    ngd_status_t status;

    if (!d)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the doctor");
    memset(report_p, 0, sizeof(*report_p));
    d->report = report_p;
    status = ngd_doctor_subject_init(&d->subject, params, diag);
    if (status == NGD_OK) {
        report_p->n_symbols = params->prog->graph->n_symbols;
        memcpy(report_p->symbols, d->subject.symbols, sizeof(report_p->symbols));
        status = climb(d, diag);
    }
    doctor_free(d);
    return status;
}
