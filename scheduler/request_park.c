/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait for a capture. One job of the capture threads for each (program, key): who misses while it is
 * queued or under way joins it. Past the capture limit, and with force_eager, there is nothing to share: each request
 * gets an executable of its own, made here because planning is slow, and runs it operator by operator.
 */
#include "base/mem.h"
#include "scheduler/program_int.h"

struct park {
    struct ngd_capture_job job;
    struct ngd_list link; /* in captures->parked; under its lock, like `waiting` */
    struct ngd_list waiting;
    struct ngd_program *prog;
    struct ngd_key key;
};

static void park_free(struct park *park)
{
    if (!park)
        return;
    ngd_program_unref(park->prog);
    ngd_free(park);
}

/* The requests that wait, in the order of their arrival; nobody can join any more. */
static void detach(struct park *park, struct ngd_list *requests)
{
    struct ngd_captures *captures = &park->prog->sched->captures;
    struct ngd_list *l;

    ngd_list_init(requests);
    ngd_mutex_lock(&captures->lock);
    ngd_list_remove(&park->link);
    while ((l = ngd_list_pop_front(&park->waiting))) {
        struct ngd_request *req = ngd_container_of(l, struct ngd_request, park_link);

        req->parked = false;
        atomic_store_explicit(&req->state, NGD_REQUEST_MOVING, memory_order_relaxed);
        ngd_list_push_back(requests, l);
    }
    ngd_mutex_unlock(&captures->lock);
}

static bool abandoned(struct park *park)
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

/* Gives a request its executable, which is the entry's or one of its own to run eagerly, and sends it on. */
static void resume(struct ngd_request *req, const struct ngd_key *key, struct ngd_gcache_entry *entry)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;

    req->entry = entry;
    if (!entry)
        status = ngd_program_make_eager(req->binding->prog, key, &req->eager, &diag);
    if (status == NGD_OK)
        status = ngd_executable_check(entry ? ngd_entry_executable(entry) : req->eager, &req->launch, req->n_inputs,
                                      req->n_hosts, req->n_outputs, &diag);
    if (status == NGD_OK)
        status = ngd_request_place(req, &diag);
    if (status)
        ngd_request_finish(req, status, &diag);
}

/* Sends on all that waited, or answers them. The last takes the entry and the park with it: when it is answered, this
 * thread, which gives way to all others, holds nothing any more that its client might look at. */
static void park_end(struct park *park, struct ngd_gcache_entry *entry, ngd_status_t status, struct ngd_diag *diag)
{
    struct ngd_key key = park->key;
    struct ngd_list requests, *l;

    detach(park, &requests);
    l = ngd_list_pop_front(&requests);
    if (!l)
        ngd_gcache_put(entry);
    while (l) {
        struct ngd_request *req = ngd_container_of(l, struct ngd_request, park_link);

        l = ngd_list_pop_front(&requests);
        if (!l) {
            park_free(park);
            park = NULL;
        }
        if (status)
            ngd_request_finish(req, status, diag);
        else
            resume(req, &key, entry && l ? ngd_gcache_pin(entry) : entry);
    }
    park_free(park);
}

static void park_run(struct ngd_capture_job *job)
{
    struct park *park = ngd_container_of(job, struct park, job);
    struct ngd_program *prog = park->prog;
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;

    if (abandoned(park)) {
        park_free(park);
        return;
    }
    if (prog->options.force_recapture)
        status = ngd_program_recapture(prog, &park->key, &entry, NULL, &diag);
    else if (!prog->options.force_eager)
        status = ngd_program_capture(prog, &park->key, &entry, NULL, &diag);
    /* With `evict` too, when all executables are in use at this moment: slower is better than refused. */
    if (status == NGD_ERR_CAPTURE_LIMIT && prog->options.capture_limit_policy != NGD_GCACHE_REJECT)
        status = NGD_OK;
    park_end(park, entry, status, &diag);
}

static void park_abort(struct ngd_capture_job *job)
{
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the scheduler stopped before the graph was captured");
    park_end(ngd_container_of(job, struct park, job), NULL, NGD_ERR_CANCELLED, &diag);
}

static struct park *park_new(struct ngd_program *prog, const struct ngd_key *key)
{
    struct park *park = NGD_NEW(struct park);

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

static struct park *find_locked(struct ngd_captures *captures, const struct ngd_program *prog,
                                const struct ngd_key *key) NGD_REQUIRES(captures->lock)
{
    ngd_list_for_each (l, &captures->parked) {
        struct park *park = ngd_container_of(l, struct park, link);

        if (park->prog == prog && ngd_key_equal(&park->key, key))
            return park;
    }
    return NULL;
}

/* *fresh_p is used, and set to NULL, when there is no such capture yet. */
static ngd_status_t join_locked(struct ngd_captures *captures, struct ngd_request *req, const struct ngd_key *key,
                                struct park **fresh_p) NGD_REQUIRES(captures->lock)
{
    struct park *park;

    if (captures->stopping || atomic_load(&req->cancelled))
        return NGD_ERR_CANCELLED;
    park = find_locked(captures, req->binding->prog, key);
    if (!park) {
        if (!*fresh_p)
            return NGD_ERR_NO_MEMORY;
        park = *fresh_p;
        *fresh_p = NULL;
        ngd_list_push_back(&captures->parked, &park->link);
        (void)ngd_captures_push_locked(captures, &park->job);
    }
    atomic_store_explicit(&req->state, NGD_REQUEST_WAITING_CAPTURE, memory_order_relaxed);
    ngd_list_push_back(&park->waiting, &req->park_link);
    req->parked = true;
    return NGD_OK;
}

ngd_status_t ngd_request_park(struct ngd_request *req, const struct ngd_key *key, struct ngd_diag *diag)
{
    struct ngd_program *prog = req->binding->prog;
    struct ngd_captures *captures = &prog->sched->captures;
    struct park *fresh = park_new(prog, key);
    ngd_status_t status;

    ngd_mutex_lock(&captures->lock);
    status = join_locked(captures, req, key, &fresh);
    ngd_mutex_unlock(&captures->lock);
    park_free(fresh);
    if (status == NGD_ERR_NO_MEMORY)
        ngd_diag_set(diag, status, "no host memory for a capture of graph \"%.100s\"", prog->graph->name);
    return status;
}

bool ngd_request_unpark(struct ngd_request *req)
{
    struct ngd_captures *captures = &req->queue->sched->captures;
    bool parked;

    ngd_mutex_lock(&captures->lock);
    parked = req->parked;
    if (parked) {
        req->parked = false;
        ngd_list_remove(&req->park_link);
    }
    ngd_mutex_unlock(&captures->lock);
    return parked;
}
