/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan as a trace in Chrome's format: a span for each call, with its operands and results. */
#include "graphs/plan_trace.h"
#include "graphs/graph.h"
#include <inttypes.h>

static void trace_tensor(const struct ngd_plan *plan, uint32_t tensor, struct ngd_strbuf *sb)
{
    const struct ngd_plan_tensor *t;

    if (tensor == NGD_PLAN_NONE) {
        ngd_strbuf_append(sb, "\"none\"");
        return;
    }
    t = &plan->tensors[tensor];
    ngd_strbuf_printf(sb, "\"%s[", ngd_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++)
        ngd_strbuf_printf(sb, "%s%" PRId64, i ? "," : "", t->dims[i]);
    if (t->space == NGD_SPACE_POOL)
        ngd_strbuf_append(sb, "] pool");
    else
        ngd_strbuf_printf(sb, "] %s %" PRIu32, t->bound < plan->graph->n_params ? "param" : "state",
                          t->bound < plan->graph->n_params ? t->bound : t->bound - plan->graph->n_params);
    ngd_strbuf_printf(sb, "+%" PRIu64 "\"", t->offset);
}

static void trace_list(const struct ngd_plan *plan, const char *name, const uint32_t *list, uint32_t n,
                       struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            ngd_strbuf_putc(sb, ',');
        trace_tensor(plan, list[i], sb);
    }
    ngd_strbuf_putc(sb, ']');
}

static void trace_call(const struct ngd_plan *plan, uint32_t i, ngd_nsec_t begin, ngd_nsec_t end, struct ngd_strbuf *sb)
{
    const struct ngd_plan_call *call = &plan->calls[i];
    const char *value = "";

    if (call->node != NGD_PLAN_NONE && plan->graph->nodes[call->node].n_out)
        value = plan->graph->values[plan->graph->nodes[call->node].out[0]].name;
    ngd_strbuf_append(sb, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":");
    ngd_strbuf_json_string(sb, call->op->name);
    ngd_strbuf_printf(sb, ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"call\":%" PRIu32 ",\"node\":", (double)begin / 1000,
                      (double)(end - begin) / 1000, i);
    ngd_strbuf_json_string(sb, value);
    trace_list(plan, "in", call->in, call->n_in, sb);
    trace_list(plan, "out", call->out, call->n_out, sb);
    ngd_strbuf_printf(sb, ",\"workspace\":%" PRIu64 "}}", call->workspace_bytes);
}

void ngd_plan_print_trace(const struct ngd_plan *plan, const char *device, const ngd_nsec_t *times,
                          struct ngd_strbuf *sb)
{
    struct ngd_strbuf key;

    ngd_strbuf_init(&key);
    ngd_strbuf_printf(&key, "%s ", plan->source->name);
    ngd_key_print_symbols(plan->source, &plan->key, &key);
    ngd_strbuf_append(sb, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                          "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":");
    ngd_strbuf_json_string(sb, ngd_strbuf_str(&key));
    ngd_strbuf_append(sb, "}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":");
    ngd_strbuf_json_string(sb, device);
    ngd_strbuf_append(sb, "}}");
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        ngd_nsec_t begin = times ? times[2 * i] - times[0] : i * NGD_USEC;

        trace_call(plan, i, begin, times ? times[2 * i + 1] - times[0] : begin + NGD_USEC, sb);
    }
    ngd_strbuf_append(sb, "\n]}\n");
    ngd_strbuf_fini(&key);
}
