/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/record/timeline.h"
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <inttypes.h>
#include <string.h>

#define AT_ONCE 64 /* events copied at a time under the lock, to be printed without it */

void ngd_timeline_init(struct ngd_timeline *timeline)
{
    ngd_mutex_init(&timeline->lock, NGD_RANK_TIMELINE);
}

/* Requires that no other thread uses it any more. */
void ngd_timeline_fini(struct ngd_timeline *timeline) NGD_NO_THREAD_SAFETY
{
    ngd_free(timeline->ring);
    timeline->ring = NULL;
    ngd_mutex_fini(&timeline->lock);
}

void ngd_timeline_note(struct ngd_timeline *timeline, const struct ngd_timeline_event *event)
{
    ngd_mutex_lock(&timeline->lock);
    if (ngd_timeline_on(timeline))
        timeline->ring[timeline->n++ % timeline->room] = *event;
    ngd_mutex_unlock(&timeline->lock);
}

/* ---- for the operator ---- */

ngd_status_t ngd_timeline_start(struct ngd_sched *sched, uint32_t events, struct ngd_diag *diag)
{
    struct ngd_timeline *timeline = &sched->timeline;
    struct ngd_timeline_event *ring, *old = NULL;
    bool on;

    if (events == 0 || events > NGD_TIMELINE_EVENTS_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a timeline of %" PRIu32 " events was requested; it may have 1 to %u", events,
                            NGD_TIMELINE_EVENTS_MAX);
    ring = NGD_NEW_N(struct ngd_timeline_event, events);
    if (!ring)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a timeline of %" PRIu32 " events", events);
    ngd_mutex_lock(&timeline->lock);
    on = ngd_timeline_on(timeline);
    if (!on) {
        old = timeline->ring;
        timeline->ring = ring;
        timeline->room = events;
        timeline->n = 0;
        timeline->began = ngd_now();
        atomic_store(&timeline->on, true);
    }
    ngd_mutex_unlock(&timeline->lock);
    ngd_free(on ? ring : old);
    return on ? ngd_diag_set(diag, NGD_ERR_BUSY, "a timeline is being recorded; stop it first") : NGD_OK;
}

static uint64_t kept_locked(const struct ngd_timeline *timeline) NGD_REQUIRES(timeline->lock)
{
    return timeline->n < timeline->room ? timeline->n : timeline->room;
}

void ngd_timeline_stop(struct ngd_sched *sched, bool discard, struct ngd_timeline_status *status_p)
{
    struct ngd_timeline *timeline = &sched->timeline;
    struct ngd_timeline_event *old = NULL;

    ngd_mutex_lock(&timeline->lock);
    *status_p = (struct ngd_timeline_status){.on = ngd_timeline_on(timeline), .kept = kept_locked(timeline)};
    status_p->lost = timeline->n - status_p->kept;
    atomic_store(&timeline->on, false);
    if (discard) {
        old = timeline->ring;
        timeline->ring = NULL;
        timeline->room = 0;
        timeline->n = 0;
    }
    ngd_mutex_unlock(&timeline->lock);
    ngd_free(old);
}

/* ---- printing: one function for the head, the events and the foot of each form ---- */

static double us(ngd_nsec_t t)
{
    return (double)t / (double)NGD_USEC;
}

static void chrome_head(struct ngd_sched *sched, uint64_t lost, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"lost_events\":%" PRIu64 "},\"traceEvents\":[\n",
                      lost);
    for (uint32_t d = 0; d < sched->n_queues; d++) {
        ngd_strbuf_printf(sb, "%s{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"name\":\"process_name\",\"args\":{\"name\":",
                          d ? ",\n" : "", d + 1);
        ngd_strbuf_json_string(sb, sched->queues[d].dev_name);
        ngd_strbuf_append(sb, "}}");
        for (uint32_t s = 0; s < sched->queues[d].n_slots; s++)
            ngd_strbuf_printf(sb,
                              ",\n{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
                              ",\"name\":\"thread_name\",\"args\":{\"name\":\"slot %" PRIu32 "\"}}",
                              d + 1, s + 1, s);
    }
}

static void chrome_span(const struct ngd_timeline_event *e, const char *name, ngd_nsec_t begin, ngd_nsec_t time,
                        struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, ",\n{\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":%.3f,\"dur\":%.3f,\"name\":",
                      e->device + 1, e->slot + 1, us(begin), us(time));
    ngd_strbuf_json_string(sb, name);
    ngd_strbuf_append(sb, ",\"args\":{\"identity\":");
    ngd_strbuf_json_string(sb, e->identity);
    ngd_strbuf_printf(sb, ",\"priority\":%" PRIu32 ",\"tag\":%" PRIu64 ",\"requests\":%" PRIu32 "}}", e->priority,
                      e->tag, e->together);
}

/* Prints the wait as an asynchronous span, in a track for each identity, since waits overlap. */
static void chrome_queue(const struct ngd_timeline_event *e, uint64_t number, ngd_nsec_t began, struct ngd_strbuf *sb)
{
    for (int end = 0; end < 2; end++) {
        ngd_strbuf_printf(sb,
                          ",\n{\"ph\":\"%s\",\"cat\":\"queue\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"id\":%" PRIu64
                          ",\"ts\":%.3f,\"name\":",
                          end ? "e" : "b", e->device + 1, e->slot + 1, number,
                          us((end ? (e->outcome ? e->ended : e->started) : e->submitted) - began));
        ngd_strbuf_json_string(sb, e->identity);
        ngd_strbuf_append(sb, ",\"args\":{\"graph\":");
        ngd_strbuf_json_string(sb, e->graph);
        ngd_strbuf_printf(sb, ",\"outcome\":\"%s\",\"tag\":%" PRIu64 "}}", e->outcome ? e->outcome : "ran", e->tag);
    }
}

