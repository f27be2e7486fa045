/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.Register, Capture, Describe, List, Release. Replays are in replay.c. */
#include "base/metrics.h"
#include "base/strbuf.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handlers/graph_info.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/patterns.h"
#include "daemon/handlers/graphs.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/replay_trace.h"
#include "daemon/session.h"
#include "graphs/plan_map.h"
#include "proto/word.h"

#include <inttypes.h>
#include <string.h>

#define INLINE_TEXT (64u << 10) /* longer texts are parsed on a job thread */
#define MAX_TEXT    (12u << 20)

/* ---- register ------------------------------------------------------------------------------------ */

struct registration {
    struct ngd_job job;
    struct ngd_call *call;
    const Npugraph__V1__RegisterRequest *q;
};

/* Sets an option, and refuses it if it is given twice: one of the values would be ignored without notice. */
static ngd_status_t set_once(struct ngd_graph_options *options, const Npugraph__V1__GraphOption *o, bool capture,
                             struct ngd_diag *diag)
{
    int id = ngd_option_find(o->name);

    if (id >= 0 && (options->given >> id & 1))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "option %s is given twice; give it once", o->name);
    return capture ? ngd_graph_options_set_for_capture(options, o->name, o->value, diag)
                   : ngd_graph_options_set(options, o->name, o->value, diag);
}

static ngd_status_t read_options(struct ngd_call *call, const Npugraph__V1__RegisterRequest *q,
                                 struct ngd_graph_options *options, struct ngd_diag *diag)
{
    ngd_graph_options_init(options);
    options->capture_limit = ngd_config_get(call->daemon->options.capture_limit);
    for (size_t i = 0; i < q->n_options; i++) {
        ngd_status_t status = set_once(options, q->options[i], false, diag);

        if (status != NGD_OK)
            return status;
    }
    return ngd_graph_options_check(options, diag);
}

static ngd_status_t bind_program(struct registration *r, struct ngd_program *prog,
                                 Npugraph__V1__RegisterResponse *reply, struct ngd_diag *diag)
{
    const struct ngd_graph *g = ngd_program_graph(prog);
    struct ngd_buffer **buffers =
        ngd_arena_calloc(&r->call->life, g->n_params + g->n_states + 1u, sizeof(struct ngd_buffer *));
    struct ngd_object **objects = ngd_arena_calloc(&r->call->life, r->q->n_bindings + 1, sizeof(struct ngd_object *));
    struct ngd_binding *binding = NULL;
    struct ngd_graph_object *o;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (buffers && objects)
        status = ngd_rpc_collect_buffers(r->call, g, r->q->bindings, r->q->n_bindings, buffers, objects, diag);
    if (status == NGD_OK)
        status = ngd_binding_create(prog, buffers, &binding, diag);
    for (size_t i = 0; objects && i < r->q->n_bindings; i++)
        ngd_object_unref(objects[i]);
    if (status != NGD_OK)
        return status;
    reply->generation = ngd_binding_generation(binding);
    reply->unbound = ngd_rpc_list_unbound(r->call, binding, &reply->n_unbound);
    o = ngd_graph_object_create(binding);
    if (!o || !reply->unbound) {
        ngd_object_unref(o ? &o->base : NULL);
        return NGD_ERR_NO_MEMORY;
    }
    ngd_graph_names_add(r->call->daemon->graph_names, r->call->session, o); /* before the session may drop it */
    status = ngd_session_add(r->call->session, &o->base, &reply->graph, diag);
    if (status != NGD_OK) {
        ngd_graph_names_remove(o);
        ngd_object_unref(&o->base);
    }
    return status;
}

static ngd_status_t register_parsed(struct registration *r, struct ngd_graph *g, Npugraph__V1__RegisterResponse *reply,
                                    struct ngd_diag *diag)
{
    struct ngd_daemon *d = r->call->daemon;
    const struct ngd_owner owner = {ngd_session_share(r->call->session), ngd_identity_payers(r->call->identity)};
    struct ngd_graph_options options;
    struct ngd_pattern_set *patterns = NULL;
    struct ngd_object *group = NULL;
    struct ngd_program *prog;
    struct ngd_device *dev;
    bool shared;
    ngd_status_t status = read_options(r->call, r->q, &options, diag);

