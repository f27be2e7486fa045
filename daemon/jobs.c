/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs.h"
#include "base/lock.h"
#include "base/mem.h"

struct ngd_jobs {
    struct ngd_mutex lock;
    struct ngd_cond wake;
    struct ngd_list queue NGD_GUARDED_BY(lock); /* by turn, then by arrival */
    uint64_t turn NGD_GUARDED_BY(lock);         /* turn of the job that was taken last */
    uint64_t taken NGD_GUARDED_BY(lock);        /* owner of that job */
    uint32_t pending NGD_GUARDED_BY(lock);
    uint32_t slow NGD_GUARDED_BY(lock); /* running slow jobs */
    bool stop NGD_GUARDED_BY(lock);
    uint32_t n_threads;
    pthread_t threads[];
};

static _Thread_local bool has_thread;

/* Takes the first job. Skips slow ones while all threads but one run slow jobs. NULL: none. */
static struct ngd_job *take_job(struct ngd_jobs *jobs) NGD_REQUIRES(jobs->lock)
{
    const bool no_slow = jobs->slow > 0 && jobs->slow + 1 >= jobs->n_threads;

    ngd_list_for_each (pos, &jobs->queue) {
        struct ngd_job *job = ngd_container_of(pos, struct ngd_job, link);

        if (job->slow && no_slow)
            continue;
        ngd_list_remove(&job->link);
        jobs->turn = job->turn > jobs->turn ? job->turn : jobs->turn;
        jobs->taken = job->owner;
        return job;
    }
    return NULL;
}

static void run_taken_job(struct ngd_jobs *jobs, struct ngd_job *job) NGD_REQUIRES(jobs->lock)
{
    const bool slow = job->slow;

    jobs->slow += slow;
    ngd_mutex_unlock(&jobs->lock);
    job->fn(job);
    ngd_mutex_lock(&jobs->lock);
    jobs->slow -= slow;
    jobs->pending--;
}

static void *run_job_thread(void *arg)
{
    struct ngd_jobs *jobs = arg;
    struct ngd_job *job;

    has_thread = true;
    ngd_mutex_lock(&jobs->lock);
    for (;;) {
        job = take_job(jobs);
        if (job) {
            run_taken_job(jobs, job);
        } else if (jobs->stop && ngd_list_empty(&jobs->queue)) {
            ngd_cond_broadcast(&jobs->wake); /* wakes threads that left slow jobs to this one */
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
        if (ngd_thread_start(&jobs->threads[i], name, run_job_thread, jobs) != 0) {
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

/* Returns the turn after the owner's last job. A job without an owner gets the last queued turn, so it comes after
 * all. */
static uint64_t next_turn(struct ngd_jobs *jobs, uint64_t owner) NGD_REQUIRES(jobs->lock)
{
    uint64_t turn = jobs->turn + (owner && owner == jobs->taken);

    ngd_list_for_each (pos, &jobs->queue) {
        const struct ngd_job *job = ngd_container_of(pos, struct ngd_job, link);

        if (!owner)
            turn = job->turn;
        else if (job->owner == owner)
            turn = job->turn + 1;
    }
    return turn;
}

static void insert_job(struct ngd_jobs *jobs, struct ngd_job *job) NGD_REQUIRES(jobs->lock)
{
    ngd_list_for_each (pos, &jobs->queue) {
        if (ngd_container_of(pos, struct ngd_job, link)->turn > job->turn) {
            ngd_list_insert_before(pos, &job->link);
            return;
        }
    }
    ngd_list_push_back(&jobs->queue, &job->link);
}

static void add_locked(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner) NGD_REQUIRES(jobs->lock)
{
    job->owner = owner;
    job->turn = next_turn(jobs, owner);
    insert_job(jobs, job);
    jobs->pending++;
    ngd_cond_signal(&jobs->wake);
}

void ngd_jobs_add_for(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner)
{
    ngd_mutex_lock(&jobs->lock);
    add_locked(jobs, job, owner);
    ngd_mutex_unlock(&jobs->lock);
}

bool ngd_jobs_offer(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner)
{
    bool idle;

    ngd_mutex_lock(&jobs->lock);
    idle = jobs->pending < jobs->n_threads;
    if (idle)
        add_locked(jobs, job, owner);
    ngd_mutex_unlock(&jobs->lock);
    return idle;
}

void ngd_jobs_add(struct ngd_jobs *jobs, struct ngd_job *job)
{
    ngd_jobs_add_for(jobs, job, 0);
}

bool ngd_jobs_has_thread(void)
{
    return has_thread;
}

uint32_t ngd_jobs_pending(struct ngd_jobs *jobs)
{
    uint32_t n;

    ngd_mutex_lock(&jobs->lock);
    n = jobs->pending;
    ngd_mutex_unlock(&jobs->lock);
    return n;
}
