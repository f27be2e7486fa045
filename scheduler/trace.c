/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of one replay, in Chrome's format: a span for each kernel of the executable, with what it reads and makes. */
#include "base/mem.h"
#include "scheduler/debug.h"
#include "scheduler/exam_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RUNS 3 /* the last one is shown: the first meets cold caches */

struct trace {
    struct ngd_exam exam;
    struct ngd_exec *exec;
    struct ngd_buffer **own;
    ngd_nsec_t *times; /* begin and end of each call */
    ngd_status_t status;
    struct ngd_diag diag;
};

static void run(void *arg, struct ngd_slot *slot)
{
    struct trace *t = arg;
    struct ngd_trial trial = {
        .slot = slot, .key = &t->exam.key, .buffers = t->own, .launch = &t->exam.launch, .times = t->times};

    for (int i = 0; i < RUNS && t->status == NGD_OK; i++) {
        struct ngd_trial_results results = {0};

        t->status = ngd_trial_run_exec(&trial, t->exec, &results, NULL, &t->diag);
        ngd_trial_results_fini(&results);
    }
}

static void print_tensor(const struct ngd_plan *plan, uint32_t tensor, struct ngd_strbuf *sb)
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

static void print_list(const struct ngd_plan *plan, const char *name, const uint32_t *list, uint32_t n,
                       struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            ngd_strbuf_putc(sb, ',');
        print_tensor(plan, list[i], sb);
    }
    ngd_strbuf_putc(sb, ']');
}

static void print_call(const struct ngd_plan *plan, uint32_t i, ngd_nsec_t begin, ngd_nsec_t end, struct ngd_strbuf *sb)
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
    print_list(plan, "in", call->in, call->n_in, sb);
    print_list(plan, "out", call->out, call->n_out, sb);
    ngd_strbuf_printf(sb, ",\"workspace\":%" PRIu64 "}}", call->workspace_bytes);
}

void ngd_trace_print(const struct ngd_plan *plan, const char *device, const ngd_nsec_t *times, struct ngd_strbuf *sb)
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

        print_call(plan, i, begin, times ? times[2 * i + 1] - times[0] : begin + NGD_USEC, sb);
    }
    ngd_strbuf_append(sb, "\n]}\n");
    ngd_strbuf_fini(&key);
}

static ngd_status_t trace(struct trace *t, struct ngd_diag *diag)
{
    struct ngd_gcache_entry *entry = NULL;
    ngd_status_t status = ngd_program_capture(t->exam.prog, &t->exam.key, &entry, NULL, diag);

    if (status)
        return status;
    t->exec = ngd_exec_ref(ngd_entry_executable(entry)->exec);
    ngd_gcache_put(entry);
    t->times = NGD_NEW_N(ngd_nsec_t, 2 * (size_t)ngd_exec_plan(t->exec)->n_calls + 2);
    if (!t->times)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a trace");
    status = ngd_buffers_with_own_states(t->exam.prog->graph, t->exam.buffers, &t->own, diag);
    if (status == NGD_OK)
        status = ngd_exam_on_slot(&t->exam, run, t, diag);
    if (status == NGD_OK && t->status) {
        status = t->status;
        if (diag)
            *diag = t->diag;
    }
    return status;
}

ngd_status_t ngd_exam_trace(const struct ngd_exam_params *params, struct ngd_strbuf *json, struct ngd_diag *diag)
{
    struct trace t = {.status = NGD_OK};
    ngd_status_t status = ngd_exam_init(&t.exam, params, diag);

    if (status == NGD_OK)
        status = trace(&t, diag);
    if (status == NGD_OK)
        ngd_trace_print(ngd_exec_plan(t.exec), t.exam.prog->queue->dev_name, t.times, json);
    ngd_buffers_free(t.own, t.exam.n_bound);
    ngd_free(t.times);
    ngd_exec_unref(t.exec);
    ngd_exam_fini(&t.exam);
    return status ? status : json->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}