    if (status == NGD_OK)
        status = ngd_sched_find_device(d->sched, r->q->device, &dev, diag);
    if (status == NGD_OK && r->q->group)
        status = ngd_session_get(r->call->session, r->q->group, NGD_OBJECT_GROUP, &group, diag);
    if (status == NGD_OK)
        status = (patterns = ngd_patterns_set_for(d->patterns, r->call->identity)) ? NGD_OK : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        status = ngd_program_open_in(d->sched, dev, g, &options, patterns,
                                     group ? ngd_container_of(group, struct ngd_group_object, base)->group : NULL,
                                     &owner, &prog, &shared, diag);
    ngd_pattern_set_unref(patterns);
    ngd_object_unref(group);
    if (status != NGD_OK)
        return status;
    reply->shared = shared;
    status = bind_program(r, prog, reply, diag);
    ngd_program_unref(prog);
    return status;
}

static void run_registration(struct registration *r)
{
    Npugraph__V1__RegisterResponse reply = NPUGRAPH__V1__REGISTER_RESPONSE__INIT;
    struct ngd_call *call = r->call;
    char hex[NGD_DIGEST_HEX];
    struct ngd_graph *g;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_graph_parse(r->q->text, strlen(r->q->text), &g, &diag);

    if (status == NGD_OK) {
        ngd_digest_hex(&g->digest, hex);
        reply.digest = hex;
        status = register_parsed(r, g, &reply, &diag);
        ngd_graph_unref(g);
    }
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    ngd_metric_add(NGD_M_REGISTRATIONS, 1);
    ngd_call_reply(call, &reply.base);
}

static void register_graph_job(struct ngd_job *job)
{
    run_registration(ngd_container_of(job, struct registration, job));
}

static void register_graph_text(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__RegisterRequest *q = msg;
    struct registration *r;
    struct ngd_diag diag = {0};

    r = ngd_arena_calloc(&call->life, 1, sizeof(*r));
    if (!r) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    if (strlen(q->text) > MAX_TEXT) {
        ngd_diag_set(&diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph text has %zu bytes; at most %u are allowed",
                     strlen(q->text), MAX_TEXT);
        ngd_call_fail(call, NGD_ERR_GRAPH_TOO_LARGE, &diag);
        return;
    }
    *r = (struct registration){.job.fn = register_graph_job, .call = call, .q = q};
    if (strlen(q->text) > INLINE_TEXT)
        ngd_jobs_add_for(call->daemon->jobs, &r->job, call->identity->key);
    else
        run_registration(r);
}

const struct ngd_rpc_ops ngd_rpc_graphs_register = {.once = true, .request = register_graph_text};

/* ---- capture ------------------------------------------------------------------------------------- */

struct capture {
    struct ngd_binding *binding; /* a reference */
    const Npugraph__V1__CaptureRequest *q;
    struct ngd_capture_asker asker;
};

/* Allocates room for the sizes of all ranks' values, one rank after the other. A graph alone counts as one rank. */
static uint64_t *room_for_ranks(struct ngd_call *call, const struct ngd_binding *binding)
{
    size_t n = 1;

    for (uint32_t r = 0; r < ngd_binding_ranks(binding); r++) {
        const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(ngd_binding_rank(binding, r)));

        n += g->n_params + g->n_states + g->n_inputs;
    }
    return ngd_arena_calloc(&call->life, n, sizeof(uint64_t));
}

static bool add_value_bytes(const struct ngd_graph *g, const uint32_t *values, uint32_t n, const int64_t *symbols,
                            uint64_t *list, size_t *n_p)
{
    for (uint32_t i = 0; i < n; i++)
        if (ngd_value_bytes(g, values[i], symbols, &list[(*n_p)++]) != NGD_OK)
            return false;
    return true;
}

