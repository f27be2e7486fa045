/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "graphs/guard.h"
#include "scheduler/diag/doctor_int.h"
#include "scheduler/run/share.h"
#include <inttypes.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------------ */

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Fills data with random values: floats from -1 to 1; integers and bools 0 or 1. */
static void draw_values(ngd_dtype_t dtype, void *data, uint64_t n, uint64_t *seed)
{
    size_t size = ngd_dtype_bytes(dtype);

    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = draw(seed);
        float f = (float)(int64_t)(r % 2001) / 1000.0f - 1.0f;
        uint16_t half = dtype == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);
        uint64_t one = r >> 7 & 1;
        const void *from = dtype == NGD_F32                        ? (const void *)&f
                           : dtype == NGD_F16 || dtype == NGD_BF16 ? (const void *)&half
                                                                   : (const void *)&one;

        memcpy((char *)data + i * size, from, size);
    }
}

static ngd_status_t count_elements(const struct ngd_graph *g, const struct ngd_type *type, const int64_t *symbols,
                                   uint64_t *n_p)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size;

        if (ngd_expr_eval(g->exprs, type->dims[d], symbols, &size) || size < 0 ||
            __builtin_mul_overflow(n, (uint64_t)size, &n))
            return NGD_ERR_OVERFLOW;
    }
    *n_p = n;
    return NGD_OK;
}

/* ---- the subject -------------------------------------------------------------------------------------- */

static ngd_status_t subject_choose_symbols(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *p,
                                           struct ngd_diag *diag)
{
    const struct ngd_graph *g = subject->prog->graph;
    int64_t asked[NGD_GRAPH_MAX_SYMBOLS];
    ngd_status_t status;

    if (p->symbols && p->n_symbols != g->n_symbols)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "graph \"%.100s\" has %u symbols, and values of %u were given", g->name, g->n_symbols,
                            p->n_symbols);
    for (uint32_t i = 0; i < g->n_symbols; i++)
        asked[i] = p->symbols ? p->symbols[i] : NGD_SIZE_ANY;
    status = ngd_program_choose_sizes(subject->prog, asked, g->n_symbols, subject->symbols, diag);
    if (status)
        return status;
    subject->launch.symbols = subject->symbols;
    return ngd_program_key(subject->prog, subject->symbols, g->n_symbols, &subject->key, diag);
}

static ngd_status_t subject_choose_inputs(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *p,
                                          uint64_t *seed)
{
    const struct ngd_graph *g = subject->prog->graph;
    struct ngd_span *spans = ngd_arena_calloc(&subject->arena, g->n_inputs + 1u, sizeof(*spans));

    if (!spans)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ngd_type *type = &g->values[g->inputs[i]].type;
        uint64_t n;
        void *data;

        if (count_elements(g, type, subject->symbols, &n))
            return NGD_ERR_OVERFLOW;
        data = ngd_arena_calloc(&subject->arena, n + 1, ngd_dtype_bytes(type->dtype));
        if (!data)
            return NGD_ERR_NO_MEMORY;
        draw_values(type->dtype, data, n, seed);
        spans[i] = (struct ngd_span){data, n * ngd_dtype_bytes(type->dtype)};
    }
    subject->launch.inputs = p->inputs ? p->inputs : spans;
    return NGD_OK;
}

static ngd_status_t subject_choose_hosts(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *p)
{
    const struct ngd_graph *g = subject->prog->graph;
    struct ngd_host_value *hosts = ngd_arena_calloc(&subject->arena, g->n_hosts + 1u, sizeof(*hosts));

    if (!hosts)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < g->n_hosts; i++) {
        uint64_t n;
        int64_t *values;

        if (count_elements(g, &g->values[g->hosts[i]].type, subject->symbols, &n) || n > UINT32_MAX)
            return NGD_ERR_OVERFLOW;
        values = ngd_arena_calloc(&subject->arena, n + 1, sizeof(*values));
        if (!values)
            return NGD_ERR_NO_MEMORY;
        for (uint64_t k = 0; k < n; k++)
            values[k] = (int64_t)k + 1;
        hosts[i] = (struct ngd_host_value){values, (uint32_t)n};
    }
    subject->launch.hosts = p->hosts ? p->hosts : hosts;
    return NGD_OK;
}

static ngd_status_t draw_buffer(struct ngd_doctor_subject *subject, const struct ngd_value *v, uint64_t *seed,
                                struct ngd_buffer **buf_p, struct ngd_diag *diag)
{
    uint64_t n;
    struct ngd_buffer *buf;
    void *data;
    ngd_status_t status = count_elements(subject->prog->graph, &v->type, subject->symbols, &n);

    if (status)
        return ngd_diag_set(diag, status, "the size of \"%.200s\" overflows", v->label);
    status = ngd_buffer_create(subject->prog->queue->dev, n * ngd_dtype_bytes(v->type.dtype) + 1, NGD_BUFFER_GENERAL,
                               "drawn for the doctor", &buf, diag);
    if (status)
        return status;
    data = ngd_malloc(n * ngd_dtype_bytes(v->type.dtype) + 1);
    if (data) {
        draw_values(v->type.dtype, data, n, seed);
        status = ngd_buffer_write(buf, 0, data, n * ngd_dtype_bytes(v->type.dtype), diag);
    } else {
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for \"%.200s\"", v->label);
    }
    ngd_free(data);
    if (status)
        ngd_buffer_unref(buf);
    else
        *buf_p = buf;
    return status;
}

