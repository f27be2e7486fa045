/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_UNIT_MERGE_UTIL_H
#define NGD_TESTS_UNIT_MERGE_UTIL_H

/* Helpers for tests of requests that wait for a slot and may be merged: the test decides when the slot becomes free. */
#include "scheduler/program/merge_prog.h"
#include "tests/unit/sched_util.h"

/* A graph that doubles one element in each row. */
#define ROWS_TEXT                                                                             \
    "npugraph 1\ngraph \"rows\" {\n sym B 1..32 batch buckets 1, 4, 32\n input %x : f32[B]\n" \
    " %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n"
/* A device, and a request that keeps its only slot until the gate opens. */
struct stage {
    struct bed bed;
    struct ngd_binding *other;
    struct call holder;
    struct gate gate;
};

static inline void stage_open(struct stage *s, ngd_nsec_t merge_wait)
{
    struct ngd_sched_params params;

    bed_params(&s->bed, &params);
    params.inline_limit = 0;
    params.merge_wait = merge_wait;
    bed_start(&s->bed, &params);
    s->other = bed_binding(&s->bed, DOUBLE_TEXT, NULL);
    bed_warm(&s->bed, s->other, 2, 1);
}

static inline void stage_close(struct stage *s)
{
    ngd_binding_unref(s->other);
    bed_close(&s->bed);
}

static inline void hold(struct stage *s)
{
    bed_settle(&s->bed);
    call_occupy(&s->bed, &s->holder, s->other, &s->gate);
}

static inline void let_go(struct stage *s)
{
    gate_open(&s->gate);
    call_wait(&s->holder);
}

static inline void warm_buckets(struct stage *s, struct ngd_binding *b)
{
    static const int64_t sizes[] = {1, 4, 32};

    for (int i = 0; i < 3; i++)
        bed_warm(&s->bed, b, sizes[i], 1);
}

/* Opens a stage without lingering whose buckets are captured. */
static inline struct ngd_binding *open_warm(struct stage *s)
{
    struct ngd_binding *b;

    stage_open(s, 0);
    b = bed_binding(&s->bed, ROWS_TEXT, NULL);
    warm_buckets(s, b);
    return b;
}

/* Closes the stage and a binding on it. */
static inline void stage_close_with(struct stage *s, struct ngd_binding *b)
{
    ngd_binding_unref(b);
    stage_close(s);
}

/* Opens a stage whose clock stands still, with a slot that is busy until let_go(). */
static inline struct ngd_binding *open_held(struct stage *s, ngd_nsec_t now)
{
    struct ngd_binding *b;

    ngd_clock_set_fake(now);
    b = open_warm(s);
    hold(s);
    return b;
}

static inline void close_held(struct stage *s, struct ngd_binding *b)
{
    stage_close_with(s, b);
    ngd_clock_set_fake(-1);
}

static inline void submit_rows(struct stage *s, struct call *c, struct ngd_binding *b, int64_t rows)
{
    call_init(c, b, rows);
    for (int64_t i = 0; i < rows; i++)
        c->x[i] = (float)(rows * 100 + i);
    call_submit(&s->bed, c);
}

/* Checks that each of n requests is answered with its own rows. */
static inline void check_each(struct call *c, int n)
{
    for (int i = 0; i < n; i++) {
        call_wait(&c[i]);
        call_check(&c[i]);
    }
}

/* Checks the same, and that each of the n requests ran in a merged replay of `together` requests. */
static inline void check_together(struct call *c, int n, uint32_t together)
{
    check_each(c, n);
    for (int i = 0; i < n; i++)
        ck_assert_uint_eq(c[i].req.together, together);
}

/* Sets the estimated time of replays of n rows. */
static inline void set_cost(struct ngd_binding *b, int64_t n, ngd_nsec_t cost)
{
    struct ngd_gcache_entry *entry;
    struct ngd_key key;

    ck_assert_int_eq(ngd_program_key(b->prog, &n, 1, &key, NULL), NGD_OK);
    entry = ngd_program_lookup(b->prog, &key, NULL);
    ck_assert_ptr_nonnull(entry);
    atomic_store(&ngd_entry_executable(entry)->expected, cost);
    atomic_store(&ngd_entry_executable(entry)->doubt, 0);
    atomic_store(&ngd_entry_executable(entry)->runs, 100);
    ngd_gcache_put(entry);
}

#endif
