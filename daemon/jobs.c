/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs.h"
#include "base/lock.h"
#include "base/mem.h"

struct ngd_jobs {
    struct ngd_mutex lock;
    struct ngd_cond wake;
    struct ngd_list queue NGD_GUARDED_BY(lock);
    uint32_t pending NGD_GUARDED_BY(lock);
    bool stop NGD_GUARDED_BY(lock);
    uint32_t n_threads;
    pthread_t threads[];
};

static void *run(void *arg)
{
    struct ngd_jobs *jobs = arg;

    ngd_mutex_lock(&jobs->lock);
    for (;;) {
        struct ngd_list *link = ngd_list_pop_front(&jobs->queue);

        if (link) {
            struct ngd_job *job = ngd_container_of(link, struct ngd_job, link);

            ngd_mutex_unlock(&jobs->lock);
            job->fn(job);
            ngd_mutex_lock(&jobs->lock);
            jobs->pending--;
        } else if (jobs->stop) {
            break;
        } else {
            ngd_cond_wait(&jobs->wake, &jobs->lock);
        }
    }
    ngd_mutex_unlock(&jobs->lock);
    return NULL;
}

ngd_status_t ngd_jobs_create(const char *name, uint32_t threads, struct ngd_jobs **jobs_p)
{
    struct ngd_jobs *jobs = ngd_calloc(1, sizeof(*jobs) + threads * sizeof(pthread_t));

    if (!jobs)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&jobs->lock, NGD_RANK_JOBS);
    ngd_cond_init(&jobs->wake);
    ngd_list_init(&jobs->queue);
    for (uint32_t i = 0; i < threads; i++) {
        if (ngd_thread_start(&jobs->threads[i], name, run, jobs) != 0) {
            ngd_jobs_destroy(jobs);
            return NGD_ERR_RESOURCE_EXHAUSTED;
        }
        jobs->n_threads++;
    }
    *jobs_p = jobs;
    return NGD_OK;
}

void ngd_jobs_destroy(struct ngd_jobs *jobs)
{
    if (!jobs)
        return;
    ngd_mutex_lock(&jobs->lock);
    jobs->stop = true;
    ngd_cond_broadcast(&jobs->wake);
    ngd_mutex_unlock(&jobs->lock);
    for (uint32_t i = 0; i < jobs->n_threads; i++)
        pthread_join(jobs->threads[i], NULL);
    ngd_cond_fini(&jobs->wake);
    ngd_mutex_fini(&jobs->lock);
    ngd_free(jobs);
}

void ngd_jobs_add(struct ngd_jobs *jobs, struct ngd_job *job)
{
    ngd_mutex_lock(&jobs->lock);
    ngd_list_push_back(&jobs->queue, &job->link);
    jobs->pending++;
    ngd_cond_signal(&jobs->wake);
    ngd_mutex_unlock(&jobs->lock);
}

uint32_t ngd_jobs_pending(struct ngd_jobs *jobs)
{
    uint32_t n;

    ngd_mutex_lock(&jobs->lock);
    n = jobs->pending;
    ngd_mutex_unlock(&jobs->lock);
    return n;
}
