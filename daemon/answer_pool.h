/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ANSWER_POOL_H
#define NGD_DAEMON_ANSWER_POOL_H

/*
 * Lists the answers that all sessions of one identity keep (answers.h). Its lock guards the answer tables of these
 * sessions too. Memory: part of the identity, which is below the tables and knows nothing else of them.
 */
#include "base/list.h"
#include "base/lock.h"

struct ngd_answer_pool {
    struct ngd_mutex lock;                     /* rank ANSWERS */
    struct ngd_list kept NGD_GUARDED_BY(lock); /* answers of all tables, oldest first */
};

/* Called while no other thread has the pool, like fini. */
static inline void ngd_answer_pool_init(struct ngd_answer_pool *pool) NGD_NO_THREAD_SAFETY
{
    ngd_mutex_init(&pool->lock, NGD_RANK_ANSWERS);
    ngd_list_init(&pool->kept);
}

static inline void ngd_answer_pool_fini(struct ngd_answer_pool *pool)
{
    ngd_mutex_fini(&pool->lock);
}

#endif
