/* SPDX-License-Identifier: Apache-2.0 */
/*
 * There are three kinds of entries: "plan" (graphs/plan_pack.h); "graph", the text of a graph that has plans; and
 * "patterns", the texts of registered patterns that plans were made with. The last two let a restarted daemon capture
 * before a client has registered anything, and let people read an entry.
 */
#include "scheduler/program/stored.h"
#include "base/le.h"
#include "base/log.h"
#include "base/mem.h"
#include "graphs/pass.h"
#include "graphs/plan_pack.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.0.0-dev"
#endif

/* ---- identities ---------------------------------------------------------------------------------------- */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool ngd_stored_digest(const char *hex, struct ngd_digest *digest_p)
{
    for (size_t i = 0; i < NGD_DIGEST_BYTES; i++) {
        int high = digit(hex[2 * i]), low = high < 0 ? -1 : digit(hex[2 * i + 1]);

        if (low < 0)
            return false;
        digest_p->b[i] = (uint8_t)(high << 4 | low);
    }
    return hex[2 * NGD_DIGEST_BYTES] == '\0';
}

static void put_digest_line(struct ngd_strbuf *sb, const char *name, const struct ngd_digest *digest)
{
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(digest, hex);
    ngd_strbuf_printf(sb, "%s %s\n", name, hex);
}

static void graph_identity(const struct ngd_digest *digest, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, NGD_STORE_FORMAT "\nkind graph\n");
    put_digest_line(sb, "graph", digest);
}

static void patterns_identity(const struct ngd_digest *digest, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, NGD_STORE_FORMAT "\nkind patterns\n");
    put_digest_line(sb, "patterns", digest);
}

/* Appends a line for each option that plans depend on. */
static void put_option_lines(const struct ngd_graph_options *options, struct ngd_strbuf *sb)
{
    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        const struct ngd_option_info *info = ngd_option_info((ngd_option_id_t)i);

        if (!info->in_key)
            continue;
        ngd_strbuf_printf(sb, "option.%s ", info->name);
        ngd_option_print_value(options, (ngd_option_id_t)i, sb);
        ngd_strbuf_putc(sb, '\n');
    }
}

static void put_passes(struct ngd_strbuf *sb)
{
    for (int i = 0; i < NGD_PASS_MAX; i++) {
        const struct ngd_pass *pass = ngd_pass_info((ngd_pass_id_t)i);

        if (ngd_pass_find(pass->name, strlen(pass->name)) == i) /* a pass may run several times; it is listed once */
            ngd_strbuf_printf(sb, "pass.%s %" PRIu32 "\n", pass->name, pass->version);
    }
}

/*
 * Writes a plan's identity. `key` is the digest that identifies executables; it covers options, passes, patterns and
 * the device already. The lines in words are for people, and for what a running daemon cannot change: its tables and
 * its toolchain.
 */
static void plan_identity(const struct ngd_program *prog, const struct ngd_key *key, struct ngd_strbuf *sb)
{
    const struct ngd_device_info *info = ngd_device_info(prog->queue->dev);
    struct ngd_digest operators;

    ngd_strbuf_append(sb, NGD_STORE_FORMAT "\nkind plan\n");
    put_digest_line(sb, "graph", &key->graph);
    ngd_strbuf_append(sb, "symbols");
    for (uint32_t i = 0; i < key->n_symbols; i++)
        ngd_strbuf_printf(sb, " %s=%" PRId64, prog->graph->symbols[i].name, key->symbols[i]);
    ngd_strbuf_putc(sb, '\n');
    put_digest_line(sb, "key", &key->options);
    put_option_lines(&prog->options, sb);
    put_passes(sb);
    ngd_strbuf_printf(sb, "planner %d\n", NGD_PLANNER_VERSION);
    ngd_op_table_digest(&operators);
    put_digest_line(sb, "operators", &operators);
    ngd_strbuf_printf(sb, "device %s, %u threads\ntoolchain %s\ndaemon %s\n", info->arch, (unsigned)info->threads,
                      __VERSION__, PACKAGE_VERSION);
}

