/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory planner.
 *
 * Packing intervals into memory is NP-hard, but graphs of decoders are easy instances: most blocks live for one
 * or two steps, and a few large ones decide the peak. So several cheap heuristics compete. The search ends as
 * soon as one of them meets the lower bound:
 *
 *   1. online: places blocks in order of their start, like an allocator with binned free lists. It takes O(n) in
 *      practice for any graph, so there is always an answer.
 *   2. best fit in three orders: by bytes, by bytes * lifetime, by lifetime, each descending. A block goes into
 *      the smallest gap between the placed blocks that it overlaps in time.
 *   3. repair, only while the answer is more than 1/64 above the bound: the block that reached the peak is placed
 *      first in the next round ("squeaky wheel").
 *
 * Steps 2 and 3 visit the neighbours in time of every block. A segment tree finds them without visiting other
 * blocks. But if all blocks of a graph live at once, each block has n neighbours. Then the budget, which counts
 * neighbours, ends the search, and the best complete answer is used.
 *
 * With several streams (memplan.h) the tree finds possible neighbours, by how long each block may live. Those that
 * happen before or after the block are then left out. The online allocator treats them all as neighbours.
 */
#include "graphs/memplan.h"
#include "base/mem.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* About one second of a 3 GHz core. If a decoder of 28 layers needs a search, it uses a tenth of it. */
#define BUDGET        UINT64_C(5000000)
#define REPAIR_ROUNDS 24
#define NONE          UINT32_MAX

struct item {
    uint64_t bytes; /* rounded up */
    uint64_t offset;
    uint32_t first, last;
    uint32_t until; /* equals last, or is later with several streams */
    uint32_t block; /* index of the caller's block */
};

struct span {
    uint64_t begin, end;
};

struct planner {
    struct item *items; /* blocks of non-zero size, sorted by first step */
    uint32_t n;
    uint32_t *order; /* items, in the order in which they are placed */
    uint64_t *best;  /* offsets of the best answer, indexed by item */
    uint64_t best_peak;
    uint64_t bound;
    /* Segment tree over the items: 1 + the last step of any placed item below a node, 0 = none placed. */
    uint64_t *tree;
    uint32_t leaves;
    struct span *near; /* memory of the neighbours in time of the item that is being placed */
    uint32_t n_near, n_seen;
    uint64_t budget;
    const struct ngd_memplan_order *time; /* NULL: one stream */
    uint32_t placing;                     /* the item being placed */
};

/* ---- orders ---- */

static int cmp_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int cmp_item_start(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;

    if (a->first != b->first)
        return cmp_u64(a->first, b->first);
    if (a->bytes != b->bytes)
        return cmp_u64(b->bytes, a->bytes);
    return cmp_u64(a->block, b->block);
}

typedef double (*weight_fn)(const struct item *it);

static double lifetime(const struct item *it)
{
    return (double)it->last - (double)it->first + 1;
}
static double weigh_bytes(const struct item *it)
{
    return (double)it->bytes;
}
static double weigh_area(const struct item *it)
{
    return (double)it->bytes * lifetime(it);
}
static double weigh_lifetime(const struct item *it)
{
    return lifetime(it);
}

static const weight_fn weights[] = {weigh_bytes, weigh_area, weigh_lifetime};

struct ranked {
    double weight;
    uint32_t item;
};

static int cmp_ranked(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;

    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return cmp_u64(a->item, b->item);
}

static ngd_status_t sort_order(struct planner *p, weight_fn weight)
{
    struct ranked *r = NGD_NEW_N(struct ranked, p->n);

    if (!r)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < p->n; i++)
        r[i] = (struct ranked){weight(&p->items[i]), i};
    qsort(r, p->n, sizeof(*r), cmp_ranked);
    for (uint32_t i = 0; i < p->n; i++)
        p->order[i] = r[i].item;
    ngd_free(r);
    return NGD_OK;
}

/* ---- best fit over neighbours in time ---- */

