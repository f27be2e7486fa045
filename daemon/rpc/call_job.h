/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_CALL_JOB_H
#define NGD_DAEMON_RPC_CALL_JOB_H

/* A call that another thread serves, since it takes longer than the threads that receive calls have. */
#include "daemon/jobs.h"
#include "daemon/rpc/rpc_call.h"

/* Answers the call, which may be gone then; or returns why it fails, and the call is answered with that. */
typedef ngd_status_t ngd_call_job_fn(struct ngd_call *call, const void *msg, struct ngd_diag *diag);

enum {
    NGD_CALL_JOB_SLOW = 1,  /* it may take seconds (jobs.h) */
    NGD_CALL_JOB_BEGUN = 2, /* the rest of work that has begun: it runs also when the client has taken the call back */
};
/* In the turn of the call's identity. msg lives as long as the call. */
void ngd_call_job_add(struct ngd_jobs *jobs, struct ngd_call *call, const void *msg, ngd_call_job_fn *run, int flags);

#endif
