/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_CHECKED_H
#define NGD_TESTS_OPS_CHECKED_H

/*
 * Runs a plan's calls one by one, and checks that each touches only its own memory. All memory begins as bytes 0xff,
 * and a call's workspace is set to them before the call, so that reads of unwritten memory show as NaN or -1. After
 * each call every byte of the pool, of its ends and of the bound buffers is compared with its old value: only elements
 * of results, of operands that the operator writes, and the workspace may differ. Under AddressSanitizer all memory
 * except the call's tensors is poisoned while it runs, so that wrong reads are found too.
 */
#include "tests/ops/direct.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CHECKED_CLOSE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define CHECKED_OPEN(p, n)  ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define CHECKED_CLOSE(p, n) ((void)(p), (void)(n))
#define CHECKED_OPEN(p, n)  ((void)(p), (void)(n))
#endif

/* An area of memory: the pool with its ends (area 0), or a bound buffer. */
struct checked_area {
    char *at, *before;
    bool *may;
    uint64_t bytes;
};

struct checked {
    struct direct d;
    struct checked_area areas[65];
    uint32_t n_areas;
};

RUN struct checked_area checked_area(char *at, uint64_t bytes)
{
    return (struct checked_area){at, ngd_malloc(bytes + 1), NGD_NEW_N(bool, bytes + 1), bytes};
}

RUN void checked_open(struct checked *c, const struct ngd_plan *plan, ngd_isa_t isa, uint32_t threads)
{
    memset(c, 0, sizeof(*c));
    direct_open(&c->d, plan, isa, threads);
    c->areas[c->n_areas++] = checked_area(c->d.memory, plan->pool_bytes + 2 * DIRECT_GUARD);
    for (uint32_t i = 0; i < c->d.n_bound; i++)
        c->areas[c->n_areas++] = checked_area(c->d.bound[i], plan->bound[i].bytes);
}

RUN void checked_close(struct checked *c)
{
    for (uint32_t i = 0; i < c->n_areas; i++) {
        ngd_free(c->areas[i].before);
        ngd_free(c->areas[i].may);
    }
    direct_close(&c->d);
}

RUN struct checked_area *checked_area_of(struct checked *c, const struct ngd_plan_tensor *t)
{
    return &c->areas[t->space == NGD_SPACE_POOL ? 0 : 1 + t->bound];
}

/* Allows writes to the elements of a tensor. */
RUN void checked_allow(struct checked *c, uint32_t tensor)
{
    const struct ngd_plan_tensor *t = &c->d.plan->tensors[tensor];
    struct checked_area *a = checked_area_of(c, t);
    const uint64_t base = (uint64_t)(direct_address(&c->d, tensor) - a->at), size = ngd_dtype_bytes(t->dtype);
    int64_t n = 1;

    for (uint32_t k = 0; k < t->rank; k++)
        n *= t->dims[k];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;

        for (uint32_t k = t->rank; k-- > 0; rest /= t->dims[k])
            at += rest % t->dims[k] * t->strides[k];
        memset(&a->may[base + (uint64_t)at * size], 1, size);
    }
}

RUN void checked_prepare(struct checked *c, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < c->n_areas; i++) {
        memcpy(c->areas[i].before, c->areas[i].at, c->areas[i].bytes);
        memset(c->areas[i].may, 0, c->areas[i].bytes);
    }
    memset(c->d.pool + call->workspace_offset, 0xff, call->workspace_bytes);
    memset(&c->areas[0].may[DIRECT_GUARD + call->workspace_offset], 1, call->workspace_bytes);
    for (uint32_t i = 0; i < call->n_out; i++)
        checked_allow(c, call->out[i]);
    for (uint32_t i = 0; i < call->n_in && i < 32; i++)
        if ((call->op->mutates >> i & 1) && call->in[i] != NGD_PLAN_NONE)
            checked_allow(c, call->in[i]);
}

RUN void checked_poison(struct checked *c, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < c->n_areas; i++)
        CHECKED_CLOSE(c->areas[i].at, c->areas[i].bytes);
    CHECKED_OPEN(c->d.pool + call->workspace_offset, call->workspace_bytes);
    for (uint32_t i = 0; i < call->n_in + call->n_out; i++) {
        const uint32_t tensor = i < call->n_in ? call->in[i] : call->out[i - call->n_in];

        if (tensor != NGD_PLAN_NONE)
            CHECKED_OPEN(direct_address(&c->d, tensor), c->d.plan->tensors[tensor].bytes);
    }
}

RUN void checked_unpoison(struct checked *c)
{
    for (uint32_t i = 0; i < c->n_areas; i++)
        CHECKED_OPEN(c->areas[i].at, c->areas[i].bytes);
}

/* Returns false if the call wrote a byte that is not its own. */
RUN bool checked_verify(const struct checked *c)
{
    for (uint32_t i = 0; i < c->n_areas; i++)
        for (uint64_t k = 0; k < c->areas[i].bytes; k++)
            if (!c->areas[i].may[k] && c->areas[i].at[k] != c->areas[i].before[k])
                return false;
    return true;
}

/* Runs all calls, each in `parts` parts, and returns the first error. *culprit_p: the call that wrote other memory, or
 * NULL. */
RUN ngd_status_t checked_run(struct checked *c, const int64_t *symbols, uint32_t parts,
                             const struct ngd_plan_call **culprit_p)
{
    struct ngd_host_run run = {.symbols = symbols};

    *culprit_p = NULL;
    for (uint32_t i = 0; i < c->d.plan->n_calls && !atomic_load(&run.error) && !*culprit_p; i++) {
        const struct ngd_plan_call *call = &c->d.plan->calls[i];
        const uint32_t n = c->d.serial[i] ? 1 : parts;

        checked_prepare(c, call);
        checked_poison(c, call);
        for (uint32_t part = n; part-- > 0;)
            c->d.calls[i].fn(&c->d.calls[i], &run, part, n);
        checked_unpoison(c);
        if (!checked_verify(c))
            *culprit_p = call;
    }
    return (ngd_status_t)atomic_load(&run.error);
}

#endif