static void tree_set(struct planner *p, uint32_t item, uint64_t value)
{
    uint32_t i = p->leaves + item;

    for (p->tree[i] = value; i > 1; i /= 2) {
        uint64_t a = p->tree[i & ~1u], b = p->tree[i | 1u];

        p->tree[i / 2] = a > b ? a : b;
    }
}

/* Returns true if two items are never live at the same time, although their steps overlap. */
static bool ordered(const struct planner *p, uint32_t a, uint32_t b)
{
    const struct ngd_memplan_order *o = p->time;
    uint32_t x = p->items[a].block, y = p->items[b].block;

    return o && (o->before(o->ctx, x, y) || o->before(o->ctx, y, x));
}

/* Collects the placed items among the first `end` ones below node (which covers [lo, lo + width)) that are
 * still live at step `from`. Depth is log2(n), so recursion is bounded. */
static void collect_near(struct planner *p, uint32_t node, uint32_t lo, uint32_t width, uint32_t end, uint32_t from)
{
    if (lo >= end || p->tree[node] < (uint64_t)from + 1)
        return;
    if (width == 1) {
        const struct item *it = &p->items[lo];

        p->n_seen++;
        if (ordered(p, lo, p->placing))
            return;
        p->near[p->n_near++] = (struct span){it->offset, it->offset + it->bytes};
        return;
    }
    collect_near(p, node * 2, lo, width / 2, end, from);
    collect_near(p, node * 2 + 1, lo + width / 2, width / 2, end, from);
}

static int cmp_span(const void *pa, const void *pb)
{
    const struct span *a = pa, *b = pb;

    return a->begin != b->begin ? cmp_u64(a->begin, b->begin) : cmp_u64(a->end, b->end);
}

static void sort_near(struct planner *p)
{
    if (p->n_near > 24) {
        qsort(p->near, p->n_near, sizeof(p->near[0]), cmp_span);
        return;
    }
    for (uint32_t i = 1; i < p->n_near; i++) {
        struct span s = p->near[i];
        uint32_t j = i;

        for (; j > 0 && p->near[j - 1].begin > s.begin; j--)
            p->near[j] = p->near[j - 1];
        p->near[j] = s;
    }
}

