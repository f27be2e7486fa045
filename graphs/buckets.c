/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/buckets.h"
#include "base/mem.h"
#include <inttypes.h>
#include <string.h>

uint64_t ngd_buckets_padding(const struct ngd_bucket_set *set, const struct ngd_size_count *list, uint32_t n)
{
    uint64_t padding = 0;
    uint32_t b = 0;

    for (uint32_t i = 0; i < n; i++) {
        while (b < set->n && set->sizes[b] < list[i].size)
            b++;
        if (b == set->n)
            break;
        padding += list[i].count * (uint64_t)(set->sizes[b] - list[i].size);
    }
    return padding;
}

uint64_t ngd_buckets_asked(const struct ngd_size_count *list, uint32_t n)
{
    uint64_t asked = 0;

    for (uint32_t i = 0; i < n; i++)
        asked += list[i].count * (uint64_t)list[i].size;
    return asked;
}

/* ---- the dynamic programme ---- */

/* State of the dynamic programme. cost[k][i] is the least padding of sizes 0..i with k + 1
 * buckets, the last at size i. */
struct programme {
    const struct ngd_size_count *list;
    uint32_t n;
    double *counts, *units; /* prefix sums of count and of count * size */
    double *before, *after; /* cost rows k - 1 and k */
    uint16_t *choice;       /* [k][i]: index of the previous bucket's size, plus one; 0 = none */
};

/* Returns the padding of sizes from..to (inclusive) if they all go to the bucket at size `to`. */
static double run_cost(const struct programme *p, uint32_t from, uint32_t to)
{
    double n = p->counts[to + 1] - p->counts[from], units = p->units[to + 1] - p->units[from];

    return n * (double)p->list[to].size - units;
}

/* Fills row k for sizes lo..hi. The best previous bucket is known to be within opt_lo..opt_hi. */
static void fill_row(struct programme *p, uint16_t *choice, uint32_t lo, uint32_t hi, uint32_t opt_lo, uint32_t opt_hi)
{
    uint32_t mid = lo + (hi - lo) / 2, best = opt_lo, last = mid < opt_hi ? mid : opt_hi;
    double least = -1;

    /* j: index of the first size that the new bucket covers; the previous bucket has index j - 1. */
    for (uint32_t j = opt_lo; j <= last; j++) {
        double cost = (j ? p->before[j - 1] : 0) + run_cost(p, j, mid);

        if (least < 0 || cost < least) {
            least = cost;
            best = j;
        }
    }
    p->after[mid] = least;
    choice[mid] = (uint16_t)best;
    if (mid > lo)
        fill_row(p, choice, lo, mid - 1, opt_lo, best);
    if (mid < hi)
        fill_row(p, choice, mid + 1, hi, best, opt_hi);
}

static void first_row(struct programme *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        p->before[i] = run_cost(p, 0, i);
        p->choice[i] = 0;
    }
}

static void sum_up_counts(struct programme *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        p->counts[i + 1] = p->counts[i] + (double)p->list[i].count;
        p->units[i + 1] = p->units[i] + (double)p->list[i].count * (double)p->list[i].size;
    }
}

/* Collects the chosen buckets of `rows` rows by following the choices from the last bucket to the first. */
static void collect_buckets(const struct programme *p, uint32_t rows, struct ngd_bucket_set *set)
{
    uint32_t at = p->n - 1, n = 0;
    int64_t reversed[NGD_MAX_BUCKETS];

    for (uint32_t k = rows; k-- > 0;) {
        uint32_t from = p->choice[(size_t)k * p->n + at];

        reversed[n++] = p->list[at].size;
        if (from == 0)
            break;
        at = from - 1;
    }
    for (uint32_t i = 0; i < n; i++)
        set->sizes[i] = reversed[n - 1 - i];
    set->n = n;
}

static void solve(struct programme *p, uint32_t captures, struct ngd_bucket_set *set)
{
    uint32_t rows = captures < p->n ? captures : p->n;

    sum_up_counts(p);
    first_row(p);
    for (uint32_t k = 1; k < rows; k++) {
        double *row;

        fill_row(p, p->choice + (size_t)k * p->n, 0, p->n - 1, 0, p->n - 1);
        row = p->before;
        p->before = p->after;
        p->after = row;
    }
    collect_buckets(p, rows, set);
}

static ngd_status_t propose_buckets(const struct ngd_size_count *list, uint32_t n, uint32_t captures,
                                    struct ngd_bucket_set *set)
{
    struct programme p = {.list = list, .n = n};
    double *numbers = NGD_NEW_N(double, 4 * (size_t)n + 2);
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    p.choice = NGD_NEW_N(uint16_t, (size_t)n * captures);
    if (numbers && p.choice) {
        p.counts = numbers;
        p.units = numbers + n + 1;
        p.before = numbers + 2 * n + 2;
        p.after = p.before + n;
        solve(&p, captures, set);
        status = NGD_OK;
    }
    ngd_free(p.choice);
    ngd_free(numbers);
    return status;
}

ngd_status_t ngd_buckets_propose(const struct ngd_size_count *list, uint32_t n, uint32_t captures, int64_t max,
                                 struct ngd_bucket_set *set_p, struct ngd_diag *diag)
{
    struct ngd_bucket_set set = {0};
    ngd_status_t status = NGD_OK;

    if (captures < 1 || captures >= NGD_MAX_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a set of buckets has 1 to %d captures, not %" PRIu32,
                            NGD_MAX_BUCKETS - 1, captures);
    if (n && list[n - 1].size > max)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "size %" PRId64 " is above the symbol's maximum %" PRId64,
                            list[n - 1].size, max);
    if (n)
        status = propose_buckets(list, n, captures, &set);
    if (status)
        return ngd_diag_set(diag, status, "no host memory to choose buckets for %" PRIu32 " sizes", n);
    if (set.n == 0 || set.sizes[set.n - 1] < max)
        set.sizes[set.n++] = max;
    *set_p = set;
    return NGD_OK;
}

/* ---- sets of symbols ---- */

void ngd_buckets_of_symbol(const struct ngd_symbol *sym, struct ngd_bucket_set *set_p)
{
    memset(set_p, 0, sizeof(*set_p));
    if (sym->policy != NGD_SYMBOL_BUCKETS)
        return;
    set_p->n = sym->n_buckets;
    memcpy(set_p->sizes, sym->buckets, sym->n_buckets * sizeof(sym->buckets[0]));
}

ngd_status_t ngd_buckets_check(const struct ngd_symbol *sym, const struct ngd_bucket_set *set, struct ngd_diag *diag)
{
    int64_t last = sym->n_buckets ? sym->buckets[sym->n_buckets - 1] : sym->max;

    if (sym->policy != NGD_SYMBOL_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "symbol %s is exact: its rows may depend on one another, so it cannot be padded",
                            sym->name);
    if (set->n < 1 || set->n > NGD_MAX_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "symbol %s takes 1 to %d buckets, not %" PRIu32, sym->name,
                            NGD_MAX_BUCKETS, set->n);
    for (uint32_t i = 0; i < set->n; i++)
        if (set->sizes[i] < sym->min || set->sizes[i] > last || (i && set->sizes[i] <= set->sizes[i - 1]))
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "bucket %" PRId64 " of symbol %s is not ascending within %" PRId64 "..%" PRId64,
                                set->sizes[i], sym->name, sym->min, last);
    if (set->sizes[set->n - 1] < sym->max)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the last bucket of symbol %s is %" PRId64 ", below its maximum %" PRId64, sym->name,
                            set->sizes[set->n - 1], sym->max);
    return NGD_OK;
}
