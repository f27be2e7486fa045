/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_DIRECT_H
#define NGD_TESTS_OPS_DIRECT_H

/*
 * Runs a plan's kernel calls without an executable: in memory of the test, with any number of parts, one part after the
 * other. All memory starts as bytes 0xff (NaN, or -1). The ends of the pool are guarded by patterns; parameters and
 * states end, but for their alignment, where a page begins that cannot be touched.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "devices/host/kernels/kernel.h"
#include "tests/ops/device_run.h"

#define DIRECT_GUARD 4096

struct direct {
    const struct ngd_plan *plan;
    struct ngd_arena arena;
    struct ngd_host_call *calls;
    bool *serial;
    char **ptrs;
    char *memory, *pool; /* pool lies DIRECT_GUARD into memory */
    char *bound[64];
    uint32_t n_bound;
};

RUN size_t direct_pages(uint64_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return ((size_t)bytes + page - 1) / page * page;
}

/* Returns memory with a page behind it that cannot be touched. Free it with direct_unguard and the same size. */
RUN char *direct_guarded(uint64_t bytes)
{
    size_t pages = direct_pages(bytes), page = direct_pages(1);
    char *map = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED || mprotect(map + pages, page, PROT_NONE) != 0)
        abort();
    return map + pages - ((bytes + 63) & ~(uint64_t)63);
}

RUN void direct_unguard(char *at, uint64_t bytes)
{
    size_t pages = direct_pages(bytes);

    munmap(at + ((bytes + 63) & ~(uint64_t)63) - pages, pages + direct_pages(1));
}

RUN char *direct_address(const struct direct *d, uint32_t tensor)
{
    const struct ngd_plan_tensor *t;

    if (tensor == NGD_PLAN_NONE)
        return NULL;
    t = &d->plan->tensors[tensor];
    return (t->space == NGD_SPACE_POOL ? d->pool : d->bound[t->bound]) + t->offset;
}

RUN void direct_prepare(struct direct *d, uint32_t i, ngd_isa_t isa, uint32_t threads)
{
    const struct ngd_plan_call *call = &d->plan->calls[i];
    struct ngd_host_prepare p = {.plan = d->plan, .call = call, .isa = isa, .threads = threads, .arena = &d->arena};
    const struct ngd_plan_tensor *rows;
    struct ngd_host_call *hc = &d->calls[i];
    struct ngd_diag diag = {0};

    p.row_tensor = call->n_out ? call->out[0] : call->in[0];
    run_check(ngd_host_kernel_of(call->op->id)->prepare(&p, &diag), &diag, call->op->name);
    rows = &d->plan->tensors[p.row_tensor];
    *hc = (struct ngd_host_call){.fn = p.fn,
                                 .params = p.params,
                                 .workspace = d->pool + call->workspace_offset,
                                 .rows = rows->rank ? rows->dims[0] : 1,
                                 .row_mult = rows->row_mult,
                                 .row_sym = rows->row_sym,
                                 .n_in = (uint8_t)call->n_in,
                                 .n_out = (uint8_t)call->n_out,
                                 .node = call->node,
                                 .n_ptrs = call->n_in + call->n_out,
                                 .ptrs = ngd_arena_calloc(&d->arena, call->n_in + call->n_out + 1, sizeof(char *))};
    d->serial[i] = p.serial;
    for (uint32_t k = 0; k < call->n_in; k++)
        hc->ptrs[k] = direct_address(d, call->in[k]);
    for (uint32_t k = 0; k < call->n_out; k++)
        hc->ptrs[call->n_in + k] = direct_address(d, call->out[k]);
}

RUN void direct_open(struct direct *d, const struct ngd_plan *plan, ngd_isa_t isa, uint32_t threads)
{
    memset(d, 0, sizeof(*d));
    ngd_arena_init(&d->arena, 64 << 10);
    d->plan = plan;
    d->memory = ngd_aligned_alloc(64, plan->pool_bytes + 2 * DIRECT_GUARD + 64);
    memset(d->memory, 0xff, plan->pool_bytes + 2 * DIRECT_GUARD);
    d->pool = d->memory + DIRECT_GUARD;
    d->n_bound = plan->graph->n_params + plan->graph->n_states;
    for (uint32_t i = 0; i < d->n_bound; i++) {
        d->bound[i] = direct_guarded(plan->bound[i].bytes);
        memset(d->bound[i], 0xff, plan->bound[i].bytes);
    }
    d->calls = NGD_NEW_N(struct ngd_host_call, plan->n_calls + 1);
    d->serial = NGD_NEW_N(bool, plan->n_calls + 1);
    for (uint32_t i = 0; i < plan->n_calls; i++)
        direct_prepare(d, i, isa, threads);
}

RUN void direct_close(struct direct *d)
{
    for (uint32_t i = 0; i < d->n_bound; i++)
        direct_unguard(d->bound[i], d->plan->bound[i].bytes);
    ngd_free(d->memory);
    ngd_free(d->calls);
    ngd_free(d->serial);
    ngd_arena_fini(&d->arena);
}

RUN char *direct_input(const struct direct *d, uint32_t i)
{
    return direct_address(d, d->plan->inputs[i].tensor);
}
RUN char *direct_output(const struct direct *d, uint32_t i)
{
    return direct_address(d, d->plan->outputs[i].tensor);
}

/* Runs all calls in order, each in `parts` parts, the last part first. Returns the first error. */
RUN ngd_status_t direct_run(const struct direct *d, const int64_t *symbols, const struct ngd_host_value *hosts,
                            uint32_t parts)
{
    struct ngd_host_run run = {.symbols = symbols, .hosts = hosts};

    for (uint32_t i = 0; i < d->plan->n_calls; i++) {
        uint32_t n = d->serial[i] ? 1 : parts;

        for (uint32_t part = n; part-- > 0;)
            d->calls[i].fn(&d->calls[i], &run, part, n);
    }
    return (ngd_status_t)atomic_load(&run.error);
}

RUN bool direct_guards_intact(const struct direct *d)
{
    const char *after = d->pool + d->plan->pool_bytes;

    for (int i = 0; i < DIRECT_GUARD; i++)
        if (d->memory[i] != (char)0xff || after[i] != (char)0xff)
            return false;
    return true;
}

#endif
