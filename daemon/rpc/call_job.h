/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_CALL_JOB_H
#define NGD_DAEMON_RPC_CALL_JOB_H

/* Serves a call on a job thread, if it takes longer than a receiving thread may spend. */
#include "daemon/jobs.h"
#include "daemon/rpc/rpc_call.h"

/* Answers the call, which may be gone afterwards. If it returns an error instead, the call fails with that. */
typedef ngd_status_t ngd_call_job_fn(struct ngd_call *call, const void *msg, struct ngd_diag *diag);

enum {
    NGD_CALL_JOB_SLOW = 1,  /* the call may take seconds (jobs.h) */
    NGD_CALL_JOB_BEGUN = 2, /* the rest of work that has begun; it runs even if the client has cancelled the call */
};
/* Adds the call in its identity's turn. msg lives as long as the call. */
void ngd_call_job_add(struct ngd_jobs *jobs, struct ngd_call *call, const void *msg, ngd_call_job_fn *run, int flags);

#endif
