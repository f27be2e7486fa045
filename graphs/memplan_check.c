/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a memory plan by a sweep over the steps. The blocks that are live at the current step are sorted by offset. A
 * block that begins must fit between its two neighbours; it is removed after its last step.
 *
 * With several streams a block stays until no step can run before its last use any more. Live blocks may overlap if one
 * happens before the other, so a block that begins is compared with all live blocks.
 */
#include "base/mem.h"
#include "graphs/memplan.h"
#include <string.h>

struct sweep {
    const struct ngd_memplan_block *blocks;
    const struct ngd_memplan_order *order; /* NULL: one stream */
    uint32_t *starts, *ends;               /* blocks sorted by first step, and by last step */
    uint32_t *live;                        /* live blocks, sorted by offset */
    uint32_t n, n_live;
};

/* Returns the number of live blocks that begin below this offset. */
static uint32_t rank(const struct sweep *s, uint64_t offset)
{
    uint32_t low = 0, high = s->n_live;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (s->blocks[s->live[mid]].offset < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns the last step at which the block may be in use. */
static uint32_t block_end(const struct sweep *s, uint32_t block)
{
    return s->order ? s->order->until[block] : s->blocks[block].last;
}

static bool may_share(const struct sweep *s, uint32_t a, uint32_t b)
{
    const struct ngd_memplan_block *x = &s->blocks[a], *y = &s->blocks[b];

    return x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset ||
           s->order->before(s->order->ctx, a, b) || s->order->before(s->order->ctx, b, a);
}

static bool begin_beside(struct sweep *s, uint32_t block)
{
    for (uint32_t i = 0; i < s->n_live; i++)
        if (!may_share(s, s->live[i], block))
            return false;
    s->live[s->n_live++] = block;
    return true;
}

static void end_beside(struct sweep *s, uint32_t block)
{
    uint32_t at = 0;

    while (s->live[at] != block)
        at++;
    s->live[at] = s->live[--s->n_live];
}

static bool enter_block(struct sweep *s, uint32_t block)
{
    const struct ngd_memplan_block *b = &s->blocks[block];
    uint32_t at;

    if (s->order)
        return begin_beside(s, block);
    at = rank(s, b->offset);
    if (at < s->n_live && s->blocks[s->live[at]].offset < b->offset + b->bytes)
        return false;
    if (at > 0 && s->blocks[s->live[at - 1]].offset + s->blocks[s->live[at - 1]].bytes > b->offset)
        return false;
    memmove(&s->live[at + 1], &s->live[at], (s->n_live - at) * sizeof(s->live[0]));
    s->live[at] = block;
    s->n_live++;
    return true;
}

static void leave_block(struct sweep *s, uint32_t block)
{
    uint32_t at;

    if (s->order) {
        end_beside(s, block);
        return;
    }
    at = rank(s, s->blocks[block].offset);
    s->n_live--;
    memmove(&s->live[at], &s->live[at + 1], (s->n_live - at) * sizeof(s->live[0]));
}

static bool disjoint(struct sweep *s)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        for (; ended < s->n && block_end(s, s->ends[ended]) < s->blocks[s->starts[i]].first; ended++)
            leave_block(s, s->ends[ended]);
        if (!enter_block(s, s->starts[i]))
            return false;
    }
    return true;
}

static bool block_within(const struct ngd_memplan_block *b, uint64_t align, uint64_t peak)
{
    return b->offset % align == 0 && b->offset <= peak && b->bytes <= peak - b->offset && b->first <= b->last;
}

/* Checks each block, and collects those that are not empty in `live`, which is unused until the sweep. *steps_p: the
 * number of steps. */
static ngd_status_t collect_steps(struct sweep *s, uint32_t n, uint64_t align, uint64_t peak, uint32_t *steps_p)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!block_within(&s->blocks[i], align, peak))
            return NGD_ERR_FILE_CORRUPT;
        if (s->blocks[i].bytes == 0)
            continue;
        s->live[s->n++] = i;
        if (steps <= block_end(s, i))
            steps = block_end(s, i) + 1;
    }
    *steps_p = steps;
    return NGD_OK;
}

/* Sorts blocks by counting. Steps are calls of a plan, so there are not many more steps than blocks. */
static void sort(const struct sweep *s, bool by_last, uint32_t *counts, uint32_t steps, uint32_t *sorted)
{
    uint32_t at = 0;

    memset(counts, 0, steps * sizeof(*counts));
    for (uint32_t i = 0; i < s->n; i++)
        counts[by_last ? block_end(s, s->live[i]) : s->blocks[s->live[i]].first]++;
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t n = counts[i];

        counts[i] = at;
        at += n;
    }
    for (uint32_t i = 0; i < s->n; i++)
        sorted[counts[by_last ? block_end(s, s->live[i]) : s->blocks[s->live[i]].first]++] = s->live[i];
}

ngd_status_t ngd_memplan_check(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t peak)
{
    return ngd_memplan_check_streams(blocks, n, align, NULL, peak);
}

ngd_status_t ngd_memplan_check_streams(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                       const struct ngd_memplan_order *order, uint64_t peak)
{
    struct sweep s = {.blocks = blocks, .order = order};
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    uint32_t steps = 0, *counts = NULL;

    s.starts = NGD_NEW_N(uint32_t, n);
    s.ends = NGD_NEW_N(uint32_t, n);
    s.live = NGD_NEW_N(uint32_t, n);
    if (s.starts && s.ends && s.live)
        status = collect_steps(&s, n, align, peak, &steps);
    if (!status && !(counts = NGD_NEW_N(uint32_t, steps)))
        status = NGD_ERR_NO_MEMORY;
    if (!status) {
        sort(&s, false, counts, steps, s.starts);
        sort(&s, true, counts, steps, s.ends);
        if (!disjoint(&s))
            status = NGD_ERR_FILE_CORRUPT;
    }
    ngd_free(counts);
    ngd_free(s.live);
    ngd_free(s.ends);
    ngd_free(s.starts);
    return status;
}
