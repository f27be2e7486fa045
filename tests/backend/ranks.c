/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/backend/ranks.h"
#include <stdarg.h>

/* Returns false if there are fewer real devices than ranks. */
static bool open_rank(struct ranks *s, int backend)
{
    const bool real = s->backend->simulated && !s->backend->simulated();
    uint32_t rank = s->n;
    struct ngd_device_params params;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    conform_params(backend, &params);
    params.index = rank;
    status = ngd_device_open(&params, &s->b[rank].dev, &diag);
    if (real && status == NGD_ERR_NOT_FOUND && rank > 0) {
        conform_skip(s->backend, "groups of more devices", diag.text);
        return false;
    }
    run_check(status, &diag, "device");
    s->n++;
    run_check(ngd_stream_create(s->b[rank].dev, "test", &s->b[rank].stream, &diag), &diag, "stream");
    run_check(ngd_pool_create(s->b[rank].dev, "test pool", &s->b[rank].pool), &diag, "pool");
    return true;
}

static ngd_status_t make_group(struct ranks *s, ngd_nsec_t time_limit, struct ngd_diag *diag)
{
    struct ngd_device *devices[RANKS_MAX] = {NULL};
    struct ngd_comm_params params;

    for (uint32_t i = 0; i < s->n; i++)
        devices[i] = s->b[i].dev;
    ngd_comm_params_init(&params);
    params.name = "tp";
    params.devices = devices;
    params.n = s->n;
    params.time_limit = time_limit;
    return ngd_comm_create(&params, &s->comm, diag);
}

/* One device is enough to find out whether the backend has groups. There may not be more devices. */
static bool has_groups(struct ranks *s)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = make_group(s, NGD_SEC, &diag);

    if (status == NGD_ERR_UNIMPLEMENTED) {
        conform_says(diag.text, s->backend->name);
        conform_skip(s->backend, "collectives", diag.text);
        return false;
    }
    run_check(status, &diag, "group");
    ngd_comm_destroy(s->comm);
    s->comm = NULL;
    return true;
}

bool ranks_open(struct ranks *s, int backend, uint32_t n, ngd_nsec_t time_limit)
{
    struct ngd_diag diag = {0};

    memset(s, 0, sizeof(*s));
    s->backend = conform_backend(backend);
    open_rank(s, backend);
    if (!has_groups(s)) {
        ranks_close(s);
        return false;
    }
    while (s->n < n) {
        if (!open_rank(s, backend)) {
            ranks_close(s);
            return false;
        }
    }
    run_check(make_group(s, time_limit, &diag), &diag, "group");
    return true;
}

void ranks_close(struct ranks *s)
{
    ranks_unready(s);
    ngd_comm_destroy(s->comm);
    for (uint32_t i = 0; i < s->n; i++)
        bench_close(&s->b[i]);
}

void ranks_ready(struct ranks *s, uint32_t rank, const char *text, const int64_t *symbols)
{
    struct ngd_diag diag = {0};
    struct ready *r = &s->r[rank];
    struct conform_io *io = &s->io[rank];

    if (ready_open_in(r, &s->b[rank], &s->comm, 1, text, symbols, &diag))
        ck_abort_msg("%s\n%.2000s", diag.text, text);
    conform_io_init(io, symbols);
    s->x[rank] = calloc(1, r->plan->inputs[0].bytes + 1);
    s->y[rank] = calloc(1, r->plan->outputs[0].bytes + 1);
    io->in[0] = (struct ngd_span){s->x[rank], r->plan->inputs[0].bytes};
    io->out[0] = (struct ngd_out){s->y[rank], r->plan->outputs[0].bytes};
    if (symbols)
        io->in[0].bytes = r->plan->inputs[0].row_bytes * (uint64_t)(symbols[0] * r->plan->inputs[0].row_mult);
}

void ranks_unready(struct ranks *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        ready_close(&s->r[i]);
        free(s->x[i]);
        free(s->y[i]);
        s->x[i] = s->y[i] = NULL;
    }
}

ngd_status_t ranks_launch(struct ranks *s, uint32_t rank)
{
    s->io[rank].launch.status = NGD_ERR_INTERNAL; /* overwritten when it has run */
    return ngd_stream_launch(s->b[rank].stream, s->r[rank].inst, &s->io[rank].launch);
}

void ranks_wait(struct ranks *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        (void)ngd_stream_sync(s->b[i].stream); /* the launch reports its error */
}

void ranks_run(struct ranks *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        ck_assert_int_eq(ranks_launch(s, i), NGD_OK);
    ranks_wait(s);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->io[i].launch.status)
            ck_abort_msg("rank %u: %s: %s", i, ngd_status_name(s->io[i].launch.status), s->io[i].launch.diag.text);
}

const char *ranks_text(const char *body, ...)
{
    static char text[4096];
    char inner[3800];
    va_list args;

    va_start(args, body);
    vsnprintf(inner, sizeof(inner), body, args);
    va_end(args);
    snprintf(text, sizeof(text), "npugraph 1\ngraph \"g\" {\n%s\nreturn \"y\" = %%y\n}\n", inner);
    return text;
}
