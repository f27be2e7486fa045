/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_SCHED_UTIL_H
#define NGD_TESTS_SCHED_UTIL_H

/*
 * Helpers for tests of the scheduler on the real host device: a bed (device and scheduler), gates that stop a thread at
 * a known point, and calls (a request with its data and its answer).
 *
 * To keep a slot busy, a test submits a request whose done() waits at a gate; for a capture thread, a capture whose
 * done() does.
 */
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/program/program_int.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Checks that the text contains each of the words, which are separated by '|'. */
static inline void says(const char *text, const char *words)
{
    char list[200], *at = list, *word;

    snprintf(list, sizeof(list), "%s", words);
    while ((word = strsep(&at, "|")))
        if (!strstr(text, word))
            ck_abort_msg("\"%s\" does not say \"%s\"", text, word);
}

/* ---- gates and counters ------------------------------------------------------------------------------ */

struct gate {
    struct ngd_mutex lock;
    struct ngd_cond cond;
    uint32_t arrived; /* threads that have come to the gate */
    bool open;
};

static inline void gate_init(struct gate *g)
{
    memset(g, 0, sizeof(*g));
    ngd_mutex_init(&g->lock, NGD_RANK_NONE);
    ngd_cond_init(&g->cond);
}

/* Counts this thread as arrived, and waits until the gate is open. */
static inline void gate_pass(struct gate *g)
{
    ngd_mutex_lock(&g->lock);
    g->arrived++;
    ngd_cond_broadcast(&g->cond);
    while (!g->open)
        ngd_cond_wait(&g->cond, &g->lock);
    ngd_mutex_unlock(&g->lock);
}

static inline void gate_await(struct gate *g, uint32_t n)
{
    ngd_mutex_lock(&g->lock);
    while (g->arrived < n)
        ngd_cond_wait(&g->cond, &g->lock);
    ngd_mutex_unlock(&g->lock);
}

static inline void gate_open(struct gate *g)
{
    ngd_mutex_lock(&g->lock);
    g->open = true;
    ngd_cond_broadcast(&g->cond);
    ngd_mutex_unlock(&g->lock);
}

/* ---- the bed ------------------------------------------------------------------------------------------ */

struct bed {
    struct ngd_device *dev;
    struct ngd_sched *sched;
    uint64_t metrics[NGD_M_MAX]; /* before the test: counters are the process's */
};

/* Returns by how much a metric has grown during the test. */
static inline int bed_counted(const struct bed *bed, ngd_metric_t m)
{
    return (int)(int64_t)(ngd_metric_get(m) - bed->metrics[m]);
}

static inline uint64_t row_count(ngd_metric_t m, const char *label)
{
    return ngd_metric_row_get(ngd_metric_row(m, label));
}

static inline void bed_params(struct bed *bed, struct ngd_sched_params *params)
{
    struct ngd_device_params dp;
    struct ngd_diag diag = {0};

    memset(bed, 0, sizeof(*bed));
    for (int m = 0; m < NGD_M_MAX; m++)
        bed->metrics[m] = ngd_metric_get((ngd_metric_t)m);
    ngd_log_set_level(NGD_LOG_ERROR);
    ngd_device_params_init(&dp);
    dp.backend = "host";
    dp.threads = 1;
    dp.memory_bytes = 256u << 20;
    if (ngd_device_open(&dp, &bed->dev, &diag))
        ck_abort_msg("%s", diag.text);
    ngd_sched_params_init(params);
    params->devices = &bed->dev;
    params->n_devices = 1;
}

