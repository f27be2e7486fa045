/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs whose device has failed. A graph that keeps nothing on its device, neither params nor states, is the same
 * anywhere: it continues on another device in service, and is captured there at its next replay. A graph with buffers
 * stays where they are: its replays try the device again, and are answered with its error until it recovers.
 */
#include "scheduler/program/group.h"
#include "scheduler/program/program_int.h"

bool ngd_binding_is_stranded(const struct ngd_binding *binding)
{
    return !atomic_load_explicit(&binding->prog->queue->healthy, memory_order_relaxed);
}

/* Finds the device in service that has the fewest requests waiting; NULL: none is in service. */
static struct ngd_queue *find_refuge(struct ngd_sched *sched)
{
    struct ngd_queue *best = NULL;

    for (uint32_t i = 0; i < sched->n_queues; i++) {
        struct ngd_queue *queue = &sched->queues[i];

        if (!atomic_load_explicit(&queue->healthy, memory_order_relaxed))
            continue;
        if (!best || atomic_load_explicit(&queue->waiting, memory_order_relaxed) <
                         atomic_load_explicit(&best->waiting, memory_order_relaxed))
            best = queue;
    }
    return best;
}

struct ngd_binding *ngd_binding_move(const struct ngd_binding *binding)
{
    struct ngd_program *prog = binding->prog, *there;
    const struct ngd_owner owner = ngd_program_owner_of(prog);
    struct ngd_buffer *none = NULL;
    struct ngd_binding *moved = NULL;
    struct ngd_queue *queue;
    struct ngd_diag diag = {0};

    if (prog->graph->n_params + prog->graph->n_states > 0 || prog->group)
        return NULL;
    queue = find_refuge(prog->sched);
    if (!queue || ngd_program_open_in(prog->sched, queue->dev, prog->graph, &prog->options, prog->patterns, NULL,
                                      &owner, &there, NULL, &diag))
        return NULL;
    if (ngd_binding_create(there, &none, &moved, &diag) == NGD_OK)
        ngd_program_note(there, NGD_EVENT_MOVED, NULL, 0, "device %s does not serve: the graph moved to %s",
                         prog->queue->dev_name, queue->dev_name);
    ngd_program_unref(there);
    return moved;
}