/* Returns the first item that starts after step `last`. Items are sorted by start. */
static uint32_t items_until(const struct planner *p, uint32_t last)
{
    uint32_t lo = 0, hi = p->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (p->items[mid].first <= last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void place_block(struct planner *p, uint32_t item)
{
    struct item *it = &p->items[item];
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;

    p->n_near = p->n_seen = 0;
    p->placing = item;
    collect_near(p, 1, 0, p->leaves, items_until(p, it->until), it->first);
    sort_near(p);
    for (uint32_t i = 0; i < p->n_near; i++) {
        const struct span *s = &p->near[i];

        if (s->begin > at && s->begin - at >= it->bytes && s->begin - at < best_gap) {
            best_gap = s->begin - at;
            best = at;
        }
        if (s->end > at)
            at = s->end;
    }
    it->offset = best != UINT64_MAX ? best : at;
    tree_set(p, item, (uint64_t)it->until + 1);
}

static uint64_t peak_of(const struct planner *p)
{
    uint64_t peak = 0;

    for (uint32_t i = 0; i < p->n; i++)
        if (p->items[i].offset + p->items[i].bytes > peak)
            peak = p->items[i].offset + p->items[i].bytes;
    return peak;
}

static void keep_if_better(struct planner *p, uint64_t peak)
{
    if (peak >= p->best_peak)
        return;
    p->best_peak = peak;
    for (uint32_t i = 0; i < p->n; i++)
        p->best[i] = p->items[i].offset;
}

/* Places every item in the current order. Returns false if the budget ran out before the end. */
static bool attempt(struct planner *p)
{
    memset(p->tree, 0, 2 * (size_t)p->leaves * sizeof(p->tree[0]));
    for (uint32_t i = 0; i < p->n; i++) {
        place_block(p, p->order[i]);
        if (p->budget < p->n_seen + 1)
            return false;
        p->budget -= p->n_seen + 1;
    }
    keep_if_better(p, peak_of(p));
    return true;
}

/* Moves the items that reach the peak of the last attempt to the front of the order. */
static void promote_highest(struct planner *p)
{
    uint64_t peak = peak_of(p);
    uint32_t front = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t item = p->order[i];

        if (p->items[item].offset + p->items[item].bytes != peak)
            continue;
        memmove(&p->order[front + 1], &p->order[front], (i - front) * sizeof(p->order[0]));
        p->order[front++] = item;
    }
}

static bool good_enough(const struct planner *p)
{
    return p->best_peak <= p->bound + p->bound / 64;
}

/* Searches with one order: makes an attempt, and repairs it while that is worth its time. Returns false if the budget
 * is spent. */
static bool search_order(struct planner *p)
{
    for (int round = 0; round <= REPAIR_ROUNDS; round++) {
        if (!attempt(p))
            return false;
        if (good_enough(p))
            break;
        promote_highest(p);
    }
    return true;
}

static ngd_status_t search_orders(struct planner *p)
{
    ngd_status_t status;

    for (size_t w = 0; w < sizeof(weights) / sizeof(weights[0]) && p->best_peak > p->bound; w++) {
        status = sort_order(p, weights[w]);
        if (status)
            return status;
        if (!search_order(p))
            break;
    }
    return NGD_OK;
}

/* ---- online allocation in order of time ---- */

#define BIN_SHIFT 3 /* eight bins for each power of two */
#define BINS      (64 << BIN_SHIFT)
#define BIN_LOOK  32 /* entries of a bin that are compared; bounds the work and nearly always finds the best */

struct chunk {
    uint64_t offset, bytes;
    uint32_t prev, next;         /* neighbours in memory */
    uint32_t bin_prev, bin_next; /* list of the bin, while free */
    bool free;
};

struct online {
    struct chunk *chunks;
    uint32_t n_chunks;
    uint32_t spare; /* list of unused chunk slots, linked by next */
    uint32_t bins[BINS];
};

static uint32_t bin_of(uint64_t bytes)
{
    unsigned log = 63 - (unsigned)__builtin_clzll(bytes | 1);
    uint64_t sub = log > BIN_SHIFT ? (bytes >> (log - BIN_SHIFT)) & ((1u << BIN_SHIFT) - 1) : 0;

    return (log << BIN_SHIFT) + (uint32_t)sub;
}

static void bin_add(struct online *o, uint32_t c)
{
    uint32_t *head = &o->bins[bin_of(o->chunks[c].bytes)];

    o->chunks[c].free = true;
    o->chunks[c].bin_prev = NONE;
    o->chunks[c].bin_next = *head;
    if (*head != NONE)
        o->chunks[*head].bin_prev = c;
    *head = c;
}

static void bin_remove(struct online *o, uint32_t c)
{
    struct chunk *k = &o->chunks[c];

    k->free = false;
    if (k->bin_prev != NONE)
        o->chunks[k->bin_prev].bin_next = k->bin_next;
    else
        o->bins[bin_of(k->bytes)] = k->bin_next;
    if (k->bin_next != NONE)
        o->chunks[k->bin_next].bin_prev = k->bin_prev;
}

static uint32_t bin_find(const struct online *o, uint64_t bytes)
{
    for (uint32_t b = bin_of(bytes); b < BINS; b++) {
        uint32_t best = NONE;
        int look = BIN_LOOK;

        for (uint32_t c = o->bins[b]; c != NONE && look > 0; c = o->chunks[c].bin_next, look--)
            if (o->chunks[c].bytes >= bytes && (best == NONE || o->chunks[c].bytes < o->chunks[best].bytes))
                best = c;
        if (best != NONE)
            return best;
    }
    return NONE;
}

static uint32_t chunk_new(struct online *o)
{
    uint32_t c = o->spare;

    if (c == NONE)
        return o->n_chunks++;
    o->spare = o->chunks[c].next;
    return c;
}

/* Joins chunk b to chunk a, which is directly before it in memory. */
static void chunk_join(struct online *o, uint32_t a, uint32_t b)
{
    o->chunks[a].bytes += o->chunks[b].bytes;
    o->chunks[a].next = o->chunks[b].next;
    if (o->chunks[a].next != NONE)
        o->chunks[o->chunks[a].next].prev = a;
    o->chunks[b].next = o->spare;
    o->spare = b;
}

static uint32_t online_alloc(struct online *o, uint64_t bytes)
{
    uint32_t c = bin_find(o, bytes), rest;

    if (c == NONE) /* cannot happen: the last chunk has half of the address space, see load_blocks() */
        return NONE;
    bin_remove(o, c);
    if (o->chunks[c].bytes > bytes) {
        rest = chunk_new(o);
        o->chunks[rest] = (struct chunk){
            .offset = o->chunks[c].offset + bytes,
            .bytes = o->chunks[c].bytes - bytes,
            .prev = c,
            .next = o->chunks[c].next,
        };
        if (o->chunks[c].next != NONE)
            o->chunks[o->chunks[c].next].prev = rest;
        o->chunks[c].next = rest;
        o->chunks[c].bytes = bytes;
        bin_add(o, rest);
    }
    return c;
}

static void online_free(struct online *o, uint32_t c)
{
    uint32_t prev = o->chunks[c].prev, next = o->chunks[c].next;

    if (next != NONE && o->chunks[next].free) {
        bin_remove(o, next);
        chunk_join(o, c, next);
    }
    if (prev != NONE && o->chunks[prev].free) {
        bin_remove(o, prev);
        chunk_join(o, prev, c);
        c = prev;
    }
    bin_add(o, c);
}

struct ending {
    uint32_t last, item;
};

static int cmp_ending(const void *pa, const void *pb)
{
    const struct ending *a = pa, *b = pb;

    return a->last != b->last ? cmp_u64(a->last, b->last) : cmp_u64(a->item, b->item);
}

static void online_run(struct planner *p, struct online *o, const struct ending *ends, uint32_t *chunk_of)
{
    uint32_t e = 0;

    memset(o->bins, 0xff, sizeof(o->bins));
    o->spare = NONE;
    o->n_chunks = 1;
    o->chunks[0] = (struct chunk){.offset = 0, .bytes = INT64_MAX, .prev = NONE, .next = NONE};
    bin_add(o, 0);
    for (uint32_t i = 0; i < p->n; i++) {
        for (; ends[e].last < p->items[i].first; e++)
            online_free(o, chunk_of[ends[e].item]);
        chunk_of[i] = online_alloc(o, p->items[i].bytes);
        if (chunk_of[i] == NONE)
            return;
        p->items[i].offset = o->chunks[chunk_of[i]].offset;
    }
    keep_if_better(p, peak_of(p));
}

static ngd_status_t online(struct planner *p)
{
    struct online o = {0};
    struct ending *ends = NGD_NEW_N(struct ending, p->n);
    uint32_t *chunk_of = NGD_NEW_N(uint32_t, p->n);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    /* n + 1 chunks are enough: each allocation splits at most one chunk in two. */
    o.chunks = NGD_NEW_N(struct chunk, (size_t)p->n + 1);
    if (!ends || !chunk_of || !o.chunks)
        goto free_all;
    for (uint32_t i = 0; i < p->n; i++)
        ends[i] = (struct ending){p->items[i].until, i};
    qsort(ends, p->n, sizeof(*ends), cmp_ending);
    online_run(p, &o, ends, chunk_of);
    status = NGD_OK;
free_all:
    ngd_free(o.chunks);
    ngd_free(chunk_of);
    ngd_free(ends);
    return status;
}

/* ---- the planner ---- */

struct change {
    uint64_t step; /* the block's first step, or the step after its last */
    uint64_t bytes;
    bool comes;
};

static int cmp_change(const void *pa, const void *pb)
{
    const struct change *a = pa, *b = pb;

    if (a->step != b->step)
        return cmp_u64(a->step, b->step);
    return (int)a->comes - (int)b->comes; /* blocks that go make room first */
}

static ngd_status_t lower_bound(struct planner *p)
{
    struct change *changes = NGD_NEW_N(struct change, 2 * (size_t)p->n);
    uint64_t live = 0;

    if (!changes)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < p->n; i++) {
        changes[2 * i] = (struct change){p->items[i].first, p->items[i].bytes, true};
        changes[2 * i + 1] = (struct change){(uint64_t)p->items[i].last + 1, p->items[i].bytes, false};
    }
    qsort(changes, 2 * (size_t)p->n, sizeof(*changes), cmp_change);
    for (uint32_t i = 0; i < 2 * p->n; i++) {
        live = changes[i].comes ? live + changes[i].bytes : live - changes[i].bytes;
        if (live > p->bound)
            p->bound = live;
    }
    ngd_free(changes);
    return NGD_OK;
}

