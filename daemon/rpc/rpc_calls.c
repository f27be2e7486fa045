/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_calls.h"

#include "base/metrics.h"

#define POOL_MAX 256

/* No other thread has `calls` yet. */
void rpc_calls_init(struct rpc_calls *calls, struct ngd_daemon *d) NGD_NO_THREAD_SAFETY
{
    calls->daemon = d;
    ngd_mutex_init(&calls->lock, NGD_RANK_CALLS);
    ngd_list_init(&calls->streams);
}

void rpc_calls_fini(struct rpc_calls *calls)
{
    ngd_mutex_fini(&calls->lock);
}

bool rpc_calls_enter(struct rpc_calls *calls, uint64_t max)
{
    if (atomic_fetch_add_explicit(&calls->inflight, 1, memory_order_relaxed) >= max) {
        atomic_fetch_sub_explicit(&calls->inflight, 1, memory_order_relaxed);
        return false;
    }
    ngd_metric_inc(NGD_M_RPCS_IN_FLIGHT);
    return true;
}

void rpc_calls_leave(struct rpc_calls *calls)
{
    atomic_fetch_sub_explicit(&calls->inflight, 1, memory_order_relaxed);
    ngd_metric_dec(NGD_M_RPCS_IN_FLIGHT);
}

void rpc_calls_count_busy(struct rpc_calls *calls, int delta)
{
    atomic_fetch_add_explicit(&calls->busy, (uint32_t)delta, memory_order_relaxed);
}

void rpc_calls_opened(struct rpc_calls *calls, struct rpc_member *stream)
{
    ngd_mutex_lock(&calls->lock);
    ngd_list_push_back(&calls->streams, &stream->open_link);
    ngd_mutex_unlock(&calls->lock);
}

void rpc_calls_closed(struct rpc_calls *calls, struct rpc_member *stream)
{
    ngd_mutex_lock(&calls->lock);
    ngd_list_remove(&stream->open_link);
    ngd_mutex_unlock(&calls->lock);
}

/* Searches from the beginning each time, because the list changes while streams end. */
struct rpc_member *rpc_calls_next_stream(struct rpc_calls *calls)
{
    struct rpc_member *found = NULL;

    ngd_mutex_lock(&calls->lock);
    ngd_list_for_each (pos, &calls->streams) {
        struct rpc_member *stream = ngd_container_of(pos, struct rpc_member, open_link);

        if (!stream->end_asked) {
            stream->end_asked = true;
            atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
            found = stream;
            break;
        }
    }
    ngd_mutex_unlock(&calls->lock);
    return found;
}

struct rpc_member *rpc_calls_take(struct rpc_calls *calls)
{
    struct rpc_member *member;

    ngd_mutex_lock(&calls->lock);
    member = calls->pool;
    if (member) {
        calls->pool = member->next_free;
        calls->n_pool--;
    }
    ngd_mutex_unlock(&calls->lock);
    return member;
}

bool rpc_calls_keep(struct rpc_calls *calls, struct rpc_member *member)
{
    bool keep;

    ngd_mutex_lock(&calls->lock);
    keep = calls->n_pool < POOL_MAX;
    if (keep) {
        member->next_free = calls->pool;
        calls->pool = member;
        calls->n_pool++;
    }
    ngd_mutex_unlock(&calls->lock);
    return keep;
}
