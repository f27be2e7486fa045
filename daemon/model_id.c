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

#define CONTENTS_MAX 4096 /* of a parameter without a file: some rows of a table of rotary positions, say */

/* Puts the first bytes of a buffer, whose size may be one that the load has chosen. */
static ngd_status_t put_id_contents(struct ngd_strbuf *out, struct ngd_buffer *buffer)
{
    const uint64_t bytes = ngd_buffer_bytes(buffer), n = bytes < CONTENTS_MAX ? bytes : CONTENTS_MAX;
    char data[CONTENTS_MAX];
    ngd_status_t status = n ? ngd_buffer_read(buffer, 0, data, n, NULL) : NGD_OK;

    if (status == NGD_OK)
        ngd_strbuf_append_n(out, data, n);
    return status;
}

/* Parameters have sizes that the checkpoint gives, but for those that the load makes. */
static ngd_status_t put_id_param(struct ngd_strbuf *out, const struct ngd_value *v, struct ngd_buffer *buffer)
{
    const struct ngd_load_origin *origin = buffer ? ngd_buffer_origin(buffer) : NULL;

    put_id_text(out, v->label);
    ngd_le_put(out, (uint64_t)v->type.dtype, 2);
    ngd_le_put(out, v->type.rank, 2);
    ngd_le_put(out, origin != NULL, 1);
    if (!origin)
        return buffer ? put_id_contents(out, buffer) : NGD_OK;
    for (uint32_t d = 0; d < v->type.rank; d++)
        ngd_le_put(out, (uint64_t)v->type.dims[d], 8);
    ngd_strbuf_append_n(out, origin->contents.b, sizeof(origin->contents.b));
    return NGD_OK;
}

/* Numbers and words of an operator, such as an epsilon. Integers may be sizes that the load has chosen. */
static void put_id_node(struct ngd_strbuf *out, const struct ngd_node *node)
{
    put_id_text(out, node->op->name);
    for (uint32_t a = 0; a < node->op->n_attrs; a++) {
        uint64_t bits;

        if (node->op->attrs[a].type == NGD_ATTR_FLOAT) {
            memcpy(&bits, &node->attrs[a].f, sizeof(bits));
            ngd_le_put(out, bits, 8);
        } else if (node->op->attrs[a].type == NGD_ATTR_STR) {
            put_id_text(out, node->attrs[a].s ? node->attrs[a].s : "");
        }
    }
}

static ngd_status_t put_id_graph(struct ngd_strbuf *out, const struct ngd_binding *binding)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(binding));
    ngd_status_t status = NGD_OK;

    ngd_le_put(out, g->n_nodes, 4);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        put_id_node(out, &g->nodes[i]);
    ngd_le_put(out, g->n_params, 4);
    for (uint32_t i = 0; i < g->n_params && !status; i++)
        status = put_id_param(out, &g->values[g->params[i]], ngd_binding_buffer(binding, i));
    ngd_le_put(out, g->n_states, 4);
    for (uint32_t i = 0; i < g->n_states; i++)
        ngd_le_put(out, (uint64_t)g->values[g->states[i]].type.dtype, 2);
    return status;
}

ngd_status_t ngd_model_id(const Npugraph__V1__RegisterModelRequest *q, const struct ngd_binding *prefill,
                          const struct ngd_binding *decode, struct ngd_digest *id_p)
{
    struct ngd_strbuf out;
    ngd_status_t status = NGD_OK;

    ngd_strbuf_init(&out);
    ngd_le_put(&out, q->vocab, 4);
    ngd_le_put(&out, q->n_stop_tokens, 4);
    for (size_t i = 0; i < q->n_stop_tokens; i++)
        ngd_le_put(&out, (uint32_t)q->stop_tokens[i], 4);
    for (uint32_t r = 0; r < ngd_binding_ranks(prefill) && !status; r++)
        status = put_id_graph(&out, ngd_binding_rank(prefill, r));
    for (uint32_t r = 0; decode != prefill && r < ngd_binding_ranks(decode) && !status; r++)
        status = put_id_graph(&out, ngd_binding_rank(decode, r));
    if (status == NGD_OK && out.failed)
        status = NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        ngd_digest_of(ngd_strbuf_str(&out), out.len, id_p);
    ngd_strbuf_fini(&out);
    return status;
}
