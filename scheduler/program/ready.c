/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A binding enters its program's list before it looks for executables that were captured ahead. An executable is marked
 * as captured ahead before the bindings are looked through. So whichever comes second finds the other. If both do, the
 * second item finds the instance made.
 *
 * A waiting item holds neither: the executable may be evicted, and the binding may go with its session, whose buffers
 * are then free. In its turn the item checks whether both still exist.
 */
#include "scheduler/program/ready.h"
#include "base/mem.h"

struct ready {
    struct ngd_sched_item item;
    struct ngd_program *prog;          /* a reference */
    const struct ngd_binding *binding; /* identifies the binding; not a reference, and perhaps gone */
    struct ngd_key key;
};

static void ready_abort(struct ngd_sched_item *item)
{
    struct ready *ready = ngd_container_of(item, struct ready, item);

    ngd_program_unref(ready->prog);
    ngd_free(ready);
}

static bool binding_is_complete(const struct ngd_binding *binding)
{
    return binding->missing == binding->n && !binding->ranks;
}

/*
 * Lists up to n complete bindings of the program, with references. only: none but this one, or one at the same address
 * if it is gone; NULL: any.
 */
static uint32_t list_bindings(struct ngd_program *prog, const struct ngd_binding *only, struct ngd_binding **bindings,
                              uint32_t n)
{
    uint32_t found = 0;

    ngd_mutex_lock(&prog->lock);
    ngd_list_for_each (l, &prog->bindings) {
        struct ngd_binding *binding = ngd_container_of(l, struct ngd_binding, link);

        if (found < n && (!only || only == binding) && binding_is_complete(binding) && ngd_binding_try_ref(binding))
            bindings[found++] = binding;
    }
    ngd_mutex_unlock(&prog->lock);
    return found;
}

static void ready_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    struct ready *ready = ngd_container_of(item, struct ready, item);
    struct ngd_binding *binding = NULL;
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_instance *inst;

    if (list_bindings(ready->prog, ready->binding, &binding, 1))
        entry = ngd_gcache_peek(ready->prog->cache, &ready->key);
    if (entry)
        (void)ngd_binding_instance(binding, slot, ngd_entry_executable(entry), &inst, NULL);
    ngd_gcache_put(entry);
    ngd_binding_unref(binding);
    ready_abort(item);
}

static const struct ngd_sched_item_ops ready_ops = {.run = ready_run, .abort = ready_abort};

static void ready_push(struct ngd_binding *binding, const struct ngd_key *key)
{
    struct ngd_queue *queue = binding->prog->queue;
    struct ready *ready = NGD_NEW(struct ready);

    if (!ready)
        return;
    ngd_sched_item_init(&ready->item, &ready_ops);
    ready->item.arrival = ngd_now();
    ready->item.priority = NGD_PRIORITY_LOW;
    ready->item.account = &queue->sched->own_share->accounts[queue->index];
    ready->prog = ngd_program_ref(binding->prog);
    ready->binding = binding;
    ready->key = *key;
    if (ngd_queue_push(queue, &ready->item, NULL))
        ready_abort(&ready->item);
}

/* ---- a binding ---- */

struct keys {
    uint32_t n;
    struct ngd_key keys[NGD_READY_MAX];
};

static void add_ready_key(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    const struct ngd_executable *x = art;
    struct keys *k = ctx;

    (void)uses;
    if (k->n < NGD_READY_MAX && atomic_load(&x->ahead) && atomic_load_explicit(&x->runs, memory_order_relaxed) == 0)
        k->keys[k->n++] = *key;
}

void ngd_ready_binding(struct ngd_binding *binding)
{
    struct ngd_program *prog = binding->prog;
    struct keys *k;

    if (!atomic_load(&prog->ahead) || !binding_is_complete(binding) || !(k = NGD_NEW(struct keys)))
        return;
    ngd_gcache_for_each(prog->cache, add_ready_key, k);
    for (uint32_t i = 0; i < k->n; i++)
        ready_push(binding, &k->keys[i]);
    ngd_free(k);
}

/* ---- an executable ---- */

void ngd_ready_executable(struct ngd_gcache_entry *entry)
{
    struct ngd_executable *x = ngd_entry_executable(entry);
    struct ngd_binding *bindings[NGD_READY_MAX];
    uint32_t n;

    atomic_store(&x->ahead, true);
    atomic_store(&x->prog->ahead, true);
    n = list_bindings(x->prog, NULL, bindings, NGD_READY_MAX);
    while (n > 0) {
        ready_push(bindings[--n], ngd_gcache_entry_key(entry));
        ngd_binding_unref(bindings[n]);
    }
}
