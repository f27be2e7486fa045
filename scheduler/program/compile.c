/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Store entries of static kernels have the kind "static". Their identity is the digest of the generated source, the
 * kernels' own sources, compiler, flags and device. They are code, so they never come from a client: the store refuses
 * to import them.
 */
#include "scheduler/program/compile.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/program/group_int.h"
#include "scheduler/program/program_int.h"
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.0.0-dev"
#endif

#define WAITING_MAX 1024 /* waiting executables; each keeps its host memory */

struct compile {
    struct ngd_capture_job job;
    struct ngd_sched *sched;
    struct ngd_device *dev;
    struct ngd_exec *exec;
    struct ngd_share *share; /* pays for what is stored; a reference */
    struct ngd_store *store; /* NULL: objects are neither loaded nor stored */
    uint64_t program;        /* number of the program, which may be gone when the compiler ends */
};

static bool fell_back(ngd_static_result_t result)
{
    return result >= NGD_STATIC_NO_COMPILER && result != NGD_STATIC_STOPPED && result != NGD_STATIC_UNUSED;
}

static void note(struct ngd_sched *sched, uint64_t program, const struct ngd_plan *plan, ngd_static_result_t result,
                 const char *why)
{
    const struct ngd_event_about about = {.program = program, .graph = plan->graph, .key = plan->key.hash};
    const char *name = ngd_static_result_name(result);

    if (fell_back(result))
        ngd_recorder_note(&sched->recorder, NGD_EVENT_STATIC_FALLBACK, &about, "%s: %s", name,
                          *why ? why : ngd_static_result_text(result));
    else if (result == NGD_STATIC_COMPILED || result == NGD_STATIC_CACHED)
        ngd_recorder_note(&sched->recorder, NGD_EVENT_STATIC_KERNELS, &about, "%s", name);
}

/*
 * Publishes the result: in the executable, in the flight recorder, and last in the counter, so that a reader of the
 * counter sees the rest too.
 */
static void compile_finish(const struct compile *c, ngd_static_result_t result, const char *why)
{
    ngd_exec_static_set(c->exec, result);
    note(c->sched, c->program, ngd_exec_plan(c->exec), result, why);
    ngd_metric_row_add(ngd_metric_row(NGD_M_STATIC_KERNELS, ngd_static_result_name(result)), 1);
}

static void compile_free(struct compile *c)
{
    atomic_fetch_sub(&c->sched->n_compiles, 1);
    ngd_exec_unref(c->exec);
    ngd_share_unref(c->share);
    ngd_free(c);
}

static void put_identity(const struct compile *c, const struct ngd_strbuf *source, struct ngd_strbuf *sb)
{
    char hex[NGD_DIGEST_HEX];
    struct ngd_digest digest;

    ngd_digest_of(source->data, source->len, &digest);
    ngd_digest_hex(&digest, hex);
    ngd_strbuf_printf(sb, NGD_STORE_FORMAT "\nkind static\nsource %s\n", hex);
    ngd_exec_static_toolchain(c->exec, c->sched->params.static_compiler, sb);
    ngd_strbuf_printf(sb, "device %s\ndaemon %s\n", ngd_device_info(c->dev)->arch, PACKAGE_VERSION);
}

static bool object_from_store(const struct compile *c, const struct ngd_strbuf *identity)
{
    static struct ngd_log_limit limit;
    struct ngd_store_blob blob;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (!c->store || ngd_store_get(c->store, identity->data, identity->len, &blob) != NGD_STORE_FOUND)
        return false;
    status = ngd_exec_static_adopt(c->exec, blob.entry.payload, blob.entry.n_payload, &diag);
    ngd_store_blob_fini(&blob);
    if (status && status != NGD_ERR_NO_MEMORY) {
        ngd_log_limited(&limit, NGD_LOG_NOTICE, "scheduler",
                        "stored static kernels are set aside and compiled again: %s", diag.text);
        ngd_store_set_aside(c->store, identity->data, identity->len, NGD_STORE_OUTDATED, NULL);
    }
    return status == NGD_OK;
}

static void object_to_store(const struct compile *c, const struct ngd_strbuf *identity, const struct ngd_strbuf *object)
{
    const struct ngd_store_entry entry = {
        .identity = identity->data,
        .n_identity = identity->len,
        .notes = "",
        .payload = (const uint8_t *)object->data,
        .n_payload = object->len,
    };
    const struct ngd_store_payer payer = ngd_share_store_payer(c->share);
    static struct ngd_log_limit limit;
    struct ngd_diag diag = {0};

    if (c->store && ngd_store_put_for(c->store, &entry, &payer, &diag))
        ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler", "static kernels are not stored: %s", diag.text);
}

