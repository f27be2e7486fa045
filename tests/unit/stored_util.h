/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_STORED_UTIL_H
#define NGD_TESTS_STORED_UTIL_H

/* Helpers for tests of the scheduler's use of the store:
 * they start schedulers with one store, on the real host device. */
#include "tests/unit/sched_util.h"
#include "tests/unit/store_util.h"

struct start {
    struct bed bed;
    struct ngd_store *store;
    uint64_t passes, stored;
};

static inline void start_open(struct start *s)
{
    struct ngd_sched_params params;

    memset(s, 0, sizeof(*s));
    s->store = open_store(0);
    bed_params(&s->bed, &params);
    params.store = s->store;
    bed_start(&s->bed, &params);
    s->passes = row_count(NGD_M_PLANS, "passes");
    s->stored = row_count(NGD_M_PLANS, "store");
}

static inline void start_close(struct start *s)
{
    bed_close(&s->bed);
    ngd_store_close(s->store);
}

static inline void check_plans(const struct start *s, uint64_t passes, uint64_t stored)
{
    ck_assert_uint_eq(row_count(NGD_M_PLANS, "passes") - s->passes, passes);
    ck_assert_uint_eq(row_count(NGD_M_PLANS, "store") - s->stored, stored);
}

static inline void start_run(struct start *s, struct ngd_binding *binding, int64_t n, uint32_t times)
{
    bed_warm(&s->bed, binding, n, times);
}

/* Starts a scheduler, replays sizes 5 and 7, and stops it. */
static inline void first_start(void)
{
    struct start s;
    struct ngd_binding *b;

    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 3);
    start_run(&s, b, 7, 9);
    check_plans(&s, 2, 0);
    ngd_binding_unref(b);
    start_close(&s);
    ck_assert_uint_eq(count_files("entries"), 3); /* two plans, one graph */
}

#endif
