/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs and the streams they take.
 *
 * A device has some thousand streams for all processes; each graph takes one or more as long as it is captured. CANN
 * tells how many are free (from 8.2 on), before that those of this process are counted against the chip's documented
 * total. Giving a graph up is invisible but for time: its instance is captured again at its next launch.
 */
#include "base/log.h"
#include "devices/ascend/ascend.h"

uint32_t ngd_ascend_streams_free(struct ascend_device *dev)
{
    uint32_t n = 0;

    if (dev->acl->aclrtGetStreamAvailableNum && dev->acl->aclrtGetStreamAvailableNum(&n) == 0)
        return n;
    ngd_mutex_lock(&dev->lock);
    n = dev->streams_used < dev->streams_total ? dev->streams_total - dev->streams_used : 0;
    ngd_mutex_unlock(&dev->lock);
    return n;
}

void ngd_ascend_count_streams(struct ascend_device *dev, int n)
{
    ngd_mutex_lock(&dev->lock);
    dev->streams_used += (uint32_t)n;
    ngd_mutex_unlock(&dev->lock);
}

void ngd_ascend_count_events(struct ascend_device *dev, int n)
{
    ngd_mutex_lock(&dev->lock);
    dev->events_used += (uint32_t)n;
    ngd_mutex_unlock(&dev->lock);
}

bool ngd_ascend_get_graph(struct ascend_inst *inst, const struct ascend_stream *s)
{
    struct ascend_device *dev = inst->exec->dev;
    bool has;

    ngd_mutex_lock(&dev->lock);
    has = inst->graph.model && inst->owner == s;
    if (has) {
        inst->busy = true;
        ngd_list_remove(&inst->lru);
        ngd_list_push_back(&dev->captured, &inst->lru);
    }
    ngd_mutex_unlock(&dev->lock);
    return has;
}

void ngd_ascend_put_graph(struct ascend_inst *inst)
{
    struct ascend_device *dev = inst->exec->dev;

    ngd_mutex_lock(&dev->lock);
    inst->busy = false;
    ngd_mutex_unlock(&dev->lock);
}

void ngd_ascend_set_graph(struct ascend_inst *inst, struct ascend_stream *s, const struct ascend_captured *captured)
{
    struct ascend_device *dev = inst->exec->dev;

    ngd_mutex_lock(&dev->lock);
    inst->owner = s;
    inst->graph = *captured;
    inst->busy = true;
    dev->streams_used += captured->cost;
    ngd_list_push_back(&dev->captured, &inst->lru);
    ngd_list_push_back(&s->captured, &inst->of_stream);
    ngd_mutex_unlock(&dev->lock);
}

/* Takes the graph out of the lists. */
static struct ascend_captured unlink_graph(struct ascend_device *dev, struct ascend_inst *inst, void **context_p)
    NGD_REQUIRES(dev->lock)
{
    struct ascend_captured graph = inst->graph;

    *context_p = inst->owner->context;
    dev->streams_used -= graph.cost;
    ngd_list_remove(&inst->lru);
    ngd_list_remove(&inst->of_stream);
    inst->graph = (struct ascend_captured){0};
    inst->owner = NULL;
    return graph;
}

void ngd_ascend_drop_marks(struct ascend_device *dev, void **marks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dev->acl->aclrtDestroyEvent(marks[i]);
    ngd_ascend_count_events(dev, -(int)n);
    ngd_free(marks);
}

static void destroy_graph(struct ascend_device *dev, const struct ascend_captured *graph, void *context)
{
    ngd_acl_error_t code = 0;

    /* In the context that it was captured in: elsewhere CANN answers success and does nothing. */
    if (ngd_ascend_enter_to_release(dev, context))
        code = dev->acl->aclmdlRIDestroy(graph->model);
    if (code)
        ngd_warning("devices", "device %s: a graph could not be destroyed (CANN answers %d), ignoring", dev->name,
                    (int)code);
    ngd_ascend_drop_marks(dev, graph->marks, graph->n_marks);
    ngd_free(graph->task_groups);
}

bool ngd_ascend_give_up_one(struct ascend_device *dev)
{
    struct ascend_captured graph = {0};
    void *context = NULL;

    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->captured) {
        struct ascend_inst *inst = ngd_container_of(pos, struct ascend_inst, lru);

        if (!inst->busy) {
            graph = unlink_graph(dev, inst, &context);
            break;
        }
    }
    ngd_mutex_unlock(&dev->lock);
    if (!graph.model)
        return false;
    destroy_graph(dev, &graph, context);
    atomic_fetch_add(&dev->given_up, 1);
    return true;
}

void ngd_ascend_drop_graph(struct ascend_inst *inst)
{
    struct ascend_device *dev = inst->exec->dev;
    struct ascend_captured graph = {0};
    void *context = NULL;

    ngd_mutex_lock(&dev->lock);
    if (inst->graph.model)
        graph = unlink_graph(dev, inst, &context);
    ngd_mutex_unlock(&dev->lock);
    if (graph.model)
        destroy_graph(dev, &graph, context);
}

void ngd_ascend_drop_graphs(struct ascend_stream *s)
{
    for (;;) {
        struct ascend_device *dev = s->dev;
        struct ngd_list *l;
        struct ascend_captured graph = {0};
        void *context = NULL;

        ngd_mutex_lock(&dev->lock);
        l = ngd_list_empty(&s->captured) ? NULL : s->captured.next;
        if (l)
            graph = unlink_graph(dev, ngd_container_of(l, struct ascend_inst, of_stream), &context);
        ngd_mutex_unlock(&dev->lock);
        if (!graph.model)
            return;
        destroy_graph(dev, &graph, context);
    }
}