/* ---- to the store -------------------------------------------------------------------------------------- */

struct save {
    struct ngd_capture_job job;
    struct ngd_sched *sched;
    struct ngd_share *share; /* pays for the entries; a reference */
    struct ngd_plan *plan;
    struct ngd_graph *source;
    struct ngd_pattern_set *patterns; /* NULL: none */
    struct ngd_strbuf identity, notes;
};

/* Counts a waiting save. False: there are too many, and it is not counted. */
static bool begin_save(struct ngd_sched *sched, struct ngd_share *share)
{
    if (atomic_fetch_add(&share->saves, 1) < NGD_STORED_SHARE_SAVES_MAX) {
        if (atomic_fetch_add(&sched->saves, 1) < NGD_STORED_SAVES_MAX)
            return true;
        atomic_fetch_sub(&sched->saves, 1);
    }
    atomic_fetch_sub(&share->saves, 1);
    return false;
}

static void end_save(struct ngd_sched *sched, struct ngd_share *share)
{
    atomic_fetch_sub(&sched->saves, 1);
    atomic_fetch_sub(&share->saves, 1);
}

static void save_free(struct save *save)
{
    end_save(save->sched, save->share);
    ngd_share_unref(save->share);
    ngd_plan_unref(save->plan);
    ngd_graph_unref(save->source);
    ngd_pattern_set_unref(save->patterns);
    ngd_strbuf_fini(&save->identity);
    ngd_strbuf_fini(&save->notes);
    ngd_free(save);
}

static void save_entry(const struct save *save, const struct ngd_strbuf *identity, const struct ngd_strbuf *notes,
                       const struct ngd_strbuf *payload)
{
    static struct ngd_log_limit limit;
    struct ngd_store_entry entry = {
        .identity = ngd_strbuf_str(identity),
        .n_identity = identity->len,
        .notes = notes ? ngd_strbuf_str(notes) : "",
        .n_notes = notes ? notes->len : 0,
        .payload = (const uint8_t *)ngd_strbuf_str(payload),
        .n_payload = payload->len,
    };
    const struct ngd_store_payer payer = ngd_share_store_payer(save->share);
    struct ngd_diag diag = {0};

    if (identity->failed || payload->failed || (notes && notes->failed))
        return;
    if (ngd_store_put_for(save->sched->params.store, &entry, &payer, &diag))
        ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler", "a plan is not stored: %s", diag.text);
}

static void put_graph(const struct save *save)
{
    const struct ngd_graph *graph = save->source;
    struct ngd_strbuf identity, notes, text;

    ngd_strbuf_init(&identity);
    ngd_strbuf_init(&notes);
    ngd_strbuf_init(&text);
    graph_identity(&graph->digest, &identity);
    if (!identity.failed && !ngd_store_touch(save->sched->params.store, identity.data, identity.len)) {
        ngd_strbuf_append(&notes, "name ");
        ngd_strbuf_json_string(&notes, graph->name);
        ngd_strbuf_putc(&notes, '\n');
        ngd_graph_print(graph, &text);
        save_entry(save, &identity, &notes, &text);
    }
    ngd_strbuf_fini(&identity);
    ngd_strbuf_fini(&notes);
    ngd_strbuf_fini(&text);
}

static bool is_in(const struct ngd_pattern_set *set, const struct ngd_pattern *p)
{
    for (uint32_t i = 0; set && i < set->n; i++)
        if (ngd_digest_equal(&set->patterns[i]->digest, &p->digest))
            return true;
    return false;
}

/*
 * Stores the registered patterns, which come before the built-in ones: before each text a u32 with its size in bytes.
 */
