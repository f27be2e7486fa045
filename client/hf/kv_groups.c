/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of layers with block tables of their own: which there are, and how many blocks a context holds in them. */
#include "client/hf/kv_groups.h"

#include <string.h>

/* Kinds of layers: those that see all keys, and those with a window of a certain size. */
struct kinds {
    uint32_t n;
    int64_t windows[NPUGRAPH__KV_GROUPS];
    size_t layers[NPUGRAPH__KV_GROUPS];
};

/* The window that shortens what a layer holds of a context; 0: none does. */
static int64_t window_within(int64_t window, uint32_t max_context)
{
    return window < max_context ? window : 0;
}

static bool may_be_placed(const struct npugraph__checkpoint *ck)
{
    const struct npugraph__cache *first = &ck->caches[0];

    for (size_t i = 0; i < ck->n_caches; i++) {
        const struct npugraph__cache *c = &ck->caches[i];

        if (!c->placed || c->heads != first->heads || memcmp(c->dim, first->dim, sizeof(c->dim)) != 0)
            return false;
    }
    return true;
}

/* Returns false if there are more kinds than groups. */
static bool find_kinds(const struct npugraph__checkpoint *ck, uint32_t max_context, struct kinds *kinds)
{
    memset(kinds, 0, sizeof(*kinds));
    for (size_t i = 0; i < ck->n_caches; i++) {
        const int64_t window = window_within(ck->caches[i].window, max_context);
        uint32_t k = 0;

        while (k < kinds->n && kinds->windows[k] != window)
            k++;
        if (k == NPUGRAPH__KV_GROUPS)
            return false;
        if (k == kinds->n)
            kinds->windows[kinds->n++] = window;
        kinds->layers[k]++;
    }
    return true;
}

/* What a context holds, in tokens of one layer, if groups have so many layers. 0: that makes too many groups. */
static uint64_t cost_of(const struct kinds *kinds, size_t states, uint32_t max_context, uint32_t rows)
{
    uint64_t groups = 0, cost = 0;

    for (uint32_t k = 0; k < kinds->n; k++) {
        const uint64_t n = (kinds->layers[k] + states - 1) / states;
        const uint64_t span = kinds->windows[k] != 0 ? (uint64_t)kinds->windows[k] + rows : max_context;

        groups += n;
        cost += n * states * (span < max_context ? span : max_context);
    }
    return groups <= NPUGRAPH__KV_GROUPS ? cost : 0;
}

static void fill_in(const struct kinds *kinds, size_t states, struct npugraph__groups *g)
{
    g->states = (uint32_t)states;
    for (uint32_t k = 0; k < kinds->n; k++)
        for (size_t n = 0; n < kinds->layers[k]; n += states)
            g->windows[g->n++] = kinds->windows[k];
}

void npugraph__groups_choose(const struct npugraph__checkpoint *ck, uint32_t max_context, uint32_t rows,
                             struct npugraph__groups *groups_p)
{
    uint64_t best = (uint64_t)ck->n_caches * max_context;
    size_t states = 0;
    struct kinds kinds;

    memset(groups_p, 0, sizeof(*groups_p));
    if (!may_be_placed(ck) || !find_kinds(ck, max_context, &kinds))
        return;
    if (kinds.n == 1) {
        groups_p->n = 1;
        groups_p->windows[0] = kinds.windows[0];
        return;
    }
    for (size_t n = ck->n_caches; n > 0; n--) {
        const uint64_t cost = cost_of(&kinds, n, max_context, rows);

        if (cost != 0 && cost < best) {
            best = cost;
            states = n;
        }
    }
    if (states != 0)
        fill_in(&kinds, states, groups_p);
}

void npugraph__groups_place(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape, size_t i,
                            uint32_t *group_p, size_t *state_p)
{
    const struct npugraph__groups *g = &shape->groups;
    const int64_t window = window_within(ck->caches[i].window, shape->max_context);
    uint32_t first = 0;
    size_t before = 0;

    *group_p = 0;
    *state_p = i;
    if (g->n <= 1)
        return;
    for (size_t k = 0; k < i; k++)
        before += window_within(ck->caches[k].window, shape->max_context) == window;
    while (g->windows[first] != window)
        first++;
    *group_p = first + (uint32_t)(before / g->states);
    *state_p = before % g->states;
}

size_t npugraph__kv_states(const struct npugraph__checkpoint *ck, const struct npugraph__groups *groups)
{
    return groups->n > 1 ? groups->states : ck->n_caches;
}

uint64_t npugraph__groups_blocks(const struct npugraph__groups *groups, uint32_t block_size, uint32_t rows,
                                 uint64_t tokens)
{
    const uint64_t all = (tokens + block_size - 1) / block_size;
    uint64_t n = groups->n == 0 ? all : 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const uint64_t span = ((uint64_t)groups->windows[g] + rows - 2) / block_size + 2;

        n += groups->windows[g] != 0 && span < all ? span : all;
    }
    return n;
}

uint32_t npugraph__groups_context(const struct npugraph__groups *groups, uint32_t block_size, uint32_t rows,
                                  uint64_t blocks, uint32_t max_context)
{
    uint32_t fits = 0, too_long = max_context;

    if (npugraph__groups_blocks(groups, block_size, rows, max_context) <= blocks)
        return max_context;
    while (too_long - fits > 1) {
        const uint32_t middle = fits + (too_long - fits) / 2;

        if (npugraph__groups_blocks(groups, block_size, rows, middle) <= blocks)
            fits = middle;
        else
            too_long = middle;
    }
    return fits;
}
