/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RECORD_RECORDER_H
#define NGD_SCHEDULER_RECORD_RECORDER_H

/*
 * The flight recorder: a bounded ring of events that kept keys and requests from simply running. Each has a reason code
 * (events.def), and each reason has a counter.
 *
 * Why: "Why was this one slow?" is asked afterwards. Counters say how often something happened. The ring says to which
 * key, and with what values.
 * Threads: any. A short lock; a replay that finds its executable and fits its bucket never comes here.
 * Bounds: NGD_RECORDER_EVENTS events. A repetition (same program, key and reason) raises the count of the earlier
 * event, so that a flood of one kind does not push out the rest. Events of requests with a tag are also kept in a
 * second ring of the same size, tag by tag, so that a tag can be looked up after others of its kind.
 */
#include "base/clock.h"
#include "base/lock.h"
#include "base/metrics.h"
#include "graphs/key.h"

typedef enum ngd_event_reason {
#define NGD_EVENT(ID, name, kind, help) NGD_EVENT_##ID,
#include "scheduler/record/events.def"
#undef NGD_EVENT
    NGD_EVENT_MAX
} ngd_event_reason_t;

struct ngd_event_info {
    const char *kind, *name, *help;
};
extern const struct ngd_event_info ngd_event_infos[NGD_EVENT_MAX];

#define NGD_RECORDER_EVENTS     2048
#define NGD_RECORDER_REPEAT     256 /* events to search back for the one that an event repeats */
#define NGD_RECORDER_REPEAT_TAG 16  /* likewise for one of the same tag; most often there is none */
#define NGD_RECORDER_TEXT       224

struct ngd_flight_event {
    uint64_t number; /* serial number of the event, from 1 */
    ngd_event_reason_t reason;
    uint64_t program; /* ngd_program_number */
    uint64_t owner;   /* ngd_program_owner */
    struct ngd_digest graph;
    uint64_t key; /* hash; 0 = no key */
    uint64_t tag; /* of the last request; 0 = none */
    uint64_t count;
    ngd_nsec_t first, last; /* ngd_now() */
    char name[64];          /* of the graph */
    char text[NGD_RECORDER_TEXT];
};

struct ngd_flight_ring {
    uint64_t n; /* events so far */
    struct ngd_flight_event *events;
};

struct ngd_recorder {
    struct ngd_mutex lock; /* rank RECORDER */
    /* Under lock: */
    struct ngd_flight_ring ring;
    struct ngd_flight_ring tagged; /* number: that of the event of `ring` that counts it */
    struct ngd_metric_row *rows[NGD_EVENT_MAX];
};

ngd_status_t ngd_recorder_init(struct ngd_recorder *rec);
void ngd_recorder_fini(struct ngd_recorder *rec);

/* The program, graph, key and request that an event is about. */
struct ngd_event_about {
    uint64_t program;
    uint64_t owner;
    const struct ngd_graph *graph;
    uint64_t key; /* hash; 0 = none */
    uint64_t tag;
};
void ngd_recorder_note(struct ngd_recorder *rec, ngd_event_reason_t reason, const struct ngd_event_about *about,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/*
 * Copies the events that match, newest first, into list, which has room for max. Returns how many. tag: 0 = all events;
 * else only what happened to requests with this tag, and counts are of those requests alone. match NULL: all.
 */
uint32_t ngd_recorder_read(struct ngd_recorder *rec, uint64_t tag,
                           bool (*match)(void *ctx, const struct ngd_flight_event *event), void *ctx,
                           struct ngd_flight_event *list, uint32_t max);

#endif
