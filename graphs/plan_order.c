/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/plan_order.h"
#include "base/mem.h"
#include <string.h>

ngd_status_t ngd_plan_uses_init(struct ngd_plan_uses *uses, uint32_t n, uint32_t n_streams)
{
    size_t cells = (size_t)n * n_streams;

    *uses = (struct ngd_plan_uses){.n_streams = n_streams,
                                   .first = NGD_NEW_N(uint32_t, cells),
                                   .last = NGD_NEW_N(uint32_t, cells),
                                   .comes = NGD_NEW_N(bool, n),
                                   .stays = NGD_NEW_N(bool, n)};
    if (!uses->first || !uses->last || !uses->comes || !uses->stays)
        return NGD_ERR_NO_MEMORY;
    memset(uses->first, 0xff, cells * sizeof(uses->first[0]));
    memset(uses->last, 0xff, cells * sizeof(uses->last[0]));
    return NGD_OK;
}

void ngd_plan_uses_fini(struct ngd_plan_uses *uses)
{
    ngd_free(uses->first);
    ngd_free(uses->last);
    ngd_free(uses->comes);
    ngd_free(uses->stays);
}

void ngd_plan_uses_add(struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t storage, uint32_t call)
{
    size_t at = (size_t)storage * uses->n_streams + plan->calls[call].scope.stream;

    if (uses->first[at] == NGD_PLAN_NONE)
        uses->first[at] = call;
    uses->last[at] = call;
}

void ngd_plan_uses_merge(struct ngd_plan_uses *uses, uint32_t into, uint32_t from)
{
    for (uint32_t u = 0; u < uses->n_streams; u++) {
        size_t i = (size_t)into * uses->n_streams + u, f = (size_t)from * uses->n_streams + u;

        if (uses->first[f] == NGD_PLAN_NONE)
            continue;
        if (uses->first[i] == NGD_PLAN_NONE || uses->first[i] > uses->first[f])
            uses->first[i] = uses->first[f];
        if (uses->last[i] == NGD_PLAN_NONE || uses->last[i] < uses->last[f])
            uses->last[i] = uses->last[f];
    }
    uses->comes[into] = uses->comes[into] || uses->comes[from];
    uses->stays[into] = uses->stays[into] || uses->stays[from];
}

/* Returns true if call `last` is another one than c and has ended when c begins. */
static bool life_ended(const struct ngd_plan *plan, uint32_t last, uint32_t c)
{
    return last == NGD_PLAN_NONE || (last != c && ngd_plan_before(plan, last, c));
}

bool ngd_plan_uses_end_with(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t c)
{
    for (uint32_t u = 0; u < uses->n_streams; u++) {
        uint32_t last = uses->last[(size_t)a * uses->n_streams + u];

        if (last != c && !life_ended(plan, last, c))
            return false;
    }
    return !uses->stays[a];
}

static bool all_before_call(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t c)
{
    for (uint32_t u = 0; u < uses->n_streams; u++)
        if (!life_ended(plan, uses->last[(size_t)a * uses->n_streams + u], c))
            return false;
    return true;
}

bool ngd_plan_uses_before(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t b)
{
    if (uses->stays[a] || uses->comes[b])
        return false;
    for (uint32_t v = 0; v < uses->n_streams; v++) {
        uint32_t first = uses->first[(size_t)b * uses->n_streams + v];

        if (first != NGD_PLAN_NONE && !all_before_call(uses, plan, a, first))
            return false;
    }
    return true;
}

uint32_t ngd_plan_uses_until(const struct ngd_plan_uses *uses, const struct ngd_plan *plan,
                             const uint32_t *const *calls_of, const uint32_t *n_of, uint32_t a)
{
    uint32_t until = 0;

    if (uses->stays[a])
        return plan->n_calls;
    for (uint32_t v = 0; v < uses->n_streams; v++) {
        uint32_t low = 0, high = n_of[v]; /* the calls of a stream that come after the uses are its last ones */

        while (low < high) {
            uint32_t mid = low + (high - low) / 2;

            if (all_before_call(uses, plan, a, calls_of[v][mid]))
                high = mid;
            else
                low = mid + 1;
        }
        if (low > 0 && calls_of[v][low - 1] > until)
            until = calls_of[v][low - 1];
    }
    return until;
}