/* Copies the blocks that need memory. The sum of all sizes bounds every offset, so one check is enough. It leaves half
 * of the address space free, which the online allocator's last chunk needs. */
static ngd_status_t load_blocks(struct planner *p, const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes;

        if (blocks[i].first > blocks[i].last)
            return NGD_ERR_INVALID_ARGUMENT;
        if (__builtin_add_overflow(blocks[i].bytes, align - 1, &bytes))
            return NGD_ERR_OVERFLOW;
        bytes &= ~(align - 1);
        if (__builtin_add_overflow(total, bytes, &total) || total > INT64_MAX / 2)
            return NGD_ERR_OVERFLOW;
        if (bytes)
            p->items[p->n++] = (struct item){.bytes = bytes,
                                             .first = blocks[i].first,
                                             .last = blocks[i].last,
                                             .until = p->time ? p->time->until[i] : blocks[i].last,
                                             .block = i};
    }
    qsort(p->items, p->n, sizeof(p->items[0]), cmp_item_start);
    return NGD_OK;
}

static ngd_status_t planner_init(struct planner *p, uint32_t n)
{
    p->leaves = 1;
    while (p->leaves < n)
        p->leaves *= 2;
    p->budget = BUDGET;
    p->best_peak = UINT64_MAX;
    p->items = NGD_NEW_N(struct item, n);
    p->order = NGD_NEW_N(uint32_t, n);
    p->best = NGD_NEW_N(uint64_t, n);
    p->tree = NGD_NEW_N(uint64_t, 2 * (size_t)p->leaves);
    p->near = NGD_NEW_N(struct span, n);
    return p->items && p->order && p->best && p->tree && p->near ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static void planner_fini(struct planner *p)
{
    ngd_free(p->near);
    ngd_free(p->tree);
    ngd_free(p->best);
    ngd_free(p->order);
    ngd_free(p->items);
}

static ngd_status_t run_planner(struct planner *p)
{
    ngd_status_t status = lower_bound(p);

    if (!status)
        status = online(p);
    if (!status)
        status = search_orders(p);
    return status;
}

ngd_status_t ngd_memplan(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t *peak_p,
                         uint64_t *lower_bound_p)
{
    return ngd_memplan_streams(blocks, n, align, NULL, peak_p, lower_bound_p);
}

ngd_status_t ngd_memplan_streams(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                 const struct ngd_memplan_order *order, uint64_t *peak_p, uint64_t *lower_bound_p)
{
    struct planner p = {.time = order};
    ngd_status_t status;

    if (align == 0 || (align & (align - 1)) != 0 || n > (1u << 30))
        return NGD_ERR_INVALID_ARGUMENT;
    status = planner_init(&p, n);
    if (!status)
        status = load_blocks(&p, blocks, n, align);
    if (!status && p.n > 0)
        status = run_planner(&p);
    if (!status) {
        for (uint32_t i = 0; i < n; i++)
            blocks[i].offset = 0;
        for (uint32_t i = 0; i < p.n; i++)
            blocks[p.items[i].block].offset = p.best[i];
        *peak_p = p.n ? p.best_peak : 0;
        *lower_bound_p = p.bound;
    }
    planner_fini(&p);
    return status;
}
