/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RECORD_TIMELINE_H
#define NGD_SCHEDULER_RECORD_TIMELINE_H

/*
 * The timeline: while it is on, a ring records what each stream slot ran, for which identity, and how long the request
 * waited. It is printed as a Chrome trace for people, and as arrivals for bench/schedsim.
 *
 * Threads: any. Off, it costs one relaxed load for each replay; on, a short lock.
 * Bounds: the number of events that start was given. In a full ring the oldest events are overwritten, and counted as
 * lost. Recorded events stay until the next start, or until they are discarded.
 */
#include "base/clock.h"
#include "base/lock.h"
#include "base/status.h"
#include "base/strbuf.h"
#include <stdatomic.h>

struct ngd_sched;

#define NGD_TIMELINE_EVENTS     65536
#define NGD_TIMELINE_EVENTS_MAX (1u << 20)

/* One run on a slot, or a request that never ran. */
struct ngd_timeline_event {
    const char *outcome;           /* NULL: it ran; else a literal: "refused", "expired", "cancelled" */
    ngd_nsec_t submitted, started; /* 0: a model's batch, which is no request; or it did not run */
    ngd_nsec_t ended, device_time; /* device_time includes the two copies */
    ngd_nsec_t copy_in, copy_out;
    ngd_nsec_t part;     /* the request's part of device_time */
    uint32_t together;   /* requests that the run served; 0: it ran together with the event before this one */
    ngd_nsec_t expected; /* expected device time at submission, ns; 0 = unknown */
    ngd_nsec_t deadline; /* NGD_NSEC_NEVER */
    uint64_t tag;
    uint32_t device, slot, priority, weight;
    char graph[48], identity[64]; /* identity "": a model's batch */
};

struct ngd_timeline {
    _Atomic bool on;
    struct ngd_mutex lock; /* rank TIMELINE */
    struct ngd_timeline_event *ring NGD_GUARDED_BY(lock);
    uint32_t room NGD_GUARDED_BY(lock);
    uint64_t n NGD_GUARDED_BY(lock); /* events since the start, of which the last `room` are kept */
    ngd_nsec_t began NGD_GUARDED_BY(lock);
};

void ngd_timeline_init(struct ngd_timeline *timeline);
void ngd_timeline_fini(struct ngd_timeline *timeline);
static inline bool ngd_timeline_on(const struct ngd_timeline *timeline)
{
    return atomic_load_explicit(&timeline->on, memory_order_relaxed);
}
void ngd_timeline_note(struct ngd_timeline *timeline, const struct ngd_timeline_event *event);

/* ---- for the operator ---- */

struct ngd_timeline_status {
    bool on;
    uint64_t kept, lost;
};
/* Starts recording, and drops earlier events. BUSY: it is on already. */
ngd_status_t ngd_timeline_start(struct ngd_sched *sched, uint32_t events, struct ngd_diag *diag);
/* Stops recording. discard: also frees the ring. May be called when it is off. */
void ngd_timeline_stop(struct ngd_sched *sched, bool discard, struct ngd_timeline_status *status_p);

typedef enum ngd_timeline_form { NGD_TIMELINE_CHROME, NGD_TIMELINE_ARRIVALS, NGD_TIMELINE_FORMS } ngd_timeline_form_t;
/*
 * Prints a page of the recording: events from `from` on (0 = the oldest kept), until sb has about `bytes` bytes. The
 * pages in order make up the file. *next_p: where the next page begins; 0 after the last one. BUSY: it is on.
 */
ngd_status_t ngd_timeline_print(struct ngd_sched *sched, ngd_timeline_form_t form, uint64_t from, size_t bytes,
                                struct ngd_strbuf *sb, uint64_t *next_p, struct ngd_diag *diag);

#endif
