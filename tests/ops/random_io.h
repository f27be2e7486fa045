/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_RANDOM_IO_H
#define NGD_TESTS_OPS_RANDOM_IO_H

/* Replays a small graph on random inputs. */
#include "tests/ops/device_run.h"
#include "tests/unit/unit.h"

RUN uint64_t rng_state = 88172645463325252u;

RUN uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state >> 11;
}

RUN void fill_random(ngd_dtype_t t, char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float f = (float)((double)(rng() % 4000001) / 1e6 - 2);
        uint16_t half = t == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);
        int64_t v = (int64_t)(rng() % (t == NGD_BOOL ? 2 : 3));

        if (t == NGD_F32)
            memcpy(p + 4 * i, &f, 4);
        else if (ngd_dtype_is_float(t))
            memcpy(p + 2 * i, &half, 2);
        else
            memcpy(p + ngd_dtype_bytes(t) * i, &v, ngd_dtype_bytes(t));
    }
}

/* ---- replays of such a graph ---- */

#define MAX_IO 8

struct io {
    struct ngd_span in[MAX_IO];
    struct ngd_out out[MAX_IO];
    char *in_room[MAX_IO], *out_room[MAX_IO];
    uint32_t n_in, n_out;
};

RUN void io_open(struct io *io, const struct ready *r)
{
    memset(io, 0, sizeof(*io));
    io->n_in = r->graph->n_inputs;
    io->n_out = r->graph->n_outputs;
    ck_assert(io->n_in <= MAX_IO && io->n_out <= MAX_IO);
    for (uint32_t i = 0; i < io->n_in; i++) {
        io->in_room[i] = calloc(1, r->plan->inputs[i].bytes + 1);
        io->in[i] = (struct ngd_span){io->in_room[i], r->plan->inputs[i].bytes};
    }
    for (uint32_t i = 0; i < io->n_out; i++) {
        io->out_room[i] = calloc(1, r->plan->outputs[i].bytes + 1);
        io->out[i] = (struct ngd_out){io->out_room[i], r->plan->outputs[i].bytes};
    }
}

RUN void io_close(struct io *io)
{
    for (uint32_t i = 0; i < MAX_IO; i++) {
        free(io->in_room[i]);
        free(io->out_room[i]);
    }
}

RUN void io_randomize(struct io *io, const struct ready *r)
{
    for (uint32_t i = 0; i < io->n_in; i++) {
        ngd_dtype_t t = r->graph->values[r->graph->inputs[i]].type.dtype;

        fill_random(t, io->in_room[i], r->plan->inputs[i].bytes / ngd_dtype_bytes(t));
    }
}

RUN ngd_status_t replay(struct bench *b, const struct ready *r, struct io *io, const int64_t *symbols, bool eager,
                        struct ngd_diag *diag_p)
{
    struct ngd_launch launch = {.symbols = symbols, .inputs = io->in, .outputs = io->out, .eager = eager};
    ngd_status_t status = ngd_stream_run(b->stream, r->inst, &launch);

    if (diag_p)
        *diag_p = launch.diag;
    return status;
}

RUN void open_or_abort(struct ready *r, struct bench *b, const char *text, const int64_t *symbols)
{
    struct ngd_diag diag = {0};

    if (ready_open(r, b, text, symbols, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
}

#endif
