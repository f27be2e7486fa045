/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a replay as a Chrome trace: a span for each kernel of the executable, with what it reads and writes. */
#include "base/mem.h"
#include "graphs/plan_trace.h"
#include "scheduler/diag/doctor_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RUNS 3 /* the last run is shown, since the first meets cold caches */

struct trace {
    struct ngd_doctor_subject subject;
    struct ngd_exec *exec;
    struct ngd_buffer **own;
    ngd_nsec_t *times; /* begin and end of each call */
    ngd_status_t status;
    struct ngd_diag diag;
};

static void run_traced(void *arg, struct ngd_slot *slot)
{
    struct trace *t = arg;
    struct ngd_verify_form form = {
        .slot = slot, .key = &t->subject.key, .buffers = t->own, .launch = &t->subject.launch, .times = t->times};

    for (int i = 0; i < RUNS && t->status == NGD_OK; i++) {
        struct ngd_verify_results results = {0};

        t->status = ngd_verify_form_run_exec(&form, t->exec, &results, NULL, &t->diag);
        ngd_verify_results_fini(&results);
    }
}

static ngd_status_t trace_executable(struct trace *t, struct ngd_diag *diag)
{
    struct ngd_gcache_entry *entry = NULL;
    ngd_status_t status = ngd_program_capture(t->subject.prog, &t->subject.key, &entry, NULL, diag);

    if (status)
        return status;
    t->exec = ngd_exec_ref(ngd_entry_executable(entry)->exec);
    ngd_gcache_put(entry);
    t->times = NGD_NEW_N(ngd_nsec_t, 2 * (size_t)ngd_exec_plan(t->exec)->n_calls + 2);
    if (!t->times)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a trace");
    status = ngd_buffers_with_own_states(t->subject.prog->graph, t->subject.buffers, &t->own, diag);
    if (status == NGD_OK)
        status = ngd_doctor_subject_on_slot(&t->subject, run_traced, t, diag);
    if (status == NGD_OK && t->status) {
        status = t->status;
        if (diag)
            *diag = t->diag;
    }
    return status;
}

ngd_status_t ngd_doctor_trace(const struct ngd_doctor_params *params, struct ngd_strbuf *json, struct ngd_diag *diag)
{
    struct trace t = {.status = NGD_OK};
    ngd_status_t status = ngd_doctor_subject_init(&t.subject, params, diag);

    if (status == NGD_OK)
        status = trace_executable(&t, diag);
    if (status == NGD_OK)
        ngd_plan_print_trace(ngd_exec_plan(t.exec), t.subject.prog->queue->dev_name, t.times, json);
    ngd_buffers_free(t.own, t.subject.n_bound);
    ngd_free(t.times);
    ngd_exec_unref(t.exec);
    ngd_doctor_subject_fini(&t.subject);
    return status ? status : json->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}
