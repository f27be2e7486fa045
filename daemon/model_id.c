/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/model_id.h"
#include "base/le.h"
#include "daemon/load_origin.h"
#include "devices/device.h"
#include "graphs/graph.h"
#include "graphs/op.h"
#include "scheduler/program/program.h"

#include <string.h>

static void put_id_text(struct ngd_strbuf *out, const char *text)
{
    ngd_le_put(out, strlen(text), 4);
    ngd_strbuf_append(out, text);
}

/* Parameters have sizes that the checkpoint gives. */
static void put_id_param(struct ngd_strbuf *out, const struct ngd_value *v, const struct ngd_buffer *buffer)
{
    const struct ngd_load_origin *origin = buffer ? ngd_buffer_origin(buffer) : NULL;

    put_id_text(out, v->label);
    ngd_le_put(out, (uint64_t)v->type.dtype, 2);
    ngd_le_put(out, v->type.rank, 2);
    for (uint32_t d = 0; d < v->type.rank; d++)
        ngd_le_put(out, (uint64_t)v->type.dims[d], 8);
    ngd_le_put(out, origin != NULL, 1);
    if (origin)
        ngd_strbuf_append_n(out, origin->contents.b, sizeof(origin->contents.b));
}

static void put_id_graph(struct ngd_strbuf *out, const struct ngd_binding *binding)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(binding));

    ngd_le_put(out, g->n_nodes, 4);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        put_id_text(out, g->nodes[i].op->name);
    ngd_le_put(out, g->n_params, 4);
    for (uint32_t i = 0; i < g->n_params; i++)
        put_id_param(out, &g->values[g->params[i]], ngd_binding_buffer(binding, i));
    ngd_le_put(out, g->n_states, 4);
    for (uint32_t i = 0; i < g->n_states; i++)
        ngd_le_put(out, (uint64_t)g->values[g->states[i]].type.dtype, 2);
}

ngd_status_t ngd_model_id(const Npugraph__V1__RegisterModelRequest *q, const struct ngd_binding *prefill,
                          const struct ngd_binding *decode, struct ngd_digest *id_p)
{
    struct ngd_strbuf out;
    bool failed;

    ngd_strbuf_init(&out);
    ngd_le_put(&out, q->vocab, 4);
    ngd_le_put(&out, q->n_stop_tokens, 4);
    for (size_t i = 0; i < q->n_stop_tokens; i++)
        ngd_le_put(&out, (uint32_t)q->stop_tokens[i], 4);
    for (uint32_t r = 0; r < ngd_binding_ranks(prefill); r++)
        put_id_graph(&out, ngd_binding_rank(prefill, r));
    for (uint32_t r = 0; decode != prefill && r < ngd_binding_ranks(decode); r++)
        put_id_graph(&out, ngd_binding_rank(decode, r));
    failed = out.failed;
    if (!failed)
        ngd_digest_of(ngd_strbuf_str(&out), out.len, id_p);
    ngd_strbuf_fini(&out);
    return failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}
