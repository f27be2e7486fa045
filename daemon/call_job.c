/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/call_job.h"
#include "base/mem.h"

struct call_job {
    struct ngd_job job;
    struct ngd_call *call;
    const void *msg;
    ngd_call_job_fn *run;
};

static void run_job(struct ngd_job *job)
{
    const struct call_job *j = ngd_container_of(job, struct call_job, job);
    struct ngd_call *call = j->call; /* what the job lies in may be gone with an answer */
    struct ngd_diag diag = {0};
    ngd_status_t status = j->run(call, j->msg, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
}

void ngd_call_job_add(struct ngd_jobs *jobs, struct ngd_call *call, const void *msg, ngd_call_job_fn *run)
{
    struct call_job *j = ngd_arena_calloc(&call->life, 1, sizeof(*j));

    if (!j) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    *j = (struct call_job){.job.fn = run_job, .call = call, .msg = msg, .run = run};
    ngd_jobs_add(jobs, &j->job);
}
