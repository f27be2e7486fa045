/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture threads run jobs at low priority, so that a capture, which may take seconds, takes little time from replays.
 * Nothing on the replay path waits for them or shares a lock with a capture.
 *
 * Shares take turns by the rule that orders replays (policy_fair.c): the share whose jobs have taken the least time per
 * weight is next. A job's time is charged when it has run. So a share that comes to a queue that others have filled
 * waits for at most one of their jobs: the one that runs.
 */
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/program/program_int.h"
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CAPTURE_NICE 10

ngd_status_t ngd_captures_init(struct ngd_captures *captures, ngd_capture_queue_t which, uint32_t n_threads,
                               size_t heap)
{
    captures->policy = ngd_sched_policy_find("fair");
    captures->threads = NGD_NEW_N(pthread_t, n_threads);
    if (!captures->threads || captures->policy->create(&captures->jobs)) {
        ngd_free(captures->threads);
        captures->threads = NULL;
        return NGD_ERR_NO_MEMORY;
    }
    captures->which = which;
    captures->n_threads = n_threads;
    captures->heap = heap;
    ngd_mutex_init(&captures->lock, NGD_RANK_CAPTURE_QUEUE);
    ngd_cond_init(&captures->wake);
    ngd_list_init(&captures->idle);
    ngd_list_init(&captures->parked);
    return NGD_OK;
}

/* Requires that no other thread uses it any more. */
void ngd_captures_fini(struct ngd_captures *captures) NGD_NO_THREAD_SAFETY
{
    if (!captures->threads)
        return;
    captures->policy->destroy(captures->jobs);
    ngd_cond_fini(&captures->wake);
    ngd_mutex_fini(&captures->lock);
    ngd_free(captures->threads);
    captures->threads = NULL;
}

/* ---- the queue ---------------------------------------------------------------------------------------- */

static struct ngd_account *turn_account(const struct ngd_captures *captures, struct ngd_share *share)
{
    return &share->turns[captures->which];
}

bool ngd_captures_push_locked(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share)
{
    if (captures->stopping)
        return false;
    ngd_sched_item_init(&job->item, NULL);
    job->item.account = turn_account(captures, share);
    job->item.queued = true;
    job->share = ngd_share_ref(share);
    job->running = NULL;
    captures->policy->push(captures->jobs, &job->item, ngd_now());
    ngd_cond_signal(&captures->wake);
    return true;
}

bool ngd_captures_push(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_share *share)
{
    bool pushed;

    ngd_mutex_lock(&captures->lock);
    pushed = ngd_captures_push_locked(captures, job, share);
    ngd_mutex_unlock(&captures->lock);
    return pushed;
}

bool ngd_captures_push_idle(struct ngd_captures *captures, struct ngd_capture_job *job)
{
    bool pushed;

    job->share = NULL;
    job->item.queued = false;
    job->running = NULL;
    ngd_mutex_lock(&captures->lock);
    pushed = !captures->stopping;
    if (pushed) {
        ngd_list_push_back(&captures->idle, &job->link);
        ngd_cond_signal(&captures->wake);
    }
    ngd_mutex_unlock(&captures->lock);
    return pushed;
}

bool ngd_captures_withdraw_locked(struct ngd_captures *captures, struct ngd_capture_job *job)
{
    if (!job->item.queued) {
        atomic_store(&job->running->gone, true);
        return false;
    }
    captures->policy->remove(captures->jobs, &job->item);
    job->item.queued = false;
    job->share = ngd_share_unref(job->share);
    return true;
}

/* Takes the next job; NULL: none. *share_p: the share that it belongs to, a reference; NULL: it is an idle job. */
static struct ngd_capture_job *take_job_locked(struct ngd_captures *captures, struct ngd_stop *stop,
                                               struct ngd_share **share_p) NGD_REQUIRES(captures->lock)
{
    struct ngd_sched_item *item = captures->policy->pop(captures->jobs, ngd_now());
    struct ngd_list *l = item ? NULL : ngd_list_pop_front(&captures->idle);
    struct ngd_capture_job *job;

    *share_p = NULL;
    if (!item && !l)
        return NULL;
    job =
        item ? ngd_container_of(item, struct ngd_capture_job, item) : ngd_container_of(l, struct ngd_capture_job, link);
    *share_p = job->share;
    job->share = NULL;
    job->item.queued = false;
    job->running = stop;
    captures->n_running++;
    return job;
}

/* ---- the threads -------------------------------------------------------------------------------------- */

/* Runs a job and charges its share. The time is charged afterwards, since it is not known before. */
static void run_capture_job(struct ngd_captures *captures, struct ngd_capture_job *job, struct ngd_stop *stop,
                            struct ngd_share *share)
{
    const ngd_nsec_t begin = ngd_now(), most = atomic_load_explicit(&captures->max_time, memory_order_relaxed);

    stop->at = most ? begin + most : 0;
    ngd_stop_set(stop);
    job->run(job);
    ngd_stop_set(NULL);
    if (!share)
        return;
    ngd_mutex_lock(&captures->lock);
    captures->policy->charge(captures->jobs, turn_account(captures, share), ngd_now() - begin);
    ngd_mutex_unlock(&captures->lock);
}

static void *capture_main(void *arg)
{
    struct ngd_captures *captures = arg;

    /* For this thread only. If the process may not change its priority, it stays as it is. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), CAPTURE_NICE);
    ngd_mem_warm(captures->heap);
    ngd_mutex_lock(&captures->lock);
    for (;;) {
        struct ngd_stop stop = {.late = NGD_ERR_CAPTURE_STOPPED};
        struct ngd_share *share;
        struct ngd_capture_job *job = take_job_locked(captures, &stop, &share);
        const bool stopping = captures->stopping;

        if (!job) {
            if (stopping)
                break;
            ngd_cond_wait(&captures->wake, &captures->lock);
            continue;
        }
        ngd_mutex_unlock(&captures->lock);
        if (stopping)
            job->abort(job);
        else
            run_capture_job(captures, job, &stop, share);
        ngd_share_unref(share);
        ngd_mutex_lock(&captures->lock);
        captures->n_running--;
    }
    ngd_mutex_unlock(&captures->lock);
    return NULL;
}

ngd_status_t ngd_captures_start(struct ngd_captures *captures)
{
    static const char *const names[NGD_CAPTURE_QUEUES] = {
        [NGD_CAPTURE_PLANS] = "capture", [NGD_CAPTURE_KERNELS] = "compile"};

    for (uint32_t i = 0; i < captures->n_threads; i++) {
        char name[32];
        int err;

        snprintf(name, sizeof(name), "%s %u", names[captures->which], (unsigned)i);
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