static void chrome_event(struct ngd_sched *sched, const struct ngd_timeline_event *e, uint64_t number, ngd_nsec_t began,
                         struct ngd_strbuf *sb)
{
    const ngd_nsec_t begin = e->ended - e->device_time - began;

    (void)sched;
    if (e->submitted)
        chrome_queue(e, number, began, sb);
    if (e->outcome || e->together == 0)
        return; /* it never ran, or its run has been printed */
    chrome_span(e, e->graph, begin, e->device_time, sb);
    if (e->copy_in)
        chrome_span(e, "copy in", begin, e->copy_in, sb);
    chrome_span(e, "replay", begin + e->copy_in, e->device_time - e->copy_in - e->copy_out, sb);
    if (e->copy_out)
        chrome_span(e, "copy out", e->ended - e->copy_out - began, e->copy_out, sb);
}

static void chrome_foot(struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "\n]}\n");
}

static void arrivals_head(struct ngd_sched *sched, uint64_t lost, struct ngd_strbuf *sb)
{
    (void)sched;
    ngd_strbuf_printf(
        sb,
        "npugraph-arrivals 1\n"
        "# %" PRIu64 " earlier ones were lost\n"
        "# a request that did not run has its outcome on the line before, and its expected length, 0 if unknown\n"
        "# at_us length_us expected_us deadline_us priority weight device identity\n",
        lost);
}

/*
 * Leaves out a model's batches, which have no arrival, and requests that arrived before the start, of which only the
 * end was seen. A request that did not run gets its expected time as its length.
 */
static void arrivals_event(struct ngd_sched *sched, const struct ngd_timeline_event *e, uint64_t number,
                           ngd_nsec_t began, struct ngd_strbuf *sb)
{
    (void)number;
    if (!e->submitted || e->submitted < began)
        return;
    if (e->outcome)
        ngd_strbuf_printf(sb, "# %s:\n", e->outcome);
    ngd_strbuf_printf(sb, "%.3f %.3f %.3f ", us(e->submitted - began), us(e->outcome ? e->expected : e->part),
                      us(e->expected));
    if (e->deadline == NGD_NSEC_NEVER)
        ngd_strbuf_append(sb, "-");
    else
        ngd_strbuf_printf(sb, "%.3f", us(e->deadline - began));
    ngd_strbuf_printf(sb, " %" PRIu32 " %" PRIu32 " %s %s\n", e->priority, e->weight, sched->queues[e->device].dev_name,
                      e->identity);
}

static void arrivals_foot(struct ngd_strbuf *sb)
{
    (void)sb;
}

static const struct form {
    void (*head)(struct ngd_sched *sched, uint64_t lost, struct ngd_strbuf *sb);
    void (*event)(struct ngd_sched *sched, const struct ngd_timeline_event *e, uint64_t number, ngd_nsec_t began,
                  struct ngd_strbuf *sb);
    void (*foot)(struct ngd_strbuf *sb);
} forms[NGD_TIMELINE_FORMS] = {
    [NGD_TIMELINE_CHROME] = {.head = chrome_head, .event = chrome_event, .foot = chrome_foot},
    [NGD_TIMELINE_ARRIVALS] = {.head = arrivals_head, .event = arrivals_event, .foot = arrivals_foot},
};

struct page {
    struct ngd_timeline_event events[AT_ONCE];
    uint32_t n;
    uint64_t kept, lost;
    ngd_nsec_t began;
};

/* Returns false if the timeline is on. */
static bool copy_page(struct ngd_timeline *timeline, uint64_t from, struct page *page)
{
    bool on;

    ngd_mutex_lock(&timeline->lock);
    on = ngd_timeline_on(timeline);
    page->n = 0;
    page->kept = kept_locked(timeline);
    page->lost = timeline->n - page->kept;
    page->began = timeline->began;
    for (uint64_t i = from; !on && i < page->kept && page->n < AT_ONCE; i++)
        page->events[page->n++] = timeline->ring[(page->lost + i) % timeline->room];
    ngd_mutex_unlock(&timeline->lock);
    return !on;
}

ngd_status_t ngd_timeline_print(struct ngd_sched *sched, ngd_timeline_form_t form, uint64_t from, size_t bytes,
                                struct ngd_strbuf *sb, uint64_t *next_p, struct ngd_diag *diag)
{
    const struct form *f = &forms[form];
    struct page *page = NGD_NEW(struct page);
    uint64_t at = from;
    ngd_status_t status = page ? NGD_OK : NGD_ERR_NO_MEMORY;

    do {
        if (status == NGD_OK && !copy_page(&sched->timeline, at, page))
            status = ngd_diag_set(diag, NGD_ERR_BUSY, "the timeline is being recorded; stop it to read it");
        if (status)
            break;
        if (at == 0)
            f->head(sched, page->lost, sb);
        for (uint32_t i = 0; i < page->n; i++)
            f->event(sched, &page->events[i], at + i, page->began, sb);
        at += page->n;
    } while (at < page->kept && sb->len < bytes);
    if (status == NGD_OK) {
        *next_p = at < page->kept ? at : 0;
        if (!*next_p)
            f->foot(sb);
        if (sb->failed)
            status = NGD_ERR_NO_MEMORY;
    }
    ngd_free(page);
    return status;
}
