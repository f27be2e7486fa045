/* SPDX-License-Identifier: Apache-2.0 */
/* Captures that a client asks for before anything is replayed, and dry runs of them: jobs of the capture threads. */
#include "base/mem.h"
#include "graphs/guard.h"
#include "scheduler/program/capture_dump.h"
#include "scheduler/program/program_int.h"

struct ngd_ahead {
    struct ngd_capture_job job;
    struct ngd_sched *sched;
    struct ngd_share *share; /* a reference; it has counted the capture */
    struct ngd_binding *binding;
    uint32_t n_symbols;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_graph_options options;
    bool dry_run;
    struct ngd_capture_asker *asker;
};

static void ahead_free(struct ngd_ahead *ahead)
{
    ngd_share_give_capture(ahead->share);
    ngd_share_unref(ahead->share);
    ngd_binding_unref(ahead->binding);
    ngd_free(ahead);
}

static void ahead_finish(struct ngd_ahead *ahead, ngd_status_t status, const struct ngd_capture_info *info,
                         const struct ngd_diag *diag)
{
    struct ngd_capture_asker *asker = ahead->asker;
    struct ngd_sched *sched = ahead->sched;

    ngd_mutex_lock(&sched->captures.lock);
    asker->ahead = NULL;
    ngd_mutex_unlock(&sched->captures.lock);
    if (status && status != NGD_ERR_CANCELLED)
        ngd_program_capture_refused(ngd_binding_program(ahead->binding), status, diag);
    ahead_free(ahead);
    asker->done(asker->user, status, info, diag);
    ngd_sched_leave(sched);
}

static void ahead_cancel(struct ngd_ahead *ahead, const char *why)
{
    struct ngd_capture_info info = {0};
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "%s", why);
    ahead_finish(ahead, NGD_ERR_CANCELLED, &info, &diag);
}

static void ahead_run(struct ngd_capture_job *job)
{
    struct ngd_ahead *ahead = ngd_container_of(job, struct ngd_ahead, job);
    struct ngd_capture_info info = {0};
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_binding_capture(ahead->binding, ahead->symbols, ahead->n_symbols, &ahead->options,
                                              ahead->dry_run, &info, &diag);

    ahead_finish(ahead, status, &info, &diag);
}

static void ahead_abort(struct ngd_capture_job *job)
{
    ahead_cancel(ngd_container_of(job, struct ngd_ahead, job), "the scheduler stopped before this capture began");
}

void ngd_sched_capture_cancel(struct ngd_sched *sched, struct ngd_capture_asker *asker)
{
    struct ngd_ahead *ahead;

    ngd_mutex_lock(&sched->captures.lock);
    asker->cancelled = true;
    ahead = asker->ahead;
    if (ahead && !ngd_captures_withdraw_locked(&sched->captures, &ahead->job))
        ahead = NULL;
    ngd_mutex_unlock(&sched->captures.lock);
    if (ahead)
        ahead_cancel(ahead, "the caller cancelled this capture before it began");
}

/* Checks the symbols unless some are NGD_SIZE_ANY: the capture thread chooses those, and checks then. */
static ngd_status_t check_ahead_symbols(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                                        struct ngd_diag *diag)
{
    struct ngd_key key;

    for (uint32_t i = 0; n_symbols == prog->graph->n_symbols && i < n_symbols; i++)
        if (symbols[i] == NGD_SIZE_ANY)
            return NGD_OK;
    return ngd_program_key(prog, symbols, n_symbols, &key, diag);
}

/* Queues the capture, unless its asker has cancelled it meanwhile. */
static ngd_status_t ahead_enqueue(struct ngd_ahead *ahead, struct ngd_diag *diag)
{
    struct ngd_captures *captures = &ahead->sched->captures;
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&captures->lock);
    if (ahead->asker->cancelled)
        status = NGD_ERR_CANCELLED;
    else if (!ngd_captures_push_locked(captures, &ahead->job, ahead->share))
        status = NGD_ERR_DRAINING;
    else
        ahead->asker->ahead = ahead;
    ngd_mutex_unlock(&captures->lock);
    if (status)
        ngd_diag_set(diag, status, status == NGD_ERR_CANCELLED ? "the call was cancelled" : "the scheduler stops");
    return status;
}

/* Makes the job. The share has counted the capture; the job takes that over, also on an error. */
static ngd_status_t ahead_new(struct ngd_sched *sched, struct ngd_share *share, struct ngd_binding *binding,
                              const int64_t *symbols, uint32_t n_symbols, struct ngd_ahead **ahead_p,
                              struct ngd_diag *diag)
{
    struct ngd_ahead *ahead = NGD_NEW(struct ngd_ahead);

    if (!ahead) {
        ngd_share_give_capture(share);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a capture of graph \"%.100s\"",
                            ngd_binding_program(binding)->graph->name);
    }
    ahead->job.run = ahead_run;
    ahead->job.abort = ahead_abort;
    ahead->sched = sched;
    ahead->share = ngd_share_ref(share);
    ahead->binding = ngd_binding_ref(binding);
    ahead->n_symbols = n_symbols;
    for (uint32_t i = 0; i < n_symbols; i++)
        ahead->symbols[i] = symbols[i];
    *ahead_p = ahead;
    return NGD_OK;
}

static ngd_status_t push_ahead(struct ngd_sched *sched, struct ngd_binding *binding, const int64_t *symbols,
                               uint32_t n_symbols, const struct ngd_graph_options *options, bool dry_run,
                               struct ngd_capture_asker *asker, struct ngd_diag *diag)
{
    struct ngd_program *prog = ngd_binding_program(binding);
    struct ngd_share *share = ngd_program_share(prog);
    struct ngd_ahead *ahead = NULL;
    ngd_status_t status = check_ahead_symbols(prog, symbols, n_symbols, diag);

    if (status == NGD_OK && options)
        status = ngd_dump_check(sched, options, diag);
    if (status == NGD_OK)
        status = ngd_share_take_capture(share, diag);
    if (status == NGD_OK)
        status = ahead_new(sched, share, binding, symbols, n_symbols, &ahead, diag);
    if (status)
        return status;
    ahead->options = options ? *options : prog->options;
    ahead->dry_run = dry_run;
    ahead->asker = asker;
    status = ngd_sched_enter(sched, diag);
    if (status == NGD_OK) {
        status = ahead_enqueue(ahead, diag);
        if (status)
            ngd_sched_leave(sched);
    }
    if (status)
        ahead_free(ahead);
    return status;
}

ngd_status_t ngd_sched_capture(struct ngd_sched *sched, struct ngd_binding *binding, const int64_t *symbols,
                               uint32_t n_symbols, const struct ngd_graph_options *options, bool dry_run,
                               struct ngd_capture_asker *asker, struct ngd_diag *diag)
{
    ngd_status_t status = push_ahead(sched, binding, symbols, n_symbols, options, dry_run, asker, diag);

    if (status && status != NGD_ERR_CANCELLED)
        ngd_program_capture_refused(ngd_binding_program(binding), status, diag);
    return status;
}
