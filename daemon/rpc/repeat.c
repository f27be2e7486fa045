/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/repeat.h"

#include "base/digest.h"
#include "base/mem.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/session.h"

struct repeat {
    struct ngd_call_wrap wrap;
    struct ngd_asker asker;
    struct ngd_call *call;
    const void *msg; /* the handler's message */
    bool leads;      /* its end is reported to the table; used by the call's owner */
    struct ngd_job job;
    /* A leader that has ended: the calls that get the same end, and that end. */
    struct ngd_list waiting;
    ngd_status_t status;
    struct ngd_diag *diag; /* NULL: none, or no memory for a copy */
};

static struct repeat *of_asker(struct ngd_asker *asker)
{
    return asker ? ngd_container_of(asker, struct repeat, asker) : NULL;
}

static struct repeat *of_call(const struct ngd_call *call)
{
    return ngd_container_of(call->wrap, struct repeat, wrap);
}

/* ---- a repetition ---- */

static void give_kept(struct ngd_call *call, const uint8_t *data, size_t n)
{
    struct ngd_diag diag = {0};

    if (!data) {
        ngd_diag_set(
            &diag, NGD_ERR_ALREADY_EXISTS,
            "the first call with this request id was served, but its answer of %zu bytes was too large to keep; "
            "do not repeat it; query the state of what it changed",
            n);
        ngd_call_fail(call, NGD_ERR_ALREADY_EXISTS, &diag);
    } else if (call->method->kind == NGD_RPC_UNARY) {
        ngd_call_reply_encoded(call, data, n);
    } else {
        ngd_status_t status = ngd_call_send_encoded(call, data, n);

        if (status == NGD_OK)
            ngd_call_finish(call);
        else
            ngd_call_fail(call, status, NULL);
    }
}

static void refuse_reuse(struct ngd_call *call)
{
    struct ngd_diag diag = {0};

    ngd_diag_set(&diag, NGD_ERR_INVALID_ARGUMENT,
                 "request id \"%s\" belongs to an earlier call with another request; use a new id for a new request",
                 call->request_id);
    ngd_call_fail(call, NGD_ERR_INVALID_ARGUMENT, &diag);
}

/* Ends a repetition that waits. If it is being answered, or has just become the leader, those paths check `cancelled`.
 * Runs on the receiving thread. */
static void repeat_cancelled(struct ngd_call *call)
{
    if (ngd_answers_leave(ngd_session_answers(call->session), &of_call(call)->asker))
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
}

/* ---- the end of a leader ---- */

static void give_same_end(struct ngd_call *call, const struct repeat *leader)
{
    if (atomic_load(&call->cancelled))
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
    else if (leader->status == NGD_OK)
        ngd_call_reply_as(call, leader->call);
    else
        ngd_call_fail(call, leader->status, leader->diag);
}

/* Answers one waiting repetition. The next one is another job, so that other identities get their turns in between. */
static void end_next(struct ngd_job *job)
{
    struct repeat *r = ngd_container_of(job, struct repeat, job);

    give_same_end(of_asker(ngd_asker_pop(&r->waiting))->call, r);
    if (ngd_list_empty(&r->waiting)) {
        ngd_free(r->diag);
        ngd_call_unref(r->call);
    } else {
        ngd_jobs_add_for(r->call->daemon->jobs, &r->job, r->call->identity->key);
    }
}

/* Answers the waiting repetitions on a job thread: the thread that ends a leader may be a device's worker, in the
 * middle of its work. */
static void end_waiting(struct repeat *r)
{
    if (ngd_list_empty(&r->waiting))
        return;
    ngd_call_ref(r->call);
    r->job.fn = end_next;
    ngd_jobs_add_for(r->call->daemon->jobs, &r->job, r->call->identity->key);
}

static void repeat_succeeded(struct ngd_call *call, const uint8_t *data, size_t n)
{
    struct repeat *r = of_call(call);

    if (!r->leads)
        return;
    r->leads = false;
    r->status = NGD_OK;
    ngd_answers_succeeded(ngd_session_answers(call->session), &r->asker, data, n, &r->waiting);
    end_waiting(r);
}

static void serve_repeat(struct ngd_job *job)
{
    const struct repeat *r = ngd_container_of(job, struct repeat, job);
    struct ngd_call *call = r->call;

    if (atomic_load(&call->cancelled)) {
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
        return;
    }
    ngd_call_ref(call);
    call->method->ops->request(call, r->msg);
    ngd_call_served(call); /* gives the handler a cancellation that came meanwhile */
    ngd_call_unref(call);
}

static void promote(struct repeat *r)
{
    r->leads = true;
    r->job.fn = serve_repeat;
    ngd_jobs_add_for(r->call->daemon->jobs, &r->job, r->call->identity->key);
}

static void repeat_failed(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    struct repeat *r = of_call(call), *next;

    if (!r->leads)
        return;
    r->leads = false;
    r->status = status ? status : NGD_ERR_INTERNAL; /* like ngd_call_fail */
    next = of_asker(
        ngd_answers_failed(ngd_session_answers(call->session), &r->asker, atomic_load(&call->cancelled), &r->waiting));
    if (next)
        promote(next);
    if (diag && !ngd_list_empty(&r->waiting))
        r->diag = ngd_memdup(diag, sizeof(*diag));
    end_waiting(r);
}

/* ---- the beginning ---- */

/* Returns the handler's message with the lifetime of the call: a raw one is on the caller's stack. NULL: out of
 * memory. */
static const void *keep_message(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg)
{
    struct ngd_raw_message *kept;

    if (!ngd_method_is_raw(call->method))
        return msg;
    kept = ngd_arena_alloc(&call->life, sizeof(*kept));
    if (kept)
        *kept = *raw;
    return kept;
}

static struct repeat *wrap(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg)
{
    struct repeat *r = ngd_arena_calloc(&call->life, 1, sizeof(*r));

    if (!r)
        return NULL;
    r->wrap.succeeded = repeat_succeeded;
    r->wrap.failed = repeat_failed;
    r->wrap.cancelled = repeat_cancelled;
    /* Set before the table knows the call: from then on other threads may answer it. */
    atomic_init(&r->wrap.served, NGD_CALL_UNSERVED);
    r->asker.method = call->method;
    r->asker.request_id = call->request_id;
    ngd_list_init(&r->asker.link);
    ngd_list_init(&r->waiting);
    r->call = call;
    r->msg = keep_message(call, raw, msg);
    if (!r->msg)
        return NULL;
    call->wrap = &r->wrap;
    return r;
}

static void lead(struct repeat *r)
{
    r->leads = true;
    atomic_store(&r->wrap.served, NGD_CALL_SERVED);
}

bool ngd_repeat_begin(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg)
{
    ngd_answer_place_t place = NGD_ANSWER_NO_MEMORY;
    struct repeat *r;
    uint8_t *data = NULL;
    size_t n = 0;

    if (!call->method->ops->once || !call->session || call->request_id[0] == '\0')
        return true;
    r = wrap(call, raw, msg);
    if (r)
        place = ngd_answers_begin(ngd_session_answers(call->session), &r->asker, ngd_hash64(raw->data, raw->n, 0),
                                  &data, &n);
    if (place == NGD_ANSWER_LEADS)
        lead(r);
    else if (place == NGD_ANSWER_GIVEN)
        give_kept(call, data, n);
    else if (place == NGD_ANSWER_REUSED)
        refuse_reuse(call);
    else if (place == NGD_ANSWER_NO_MEMORY)
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
    ngd_free(data);
    return place == NGD_ANSWER_LEADS;
}
