/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JOBS_H
#define NGD_DAEMON_JOBS_H

/*
 * A few threads for work that is too long for the threads that receive calls: parsing large graphs, capturing models,
 * reading files, giving memory back. First come, first served.
 * Threads: any. Bounds: the callers' (a job belongs to a call or a session, which are counted).
 */
#include "base/list.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_jobs;

/* Embedded in what it works on; untouched by us once fn runs. */
struct ngd_job {
    struct ngd_list link;
    void (*fn)(struct ngd_job *job);
};

ngd_status_t ngd_jobs_create(const char *name, uint32_t threads, struct ngd_jobs **jobs_p);
/* Runs what is queued, then joins the threads. NULL is fine. */
void ngd_jobs_destroy(struct ngd_jobs *jobs);
void ngd_jobs_add(struct ngd_jobs *jobs, struct ngd_job *job);
uint32_t ngd_jobs_pending(struct ngd_jobs *jobs); /* queued and running */

#endif
