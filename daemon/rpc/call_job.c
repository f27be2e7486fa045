/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/call_job.h"
#include "base/mem.h"
#include "daemon/identity.h"

struct call_job {
    struct ngd_job job;
    struct ngd_call *call;
    const void *msg;
    ngd_call_job_fn *run;
    bool begun;
};

static void run_call_job(struct ngd_job *job)
{
    const struct call_job *j = ngd_container_of(job, struct call_job, job);
    struct ngd_call *call = j->call; /* the job is in the call's memory, which may be gone after an answer */
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_CANCELLED;

    if (j->begun || !atomic_load(&call->cancelled))
        status = j->run(call, j->msg, &diag);
    if (status != NGD_OK)
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
}

void ngd_call_job_add(struct ngd_jobs *jobs, struct ngd_call *call, const void *msg, ngd_call_job_fn *run, int flags)
{
    struct call_job *j = ngd_arena_calloc(&call->life, 1, sizeof(*j));

    if (!j) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    *j = (struct call_job){.job = {.fn = run_call_job, .slow = flags & NGD_CALL_JOB_SLOW},
                           .call = call,
                           .msg = msg,
                           .run = run,
                           .begun = flags & NGD_CALL_JOB_BEGUN};
    ngd_jobs_add_for(jobs, &j->job, call->identity->key);
}
