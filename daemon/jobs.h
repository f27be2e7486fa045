/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JOBS_H
#define NGD_DAEMON_JOBS_H

/*
 * A few threads for work that is too long for the receiving threads: parsing large graphs, capturing models, reading
 * files, releasing memory. Owners take turns, so that an owner of many jobs does not make others wait for all of them.
 * The jobs of one owner, and those without one, run in the order in which they were added.
 *
 * Threads: any. Bounds: the callers' (a job belongs to a call or a session, which are counted).
 */
#include "base/list.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_jobs;

/* Embedded in what it works on. The threads do not touch it once fn runs. */
struct ngd_job {
    struct ngd_list link;
    void (*fn)(struct ngd_job *job);
    bool slow;            /* it may take seconds; if there are several threads, slow jobs leave one of them free */
    uint64_t owner, turn; /* jobs.c's; owner 0: none */
};

ngd_status_t ngd_jobs_create(const char *name, uint32_t threads, struct ngd_jobs **jobs_p);
/* Runs the queued jobs, then joins the threads. NULL is fine. */
void ngd_jobs_destroy(struct ngd_jobs *jobs);
void ngd_jobs_add(struct ngd_jobs *jobs, struct ngd_job *job);
/* Adds the job in its owner's turn. Walks the queue. */
void ngd_jobs_add_for(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner);
/* Adds the job only if a thread is free for it. For help that nobody waits for: it leaves no queue behind. */
bool ngd_jobs_offer(struct ngd_jobs *jobs, struct ngd_job *job, uint64_t owner);
/* True on a thread of any jobs, which may take long. */
bool ngd_jobs_has_thread(void);
uint32_t ngd_jobs_pending(struct ngd_jobs *jobs); /* queued and running jobs */

#endif