static void put_patterns(const struct save *save)
{
    const struct ngd_pattern_set *set = save->patterns;
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin();
    struct ngd_strbuf identity, texts;

    ngd_strbuf_init(&identity);
    ngd_strbuf_init(&texts);
    patterns_identity(&set->digest, &identity);
    if (!identity.failed && !ngd_store_touch(save->sched->params.store, identity.data, identity.len)) {
        for (uint32_t i = 0; i < set->n; i++) {
            if (is_in(builtin, set->patterns[i]))
                continue;
            ngd_le_put(&texts, strlen(set->patterns[i]->text), 4);
            ngd_strbuf_append(&texts, set->patterns[i]->text);
        }
        save_entry(save, &identity, NULL, &texts);
    }
    ngd_strbuf_fini(&identity);
    ngd_strbuf_fini(&texts);
    ngd_pattern_set_unref(builtin);
}

bool ngd_stored_registered(const struct ngd_pattern_set *set)
{
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin();
    bool registered = set && (!builtin || !ngd_digest_equal(&set->digest, &builtin->digest));

    ngd_pattern_set_unref(builtin);
    return registered;
}

/* Stores a plan. Also runs when the scheduler stops, so that the plan is not lost. */
static void save_run(struct ngd_capture_job *job)
{
    struct save *save = ngd_container_of(job, struct save, job);
    struct ngd_strbuf payload;

    put_graph(save);
    if (ngd_stored_registered(save->patterns))
        put_patterns(save);
    ngd_strbuf_init(&payload);
    ngd_plan_pack(save->plan, save->source, &payload);
    save_entry(save, &save->identity, &save->notes, &payload);
    ngd_strbuf_fini(&payload);
    save_free(save);
}

static void put_notes(const struct ngd_program *prog, const struct ngd_plan *plan, ngd_nsec_t took,
                      struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "name ");
    ngd_strbuf_json_string(sb, prog->graph->name);
    ngd_strbuf_printf(sb,
                      "\ncreated %lld\non %s\nmicroseconds %lld\nkernels %" PRIu32 "\npool_bytes %" PRIu64
                      "\nnodes %" PRIu32 "\nsource_nodes %" PRIu32 "\n",
                      (long long)time(NULL), prog->queue->dev_name, (long long)(took / NGD_USEC), plan->n_calls,
                      plan->pool_bytes, plan->graph->n_nodes, prog->graph->n_nodes);
}

static void save_later(struct ngd_program *prog, struct ngd_plan *plan, struct ngd_strbuf *identity, ngd_nsec_t took)
{
    struct ngd_share *share = ngd_program_share(prog);
    struct ngd_sched *sched = prog->sched;
    struct save *save = NULL;

    if (begin_save(sched, share) && !(save = NGD_NEW(struct save)))
        end_save(sched, share);
    if (!save) {
        ngd_metric_row_add(ngd_metric_row(NGD_M_STORE_WRITE_FAILURES, "BUSY"), 1);
        return;
    }
    save->job.run = save_run;
    save->job.abort = save_run;
    save->sched = sched;
    save->share = ngd_share_ref(share);
    save->plan = ngd_plan_ref(plan);
    save->source = ngd_graph_ref(prog->graph);
    save->patterns = prog->patterns ? ngd_pattern_set_ref(prog->patterns) : NULL;
    save->identity = *identity; /* taken over */
    ngd_strbuf_init(identity);
    ngd_strbuf_init(&save->notes);
    put_notes(prog, plan, took, &save->notes);
    if (!ngd_captures_push_idle(&sched->captures, &save->job))
        save_run(&save->job);
}

/* ---- from the store ------------------------------------------------------------------------------------ */

static bool plan_from_store(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_strbuf *identity,
                            struct ngd_plan **plan_p)
{
    static struct ngd_log_limit limit;
    struct ngd_store *store = prog->sched->params.store;
    struct ngd_store_blob blob;
    struct ngd_diag diag = {0};
    char name[NGD_LOG_VALUE_MAX];
    ngd_status_t status;

