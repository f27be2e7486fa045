/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per (method, request id): UNDER WAY, with its leader and those who wait, or GIVEN, with the answer.
 * Nobody is answered under the lock: an entry that ends gives its list of waiting calls to who ended it.
 */
#include "daemon/answers.h"

#include "base/digest.h"
#include "base/lock.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/rpc_methods.h"
#include <stdio.h>
#include <string.h>

#define KEPT_MAX   64
#define ANSWER_MAX (1u << 20)
#define BYTES_MAX  (4u << 20)

struct entry {
    struct ngd_list link;      /* answers->entries, oldest first */
    struct ngd_list pool_link; /* given: in the identity's pool */
    struct ngd_answers *answers;
    const struct ngd_method *method;
    char request_id[NGD_REQUEST_ID_MAX + 1];
    uint64_t fingerprint;    /* of the request */
    struct ngd_call *leader; /* NULL: given */
    struct ngd_list waiting; /* calls, by answer_link */
    uint8_t *data;           /* NULL: larger than ANSWER_MAX */
    size_t n;
    uint64_t charged;
};

struct ngd_answers {
    struct ngd_identity *identity;
    struct ngd_answer_pool *pool; /* the identity's: with the lock of everything here */
    struct ngd_list entries NGD_GUARDED_BY(pool->lock);
    uint32_t n_kept NGD_GUARDED_BY(pool->lock);
    size_t bytes NGD_GUARDED_BY(pool->lock);
};

/* Nobody else has it yet. */
void ngd_answer_pool_init(struct ngd_answer_pool *pool) NGD_NO_THREAD_SAFETY
{
    ngd_mutex_init(&pool->lock, NGD_RANK_ANSWERS);
    ngd_list_init(&pool->kept);
}

/* The same. */
ngd_status_t ngd_answers_create(struct ngd_identity *identity, struct ngd_answers **answers_p) NGD_NO_THREAD_SAFETY
{
    struct ngd_answers *answers = NGD_NEW(struct ngd_answers);

    if (!answers)
        return NGD_ERR_NO_MEMORY;
    answers->identity = identity;
    answers->pool = &identity->answers;
    ngd_list_init(&answers->entries);
    *answers_p = answers;
    return NGD_OK;
}

/* Under the pool's lock. */
static void free_entry(struct entry *e)
{
    ngd_identity_give(e->answers->identity, NGD_QUOTA_ANSWERS, e->charged);
    ngd_list_remove(&e->link);
    ngd_list_remove(&e->pool_link);
    ngd_free(e->data);
    ngd_free(e);
}

void ngd_answers_destroy(struct ngd_answers *answers)
{
    if (!answers)
        return;
    ngd_mutex_lock(&answers->pool->lock);
    while (!ngd_list_empty(&answers->entries))
        free_entry(ngd_container_of(answers->entries.next, struct entry, link));
    ngd_mutex_unlock(&answers->pool->lock);
    ngd_free(answers);
}

static struct entry *find(struct ngd_answers *answers, const struct ngd_call *call) NGD_REQUIRES(answers->pool->lock)
{
    ngd_list_for_each (pos, &answers->entries) {
        struct entry *e = ngd_container_of(pos, struct entry, link);

        if (e->method == call->method && strcmp(e->request_id, call->request_id) == 0)
            return e;
    }
    return NULL;
}

static struct entry *add(struct ngd_answers *answers, struct ngd_call *call, uint64_t print)
    NGD_REQUIRES(answers->pool->lock)
{
    struct entry *e = NGD_NEW(struct entry);

    if (!e)
        return NULL;
    e->method = call->method;
    snprintf(e->request_id, sizeof(e->request_id), "%s", call->request_id);
    e->fingerprint = print;
    e->leader = call;
    e->answers = answers;
    ngd_list_init(&e->pool_link);
    ngd_list_init(&e->waiting);
    ngd_list_push_back(&answers->entries, &e->link);
    return e;
}

/* ---- a repetition ---- */

