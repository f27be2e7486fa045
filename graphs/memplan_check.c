/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of a memory plan: a sweep over time. The blocks that live at the step under the sweep are kept by offset;
 * a block that begins must fit between its two neighbours there, and leaves when its last step has passed.
 */
#include "base/mem.h"
#include "graphs/memplan.h"
#include <stdlib.h>
#include <string.h>

struct moment {
    uint32_t step; /* a block's first or last */
    uint32_t block;
};

struct sweep {
    const struct ngd_memplan_block *blocks;
    struct moment *starts, *ends;
    uint32_t *live; /* blocks, by offset */
    uint32_t n, n_live;
};

static int by_step(const void *pa, const void *pb)
{
    const struct moment *a = pa, *b = pb;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* How many live blocks begin below this offset. */
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

static bool begin(struct sweep *s, uint32_t block)
{
    const struct ngd_memplan_block *b = &s->blocks[block];
    uint32_t at = rank(s, b->offset);

    if (at < s->n_live && s->blocks[s->live[at]].offset < b->offset + b->bytes)
        return false;
    if (at > 0 && s->blocks[s->live[at - 1]].offset + s->blocks[s->live[at - 1]].bytes > b->offset)
        return false;
    memmove(&s->live[at + 1], &s->live[at], (s->n_live - at) * sizeof(s->live[0]));
    s->live[at] = block;
    s->n_live++;
    return true;
}

static void end(struct sweep *s, uint32_t block)
{
    uint32_t at = rank(s, s->blocks[block].offset);

    s->n_live--;
    memmove(&s->live[at], &s->live[at + 1], (s->n_live - at) * sizeof(s->live[0]));
}

static bool disjoint(struct sweep *s)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        for (; ended < s->n && s->ends[ended].step < s->starts[i].step; ended++)
            end(s, s->ends[ended].block);
        if (!begin(s, s->starts[i].block))
            return false;
    }
    return true;
}

static bool within(const struct ngd_memplan_block *b, uint64_t align, uint64_t peak)
{
    return b->offset % align == 0 && b->offset <= peak && b->bytes <= peak - b->offset && b->first <= b->last;
}

/* Empty blocks take part in nothing but the first check. */
static ngd_status_t collect(struct sweep *s, uint32_t n, uint64_t align, uint64_t peak)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!within(&s->blocks[i], align, peak))
            return NGD_ERR_FILE_CORRUPT;
        if (s->blocks[i].bytes == 0)
            continue;
        s->starts[s->n] = (struct moment){s->blocks[i].first, i};
        s->ends[s->n++] = (struct moment){s->blocks[i].last, i};
    }
    qsort(s->starts, s->n, sizeof(s->starts[0]), by_step);
    qsort(s->ends, s->n, sizeof(s->ends[0]), by_step);
    return NGD_OK;
}

ngd_status_t ngd_memplan_check(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t peak)
{
    struct sweep s = {.blocks = blocks};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    s.starts = NGD_NEW_N(struct moment, n);
    s.ends = NGD_NEW_N(struct moment, n);
    s.live = NGD_NEW_N(uint32_t, n);
    if (s.starts && s.ends && s.live) {
        status = collect(&s, n, align, peak);
        if (!status && !disjoint(&s))
            status = NGD_ERR_FILE_CORRUPT;
    }
    ngd_free(s.live);
    ngd_free(s.ends);
    ngd_free(s.starts);
    return status;
}
