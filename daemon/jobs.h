/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JOBS_H
#define NGD_DAEMON_JOBS_H

/*
 * A few threads for work that is too long for the threads that receive calls: parsing large graphs, capturing models,
 * reading files, giving memory back. Owners take turns, so that one who has given many jobs does not make another one
 * wait for all of them; the jobs of one owner, and those without one, are done in the order in which they come.
 * Threads: any. Bounds: the callers' (a job belongs to a call or a session, which are counted).
 */
#include "base/list.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_jobs;

/* Embedded in what it works on; untouched by us once fn runs. */
struct ngd_job {
    struct ngd_list link;
    void (*fn)(struct ngd_job *job);
    bool slow;            /* it may take seconds: such jobs leave one of several threads to the others */
    uint64_t owner, turn; /* ours; owner 0: none */
};

ngd_status_t ngd_jobs_create(const char *name, uint32_t threads, struct ngd_jobs **jobs_p);
/* Runs what is queued, then joins the threads. NULL is fine. */
void ngd_jobs_destroy(struct ngd_jobs *jobs);
void ngd_jobs_add(struct ngd_jobs *jobs, struct ngd_job *job);
/* In the owner's turn. Looks at what is queued. */
void ngd_jobs_add_for(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner);
uint32_t ngd_jobs_pending(struct ngd_jobs *jobs); /* queued and running */

#endif
