/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_SHARED_H
#define NPUGRAPH_CLIENT_SHARED_H

/*
 * The shared buffers of a client, found by addresses of their memory. Threads: any. It knows nothing of the client.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct npugraph__shared_item;

struct npugraph__shared {
    pthread_mutex_t lock;
    struct npugraph__shared_item *items; /* by `lock` */
    _Atomic size_t n;
};

/* A place in a shared buffer. */
struct npugraph__shared_at {
    uint64_t buffer, offset;
};

void npugraph__shared_init(struct npugraph__shared *all);
void npugraph__shared_fini(struct npugraph__shared *all); /* leaves the memory mapped: it is the caller's to free */
static inline bool npugraph__shared_is_empty(const struct npugraph__shared *all)
{
    return atomic_load_explicit(&all->n, memory_order_acquire) == 0;
}
/* True if all the bytes are in one shared buffer. */
bool npugraph__shared_find(struct npugraph__shared *all, const void *data, uint64_t bytes,
                           struct npugraph__shared_at *at_p);
/* Forgets a buffer that is being freed. Its memory stays mapped. */
void npugraph__shared_forget(struct npugraph__shared *all, uint64_t buffer);

#endif
