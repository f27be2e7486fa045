/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RECORD_TIMELINE_H
#define NGD_SCHEDULER_RECORD_TIMELINE_H

/*
 * The timeline: when it is on, what each stream slot ran, for whom, and how long that waited, in a ring. Printed as a
 * Chrome trace for people, and as arrivals for bench/schedsim.
 *
 * Threads: any. Off, it costs a relaxed load for each replay; on, a short lock. Bounds: as many events as were asked
 * for; the oldest give way, and are counted. What was recorded stays until the next start, or until it is discarded.
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
    ngd_nsec_t submitted, started; /* 0: it was no request of its own, but a model's batch; or did not run */
    ngd_nsec_t ended, device_time; /* of which: */
    ngd_nsec_t copy_in, copy_out;
    ngd_nsec_t part;     /* of device_time: the request's own */
    uint32_t together;   /* requests that the run was for; 0: it ran with the one of the event before this one */
    ngd_nsec_t expected; /* device time, as known when it was submitted; 0 = unknown */
    ngd_nsec_t deadline; /* NGD_NSEC_NEVER */
    uint64_t tag;
    uint32_t device, slot, priority, weight;
    char graph[48], identity[64]; /* "" = nobody's alone */
};

struct ngd_timeline {
    _Atomic bool on;
    struct ngd_mutex lock; /* rank TIMELINE */
    struct ngd_timeline_event *ring NGD_GUARDED_BY(lock);
    uint32_t room NGD_GUARDED_BY(lock);
    uint64_t n NGD_GUARDED_BY(lock); /* since the start; the last `room` of them are kept */
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
/* Drops what was recorded before. BUSY: it is on. */
ngd_status_t ngd_timeline_start(struct ngd_sched *sched, uint32_t events, struct ngd_diag *diag);
/* discard: gives the memory back too. Fine when it is off. */
void ngd_timeline_stop(struct ngd_sched *sched, bool discard, struct ngd_timeline_status *status_p);

typedef enum ngd_timeline_form { NGD_TIMELINE_CHROME, NGD_TIMELINE_ARRIVALS, NGD_TIMELINE_FORMS } ngd_timeline_form_t;
/*
 * A page of what was recorded: from the event `from` on (0 = the oldest kept), until there are about so many bytes. The
 * pages in their order make up the file; *next_p is where the next one begins, 0 after the last. BUSY while it is on.
 */
ngd_status_t ngd_timeline_print(struct ngd_sched *sched, ngd_timeline_form_t form, uint64_t from, size_t bytes,
                                struct ngd_strbuf *sb, uint64_t *next_p, struct ngd_diag *diag);

#endif