static bool add_rank_bytes(const struct ngd_binding *binding, uint32_t rank, const int64_t *symbols,
                           Npugraph__V1__CaptureResponse *reply)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(ngd_binding_rank(binding, rank)));
    bool ok = add_value_bytes(g, g->params, g->n_params, symbols, reply->bound_bytes, &reply->n_bound_bytes) &&
              add_value_bytes(g, g->states, g->n_states, symbols, reply->bound_bytes, &reply->n_bound_bytes);

    if (rank > 0 && ngd_binding_is_replicated(binding))
        return ok;
    return ok && add_value_bytes(g, g->inputs, g->n_inputs, symbols, reply->input_bytes, &reply->n_input_bytes);
}

static ngd_status_t fill_sizes(struct ngd_call *call, const struct ngd_binding *binding, const int64_t *symbols,
                               Npugraph__V1__CaptureResponse *reply)
{
    const uint32_t n = ngd_binding_n_outputs(binding);

    reply->bound_bytes = room_for_ranks(call, binding);
    reply->input_bytes = room_for_ranks(call, binding);
    reply->output_bytes = ngd_arena_calloc(&call->life, n + 1u, sizeof(*reply->output_bytes));
    if (!reply->bound_bytes || !reply->input_bytes || !reply->output_bytes)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < ngd_binding_ranks(binding); r++)
        if (!add_rank_bytes(binding, r, symbols, reply))
            return NGD_ERR_OVERFLOW;
    for (; reply->n_output_bytes < n; reply->n_output_bytes++) {
        uint32_t i = (uint32_t)reply->n_output_bytes;
        const struct ngd_graph *g = ngd_binding_output(binding, &i);

        if (ngd_value_bytes(g, g->outputs[i].value, symbols, &reply->output_bytes[reply->n_output_bytes]) != NGD_OK)
            return NGD_ERR_OVERFLOW;
    }
    return NGD_OK;
}

/* info: NULL if the capture failed. */
static void trace_capture(struct ngd_trace_record *record, const struct capture *c, const struct ngd_capture_info *info)
{
    const ngd_nsec_t now = ngd_now();

    ngd_trace_record_name(record, "npugraph.graph", ngd_program_graph(ngd_binding_program(c->binding))->name);
    if (!info || !info->duration)
        return;
    ngd_trace_record_part(record, NGD_TRACE_QUEUE, NGD_TRACE_TOP, record->asked, now - info->duration);
    ngd_capture_trace(record, NGD_TRACE_TOP, now - info->duration, now, info->passes_time, info->plan_time);
    ngd_trace_record_number(record, "npugraph.kernels", info->kernels);
}

static void answer_capture(void *user, ngd_status_t status, const struct ngd_capture_info *info,
                           const struct ngd_diag *diag)
{
    Npugraph__V1__CaptureResponse reply = NPUGRAPH__V1__CAPTURE_RESPONSE__INIT;
    struct ngd_call *call = user;
    struct capture *c = call->state;

    if (call->trace)
        trace_capture(call->trace, c, status == NGD_OK ? info : NULL);
    if (status == NGD_OK)
        status = fill_sizes(call, c->binding, info->symbols, &reply);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag);
        return;
    }
    reply.key = (char *)(uintptr_t)info->key;
    reply.captured = info->captured;
    reply.pool_bytes = info->pool_bytes;
    reply.kernels = info->kernels;
    reply.live_bytes = info->live_bytes;
    reply.streams = info->streams;
    reply.holders = info->holders;
    reply.executables = info->executables;
    reply.pool = (char *)(uintptr_t)info->pool;
    reply.pools = info->pools;
    reply.pool_held_bytes = info->pool_held;
    reply.pool_more_bytes = info->pool_more;
    reply.nanoseconds = (uint64_t)info->duration;
    reply.symbols = (int64_t *)(uintptr_t)info->symbols;
    reply.n_symbols = c->q->n_symbols;
    ngd_call_reply(call, &reply.base);
}

/* Returns the graph's options, replaced by those of this capture. A dry run leaves nothing behind, so it accepts any
 * option. */
static ngd_status_t capture_options(const struct capture *c, struct ngd_graph_options *options, struct ngd_diag *diag)
{
    uint64_t given;

    *options = *ngd_program_options(ngd_binding_program(c->binding));
    given = options->given; /* given at the registration; the capture may give them again */
    options->given = 0;
    for (size_t i = 0; i < c->q->n_options; i++) {
        ngd_status_t status = set_once(options, c->q->options[i], !c->q->dry_run, diag);

        if (status != NGD_OK)
            return status;
    }
    options->given |= given;
    return ngd_graph_options_check(options, diag);
}