    if (ngd_store_get(store, identity->data, identity->len, &blob) != NGD_STORE_FOUND)
        return false;
    status = ngd_plan_unpack(prog->graph, key, &prog->options, ngd_device_target(prog->queue->dev), blob.entry.payload,
                             blob.entry.n_payload, plan_p, &diag);
    ngd_store_blob_fini(&blob);
    if (status == NGD_OK)
        return true;
    if (status == NGD_ERR_NO_MEMORY)
        return false;
    ngd_log_limited(&limit, NGD_LOG_NOTICE, "scheduler",
                    "a stored plan of graph %s does not load, it is set aside and made again: %s",
                    ngd_log_value(prog->graph->name, name), diag.text);
    ngd_store_set_aside(store, identity->data, identity->len, NGD_STORE_OUTDATED, NULL);
    ngd_program_note(prog, NGD_EVENT_STORE_OUTDATED, key, 0, "%s", diag.text);
    return false;
}

static ngd_status_t plan_with_passes(struct ngd_program *prog, const struct ngd_key *key,
                                     struct ngd_pass_report *report, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_plan_create_reported(
        prog->graph, key, &prog->options, ngd_device_target(prog->queue->dev), prog->patterns, report, plan_p, diag);

    if (status == NGD_OK)
        ngd_metric_row_add(ngd_metric_row(NGD_M_PLANS, "passes"), 1);
    return status;
}

ngd_status_t ngd_stored_plan(struct ngd_program *prog, const struct ngd_key *key, bool anew,
                             struct ngd_pass_report *report, struct ngd_plan **plan_p, bool *stored_p,
                             struct ngd_diag *diag)
{
    struct ngd_strbuf identity;
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    *stored_p = false;
    if (!prog->sched->params.store)
        return plan_with_passes(prog, key, report, plan_p, diag);
    ngd_strbuf_init(&identity);
    plan_identity(prog, key, &identity);
    if (!anew && !identity.failed && plan_from_store(prog, key, &identity, plan_p)) {
        *stored_p = true;
        ngd_program_note(prog, NGD_EVENT_STORE_PLAN, key, 0, "%" PRIu32 " kernels, no pass ran", (*plan_p)->n_calls);
        ngd_metric_row_add(ngd_metric_row(NGD_M_PLANS, "store"), 1);
        ngd_strbuf_fini(&identity);
        return NGD_OK;
    }
    status = plan_with_passes(prog, key, report, plan_p, diag);
    if (status == NGD_OK && !identity.failed)
        save_later(prog, *plan_p, &identity, ngd_now() - begin);
    ngd_strbuf_fini(&identity);
    return status;
}

/* ---- plans that are not believed any more ---------------------------------------------------------------- */

struct distrust {
    struct ngd_capture_job job;
    struct ngd_sched *sched;
    struct ngd_share *share; /* the share that found it wrong; a reference */
    struct ngd_strbuf identity;
};

/*
 * Sets the entry aside. Runs after jobs that were queued earlier, so a plan that waited to be stored is there by now.
 */
static void distrust_run(struct ngd_capture_job *job)
{
    struct distrust *d = ngd_container_of(job, struct distrust, job);

    if (!d->identity.failed)
        ngd_store_set_aside(d->sched->params.store, d->identity.data, d->identity.len, NGD_STORE_DISTRUSTED,
                            ngd_share_store_payer(d->share).name);
    ngd_share_unref(d->share);
    ngd_strbuf_fini(&d->identity);
    ngd_free(d);
}

void ngd_stored_distrust(struct ngd_program *prog, const struct ngd_key *key)
{
    struct distrust *d = prog->sched->params.store ? NGD_NEW(struct distrust) : NULL;

    if (!d)
        return;
    d->job.run = distrust_run;
    d->job.abort = distrust_run;
    d->sched = prog->sched;
    d->share = ngd_share_ref(ngd_program_share(prog));
    ngd_strbuf_init(&d->identity);
    plan_identity(prog, key, &d->identity);
    if (!ngd_captures_push_idle(&prog->sched->captures, &d->job))
        distrust_run(&d->job);
}

/* Makes the object that an entry holds. NO_MEMORY aside, an error means that it does not match its digest. */
typedef ngd_status_t (*make_fn)(const struct ngd_store_entry *e, const struct ngd_digest *digest, void **object_p);

