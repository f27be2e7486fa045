/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture threads: they take jobs in their order of arrival and run them at low priority, so that a capture, which may
 * take seconds, takes little from the replays. Nothing on the replay path waits for them or shares a lock with a
 * capture.
 */
#include "base/log.h"
#include "base/mem.h"
#include "graphs/guard.h"
#include "scheduler/program_int.h"
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPTURE_NICE 10

ngd_status_t ngd_captures_init(struct ngd_captures *captures, const char *name, uint32_t n_threads, size_t heap)
{
    captures->threads = NGD_NEW_N(pthread_t, n_threads);
    if (!captures->threads)
        return NGD_ERR_NO_MEMORY;
    captures->name = name;
    captures->n_threads = n_threads;
    captures->heap = heap;
    ngd_mutex_init(&captures->lock, NGD_RANK_CAPTURE_QUEUE);
    ngd_cond_init(&captures->wake);
    ngd_list_init(&captures->jobs);
    ngd_list_init(&captures->idle);
    ngd_list_init(&captures->parked);
    return NGD_OK;
}

void ngd_captures_fini(struct ngd_captures *captures)
{
    if (!captures->threads)
        return;
    ngd_cond_fini(&captures->wake);
    ngd_mutex_fini(&captures->lock);
    ngd_free(captures->threads);
    captures->threads = NULL;
}

static void *capture_main(void *arg)
{
    struct ngd_captures *captures = arg;

    /* Of this thread only; a process that may not is left as it is. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), CAPTURE_NICE);
    ngd_mem_warm(captures->heap);
    ngd_mutex_lock(&captures->lock);
    for (;;) {
        struct ngd_list *l = ngd_list_pop_front(&captures->jobs);
        bool stopping = captures->stopping;

        if (!l)
            l = ngd_list_pop_front(&captures->idle);
        if (!l) {
            if (stopping)
                break;
            ngd_cond_wait(&captures->wake, &captures->lock);
            continue;
        }
        ngd_mutex_unlock(&captures->lock);
        if (stopping)
            ngd_container_of(l, struct ngd_capture_job, link)->abort(ngd_container_of(l, struct ngd_capture_job, link));
        else
            ngd_container_of(l, struct ngd_capture_job, link)->run(ngd_container_of(l, struct ngd_capture_job, link));
        ngd_mutex_lock(&captures->lock);
    }
    ngd_mutex_unlock(&captures->lock);
    return NULL;
}

ngd_status_t ngd_captures_start(struct ngd_captures *captures)
{
    for (uint32_t i = 0; i < captures->n_threads; i++) {
        char name[32];
        int err;

        snprintf(name, sizeof(name), "%s %u", captures->name, (unsigned)i);
        err = ngd_thread_start(&captures->threads[i], name, capture_main, captures);
        if (err)
            return ngd_status_from_errno(err);
        captures->n_started++;
    }
    return NGD_OK;
}

void ngd_captures_stop(struct ngd_captures *captures)
{
    ngd_mutex_lock(&captures->lock);
    captures->stopping = true;
    ngd_cond_broadcast(&captures->wake);
    ngd_mutex_unlock(&captures->lock);
    for (; captures->n_started > 0; captures->n_started--)
        pthread_join(captures->threads[captures->n_started - 1], NULL);
}

bool ngd_captures_push_locked(struct ngd_captures *captures, struct ngd_capture_job *job)
{
    if (captures->stopping)
        return false;
    ngd_list_push_back(&captures->jobs, &job->link);
    ngd_cond_signal(&captures->wake);
    return true;
}

bool ngd_captures_push_idle(struct ngd_captures *captures, struct ngd_capture_job *job)
{
    bool pushed;

    ngd_mutex_lock(&captures->lock);
    pushed = !captures->stopping;
    if (pushed) {
        ngd_list_push_back(&captures->idle, &job->link);
        ngd_cond_signal(&captures->wake);
    }
    ngd_mutex_unlock(&captures->lock);
    return pushed;
}

bool ngd_captures_push(struct ngd_captures *captures, struct ngd_capture_job *job)
{
    bool pushed;

    ngd_mutex_lock(&captures->lock);
    pushed = ngd_captures_push_locked(captures, job);
    ngd_mutex_unlock(&captures->lock);
    return pushed;
}

/* ---- captures ahead ----------------------------------------------------------------------------------- */

struct ahead {
    struct ngd_capture_job job;
    struct ngd_sched *sched;
    struct ngd_binding *binding;
    uint32_t n_symbols;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_graph_options options;
    bool dry_run;
    struct ngd_capture_asker asker;
};

static void ahead_finish(struct ahead *ahead, ngd_status_t status, const struct ngd_capture_info *info,
                         const struct ngd_diag *diag)
{
    struct ngd_sched *sched = ahead->sched;

    if (status && status != NGD_ERR_CANCELLED)
        ngd_program_capture_refused(ngd_binding_program(ahead->binding), status, diag);
    ngd_binding_unref(ahead->binding);
    ahead->asker.done(ahead->asker.user, status, info, diag);
    ngd_free(ahead);
    ngd_sched_leave(sched);
}

static void ahead_cancel(struct ahead *ahead, const char *why)
{
    struct ngd_capture_info info = {0};
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "%s", why);
    ahead_finish(ahead, NGD_ERR_CANCELLED, &info, &diag);
}

