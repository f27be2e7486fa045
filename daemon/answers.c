/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per (method, request id). It is UNDER WAY, with its waiting askers, or GIVEN, with the answer. No call is
 * answered under the lock: when an entry ends, its waiting askers are moved to the caller's list.
 */
#include "daemon/answers.h"

#include "base/mem.h"
#include "daemon/answer_pool.h"
#include "daemon/identity.h"
#include <stdio.h>
#include <string.h>

#define KEPT_MAX   64
#define ANSWER_MAX (1u << 20)
#define BYTES_MAX  (4u << 20)

struct entry {
    struct ngd_list link;      /* answers->entries, oldest first */
    struct ngd_list pool_link; /* only given entries: in the identity's pool */
    struct ngd_answers *answers;
    const void *method;
    char request_id[NGD_REQUEST_ID_MAX + 1];
    uint64_t fingerprint;    /* of the request */
    bool given;              /* otherwise it is under way */
    struct ngd_list waiting; /* struct ngd_asker */
    uint8_t *data;           /* NULL: larger than ANSWER_MAX */
    size_t n;
    uint64_t charged;
};

struct ngd_answers {
    struct ngd_identity *identity;
    struct ngd_answer_pool *pool; /* the identity's; its lock guards this table */
    struct ngd_list entries NGD_GUARDED_BY(pool->lock);
    uint32_t n_kept NGD_GUARDED_BY(pool->lock);
    size_t bytes NGD_GUARDED_BY(pool->lock);
};

/* No other thread has the table yet. */
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

/* Frees an entry. The caller holds the pool's lock. */
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

static struct entry *find_answer(struct ngd_answers *answers, const struct ngd_asker *asker)
    NGD_REQUIRES(answers->pool->lock)
{
    ngd_list_for_each (pos, &answers->entries) {
        struct entry *e = ngd_container_of(pos, struct entry, link);

        if (e->method == asker->method && strcmp(e->request_id, asker->request_id) == 0)
            return e;
    }
    return NULL;
}

static struct entry *add_answer(struct ngd_answers *answers, const struct ngd_asker *asker, uint64_t print)
    NGD_REQUIRES(answers->pool->lock)
{
    struct entry *e = NGD_NEW(struct entry);

    if (!e)
        return NULL;
    e->method = asker->method;
    snprintf(e->request_id, sizeof(e->request_id), "%s", asker->request_id);
    e->fingerprint = print;
    e->answers = answers;
    ngd_list_init(&e->pool_link);
    ngd_list_init(&e->waiting);
    ngd_list_push_back(&answers->entries, &e->link);
    return e;
}

ngd_answer_place_t ngd_answers_begin(struct ngd_answers *answers, struct ngd_asker *asker, uint64_t print,
                                     uint8_t **data_p, size_t *n_p)
{
    ngd_answer_place_t place = NGD_ANSWER_GIVEN;
    struct entry *e;

    *data_p = NULL;
    *n_p = 0;
    ngd_mutex_lock(&answers->pool->lock);
    e = find_answer(answers, asker);
    if (!e) {
        place = add_answer(answers, asker, print) ? NGD_ANSWER_LEADS : NGD_ANSWER_NO_MEMORY;
    } else if (e->fingerprint != print) {
        place = NGD_ANSWER_REUSED;
    } else if (!e->given) {
        ngd_list_push_back(&e->waiting, &asker->link);
        asker->waits = true;
        place = NGD_ANSWER_WAITS;
    } else if (e->data) {
        *data_p = ngd_memdup(e->data, e->n + 1); /* one byte more, so that an empty answer has memory too */
        place = *data_p ? NGD_ANSWER_GIVEN : NGD_ANSWER_NO_MEMORY;
    }
    if (place == NGD_ANSWER_GIVEN)
        *n_p = e->n;
    ngd_mutex_unlock(&answers->pool->lock);
    return place;
}

bool ngd_answers_leave(struct ngd_answers *answers, struct ngd_asker *asker)
{
    bool waited;

    ngd_mutex_lock(&answers->pool->lock);
    waited = asker->waits;
    if (waited)
        ngd_list_remove(&asker->link);
    asker->waits = false;
    ngd_mutex_unlock(&answers->pool->lock);
    return waited;
}

/* ---- the end of a leader ---- */

/* Takes the first waiting asker; NULL: none waits. The caller holds the pool's lock. */
static struct ngd_asker *take_first(struct entry *e)
{
    struct ngd_asker *asker = ngd_asker_pop(&e->waiting);

    if (asker)
        asker->waits = false;
    return asker;
}

static void take_waiting(struct entry *e, struct ngd_list *waiting)
{
    struct ngd_asker *asker;

    while ((asker = take_first(e)))
        ngd_list_push_back(waiting, &asker->link);
}

/* Forgets an answer, of any session of the identity. The caller holds the pool's lock. */
static void forget_answer(struct entry *e) NGD_NO_THREAD_SAFETY
{
    e->answers->n_kept--;
    e->answers->bytes -= e->data ? e->n : 0;
    free_entry(e);
}

