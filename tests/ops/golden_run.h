/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_GOLDEN_RUN_H
#define NGD_TESTS_OPS_GOLDEN_RUN_H

/* Runs a golden case on a device: the graph of one node, a launch with the case's data, the comparison. */
#include "tests/ops/device_run.h"
#include "tests/ops/golden.h"

/*
 * Cases that PyTorch accepts and this graph language refuses by design, with the text of the refusal. A case that is
 * accepted is compared, even if it is in this list.
 */
static const struct {
    ngd_op_id_t op;
    const char *says;
} golden_refusals[] = {
    {NGD_OP_ATEN_ARANGE, "attribute step is -"}, /* ops.def: "below end" */
};

GOLDEN bool golden_refused_by_design(const struct golden_case *c, const struct ngd_diag *diag)
{
    for (size_t i = 0; i < sizeof(golden_refusals) / sizeof(golden_refusals[0]); i++)
        if (golden_refusals[i].op == c->op->id && strstr(diag->text, golden_refusals[i].says))
            return true;
    return false;
}

/* ---- one case ---- */

struct golden_launch {
    struct ngd_span inputs[GOLDEN_MAX];
    struct ngd_host_value hosts[GOLDEN_MAX];
    struct ngd_out outputs[GOLDEN_MAX];
    char *room[GOLDEN_MAX];
};

GOLDEN void golden_fill(const struct golden_case *c, const struct ready *r, bool params, struct golden_launch *d)
{
    uint32_t n_inputs = 0, n_hosts = 0, n_params = 0, n_states = r->graph->n_params;
    struct ngd_diag diag = {0};

    for (uint32_t i = 0; i < c->n_in; i++) {
        const struct golden_tensor *t = &c->in[i];
        golden_class_t cls = golden_class(c, i, params);

        if (cls == GOLDEN_NONE)
            continue;
        if (cls == GOLDEN_INPUT)
            d->inputs[n_inputs++] = (struct ngd_span){t->data, t->bytes};
        else if (cls == GOLDEN_HOST)
            d->hosts[n_hosts++] =
                (struct ngd_host_value){(const int64_t *)(const void *)t->data, (uint32_t)(t->bytes / 8)};
        else
            run_check(
                ngd_buffer_write(r->bound[cls == GOLDEN_PARAM ? n_params++ : n_states++], 0, t->data, t->bytes, &diag),
                &diag, c->name);
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        d->room[i] = calloc(1, c->out[i].bytes + 1);
        d->outputs[i] = (struct ngd_out){d->room[i], c->out[i].bytes};
    }
}

GOLDEN double golden_compare_states(const struct golden_case *c, const struct ready *r)
{
    uint32_t n_states = r->graph->n_params;
    struct ngd_diag diag = {0};
    double error = 0;
    uint64_t at;

    for (uint32_t i = 0; i < c->n_in; i++) {
        uint64_t bytes = c->in[i].bytes;
        char *got;

        if (!(c->op->mutates >> i & 1))
            continue;
        got = malloc(bytes + 1);
        run_check(ngd_buffer_read(r->bound[n_states++], 0, got, bytes, &diag), &diag, c->name);
        error = c->mutated[i] ? fmax(error, golden_compare(c, &c->after[i], got, &at)) : error;
        free(got);
    }
    return error;
}

/*
 * Runs a case, prints what is wrong, and returns the largest error. If the device refuses the case, returns INFINITY,
 * or 0 if the caller asks for the reason.
 */
GOLDEN double golden_run(struct bench *b, const struct golden_case *c, bool params, bool eager,
                         struct ngd_diag *unsupported)
{
    struct golden_launch d = {0};
    struct ngd_launch launch = {.inputs = d.inputs, .hosts = d.hosts, .outputs = d.outputs, .eager = eager};
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r;
    double error = 0;

    ngd_strbuf_init(&text);
    golden_print(&text, c, params);
    if (ready_open(&r, b, ngd_strbuf_str(&text), NULL, &diag)) {
        bool refused = golden_refused_by_design(c, &diag);

        if (unsupported && diag.status == NGD_ERR_OP_UNSUPPORTED) {
            *unsupported = diag;
            refused = true;
        }

        if (!refused)
            fprintf(stderr, "%s (%s): %s\n%s", c->name, b->name, diag.text, ngd_strbuf_str(&text));
        ngd_strbuf_fini(&text);
        return refused ? 0 : INFINITY;
    }
    golden_fill(c, &r, params, &d);
    if (ngd_stream_run(b->stream, r.inst, &launch)) {
        fprintf(stderr, "%s (%s): %s\n", c->name, b->name, launch.diag.text);
        error = INFINITY;
    }
    for (uint32_t i = 0; i < c->n_out && error < INFINITY; i++) {
        uint64_t at;
        double e = golden_compare(c, &c->out[i], d.room[i], &at);

        if (e > 1)
            fprintf(stderr,
                    "%s (%s%s%s): result %u, element %llu is %.9g and should be %.9g: %.3g times what is allowed\n",
                    c->name, b->name, eager ? ", eager" : "", params ? ", params" : "", i, (unsigned long long)at,
                    golden_value(c->out[i].dtype, d.room[i], at), golden_value(c->out[i].dtype, c->out[i].data, at), e);
        error = fmax(error, e);
    }
    if (error <= 1 && (error = fmax(error, golden_compare_states(c, &r))) > 1)
        fprintf(stderr, "%s (%s%s): the written operand is wrong\n", c->name, b->name, eager ? ", eager" : "");
    for (uint32_t i = 0; i < c->n_out; i++)
        free(d.room[i]);
    ready_close(&r);
    ngd_strbuf_fini(&text);
    return error;
}

#endif
