/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: one request of an order is under way (waits for a capture, is queued, or runs) and holds the order. The
 * others wait here, oldest first. The order is held until the done() of its holder has returned, so that answers on
 * different threads cannot overtake each other. Each request holds a reference, so that the owner may destroy the order
 * from the last done() on.
 */
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <assert.h>

struct ngd_order {
    _Atomic uint32_t refs;
    struct ngd_mutex lock;
    bool held NGD_GUARDED_BY(lock);
    struct ngd_list waiting NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_order_create(struct ngd_order **order_p)
{
    struct ngd_order *order = NGD_NEW(struct ngd_order);

    if (!order)
        return NGD_ERR_NO_MEMORY;
    atomic_init(&order->refs, 1);
    ngd_mutex_init(&order->lock, NGD_RANK_ORDER);
    ngd_list_init(&order->waiting);
    *order_p = order;
    return NGD_OK;
}

static void order_unref(struct ngd_order *order)
{
    if (atomic_fetch_sub_explicit(&order->refs, 1, memory_order_acq_rel) != 1)
        return;
    assert(ngd_list_empty(&order->waiting));
    ngd_mutex_fini(&order->lock);
    ngd_free(order);
}

void ngd_order_destroy(struct ngd_order *order)
{
    if (order)
        order_unref(order);
}

bool ngd_order_enter(struct ngd_order *order, struct ngd_request *req)
{
    bool first;

    atomic_fetch_add_explicit(&order->refs, 1, memory_order_relaxed);
    ngd_mutex_lock(&order->lock);
    first = !order->held;
    order->held = true;
    if (!first) {
        atomic_store_explicit(&req->state, NGD_REQUEST_ORDERED, memory_order_relaxed);
        ngd_expiry_watch(&req->queue->sched->expiry, req);
        ngd_list_push_back(&order->waiting, &req->order_link);
    }
    ngd_mutex_unlock(&order->lock);
    return first;
}

bool ngd_order_remove(struct ngd_order *order, struct ngd_request *req)
{
    bool waited;

    ngd_mutex_lock(&order->lock);
    waited = !ngd_list_empty(&req->order_link);
    ngd_list_remove(&req->order_link);
    ngd_mutex_unlock(&order->lock);
    /* This is not the last reference: the holder has one until ngd_order_leave. */
    if (waited)
        order_unref(order);
    return waited;
}

struct ngd_request *ngd_order_leave(struct ngd_order *order)
{
    struct ngd_list *l;
    struct ngd_request *next = NULL;

    ngd_mutex_lock(&order->lock);
    l = ngd_list_pop_front(&order->waiting);
    if (l) {
        next = ngd_container_of(l, struct ngd_request, order_link);
        atomic_store_explicit(&next->state, NGD_REQUEST_MOVING, memory_order_relaxed);
    } else {
        order->held = false;
    }
    ngd_mutex_unlock(&order->lock);
    order_unref(order);
    return next;
}
