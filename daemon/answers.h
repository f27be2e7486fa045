/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ANSWERS_H
#define NGD_DAEMON_ANSWERS_H

/*
 * Idempotence: what was answered under which request id, and who waits for an answer that is being made.
 *
 * Why: a client that has lost an answer repeats its call, and the repetition must not make a second object, whether the
 * first call is over or still under way.
 * A call whose method says `once` and that carries a request id either leads (it is served, and gives its end here) or
 * is a repetition: of a call that is over, it gets the kept answer; of one under way, it waits and gets the same end.
 * A leader whose own client went away before it succeeded is replaced by the first that waits, so that a repetition
 * after a broken connection is not refused because the first attempt was cancelled.
 * Only successes are kept: what was refused may be tried again under the same id.
 *
 * Threads: any. Memory: one table per session. Bounds: the last 64 answers of a session, of at most 1 MiB each and 4
 * MiB together; of larger ones is only kept that they were given. All sessions of an identity together keep
 * max-answer-bytes-per-identity: for more, the oldest of them are forgotten. Waiting calls are bounded by max-inflight.
 */
#include "base/list.h"
#include "base/lock.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_answers;
struct ngd_call;
struct ngd_identity;

/* Of an identity: its lock is that of the tables of all its sessions. */
struct ngd_answer_pool {
    struct ngd_mutex lock;                     /* rank ANSWERS */
    struct ngd_list kept NGD_GUARDED_BY(lock); /* of all tables, in the order in which they were given */
};

void ngd_answer_pool_init(struct ngd_answer_pool *pool);

/* Of one session of the identity, which outlives it. */
ngd_status_t ngd_answers_create(struct ngd_identity *identity, struct ngd_answers **answers_p);
void ngd_answers_destroy(struct ngd_answers *answers); /* no call is under way any more; NULL is fine */

/*
 * A call with request id `call->request_id` arrived, before its handler sees it. True: it leads, and the handler goes
 * on. False: it was, or will be, answered here. msg: what the handler would get. The bytes tell two requests apart that
 * were given one id by mistake.
 */
bool ngd_answers_begin(struct ngd_answers *answers, struct ngd_call *call, const void *msg, const uint8_t *bytes,
                       size_t n);
/* The leader's end: it succeeded with this encoded message, or failed. Answers those who wait. */
void ngd_answers_succeeded(struct ngd_answers *answers, struct ngd_call *call, const uint8_t *data, size_t n);
void ngd_answers_failed(struct ngd_answers *answers, struct ngd_call *call, ngd_status_t status,
                        const struct ngd_diag *diag);

#endif
