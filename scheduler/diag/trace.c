/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of one replay, in Chrome's format: a span for each kernel of the executable, with what it reads and makes. */
#include "base/mem.h"
#include "graphs/plan_trace.h"
#include "scheduler/diag/exam_int.h"
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
        ngd_plan_print_trace(ngd_exec_plan(t.exec), t.exam.prog->queue->dev_name, t.times, json);
    ngd_buffers_free(t.own, t.exam.n_bound);
    ngd_free(t.times);
    ngd_exec_unref(t.exec);
    ngd_exam_fini(&t.exam);
    return status ? status : json->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}
