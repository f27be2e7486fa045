/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ANSWERS_H
#define NGD_DAEMON_ANSWERS_H

/*
 * Idempotence: what was answered under which request id, and who waits for an answer that is being made.
 *
 * Why: a client that has lost an answer repeats its call, and the repetition must not make a second object, whether the
 * first call is over or still under way.
 * Who asks under a request id either leads (it is served, and gives its end here) or repeats: of what is over, it gets
 * the kept answer; of what is under way, it waits and gets the same end. A leader whose own client went away before it
 * succeeded is replaced by the first that waits, so that a repetition after a broken connection is not refused because
 * the first attempt was cancelled.
 * Only successes are kept: what was refused may be tried again under the same id.
 * This is the table; calls are answered by who uses it (rpc/repeat.h), never under its lock.
 *
 * Threads: any. Memory: one table per session. Bounds: the last 64 answers of a session, of at most 1 MiB each and 4
 * MiB together; of larger ones is only kept that they were given. All sessions of an identity together keep
 * max-answer-bytes-per-identity: for more, the oldest of them are forgotten. Those that wait are bounded by
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

/* One that asks; in its owner's memory, which lasts until it has its answer. */
struct ngd_asker {
    const void *method;     /* which one, by its address */
    const char *request_id; /* at most NGD_REQUEST_ID_MAX bytes */
    struct ngd_list link;   /* of those that wait */
    bool waits;             /* in the table; the table's lock */
};

typedef enum ngd_answer_place {
    NGD_ANSWER_LEADS,     /* owes succeeded or failed */
    NGD_ANSWER_WAITS,     /* whoever ends the leader gets it, perhaps before begin has returned: hands off */
    NGD_ANSWER_GIVEN,     /* here is the answer */
    NGD_ANSWER_REUSED,    /* the id belongs to another request */
    NGD_ANSWER_NO_MEMORY, /* nothing has changed */
} ngd_answer_place_t;

/* Of one session of the identity, which outlives it. */
ngd_status_t ngd_answers_create(struct ngd_identity *identity, struct ngd_answers **answers_p);
void ngd_answers_destroy(struct ngd_answers *answers); /* nobody asks any more; NULL is fine */

/*
 * fingerprint: of the request's bytes; it tells two requests apart that were given one id by mistake.
 * GIVEN: *n_p bytes, and in *data_p a copy, which is the caller's; NULL if they were too many to keep.
 */
ngd_answer_place_t ngd_answers_begin(struct ngd_answers *answers, struct ngd_asker *asker, uint64_t fingerprint,
                                     uint8_t **data_p, size_t *n_p);
/* One that waits needs no answer any more. False: it does not wait, or who ended the leader has it already. */
bool ngd_answers_leave(struct ngd_answers *answers, struct ngd_asker *asker);
/* The leader succeeded with these bytes. Moves those that waited to `waiting`: the caller answers them. */
void ngd_answers_succeeded(struct ngd_answers *answers, const struct ngd_asker *leader, const uint8_t *data, size_t n,
                           struct ngd_list *waiting);
/*
 * The leader failed. pass_on: its own client is gone, so the first that waits leads now, and is returned. NULL: nobody
 * does, and those that waited are moved to `waiting`.
 */
struct ngd_asker *ngd_answers_failed(struct ngd_answers *answers, const struct ngd_asker *leader, bool pass_on,
                                     struct ngd_list *waiting);

static inline struct ngd_asker *ngd_asker_pop(struct ngd_list *waiting) /* NULL: none is left */
{
    struct ngd_list *link = ngd_list_pop_front(waiting);

    return link ? ngd_container_of(link, struct ngd_asker, link) : NULL;
}

#endif