/* Loads the object of an identity; NULL: there is none, or it is damaged and was set aside. Frees identity. */
static void *load_stored(struct ngd_sched *sched, struct ngd_strbuf *identity, const struct ngd_digest *digest,
                         make_fn make_object)
{
    struct ngd_store_blob blob;
    void *object = NULL;

    if (!identity->failed &&
        ngd_store_get(sched->params.store, identity->data, identity->len, &blob) == NGD_STORE_FOUND) {
        const ngd_status_t status = make_object(&blob.entry, digest, &object);

        if (status != NGD_OK && status != NGD_ERR_NO_MEMORY)
            ngd_store_set_aside(sched->params.store, identity->data, identity->len, NGD_STORE_OUTDATED, NULL);
        ngd_store_blob_fini(&blob);
    }
    ngd_strbuf_fini(identity);
    return object;
}

static ngd_status_t make_graph(const struct ngd_store_entry *e, const struct ngd_digest *digest, void **object_p)
{
    struct ngd_graph *graph = NULL;
    ngd_status_t status = ngd_graph_parse((const char *)e->payload, e->n_payload, &graph, NULL);

    if (status == NGD_OK && !ngd_digest_equal(&graph->digest, digest)) {
        graph = ngd_graph_unref(graph);
        status = NGD_ERR_FILE_CORRUPT;
    }
    *object_p = graph;
    return status;
}

struct ngd_graph *ngd_stored_graph(struct ngd_sched *sched, const struct ngd_digest *digest)
{
    struct ngd_strbuf identity;

    ngd_strbuf_init(&identity);
    graph_identity(digest, &identity);
    return load_stored(sched, &identity, digest, make_graph);
}

/* ---- patterns ------------------------------------------------------------------------------------------ */

#define PATTERNS_MAX 256

/* Appends the patterns of one text, checked like a client's. */
static ngd_status_t add_text(struct ngd_pattern_set *set, const char *text, size_t n)
{
    struct ngd_pattern *patterns[PATTERNS_MAX];
    uint32_t count = 0;
    ngd_status_t status = set->n < PATTERNS_MAX ? ngd_patterns_parse(text, n, patterns, PATTERNS_MAX, &count, NULL)
                                                : NGD_ERR_FILE_CORRUPT;

    for (uint32_t i = 0; i < count; i++) {
        if (status == NGD_OK)
            status = ngd_pattern_set_add(set, patterns[i]);
        ngd_pattern_unref(patterns[i]);
    }
    return status;
}

static ngd_status_t add_texts(struct ngd_pattern_set *set, const uint8_t *p, size_t n)
{
    ngd_status_t status = NGD_OK;

    while (n >= 4 && status == NGD_OK) {
        const size_t len = (size_t)ngd_le_get(p, 4);

        status = len > n - 4 ? NGD_ERR_FILE_CORRUPT : add_text(set, (const char *)p + 4, len);
        if (status == NGD_OK) {
            p += 4 + len;
            n -= 4 + len;
        }
    }
    return status == NGD_OK && n > 0 ? NGD_ERR_FILE_CORRUPT : status;
}

/* Makes a set: registered patterns, then built-in ones, in the order of clients' sets. */
static ngd_status_t make_set(const struct ngd_store_entry *e, const struct ngd_digest *digest, void **object_p)
{
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin(), *set = NULL;
    ngd_status_t status = builtin ? ngd_pattern_set_create(&set) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = add_texts(set, e->payload, e->n_payload);
    for (uint32_t i = 0; status == NGD_OK && i < builtin->n; i++)
        status = ngd_pattern_set_add(set, builtin->patterns[i]);
    ngd_pattern_set_unref(builtin);
    if (status == NGD_OK && !ngd_digest_equal(&set->digest, digest))
        status = NGD_ERR_FILE_CORRUPT;
    if (status != NGD_OK)
        set = ngd_pattern_set_unref(set);
    *object_p = set;
    return status;
}

struct ngd_pattern_set *ngd_stored_patterns(struct ngd_sched *sched, const struct ngd_digest *digest)
{
    struct ngd_strbuf identity;

    ngd_strbuf_init(&identity);
    patterns_identity(digest, &identity);
    return load_stored(sched, &identity, digest, make_set);
}