static ngd_status_t subject_choose_buffers(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *p,
                                           uint64_t *seed, struct ngd_diag *diag)
{
    const struct ngd_graph *g = subject->prog->graph;
    ngd_status_t status = NGD_OK;

    subject->n_bound = g->n_params + g->n_states;
    subject->buffers = NGD_NEW_N(struct ngd_buffer *, subject->n_bound + 1);
    if (!subject->buffers)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the doctor");
    for (uint32_t i = 0; i < subject->n_bound && status == NGD_OK; i++) {
        struct ngd_buffer *bound = p->binding ? ngd_binding_buffer(p->binding, i) : NULL;
        const struct ngd_value *v = &g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]];

        if (bound)
            subject->buffers[i] = ngd_buffer_ref(bound);
        else
            status = draw_buffer(subject, v, seed, &subject->buffers[i], diag);
    }
    return status;
}

static ngd_status_t subject_check_counts(const struct ngd_doctor_params *p, struct ngd_diag *diag)
{
    const struct ngd_graph *g = p->prog->graph;

    if (p->inputs && p->n_inputs != g->n_inputs)
        return ngd_diag_set(diag, NGD_ERR_INPUT_COUNT, "graph \"%.100s\" takes %u inputs, not %u", g->name, g->n_inputs,
                            p->n_inputs);
    if (p->hosts && p->n_hosts != g->n_hosts)
        return ngd_diag_set(diag, NGD_ERR_HOST_PARAM, "graph \"%.100s\" takes %u host parameters, not %u", g->name,
                            g->n_hosts, p->n_hosts);
    return NGD_OK;
}

ngd_status_t ngd_doctor_subject_init(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *p,
                                     struct ngd_diag *diag)
{
    uint64_t seed = p->seed * UINT64_C(2654435761) + 1;
    ngd_status_t status;

    subject->prog = ngd_program_ref(p->prog);
    ngd_arena_init(&subject->arena, 64 << 10);
    status = subject_check_counts(p, diag);
    if (status == NGD_OK)
        status = subject_choose_symbols(subject, p, diag);
    if (status)
        return status;
    status = subject_choose_inputs(subject, p, &seed);
    if (status == NGD_OK)
        status = subject_choose_hosts(subject, p);
    if (status)
        return ngd_diag_set(diag, status, "inputs of graph \"%.100s\" cannot be drawn: %s", subject->prog->graph->name,
                            ngd_status_text(status));
    return subject_choose_buffers(subject, p, &seed, diag);
}

void ngd_doctor_subject_fini(struct ngd_doctor_subject *subject)
{
    ngd_buffers_free(subject->buffers, subject->n_bound);
    ngd_arena_fini(&subject->arena);
    ngd_program_unref(subject->prog);
    memset(subject, 0, sizeof(*subject));
}

/* ---- errands ------------------------------------------------------------------------------------------ */

struct errand {
    struct ngd_sched_item item;
    void (*fn)(void *arg, struct ngd_slot *slot);
    void *arg;
    struct ngd_mutex lock; /* rank ERRAND; no other lock is held with it */
    struct ngd_cond done;
    bool over, aborted;
};

static void errand_end(struct errand *e, bool aborted)
{
    ngd_mutex_lock(&e->lock);
    e->over = true;
    e->aborted = aborted;
    ngd_cond_signal(&e->done);
    ngd_mutex_unlock(&e->lock);
}

static void errand_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    struct errand *e = ngd_container_of(item, struct errand, item);

    e->fn(e->arg, slot);
    errand_end(e, false);
}

static void errand_abort(struct ngd_sched_item *item)
{
    errand_end(ngd_container_of(item, struct errand, item), true);
}

static const struct ngd_sched_item_ops errand_ops = {.run = errand_run, .abort = errand_abort};

ngd_status_t ngd_doctor_subject_on_slot(struct ngd_doctor_subject *subject,
                                        void (*fn)(void *arg, struct ngd_slot *slot), void *arg, struct ngd_diag *diag)
{
    struct ngd_queue *queue = subject->prog->queue;
    struct errand e = {.fn = fn, .arg = arg};
    ngd_status_t status;

    ngd_sched_item_init(&e.item, &errand_ops);
    e.item.account = &subject->prog->sched->own_share->accounts[queue->index];
    e.item.arrival = ngd_now();
    ngd_mutex_init(&e.lock, NGD_RANK_ERRAND);
    ngd_cond_init(&e.done);
    status = ngd_queue_push(queue, &e.item, NULL);
    ngd_mutex_lock(&e.lock);
    while (status == NGD_OK && !e.over)
        ngd_cond_wait(&e.done, &e.lock);
    ngd_mutex_unlock(&e.lock);
    if (status == NGD_OK && e.aborted)
        status = NGD_ERR_CANCELLED;
    ngd_cond_fini(&e.done);
    ngd_mutex_fini(&e.lock);
    return status ? ngd_diag_set(diag, status, "the scheduler stopped before the doctor was done") : NGD_OK;
}
