/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a plan: the key and sums, inputs and outputs, and the calls with their operands (<-, or <> if the call writes
 * them too) and results (->):
 *
 *     plan "mlp" B<=16 graph=... options=...
 *     pool 12288 bytes, bound 12288, ratio 1.000; weights 16384 bytes; 262144 flops
 *     param 0 "fc.weight": t0 bf16[128,64] param 0, 16384 bytes
 *     input 0 "x": t1 f32[16,64] pool+0x0, 4096 bytes, B*1 rows of 256 bytes
 *     output 0 "y": t2 f32[16,128] pool+0x1000, 8192 bytes, B*1 rows of 512 bytes
 *     call 0 aten.linear %y
 *       <- t1 f32[16,64] pool+0x0
 *       <- t0 bf16[128,64] param 0
 *       -> t2 f32[16,128] pool+0x1000
 *
 * With several streams a call has `, stream "NAME"`, and `, after 1 4` for the calls that it waits for.
 * Strides are shown if a tensor is not contiguous, the root if it is another tensor ("of t1").
 */
#include "graphs/plan_int.h"
#include <inttypes.h>

static void print_numbers(const int64_t *v, uint32_t n, struct ngd_strbuf *sb)
{
    for (uint32_t i = 0; i < n; i++)
        ngd_strbuf_printf(sb, "%s%" PRId64, i ? "," : "", v[i]);
}

static void print_place(const struct ngd_plan *plan, const struct ngd_plan_tensor *t, struct ngd_strbuf *sb)
{
    if (t->space == NGD_SPACE_POOL) {
        ngd_strbuf_printf(sb, "pool+0x%" PRIx64, t->offset);
        return;
    }
    if (t->bound < plan->graph->n_params)
        ngd_strbuf_printf(sb, "param %" PRIu32, t->bound);
    else
        ngd_strbuf_printf(sb, "state %" PRIu32, t->bound - plan->graph->n_params);
    if (t->offset)
        ngd_strbuf_printf(sb, "+0x%" PRIx64, t->offset);
}

static void print_plan_tensor(const struct ngd_plan *plan, uint32_t i, struct ngd_strbuf *sb)
{
    const struct ngd_plan_tensor *t = &plan->tensors[i];

    ngd_strbuf_printf(sb, "t%" PRIu32 " %s[", i, ngd_dtype_name(t->dtype));
    print_numbers(t->dims, t->rank, sb);
    ngd_strbuf_append(sb, "] ");
    print_place(plan, t, sb);
    if (!ngd_plan_contiguous(t)) {
        ngd_strbuf_append(sb, " strides [");
        print_numbers(t->strides, t->rank, sb);
        ngd_strbuf_putc(sb, ']');
    }
    if (t->root != i)
        ngd_strbuf_printf(sb, " of t%" PRIu32, t->root);
}

static void print_io(const struct ngd_plan *plan, const char *what, uint32_t i, const char *name,
                     const struct ngd_plan_io *io, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "%s %" PRIu32 " ", what, i);
    ngd_strbuf_json_string(sb, name);
    ngd_strbuf_append(sb, ": ");
    print_plan_tensor(plan, io->tensor, sb);
    ngd_strbuf_printf(sb, ", %" PRIu64 " bytes", io->bytes);
    if (io->row_sym != NGD_NO_ROW_SYM)
        ngd_strbuf_printf(sb, ", %s*%" PRId64 " rows of %" PRIu64 " bytes", plan->graph->symbols[io->row_sym].name,
                          io->row_mult, io->row_bytes);
    ngd_strbuf_putc(sb, '\n');
}

static void print_ios(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    const struct ngd_graph *g = plan->graph;

    for (uint32_t i = 0; i < g->n_params; i++)
        print_io(plan, "param", i, g->values[g->params[i]].label, &plan->bound[i], sb);
    for (uint32_t i = 0; i < g->n_states; i++)
        print_io(plan, "state", i, g->values[g->states[i]].label, &plan->bound[g->n_params + i], sb);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        print_io(plan, "input", i, g->values[g->inputs[i]].label, &plan->inputs[i], sb);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        print_io(plan, "output", i, g->outputs[i].name, &plan->outputs[i], sb);
}

/* Prints the name of the node's first result, or the line of an operator without results. */
static void print_call_name(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_strbuf *sb)
{
    const struct ngd_node *n;

    if (call->node == NGD_PLAN_NONE)
        return;
    n = &plan->graph->nodes[call->node];
    if (n->op != call->op)
        ngd_strbuf_append(sb, " for");
    if (n->n_out)
        ngd_strbuf_printf(sb, " %%%s", plan->graph->values[n->out[0]].name);
    else
        ngd_strbuf_printf(sb, " %s", n->op->name);
}

/* Prints a call's stream, its limits of cores, and the calls that it waits for. */
static void print_scope(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_strbuf *sb)
{
    if (call->scope.stream) {
        ngd_strbuf_append(sb, ", stream ");
        ngd_strbuf_json_string(sb, plan->graph->streams[call->scope.stream]);
    }
    if (call->scope.aicore)
        ngd_strbuf_printf(sb, ", at most %u AI cores and %u vector cores", call->scope.aicore, call->scope.vectorcore);
    for (uint32_t k = 0; k < call->n_waits; k++)
        ngd_strbuf_printf(sb, "%s%" PRIu32, k ? " " : ", after ", call->waits[k]);
}

static void print_plan_call(const struct ngd_plan *plan, uint32_t i, struct ngd_strbuf *sb)
{
    const struct ngd_plan_call *call = &plan->calls[i];

    ngd_strbuf_printf(sb, "call %" PRIu32 " %s", i, call->op->name);
    print_call_name(plan, call, sb);
    print_scope(plan, call, sb);
    if (call->workspace_bytes)
        ngd_strbuf_printf(sb, ", workspace pool+0x%" PRIx64 " %" PRIu64 " bytes", call->workspace_offset,
                          call->workspace_bytes);
    ngd_strbuf_putc(sb, '\n');
    for (uint32_t k = 0; k < call->n_in; k++) {
        ngd_strbuf_append(sb, k < 32 && (call->op->mutates & (1u << k)) ? "  <> " : "  <- ");
        if (call->in[k] != NGD_PLAN_NONE)
            print_plan_tensor(plan, call->in[k], sb);
        else if (call->host[k] != NGD_PLAN_NONE)
            ngd_strbuf_printf(sb, "host %" PRIu32, call->host[k]);
        else
            ngd_strbuf_append(sb, "none");
        ngd_strbuf_putc(sb, '\n');
    }
    for (uint32_t k = 0; k < call->n_out; k++) {
        ngd_strbuf_append(sb, "  -> ");
        print_plan_tensor(plan, call->out[k], sb);
        ngd_strbuf_putc(sb, '\n');
    }
}

void ngd_plan_print(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    double ratio = plan->live_peak_bytes ? (double)plan->pool_bytes / (double)plan->live_peak_bytes : 1.0;

    ngd_strbuf_append(sb, "plan ");
    ngd_strbuf_json_string(sb, plan->graph->name);
    ngd_strbuf_putc(sb, ' ');
    ngd_key_print(plan->graph, &plan->key, sb);
    ngd_strbuf_printf(
        sb, "\npool %" PRIu64 " bytes, bound %" PRIu64 ", ratio %.3f; weights %" PRIu64 " bytes; %" PRIu64 " flops\n",
        plan->pool_bytes, plan->live_peak_bytes, ratio, plan->weight_bytes, plan->flops);
    print_ios(plan, sb);
    for (uint32_t i = 0; i < plan->n_calls; i++)
        print_plan_call(plan, i, sb);
}