static inline void bed_start(struct bed *bed, const struct ngd_sched_params *params)
{
    struct ngd_diag diag = {0};

    if (ngd_sched_create(params, &bed->sched, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_int_eq(ngd_sched_start(bed->sched), NGD_OK);
}

/* Opens a bed with one capture thread. inline_limit 0: the worker runs all requests. */
static inline void bed_open(struct bed *bed, uint32_t slots, ngd_nsec_t inline_limit)
{
    struct ngd_sched_params params;

    bed_params(bed, &params);
    params.slots = slots;
    params.inline_limit = inline_limit;
    bed_start(bed, &params);
}

static inline void bed_close(struct bed *bed)
{
    ngd_sched_stop(bed->sched);
    ck_assert(ngd_sched_idle(bed->sched));
    ngd_sched_destroy(bed->sched);
    ngd_device_close(bed->dev);
}

static inline struct ngd_slot *bed_slot(struct bed *bed, uint32_t i)
{
    return &bed->sched->queues[0].slots[i];
}

/* Waits until no slot is in use. A worker gives its slot back shortly after it has called done(). */
static inline void bed_settle(struct bed *bed)
{
    struct ngd_queue *q = &bed->sched->queues[0];

    for (uint32_t i = 0; i < q->n_slots; i++) {
        bool busy = true;

        while (busy) {
            ngd_mutex_lock(&q->lock);
            busy = q->slots[i].busy || q->lineup.depth > 0;
            ngd_mutex_unlock(&q->lock);
            if (busy)
                sched_yield();
        }
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------- */

/* Each N is a key of its own. */
#define DOUBLE_TEXT                                                                                     \
    "npugraph 1\ngraph \"double\" {\n sym N 1..64\n input %x : f32[N]\n %y = aten.add.Tensor(%x, %x)\n" \
    " return \"y\" = %y\n}\n"
/* A graph with an index: one that is out of range fails only its replay. */
#define PICK_TEXT                                                                                            \
    "npugraph 1\ngraph \"pick\" {\n param %w : f32[4,2]\n input %i : i32[3]\n %y = aten.embedding(%w, %i)\n" \
    " return \"y\" = %y\n}\n"

static inline struct ngd_graph *bed_graph(const char *text)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};

    if (ngd_graph_parse(text, strlen(text), &g, &diag))
        ck_abort_msg("%s\n%.3000s", diag.text, text);
    return g;
}

static inline struct ngd_program *bed_program(struct bed *bed, const char *text,
                                              const struct ngd_graph_options *options)
{
    struct ngd_graph_options defaults;
    struct ngd_program *prog = NULL;
    struct ngd_graph *g = bed_graph(text);
    struct ngd_diag diag = {0};

    ngd_graph_options_init(&defaults);
    if (ngd_program_open(bed->sched, bed->dev, g, options ? options : &defaults, NULL, &prog, NULL, &diag))
        ck_abort_msg("%s", diag.text);
    ngd_graph_unref(g);
    return prog;
}

static inline struct ngd_binding *bed_bind(struct ngd_program *prog, struct ngd_buffer *const *buffers)
{
    struct ngd_binding *binding = NULL;
    struct ngd_diag diag = {0};

    if (ngd_binding_create(prog, buffers, &binding, &diag))
        ck_abort_msg("%s", diag.text);
    return binding;
}

/* Binds a graph without buffers; the binding holds the program. */
static inline struct ngd_binding *bed_binding(struct bed *bed, const char *text,
                                              const struct ngd_graph_options *options)
{
    struct ngd_program *prog = bed_program(bed, text, options);
    struct ngd_binding *binding = bed_bind(prog, NULL);

    ngd_program_unref(prog);
    return binding;
}

static inline struct ngd_buffer *bed_buffer(struct bed *bed, const void *data, uint64_t bytes, const char *label)
{
    struct ngd_buffer *buf = NULL;
    struct ngd_diag diag = {0};

    if (ngd_buffer_create(bed->dev, bytes, NGD_BUFFER_GENERAL, label, &buf, &diag))
        ck_abort_msg("%s", diag.text);
    if (data)
        ck_assert_int_eq(ngd_buffer_write(buf, 0, data, bytes, NULL), NGD_OK);
    return buf;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

#define CALL_MAX 64

struct call {
    struct ngd_request req;
    int64_t n;
    float x[CALL_MAX], y[CALL_MAX];
    struct ngd_span in;
    struct ngd_out out;
    struct ngd_diag diag;
    /* The answer. */
    _Atomic uint32_t answers;
    ngd_status_t status;
    char text[NGD_DIAG_MAX];
    pthread_t thread;        /* that called done */
    uint32_t rank;           /* of this answer among those that count in `order` */
    _Atomic uint32_t *order; /* NULL: not counted */
    struct gate *gate;       /* done() waits here */
    struct gate answered;
};

static inline void call_done(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct call *c = req->user;

    c->status = status;
    c->thread = pthread_self();
    snprintf(c->text, sizeof(c->text), "%s", status && diag ? diag->text : "");
    if (c->order)
        c->rank = atomic_fetch_add(c->order, 1);
    atomic_fetch_add(&c->answers, 1);
    if (c->gate)
        gate_pass(c->gate);
    ngd_mutex_lock(&c->answered.lock);
    c->answered.arrived++;
    ngd_cond_broadcast(&c->answered.cond);
    ngd_mutex_unlock(&c->answered.lock);
}

/* Initialises a call of DOUBLE_TEXT: y = 2x of n elements. */
static inline void call_init(struct call *c, struct ngd_binding *binding, int64_t n)
{
    memset(c, 0, sizeof(*c));
    gate_init(&c->answered);
    ngd_request_init(&c->req);
    c->n = n;
    for (int64_t i = 0; i < n && i < CALL_MAX; i++)
        c->x[i] = (float)(i + 1);
    c->in = (struct ngd_span){c->x, (uint64_t)n * sizeof(float)};
    c->out = (struct ngd_out){c->y, (uint64_t)n * sizeof(float)};
    c->req.binding = binding;
    c->req.launch.symbols = &c->n;
    c->req.launch.inputs = &c->in;
    c->req.launch.outputs = &c->out;
    c->req.n_symbols = c->req.n_inputs = c->req.n_outputs = 1;
    c->req.done = call_done;
    c->req.user = c;
}

static inline void call_submit(struct bed *bed, struct call *c)
{
    if (ngd_sched_submit(bed->sched, &c->req, &c->diag))
        ck_abort_msg("submit: %s", c->diag.text);
}

static inline void call_wait(struct call *c)
{
    gate_await(&c->answered, 1);
    ck_assert_uint_eq(atomic_load(&c->answers), 1);
}

static inline void call_check(const struct call *c)
{
    if (c->status)
        ck_abort_msg("%s: %s", ngd_status_name(c->status), c->text);
    for (int64_t i = 0; i < c->n; i++)
        ck_assert(c->y[i] == 2.0f * c->x[i]);
}

static inline void call_run(struct bed *bed, struct call *c)
{
    call_submit(bed, c);
    call_wait(c);
}

/* Captures a size, and runs it so often that its time is known. */
static inline void bed_warm(struct bed *bed, struct ngd_binding *binding, int64_t n, uint32_t runs)
{
    for (uint32_t i = 0; i < runs; i++) {
        struct call c;

        call_init(&c, binding, n);
        call_run(bed, &c);
        call_check(&c);
    }
}

/* Runs a request that keeps its slot in done() until the gate opens. */
static inline void call_occupy(struct bed *bed, struct call *c, struct ngd_binding *binding, struct gate *gate)
{
    gate_init(gate);
    call_init(c, binding, 2);
    c->gate = gate;
    call_submit(bed, c);
    gate_await(gate, 1);
}

/* ---- capture threads ---------------------------------------------------------------------------------- */

static inline void capture_at_gate(void *user, ngd_status_t status, const struct ngd_capture_info *info,
                                   const struct ngd_diag *diag)
{
    (void)status;
    (void)info;
    (void)diag;
    gate_pass(user);
}

/* Keeps a capture thread in a done() until the gate opens. */
static inline void capture_occupy(struct bed *bed, struct ngd_binding *binding, struct gate *gate)
{
    static struct ngd_capture_asker asker; /* one thread is kept at a time */
    int64_t n = 2;
    struct ngd_diag diag = {0};

    asker = (struct ngd_capture_asker){.done = capture_at_gate, .user = gate};
    gate_init(gate);
    if (ngd_sched_capture(bed->sched, binding, &n, 1, NULL, true, &asker, &diag))
        ck_abort_msg("%s", diag.text);
    gate_await(gate, 1);
}

#endif
