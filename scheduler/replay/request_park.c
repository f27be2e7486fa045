/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait for a capture. There is one job of the capture threads for each (program, key). A request that
 * misses while the job is queued or runs joins it. Beyond the capture limit, and with force_eager, each request gets an
 * executable of its own and runs it operator by operator. It is made here, because planning is slow.
 */
#include "base/mem.h"
#include "base/stop.h"
#include "scheduler/program/program_int.h"

struct ngd_park {
    struct ngd_capture_job job;
    struct ngd_list link; /* in captures->parked; under its lock, like `waiting` */
    struct ngd_list waiting;
    struct ngd_program *prog;
    struct ngd_key key;
    ngd_nsec_t began, took, passes, plan; /* its capture; 0: it did not run */
    struct ngd_share *counted;            /* the share that counts the capture, a reference; NULL: not queued */
};

static void park_free(struct ngd_park *park)
{
    if (!park)
        return;
    if (park->counted)
        ngd_share_give_capture(park->counted);
    ngd_share_unref(park->counted);
    ngd_program_unref(park->prog);
    ngd_free(park);
}

/*
 * Closes the park: no request can join any more. Its requests wait on, and may be withdrawn, until next_parked() takes
 * them.
 */
static void close_park(struct ngd_park *park)
{
    struct ngd_captures *captures = &park->prog->sched->captures;

    ngd_mutex_lock(&captures->lock);
    ngd_list_remove(&park->link);
    ngd_mutex_unlock(&captures->lock);
}

/* Takes the next request of a closed park, oldest first; NULL: none waits. *last_p: no other one waits. */
static struct ngd_request *next_parked(struct ngd_park *park, bool *last_p)
{
    struct ngd_captures *captures = &park->prog->sched->captures;
    struct ngd_request *req = NULL;
    struct ngd_list *l;

    ngd_mutex_lock(&captures->lock);
    l = ngd_list_pop_front(&park->waiting);
    if (l) {
        req = ngd_container_of(l, struct ngd_request, park_link);
        req->park = NULL;
        atomic_store_explicit(&req->state, NGD_REQUEST_MOVING, memory_order_relaxed);
    }
    *last_p = ngd_list_empty(&park->waiting);
    ngd_mutex_unlock(&captures->lock);
    return req;
}

static bool abandoned(struct ngd_park *park)
{
    struct ngd_captures *captures = &park->prog->sched->captures;
    bool empty;

    ngd_mutex_lock(&captures->lock);
    empty = ngd_list_empty(&park->waiting);
    if (empty)
        ngd_list_remove(&park->link);
    ngd_mutex_unlock(&captures->lock);
    return empty;
}

/*
 * Makes an executable for one request, within the time limit of a capture. A cancel of the capture job must not end
 * this, since the others still wait.
 */
static ngd_status_t make_eager(struct ngd_request *req, const struct ngd_key *key, struct ngd_diag *diag)
{
    const ngd_nsec_t most = atomic_load_explicit(&req->queue->sched->captures.max_time, memory_order_relaxed);
    const struct ngd_stop stop = {.at = most ? ngd_now() + most : 0, .late = NGD_ERR_CAPTURE_STOPPED};
    ngd_status_t status;

    ngd_stop_set(&stop);
    status = ngd_program_make_eager(req->binding->prog, key, &req->eager, diag);
    ngd_stop_set(NULL);
    return status;
}

/* Gives a request its executable, which is the entry's, or one of its own to run eagerly, and moves it on. */
static void resume(struct ngd_request *req, const struct ngd_key *key, struct ngd_gcache_entry *entry)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;

    req->entry = entry;
    if (!entry)
        status = make_eager(req, key, &diag);
    if (status == NGD_OK)
        status = ngd_executable_check(entry ? ngd_entry_executable(entry) : req->eager, &req->launch, &diag);
    if (status == NGD_OK)
        status = ngd_request_place(req, &diag);
    if (status)
        ngd_request_finish(req, status, &diag);
}

/* Tells a request, for its traces, when the capture it waited for began and what it took. */
static void note_capture_times(struct ngd_request *req, const struct ngd_park *took)
{
    struct ngd_request_times *times = req->times;

    if (!times)
        return;
    times->resumed = ngd_now();
    times->capture_began = took->began;
    times->capture_time = took->took;
    times->passes_time = took->passes;
    times->plan_time = took->plan;
}

/*
 * Moves on all requests that waited, or answers them, one at a time, since each eager run is planned here. The last one
 * takes over the entry, and the park is freed before it. So when it is answered, this low-priority thread holds nothing
 * any more that its client might look at.
 */
static void park_end(struct ngd_park *park, struct ngd_gcache_entry *entry, ngd_status_t status, struct ngd_diag *diag)
{
    const struct ngd_key key = park->key;
    struct ngd_request *req;
    bool last = false;

    close_park(park);
    while (!last && (req = next_parked(park, &last))) {
        note_capture_times(req, park);
        if (last) {
            park_free(park);
            park = NULL;
        }
        if (status)
            ngd_request_finish(req, status, diag);
        else
            resume(req, &key, entry && !last ? ngd_gcache_pin(entry) : entry);
    }
    if (park && entry) /* there was no last one: all were withdrawn */
        ngd_gcache_put(entry);
    park_free(park);
}

static ngd_status_t park_capture(struct ngd_park *park, struct ngd_gcache_entry **entry_p, bool *captured_p,
                                 struct ngd_diag *diag)
{
    struct ngd_program *prog = park->prog;