static void repeat_answer(struct ngd_call *call, const uint8_t *data, size_t n)
{
    struct ngd_diag diag = {0};

    if (!data) {
        ngd_diag_set(
            &diag, NGD_ERR_ALREADY_EXISTS,
            "the first call with this request id was served, but its answer of %zu bytes was too large to keep; "
            "do not repeat it, ask for the state of what it changed",
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
                 "request id \"%s\" belongs to an earlier call with another request; take a new id for a new request",
                 call->request_id);
    ngd_call_fail(call, NGD_ERR_INVALID_ARGUMENT, &diag);
}

enum place { LEADS, WAITS, IS_ANSWERED, IS_OTHER, NO_MEMORY };

/* *data_p: a copy of the answer, for IS_ANSWERED. */
static enum place take_place(struct ngd_answers *answers, struct ngd_call *call, uint64_t print, uint8_t **data_p,
                             size_t *n_p) NGD_REQUIRES(answers->pool->lock)
{
    struct entry *e = find(answers, call);

    if (!e)
        return add(answers, call, print) ? LEADS : NO_MEMORY;
    if (e->fingerprint != print)
        return IS_OTHER;
    if (e->leader) {
        ngd_list_push_back(&e->waiting, &call->answer_link);
        atomic_store(&call->waits, true);
        return WAITS;
    }
    *n_p = e->n;
    if (!e->data)
        return IS_ANSWERED;
    *data_p = ngd_memdup(e->data, e->n + 1); /* one more, so that an empty answer has memory too */
    return *data_p ? IS_ANSWERED : NO_MEMORY;
}

bool ngd_answers_begin(struct ngd_answers *answers, struct ngd_call *call, const void *msg, const uint8_t *bytes,
                       size_t n)
{
    uint64_t print = ngd_hash64(bytes, n, 0);
    uint8_t *data = NULL;
    size_t n_data = 0;
    enum place place;

    call->answer_msg = msg;
    ngd_mutex_lock(&answers->pool->lock);
    place = take_place(answers, call, print, &data, &n_data);
    call->leads = place == LEADS;
    ngd_mutex_unlock(&answers->pool->lock);
    if (place == IS_ANSWERED)
        repeat_answer(call, data, n_data);
    else if (place == IS_OTHER)
        refuse_reuse(call);
    else if (place == NO_MEMORY)
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
    ngd_free(data);
    return place == LEADS;
}

/* ---- the end of a leader ---- */

/* Those who wait, for who answers them. */
static void take_waiting(struct entry *e, struct ngd_list *waiting)
{
    struct ngd_list *link;

    while ((link = ngd_list_pop_front(&e->waiting)))
        ngd_list_push_back(waiting, link);
}

static struct ngd_call *pop(struct ngd_list *waiting)
{
    struct ngd_list *link = ngd_list_pop_front(waiting);

    return link ? ngd_container_of(link, struct ngd_call, answer_link) : NULL;
}

/* Of whichever session of the identity. */
static void forget(struct entry *e) NGD_NO_THREAD_SAFETY
{
    e->answers->n_kept--;
    e->answers->bytes -= e->data ? e->n : 0;
    free_entry(e);
}

/* Makes room for one more of n bytes. */
static void forget_old(struct ngd_answers *answers, size_t n) NGD_REQUIRES(answers->pool->lock)
{
    ngd_list_for_each_safe (pos, next, &answers->entries) {
        struct entry *e = ngd_container_of(pos, struct entry, link);

        if (answers->n_kept < KEPT_MAX && answers->bytes + n <= BYTES_MAX)
            return;
        if (!e->leader)
            forget(e);
    }
}

/* Makes room for n bytes in the identity's pool, as far as there is something to forget. */
static bool make_room(struct ngd_answers *answers, uint64_t n) NGD_REQUIRES(answers->pool->lock)
{
    const uint64_t limit = ngd_identity_limit(answers->identity, NGD_QUOTA_ANSWERS);
    struct ngd_list *kept = &answers->pool->kept;

    while (limit && atomic_load(&answers->identity->used[NGD_QUOTA_ANSWERS]) + n > limit) {
        if (ngd_list_empty(kept))
            return false;
        forget(ngd_container_of(kept->next, struct entry, pool_link));
    }
    return true;
}

/* The data, or that it was given at all. Out of memory counts as too large: the repetition must not be served. */
static void keep(struct ngd_answers *answers, struct entry *e, const uint8_t *data, size_t n)
    NGD_REQUIRES(answers->pool->lock)
{
    e->n = n;
    e->data = n <= ANSWER_MAX ? ngd_malloc(n + 1) : NULL;
    if (!make_room(answers, sizeof(*e) + (e->data ? n + 1 : 0))) { /* less than one of 1 MiB may be kept */
        ngd_free(e->data);
        e->data = NULL;
    }
    if (e->data)
        memcpy(e->data, data, n);
    forget_old(answers, e->data ? n : 0);
    e->charged = sizeof(*e) + (e->data ? n + 1 : 0);
    ngd_identity_hold(answers->identity, NGD_QUOTA_ANSWERS, e->charged);
    ngd_list_push_back(&answers->pool->kept, &e->pool_link);
    e->leader = NULL;
    answers->n_kept++;
    answers->bytes += e->data ? n : 0;
    ngd_list_remove(&e->link); /* in the order in which they were given */
    ngd_list_push_back(&answers->entries, &e->link);
}

void ngd_answers_succeeded(struct ngd_answers *answers, struct ngd_call *call, const uint8_t *data, size_t n)
{
    struct ngd_list waiting;
    struct ngd_call *other;
    struct entry *e;

    ngd_list_init(&waiting);
    ngd_mutex_lock(&answers->pool->lock);
    call->leads = false;
    e = find(answers, call);
    keep(answers, e, data, n);
    take_waiting(e, &waiting);
    ngd_mutex_unlock(&answers->pool->lock);
    while ((other = pop(&waiting)))
        repeat_answer(other, data, n);
}

static void serve(struct ngd_job *job)
{
    struct ngd_call *call = ngd_container_of(job, struct ngd_call, answer_job);

    if (atomic_load(&call->cancelled))
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
    else
        call->method->ops->request(call, call->answer_msg);
}

/* The first that waits leads now, on a job thread: whoever ends a leader may be in the middle of other work. */
static struct ngd_call *promote(struct entry *e)
{
    struct ngd_call *next = pop(&e->waiting);

    if (!next)
        return NULL;
    e->leader = next;
    next->leads = true;
    atomic_store(&next->waits, false);
    return next;
}

void ngd_answers_failed(struct ngd_answers *answers, struct ngd_call *call, ngd_status_t status,
                        const struct ngd_diag *diag)
{
    struct ngd_call *next = NULL, *other;
    struct ngd_list waiting;
    struct entry *e;

    ngd_list_init(&waiting);
    ngd_mutex_lock(&answers->pool->lock);
    call->leads = false;
    e = find(answers, call);
    if (atomic_load(&call->cancelled))
        next = promote(e);
    if (!next) {
        take_waiting(e, &waiting);
        free_entry(e);
    }
    ngd_mutex_unlock(&answers->pool->lock);
    if (next) {
        next->answer_job.fn = serve;
        ngd_jobs_add_for(next->daemon->jobs, &next->answer_job, next->identity->key);
    }
    while ((other = pop(&waiting)))
        ngd_call_fail(other, status, diag);
}