static void capture_graph(struct ngd_call *call, const void *msg)
{
    struct capture *c = ngd_arena_calloc(&call->life, 1, sizeof(*c));
    struct ngd_graph_options options;
    struct ngd_object *o;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (c) {
        c->q = msg;
        status = ngd_session_get(call->session, c->q->graph, NGD_OBJECT_GRAPH, &o, &diag);
    }
    if (status == NGD_OK) {
        c->binding = ngd_graph_object_binding(ngd_container_of(o, struct ngd_graph_object, base));
        ngd_object_unref(o);
        c->asker.done = answer_capture;
        c->asker.user = call;
        call->state = c;
        status = capture_options(c, &options, &diag);
        if (status != NGD_OK)
            ngd_program_capture_refused(ngd_binding_program(c->binding), status, &diag);
    }
    ngd_trace_record_asked(call->trace);
    if (status == NGD_OK)
        status = ngd_sched_capture(call->daemon->sched, c->binding, c->q->symbols, (uint32_t)c->q->n_symbols, &options,
                                   c->q->dry_run, &c->asker, &diag);
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

static void capture_cancelled(struct ngd_call *call)
{
    struct capture *c = call->state;

    if (c)
        ngd_sched_capture_cancel(call->daemon->sched, &c->asker);
}

static void capture_release(struct ngd_call *call)
{
    struct capture *c = call->state;

    call->state = NULL;
    if (c)
        ngd_binding_unref(c->binding);
}

const struct ngd_rpc_ops ngd_rpc_graphs_capture = {
    .once = true, .request = capture_graph, .cancelled = capture_cancelled, .release = capture_release};

/* ---- describe, list, release --------------------------------------------------------------------- */

#define WAYS_SAID 8 /* most graphs that a refusal lists */

struct search {
    const struct ngd_identity *who;
    const char *prefix;
    size_t n_prefix;
    uint64_t number;           /* 0: any */
    struct ngd_program *found; /* the first match; a reference */
    uint32_t n;
    bool others; /* there are matches with another digest */
    struct ngd_strbuf ways;
};

static void print_way(struct ngd_program *prog, const char *hex, struct ngd_strbuf *sb)
{
    const struct ngd_graph_options *options = ngd_program_options(prog);

    ngd_strbuf_printf(sb, "%s%.12s/%" PRIu64 " (%s", sb->len ? ", " : "", hex, ngd_program_number(prog),
                      ngd_device_info(ngd_program_device(prog))->name);
    ngd_strbuf_append(sb, ngd_graph_options_are_default(options) ? "" : ", ");
    ngd_graph_options_print_changed(options, sb);
    ngd_strbuf_putc(sb, ')');
}

static void match_digest(void *ctx, struct ngd_program *prog)
{
    struct search *s = ctx;
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(&ngd_program_graph(prog)->digest, hex);
    if (!ngd_may_see_key(s->who, ngd_program_owner(prog)))
        return;
    if (strncmp(hex, s->prefix, s->n_prefix) != 0 || (s->number && s->number != ngd_program_number(prog)))
        return;
    if (s->n++ < WAYS_SAID)
        print_way(prog, hex, &s->ways);
    if (!s->found)
        s->found = ngd_program_ref(prog);
    else
        s->others =
            s->others || !ngd_digest_equal(&ngd_program_graph(prog)->digest, &ngd_program_graph(s->found)->digest);
}

/* Reads "DIGEST" or "DIGEST/NUMBER". */
static bool read_name(const char *name, struct search *s)
{
    const char *digits = strchr(name, '/'), *p = digits;

    s->prefix = name;
    s->n_prefix = digits ? (size_t)(digits - name) : strlen(name);
    if (!digits)
        return true;
    for (p++; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(s->number, 10, &s->number) ||
            __builtin_add_overflow(s->number, (uint64_t)(*p - '0'), &s->number))
            return false;
    return *p == '\0' && s->number > 0;
}

static ngd_status_t find_by_name(struct ngd_call *call, const char *name, bool any, struct ngd_program **prog_p,
                                 struct ngd_diag *diag)
{
    struct search s = {.who = call->identity};
    ngd_status_t status = NGD_OK;

    if (!read_name(name, &s) || s.n_prefix < 6)
        return ngd_diag_set(
            diag, NGD_ERR_INVALID_ARGUMENT,
            "name a graph by its id, or by at least 6 digits of its digest (with /NUMBER if there are several)");
    ngd_strbuf_init(&s.ways);
    ngd_program_for_each(call->daemon->sched, match_digest, &s);
    if (!s.found)
        status =
            ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "no graph that %.100s may see has a digest that begins with %.80s",
                         call->identity->name, name);
    else if (s.others || (s.n > 1 && !any))
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%.64s names %s: %s%s; name one of them", name,
                              s.others ? "several graphs" : "a graph that is registered in several ways",
                              ngd_strbuf_str(&s.ways), s.n > WAYS_SAID ? ", and more" : "");
    ngd_strbuf_fini(&s.ways);
    if (status)
        ngd_program_unref(s.found);
    else
        *prog_p = s.found;
    return status;
}

