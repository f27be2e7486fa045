/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_MODEL_UTIL_H
#define NGD_TESTS_MODEL_UTIL_H

/* Helpers for tests of models and sequences (test_model*.c, test_contract.c): a prompt, and a worker that is held. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[TOY_CONTEXT + 1] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8, 14, 2, 6};

/* The state of an operation when it is cancelled or its sequence is closed. */
enum where { WAITING, RUNNING };

/* Holds the worker before (WAITING) or in (RUNNING) the next replay. */
struct hold {
    enum where where;
    struct gate gate;
    struct call busy;
    struct ngd_binding *binding;
};

static inline void hold_pass(void *arg)
{
    gate_pass(arg);
}

static inline void hold_begin(struct hold *h, struct toy *t, enum where where)
{
    h->where = where;
    gate_init(&h->gate);
    h->binding = bed_binding(&t->bed, DOUBLE_TEXT, NULL);
    if (where == WAITING)
        call_occupy(&t->bed, &h->busy, h->binding, &h->gate);
    if (where == RUNNING) {
        ck_assert_int_eq(ngd_stream_callback(bed_slot(&t->bed, 0)->stream, hold_pass, &h->gate), NGD_OK);
        gate_await(&h->gate, 1);
    }
}

/* Waits until the operation is in the state in which the worker is held. */
static inline void hold_await(const struct hold *h, const struct toy_seq *s, const char *waiting)
{
    struct ngd_model *model = ngd_seq_model(s->seq);
    struct ngd_seq_info info;
    bool running = h->where != RUNNING;

    while (!running) {
        ngd_mutex_lock(&model->lock);
        running = s->seq->state == NGD_SEQ_RUNNING;
        ngd_mutex_unlock(&model->lock);
        sched_yield();
    }
    ngd_seq_info(s->seq, &info);
    if (h->where == WAITING)
        ck_assert_str_eq(info.state, waiting);
}

static inline void hold_end(struct hold *h)
{
    gate_open(&h->gate);
    if (h->where == WAITING)
        call_wait(&h->busy);
    ngd_binding_unref(h->binding);
}

#endif
