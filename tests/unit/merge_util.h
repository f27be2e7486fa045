/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_UNIT_MERGE_UTIL_H
#define NGD_TESTS_UNIT_MERGE_UTIL_H

/* Requests that wait for a slot and may run as one: a stage where the test says when the slot is free. */
#include "scheduler/merge_prog.h"
#include "tests/unit/sched_util.h"

/* One element for each row, doubled. */
#define ROWS_TEXT                                                                             \
    "npugraph 1\ngraph \"rows\" {\n sym B 1..32 batch buckets 1, 4, 32\n input %x : f32[B]\n" \
    " %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n"
/* A device that nobody's time is waited for on, and a request that keeps its only slot until the gate opens. */
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

/* On a clock that stands, with buckets that are captured and a slot that is busy until let_go(). */
static inline struct ngd_binding *open_held(struct stage *s, ngd_nsec_t now)
{
    struct ngd_binding *b;

    ngd_clock_set_fake(now);
    stage_open(s, 0);
    b = bed_binding(&s->bed, ROWS_TEXT, NULL);
    warm_buckets(s, b);
    hold(s);
    return b;
}

static inline void close_held(struct stage *s, struct ngd_binding *b)
{
    ngd_binding_unref(b);
    stage_close(s);
    ngd_clock_set_fake(-1);
}

static inline void submit_rows(struct stage *s, struct call *c, struct ngd_binding *b, int64_t rows)
{
    call_init(c, b, rows);
    for (int64_t i = 0; i < rows; i++)
        c->x[i] = (float)(rows * 100 + i);
    call_submit(&s->bed, c);
}

static inline void check_rows(struct call *c)
{
    call_wait(c);
    ck_assert_msg(c->status == NGD_OK, "%s: %s", ngd_status_name(c->status), c->text);
    for (int64_t i = 0; i < c->n; i++)
        ck_assert(c->y[i] == 2.0f * (float)(c->n * 100 + i));
}

/* The time that replays of n rows are taken to need. */
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