ngd_status_t ngd_rpc_find_program(struct ngd_call *call, uint64_t graph, const char *digest, bool any,
                                  struct ngd_program **prog_p, struct ngd_diag *diag)
{
    struct ngd_binding *binding;
    struct ngd_object *o;
    ngd_status_t status;

    if (!graph)
        return find_by_name(call, digest, any, prog_p, diag);
    if (!call->session)
        return ngd_diag_set(diag, NGD_ERR_SESSION_REQUIRED,
                            "a graph's id belongs to a session; without one, name the graph by its digest");
    status = ngd_session_get(call->session, graph, NGD_OBJECT_GRAPH, &o, diag);
    if (status != NGD_OK)
        return status;
    binding = ngd_graph_object_binding(ngd_container_of(o, struct ngd_graph_object, base));
    *prog_p = ngd_program_ref(ngd_binding_program(binding));
    ngd_binding_unref(binding);
    ngd_object_unref(o);
    return NGD_OK;
}

struct drawing {
    struct ngd_strbuf *sb;
    bool svg;
    uint32_t n;
    ngd_status_t status;
};

/* Draws a plan. As text, all plans follow each other; an SVG shows only the first. */
static void draw_map(void *ctx, const struct ngd_plan *plan)
{
    struct drawing *d = ctx;

    if (d->n++ > 0 && d->svg)
        return;
    if (d->n > 1)
        ngd_strbuf_putc(d->sb, '\n');
    if (!d->svg) {
        ngd_strbuf_append(d->sb, "# key: ");
        ngd_key_print(plan->graph, &plan->key, d->sb);
        ngd_strbuf_putc(d->sb, '\n');
    }
    if (d->status == NGD_OK)
        d->status = d->svg ? ngd_plan_map_svg(plan, d->sb) : ngd_plan_map_text(plan, d->sb);
}

static ngd_status_t none_captured(struct ngd_program *prog, const char *key, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "graph \"%.100s\" has no executable%s%.16s; capture one first",
                        ngd_program_graph(prog)->name, key[0] ? " whose key begins with " : "", key);
}

static ngd_status_t print_map(struct ngd_program *prog, const Npugraph__V1__DescribeRequest *q, bool svg,
                              struct ngd_strbuf *sb, struct ngd_diag *diag)
{
    struct drawing d = {.sb = sb, .svg = svg};

    if (ngd_program_for_each_plan(prog, q->key, draw_map, &d) == 0)
        return none_captured(prog, q->key, diag);
    if (svg && d.n > 1)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "graph \"%.100s\" has %u executables; choose one by its key", ngd_program_graph(prog)->name,
                            d.n);
    return d.status;
}

static Npugraph__V1__DescribeForm form_of(const Npugraph__V1__DescribeRequest *q)
{
    return q->form == NGD_PB(DESCRIBE_FORM, UNSPECIFIED) ? NGD_PB(DESCRIBE_FORM, TEXT) : q->form;
}