    if (prog->options.force_recapture)
        return ngd_program_recapture(prog, &park->key, entry_p, captured_p, diag);
    return prog->options.force_eager ? NGD_OK : ngd_program_capture(prog, &park->key, entry_p, captured_p, diag);
}

/* Captures, and notes what that took. */
static ngd_status_t park_capture_timed(struct ngd_park *park, struct ngd_gcache_entry **entry_p, struct ngd_diag *diag)
{
    bool captured = false;
    ngd_status_t status;

    park->began = ngd_now();
    status = park_capture(park, entry_p, &captured, diag);
    park->took = ngd_now() - park->began;
    if (status == NGD_OK && captured && *entry_p) {
        const struct ngd_executable *x = ngd_entry_executable(*entry_p);

        park->passes = x->passes_time;
        park->plan = x->plan_time;
    }
    return status;
}

static void park_run(struct ngd_capture_job *job)
{
    struct ngd_park *park = ngd_container_of(job, struct ngd_park, job);
    struct ngd_program *prog = park->prog;
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    /* The capture is cancelled when no request waits. One may have joined since. */
    do {
        if (abandoned(park)) {
            park_free(park);
            return;
        }
        status = park_capture_timed(park, &entry, &diag);
    } while (status == NGD_ERR_CANCELLED);
    /* Run eagerly, also with `evict` if all executables are in use at this moment: slow is better than refused. */
    if (status == NGD_ERR_CAPTURE_LIMIT && prog->options.capture_limit_policy != NGD_GCACHE_REJECT)
        status = NGD_OK;
    park_end(park, entry, status, &diag);
}

static void park_abort(struct ngd_capture_job *job)
{
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the scheduler stopped before the graph was captured");
    park_end(ngd_container_of(job, struct ngd_park, job), NULL, NGD_ERR_CANCELLED, &diag);
}

static struct ngd_park *park_new(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_park *park = NGD_NEW(struct ngd_park);

    if (!park)
        return NULL;
    park->job.run = park_run;
    park->job.abort = park_abort;
    park->prog = ngd_program_ref(prog);
    park->key = *key;
    ngd_list_init(&park->link);
    ngd_list_init(&park->waiting);
    return park;
}

static struct ngd_park *find_park_locked(struct ngd_captures *captures, const struct ngd_program *prog,
                                         const struct ngd_key *key) NGD_REQUIRES(captures->lock)
{
    ngd_list_for_each (l, &captures->parked) {
        struct ngd_park *park = ngd_container_of(l, struct ngd_park, link);

        if (park->prog == prog && ngd_key_equal(&park->key, key))
            return park;
    }
    return NULL;
}

/* Lets req wait in the park of key. If there is none, *fresh_p becomes it and is set to NULL. */
static ngd_status_t join_locked(struct ngd_captures *captures, struct ngd_request *req, const struct ngd_key *key,
                                struct ngd_park **fresh_p, struct ngd_diag *diag) NGD_REQUIRES(captures->lock)
{
    struct ngd_park *park;

    if (captures->stopping || atomic_load(&req->cancelled))
        return NGD_ERR_CANCELLED;
    park = find_park_locked(captures, req->binding->prog, key);
    if (!park) {
        if (!*fresh_p)
            return NGD_ERR_NO_MEMORY;
        if (ngd_share_take_capture(ngd_program_share(req->binding->prog), diag))
            return NGD_ERR_QUOTA;
        park = *fresh_p;
        *fresh_p = NULL;
        park->counted = ngd_share_ref(ngd_program_share(park->prog));
        ngd_list_push_back(&captures->parked, &park->link);
        (void)ngd_captures_push_locked(captures, &park->job, park->counted);
    } else if (park->job.running) {
        atomic_store(&park->job.running->gone, false);
    }
    atomic_store_explicit(&req->state, NGD_REQUEST_WAITING_CAPTURE, memory_order_relaxed);
    ngd_list_push_back(&park->waiting, &req->park_link);
    req->park = park;
    return NGD_OK;
}

ngd_status_t ngd_request_park(struct ngd_request *req, const struct ngd_key *key, struct ngd_diag *diag)
{
    struct ngd_program *prog = req->binding->prog;
    struct ngd_captures *captures = &prog->sched->captures;
    struct ngd_park *fresh = park_new(prog, key);
    ngd_status_t status;

    if (req->times)
        req->times->parked = ngd_now();
    ngd_mutex_lock(&captures->lock);
    status = join_locked(captures, req, key, &fresh, diag);
    ngd_mutex_unlock(&captures->lock);
    park_free(fresh);
    if (status == NGD_ERR_NO_MEMORY)
        ngd_diag_set(diag, status, "no host memory for a capture of graph \"%.100s\"", prog->graph->name);
    return status;
}

/* Withdraws a capture that no request waits for. Returns the park to free if it was only queued, else NULL. */
static struct ngd_park *leave_locked(struct ngd_captures *captures, struct ngd_park *park) NGD_REQUIRES(captures->lock)
{
    if (!ngd_list_empty(&park->waiting) || !ngd_captures_withdraw_locked(captures, &park->job))
        return NULL;
    ngd_list_remove(&park->link);
    return park;
}

bool ngd_request_unpark(struct ngd_request *req)
{
    struct ngd_captures *captures = &req->queue->sched->captures;
    struct ngd_park *park, *left = NULL;

    ngd_mutex_lock(&captures->lock);
    park = req->park;
    if (park) {
        req->park = NULL;
        ngd_list_remove(&req->park_link);
        left = leave_locked(captures, park);
    }
    ngd_mutex_unlock(&captures->lock);
    park_free(left);
    return park != NULL;
}