/* Makes room in the session's table for one more answer of n bytes. */
static void forget_old(struct ngd_answers *answers, size_t n) NGD_REQUIRES(answers->pool->lock)
{
    ngd_list_for_each_safe (pos, next, &answers->entries) {
        struct entry *e = ngd_container_of(pos, struct entry, link);

        if (answers->n_kept < KEPT_MAX && answers->bytes + n <= BYTES_MAX)
            return;
        if (e->given)
            forget_answer(e);
    }
}

/* Makes room for n bytes in the identity's pool, by forgetting its oldest answers. False: there is not enough to
 * forget. */
static bool make_answer_room(struct ngd_answers *answers, uint64_t n) NGD_REQUIRES(answers->pool->lock)
{
    const uint64_t limit = ngd_identity_limit(answers->identity, NGD_QUOTA_ANSWERS);
    struct ngd_list *kept = &answers->pool->kept;

    while (limit && atomic_load(&answers->identity->used[NGD_QUOTA_ANSWERS]) + n > limit) {
        if (ngd_list_empty(kept))
            return false;
        forget_answer(ngd_container_of(kept->next, struct entry, pool_link));
    }
    return true;
}

/* Keeps the answer, or only the fact that it was given. Out of memory counts as too large: the repetition must not be
 * served. */
static void keep(struct ngd_answers *answers, struct entry *e, const uint8_t *data, size_t n)
    NGD_REQUIRES(answers->pool->lock)
{
    e->n = n;
    e->data = n <= ANSWER_MAX ? ngd_malloc(n + 1) : NULL;
    if (!make_answer_room(answers,
                          sizeof(*e) + (e->data ? n + 1 : 0))) { /* the identity's limit is below one answer of 1 MiB */
        ngd_free(e->data);
        e->data = NULL;
    }
    if (e->data)
        memcpy(e->data, data, n);
    forget_old(answers, e->data ? n : 0);
    e->charged = sizeof(*e) + (e->data ? n + 1 : 0);
    ngd_identity_hold(answers->identity, NGD_QUOTA_ANSWERS, e->charged);
    ngd_list_push_back(&answers->pool->kept, &e->pool_link);
    e->given = true;
    answers->n_kept++;
    answers->bytes += e->data ? n : 0;
    ngd_list_remove(&e->link); /* keeps the list in the order of the answers */
    ngd_list_push_back(&answers->entries, &e->link);
}

void ngd_answers_succeeded(struct ngd_answers *answers, const struct ngd_asker *leader, const uint8_t *data, size_t n,
                           struct ngd_list *waiting)
{
    struct entry *e;

    ngd_mutex_lock(&answers->pool->lock);
    e = find_answer(answers, leader);
    keep(answers, e, data, n);
    take_waiting(e, waiting);
    ngd_mutex_unlock(&answers->pool->lock);
}

struct ngd_asker *ngd_answers_failed(struct ngd_answers *answers, const struct ngd_asker *leader, bool pass_on,
                                     struct ngd_list *waiting)
{
    struct ngd_asker *next = NULL;
    struct entry *e;

    ngd_mutex_lock(&answers->pool->lock);
    e = find_answer(answers, leader);
    if (pass_on)
        next = take_first(e);
    if (!next) {
        take_waiting(e, waiting);
        free_entry(e);
    }
    ngd_mutex_unlock(&answers->pool->lock);
    return next;
}

/* ---- answers of another process ---- */

void ngd_answers_for_each(struct ngd_answers *answers, void (*fn)(void *ctx, const struct ngd_answer_kept *kept),
                          void *ctx)
{
    ngd_mutex_lock(&answers->pool->lock);
    ngd_list_for_each (pos, &answers->entries) {
        const struct entry *e = ngd_container_of(pos, struct entry, link);
        const struct ngd_answer_kept kept = {.method = e->method,
                                             .request_id = e->request_id,
                                             .fingerprint = e->fingerprint,
                                             .data = e->data,
                                             .n = e->n};

        if (e->given)
            fn(ctx, &kept);
    }
    ngd_mutex_unlock(&answers->pool->lock);
}

ngd_status_t ngd_answers_restore(struct ngd_answers *answers, const struct ngd_answer_kept *kept)
{
    const struct ngd_asker asker = {.method = kept->method, .request_id = kept->request_id};
    ngd_status_t status = NGD_ERR_ALREADY_EXISTS;
    struct entry *e = NULL;

    ngd_mutex_lock(&answers->pool->lock);
    if (!find_answer(answers, &asker)) {
        e = add_answer(answers, &asker, kept->fingerprint);
        status = e ? NGD_OK : NGD_ERR_NO_MEMORY;
    }
    if (e) /* an answer that was not kept is as one that is too large */
        keep(answers, e, kept->data, kept->data ? kept->n : (size_t)ANSWER_MAX + 1);
    ngd_mutex_unlock(&answers->pool->lock);
    return status;
}