static void ahead_run(struct ngd_capture_job *job)
{
    struct ahead *ahead = ngd_container_of(job, struct ahead, job);
    struct ngd_capture_info info = {0};
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (ahead->asker.wanted && !ahead->asker.wanted(ahead->asker.user)) {
        ahead_cancel(ahead, "whoever asked for this capture gave up before it began");
        return;
    }
    status = ngd_binding_capture(ahead->binding, ahead->symbols, ahead->n_symbols, &ahead->options, ahead->dry_run,
                                 &info, &diag);
    ahead_finish(ahead, status, &info, &diag);
}

static void ahead_abort(struct ngd_capture_job *job)
{
    ahead_cancel(ngd_container_of(job, struct ahead, job), "the scheduler stopped before this capture began");
}

/* What is chosen is chosen by the capture thread. */
static ngd_status_t check_symbols(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_diag *diag)
{
    struct ngd_key key;

    for (uint32_t i = 0; n_symbols == prog->graph->n_symbols && i < n_symbols; i++)
        if (symbols[i] == NGD_SIZE_ANY)
            return NGD_OK;
    return ngd_program_key(prog, symbols, n_symbols, &key, diag);
}

static ngd_status_t push_ahead(struct ngd_sched *sched, struct ngd_binding *binding, const int64_t *symbols,
                               uint32_t n_symbols, const struct ngd_graph_options *options, bool dry_run,
                               const struct ngd_capture_asker *asker, struct ngd_diag *diag)
{
    struct ngd_program *prog = ngd_binding_program(binding);
    struct ahead *ahead;
    ngd_status_t status = check_symbols(prog, symbols, n_symbols, diag);

    if (status == NGD_OK && options)
        status = ngd_dump_check(sched, options, diag);
    if (status == NGD_OK)
        status = ngd_sched_enter(sched, diag);
    if (status)
        return status;
    ahead = NGD_NEW(struct ahead);
    if (!ahead) {
        ngd_sched_leave(sched);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a capture of graph \"%.100s\"",
                            prog->graph->name);
    }
    ahead->job.run = ahead_run;
    ahead->job.abort = ahead_abort;
    ahead->sched = sched;
    ahead->binding = ngd_binding_ref(binding);
    ahead->n_symbols = n_symbols;
    for (uint32_t i = 0; i < n_symbols; i++)
        ahead->symbols[i] = symbols[i];
    ahead->options = options ? *options : prog->options;
    ahead->dry_run = dry_run;
    ahead->asker = *asker;
    if (ngd_captures_push(&sched->captures, &ahead->job))
        return NGD_OK;
    ngd_binding_unref(ahead->binding);
    ngd_free(ahead);
    ngd_sched_leave(sched);
    return ngd_diag_set(diag, NGD_ERR_DRAINING, "the scheduler stops");
}

ngd_status_t ngd_sched_capture(struct ngd_sched *sched, struct ngd_binding *binding, const int64_t *symbols,
                               uint32_t n_symbols, const struct ngd_graph_options *options, bool dry_run,
                               const struct ngd_capture_asker *asker, struct ngd_diag *diag)
{
    ngd_status_t status = push_ahead(sched, binding, symbols, n_symbols, options, dry_run, asker, diag);

    if (status)
        ngd_program_capture_refused(ngd_binding_program(binding), status, diag);
    return status;
}