static ngd_static_result_t compile_source(const struct compile *c, const struct ngd_strbuf *source,
                                          const struct ngd_strbuf *identity, struct ngd_diag *diag)
{
    const struct ngd_static_work work = {
        .source = source->data,
        .compiler = c->sched->params.static_compiler,
        .dir = c->sched->params.static_dir,
        .timeout = NGD_SCHED_PARAM(c->sched, static_timeout),
        .stop = &c->sched->stop_compiles,
    };
    static struct ngd_log_limit limit;
    struct ngd_strbuf object;
    ngd_static_result_t result;

    ngd_strbuf_init(&object);
    result = ngd_exec_static_compile(c->exec, &work, &object, diag);
    if (result == NGD_STATIC_COMPILED && ngd_exec_static_adopt(c->exec, object.data, object.len, diag) != NGD_OK)
        result = NGD_STATIC_REJECTED;
    if (result == NGD_STATIC_COMPILED)
        object_to_store(c, identity, &object);
    else if (result != NGD_STATIC_STOPPED)
        ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler",
                        "static kernels failed, the generic kernels stay in use: %s", diag->text);
    ngd_strbuf_fini(&object);
    return result;
}

static ngd_static_result_t compile_executable(const struct compile *c, struct ngd_diag *diag)
{
    ngd_static_result_t result = NGD_STATIC_NO_GAIN;
    struct ngd_strbuf source, identity;

    if (!ngd_exec_wanted(c->exec))
        return NGD_STATIC_UNUSED;
    ngd_strbuf_init(&source);
    ngd_strbuf_init(&identity);
    if (ngd_exec_static_source(c->exec, &source, diag) != NGD_OK) {
        result = NGD_STATIC_FAILED;
    } else if (source.len) {
        put_identity(c, &source, &identity);
        result = identity.failed                   ? NGD_STATIC_FAILED
                 : object_from_store(c, &identity) ? NGD_STATIC_CACHED
                                                   : compile_source(c, &source, &identity, diag);
    }
    ngd_strbuf_fini(&source);
    ngd_strbuf_fini(&identity);
    return result;
}

static void compile_run(struct ngd_capture_job *job)
{
    struct compile *c = ngd_container_of(job, struct compile, job);
    struct ngd_diag diag = {0};
    ngd_static_result_t result = compile_executable(c, &diag);

    compile_finish(c, result, diag.text);
    compile_free(c);
}

static void compile_abort(struct ngd_capture_job *job)
{
    struct compile *c = ngd_container_of(job, struct compile, job);

    compile_finish(c, NGD_STATIC_STOPPED, "");
    compile_free(c);
}

/* Queues one executable. of: the program that events name: the executable's own, or the gang's for a rank. */
static void queue_one(const struct ngd_program *of, struct ngd_executable *x, const struct ngd_graph_options *options)
{
    struct ngd_sched *sched = of->sched;
    struct compile at_once = {.sched = sched, .exec = x->exec, .program = ngd_program_number(of)}, *c;

    if (!ngd_exec_static_begin(x->exec))
        return;
    if (!sched->params.static_compiler) {
        compile_finish(&at_once, NGD_STATIC_NO_COMPILER, "");
        return;
    }
    c = atomic_load(&sched->n_compiles) < WAITING_MAX ? NGD_NEW(struct compile) : NULL;
    if (!c) {
        compile_finish(&at_once, NGD_STATIC_TOO_MANY, "");
        return;
    }
    *c = at_once;
    c->job.run = compile_run;
    c->job.abort = compile_abort;
    c->dev = x->prog->queue->dev;
    c->store = options->disable_static_kernel_compile_cache ? NULL : sched->params.store;
    ngd_exec_ref(c->exec);
    c->share = ngd_share_ref(ngd_program_share(x->prog));
    atomic_fetch_add(&sched->n_compiles, 1);
    if (!ngd_captures_push(&sched->compiles, &c->job, c->share))
        compile_abort(&c->job);
}

void ngd_compile_later(struct ngd_executable *x, const struct ngd_graph_options *options)
{
    if (!options->static_kernel_compile)
        return;
    queue_one(x->prog, x, options);
    for (uint32_t r = 0; x->ranks && r < x->prog->gang->n; r++)
        if (x->ranks[r])
            queue_one(x->prog, x->ranks[r], options);
}