static ngd_status_t print_form(struct ngd_program *prog, const Npugraph__V1__DescribeRequest *q, struct ngd_strbuf *sb,
                               struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    switch (form_of(q)) {
    case NGD_PB(DESCRIBE_FORM, DOT):
        ngd_graph_print_dot(ngd_program_graph(prog), sb);
        break;
    case NGD_PB(DESCRIBE_FORM, PLAN):
        status = ngd_program_print_plans(prog, q->key, sb) ? NGD_OK : none_captured(prog, q->key, diag);
        break;
    case NGD_PB(DESCRIBE_FORM, MAP):
    case NGD_PB(DESCRIBE_FORM, SVG):
        status = print_map(prog, q, q->form == NGD_PB(DESCRIBE_FORM, SVG), sb, diag);
        break;
    default:
        ngd_graph_print(ngd_program_graph(prog), sb);
        break;
    }
    return status ? status : sb->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}

static void describe_program(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__DescribeRequest *q = msg;
    Npugraph__V1__DescribeResponse reply = NPUGRAPH__V1__DESCRIBE_RESPONSE__INIT;
    struct ngd_program *prog = NULL;
    struct ngd_strbuf sb;
    struct ngd_diag diag = {0};
    const bool as_registered = form_of(q) == NGD_PB(DESCRIBE_FORM, TEXT) || form_of(q) == NGD_PB(DESCRIBE_FORM, DOT);
    ngd_status_t status = ngd_rpc_find_program(call, q->graph, q->digest, as_registered, &prog, &diag);

    ngd_strbuf_init(&sb);
    if (status == NGD_OK)
        status = print_form(prog, q, &sb, &diag);
    if (status == NGD_OK && !(reply.info = ngd_graph_info(prog, true, &call->life)))
        status = NGD_ERR_NO_MEMORY;
    reply.text = (char *)(uintptr_t)ngd_strbuf_str(&sb);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
    ngd_strbuf_fini(&sb);
    ngd_program_unref(prog);
}

const struct ngd_rpc_ops ngd_rpc_graphs_describe = {.request = describe_program};

struct listing {
    const struct ngd_identity *who;
    struct ngd_program **programs;
    size_t n, room;
};

static void hold_program(void *ctx, struct ngd_program *prog)
{
    struct listing *l = ctx;

    if (!ngd_may_see_key(l->who, ngd_program_owner(prog)))
        return;
    if (l->programs && l->n < l->room)
        l->programs[l->n++] = ngd_program_ref(prog);
    else if (!l->programs)
        l->room++;
}

static void list_programs(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__ListGraphsResponse reply = NPUGRAPH__V1__LIST_GRAPHS_RESPONSE__INIT;
    struct listing l = {.who = call->identity};

    (void)msg;
    ngd_program_for_each(call->daemon->sched, hold_program, &l); /* counts the programs */
    l.room += 16;
    l.programs = ngd_arena_calloc(&call->life, l.room, sizeof(struct ngd_program *));
    reply.graphs = ngd_arena_calloc(&call->life, l.room, sizeof(*reply.graphs));
    if (!l.programs || !reply.graphs) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    ngd_program_for_each(call->daemon->sched, hold_program, &l);
    for (size_t i = 0; i < l.n; i++) {
        if ((reply.graphs[reply.n_graphs] = ngd_graph_info(l.programs[i], false, &call->life)))
            reply.n_graphs++;
    }
    for (size_t i = 0; i < l.n; i++) /* before the answer, which frees the arena; names were copied */
        ngd_program_unref(l.programs[i]);
    ngd_call_reply(call, &reply.base);
}

const struct ngd_rpc_ops ngd_rpc_graphs_list = {.request = list_programs};

static void release_graph_or_group(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ReleaseRequest *q = msg;
    Npugraph__V1__ReleaseResponse reply = NPUGRAPH__V1__RELEASE_RESPONSE__INIT;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_session_remove(call->session, q->graph, NGD_OBJECT_GROUP, NULL);

    if (status != NGD_OK)
        status = ngd_session_remove(call->session, q->graph, NGD_OBJECT_GRAPH, &diag);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_graphs_release = {.once = true, .request = release_graph_or_group};
