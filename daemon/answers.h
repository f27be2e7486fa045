/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ANSWERS_H
#define NGD_DAEMON_ANSWERS_H

/*
 * Idempotence: keeps what was answered under which request id, and who waits for an answer that is being made.
 *
 * Why: a client that has lost an answer repeats its call. The repetition must not make a second object, whether the
 * first call is over or still under way.
 *
 * A call with a request id is an asker. The first asker of an id leads: it is served, and reports its end here. Later
 * ones repeat: if the leader is over, they get the kept answer; if it is under way, they wait and get the same end. If
 * the leader's client goes away before the leader succeeds, the first waiting asker leads in its place. So a repetition
 * after a broken connection does not fail because the first attempt was cancelled. Only successes are kept: after a
 * failure the same id may be tried again.
 *
 * This is only the table: its users answer the calls (rpc/repeat.h), and never under its lock.
 *
 * Threads: any. Memory: one table per session. Bounds: a session keeps its last 64 answers, of at most 1 MiB each and 4
 * MiB together; of a larger answer it keeps only the fact that it was given. All sessions of an identity together keep
 * max-answer-bytes-per-identity, and forget the oldest answers beyond that. Waiting askers are bounded by
 * max-calls-per-identity and max-inflight.
 */
#include "base/list.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_REQUEST_ID_MAX 64

struct ngd_answers;
struct ngd_identity;

/* One asker. Memory: its owner's, which keeps it until it has its answer. */
struct ngd_asker {
    const void *method;     /* identified by its address */
    const char *request_id; /* at most NGD_REQUEST_ID_MAX bytes */
    struct ngd_list link;   /* in the list of waiting askers */
    bool waits;             /* it is in that list; guarded by the table's lock */
};

typedef enum ngd_answer_place {
    NGD_ANSWER_LEADS,     /* must call succeeded or failed */
    NGD_ANSWER_WAITS,     /* the end of the leader takes it, perhaps before begin returns: do not touch it */
    NGD_ANSWER_GIVEN,     /* answered before: the answer is returned */
    NGD_ANSWER_REUSED,    /* the id belongs to another request */
    NGD_ANSWER_NO_MEMORY, /* the table has not changed */
} ngd_answer_place_t;

/* Makes the table of one session. The identity must outlive it. */
ngd_status_t ngd_answers_create(struct ngd_identity *identity, struct ngd_answers **answers_p);
void ngd_answers_destroy(struct ngd_answers *answers); /* no call may use it any more; NULL is fine */

/*
 * Looks up or adds the asker. fingerprint: a hash of the request's bytes, which tells apart two requests that were
 * given one id by mistake. For GIVEN, *n_p is the answer's length and *data_p a copy, which the caller owns; it is NULL
 * if the answer was too large to keep.
 */
ngd_answer_place_t ngd_answers_begin(struct ngd_answers *answers, struct ngd_asker *asker, uint64_t fingerprint,
                                     uint8_t **data_p, size_t *n_p);
/* Removes a waiting asker that needs no answer any more. False: it does not wait, or the end of the leader has taken
 * it. */
bool ngd_answers_leave(struct ngd_answers *answers, struct ngd_asker *asker);
/* Keeps the leader's answer. Moves the waiting askers to `waiting`; the caller answers them. */
void ngd_answers_succeeded(struct ngd_answers *answers, const struct ngd_asker *leader, const uint8_t *data, size_t n,
                           struct ngd_list *waiting);
/*
 * Reports that the leader failed. pass_on: the leader's own client is gone. The first waiting asker then leads and is
 * returned. Otherwise, or if no asker waits, returns NULL and moves the waiting askers to `waiting`.
 */
struct ngd_asker *ngd_answers_failed(struct ngd_answers *answers, const struct ngd_asker *leader, bool pass_on,
                                     struct ngd_list *waiting);

/* An answer that is kept, for another process. data is NULL if it was too large to keep. */
struct ngd_answer_kept {
    const void *method;
    const char *request_id;
    uint64_t fingerprint;
    const uint8_t *data;
    size_t n;
};
/* Calls fn for each, oldest first, under the table's lock: fn must be short. */
void ngd_answers_for_each(struct ngd_answers *answers, void (*fn)(void *ctx, const struct ngd_answer_kept *kept),
                          void *ctx);
/* Keeps a copy of an answer that another process gave. The table has none with its id. */
ngd_status_t ngd_answers_restore(struct ngd_answers *answers, const struct ngd_answer_kept *kept);

static inline struct ngd_asker *ngd_asker_pop(struct ngd_list *waiting) /* NULL if it is empty */
{
    struct ngd_list *link = ngd_list_pop_front(waiting);

    return link ? ngd_container_of(link, struct ngd_asker, link) : NULL;
}

#endif
