/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/record/recorder.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct ngd_event_info ngd_event_infos[NGD_EVENT_MAX] = {
#define NGD_EVENT(ID, name_, kind_, help_) [NGD_EVENT_##ID] = {.kind = kind_, .name = name_, .help = help_},
#include "scheduler/record/events.def"
#undef NGD_EVENT
};

ngd_status_t ngd_recorder_init(struct ngd_recorder *rec)
{
    rec->ring.events = NGD_NEW_N(struct ngd_flight_event, NGD_RECORDER_EVENTS);
    rec->tagged.events = NGD_NEW_N(struct ngd_flight_event, NGD_RECORDER_EVENTS);
    if (!rec->ring.events || !rec->tagged.events) {
        ngd_free(rec->ring.events);
        ngd_free(rec->tagged.events);
        rec->ring.events = rec->tagged.events = NULL;
        return NGD_ERR_NO_MEMORY;
    }
    ngd_mutex_init(&rec->lock, NGD_RANK_RECORDER);
    for (int i = 0; i < NGD_EVENT_MAX; i++)
        rec->rows[i] = ngd_metric_row(NGD_M_FLIGHT_EVENTS, ngd_event_infos[i].name);
    return NGD_OK;
}

void ngd_recorder_fini(struct ngd_recorder *rec)
{
    if (!rec->ring.events)
        return;
    ngd_mutex_fini(&rec->lock);
    ngd_free(rec->ring.events);
    ngd_free(rec->tagged.events);
    rec->ring.events = rec->tagged.events = NULL;
}

static struct ngd_flight_event *ring_at(const struct ngd_flight_ring *ring, uint64_t number)
{
    return &ring->events[(number - 1) % NGD_RECORDER_EVENTS];
}

/* Returns the earlier event that this one repeats, or NULL. tag: 0, or the tag that it must have. */
static struct ngd_flight_event *find_repeated(const struct ngd_flight_ring *ring, ngd_event_reason_t reason,
                                              const struct ngd_event_about *about, uint64_t tag)
{
    const uint64_t back = tag ? NGD_RECORDER_REPEAT_TAG : NGD_RECORDER_REPEAT;

    for (uint64_t i = 0; i < back && i < ring->n; i++) {
        struct ngd_flight_event *e = ring_at(ring, ring->n - i);

        if (e->reason == reason && e->program == about->program && e->key == about->key && (!tag || e->tag == tag))
            return e;
    }
    return NULL;
}

static struct ngd_flight_event *ring_add(struct ngd_flight_ring *ring, ngd_event_reason_t reason,
                                         const struct ngd_event_about *about, ngd_nsec_t now)
{
    struct ngd_flight_event *e = ring_at(ring, ++ring->n);

    *e = (struct ngd_flight_event){.number = ring->n,
                                   .reason = reason,
                                   .program = about->program,
                                   .owner = about->owner,
                                   .graph = about->graph->digest,
                                   .key = about->key,
                                   .first = now};
    snprintf(e->name, sizeof(e->name), "%s", about->graph->name);
    return e;
}

static struct ngd_flight_event *ring_put(struct ngd_flight_ring *ring, ngd_event_reason_t reason,
                                         const struct ngd_event_about *about, uint64_t tag, const char *text,
                                         ngd_nsec_t now)
{
    struct ngd_flight_event *e = find_repeated(ring, reason, about, tag);

    if (!e)
        e = ring_add(ring, reason, about, now);
    e->tag = about->tag;
    e->count++;
    e->last = now;
    memcpy(e->text, text, sizeof(e->text));
    return e;
}

void ngd_recorder_note(struct ngd_recorder *rec, ngd_event_reason_t reason, const struct ngd_event_about *about,
                       const char *fmt, ...)
{
    ngd_nsec_t now = ngd_now();
    char text[NGD_RECORDER_TEXT];
    uint64_t number;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ngd_metric_row_add(rec->rows[reason], 1);
    ngd_mutex_lock(&rec->lock);
    number = ring_put(&rec->ring, reason, about, 0, text, now)->number;
    if (about->tag)
        ring_put(&rec->tagged, reason, about, about->tag, text, now)->number = number;
    ngd_mutex_unlock(&rec->lock);
}

uint32_t ngd_recorder_read(struct ngd_recorder *rec, uint64_t tag,
                           bool (*match)(void *ctx, const struct ngd_flight_event *event), void *ctx,
                           struct ngd_flight_event *list, uint32_t max)
{
    const struct ngd_flight_ring *ring = tag ? &rec->tagged : &rec->ring;
    uint32_t n = 0;

    ngd_mutex_lock(&rec->lock);
    for (uint64_t i = 0; i < NGD_RECORDER_EVENTS && i < ring->n && n < max; i++) {
        const struct ngd_flight_event *e = ring_at(ring, ring->n - i);

        if ((!tag || e->tag == tag) && (!match || match(ctx, e)))
            list[n++] = *e;
    }
    ngd_mutex_unlock(&rec->lock);
    return n;
}
