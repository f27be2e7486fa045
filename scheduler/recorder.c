/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/recorder.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct ngd_event_info ngd_event_infos[NGD_EVENT_MAX] = {
#define NGD_EVENT(ID, name_, kind_, help_) [NGD_EVENT_##ID] = {.kind = kind_, .name = name_, .help = help_},
#include "scheduler/events.def"
#undef NGD_EVENT
};

ngd_status_t ngd_recorder_init(struct ngd_recorder *rec)
{
    rec->ring = NGD_NEW_N(struct ngd_flight_event, NGD_RECORDER_EVENTS);
    if (!rec->ring)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&rec->lock, NGD_RANK_RECORDER);
    for (int i = 0; i < NGD_EVENT_MAX; i++)
        rec->rows[i] = ngd_metric_row(NGD_M_FLIGHT_EVENTS, ngd_event_infos[i].name);
    return NGD_OK;
}

void ngd_recorder_fini(struct ngd_recorder *rec)
{
    if (!rec->ring)
        return;
    ngd_mutex_fini(&rec->lock);
    ngd_free(rec->ring);
    rec->ring = NULL;
}

static struct ngd_flight_event *at(struct ngd_recorder *rec, uint64_t number)
{
    return &rec->ring[(number - 1) % NGD_RECORDER_EVENTS];
}

static struct ngd_flight_event *find_repeated_locked(struct ngd_recorder *rec, ngd_event_reason_t reason,
                                                     const struct ngd_event_about *about) NGD_REQUIRES(rec->lock)
{
    for (uint64_t i = 0; i < NGD_RECORDER_REPEAT && i < rec->n; i++) {
        struct ngd_flight_event *e = at(rec, rec->n - i);

        if (e->reason == reason && e->program == about->program && e->key == about->key)
            return e;
    }
    return NULL;
}

static struct ngd_flight_event *add_locked(struct ngd_recorder *rec, ngd_event_reason_t reason,
                                           const struct ngd_event_about *about, ngd_nsec_t now) NGD_REQUIRES(rec->lock)
{
    struct ngd_flight_event *e;

    rec->n++;
    e = at(rec, rec->n);
    *e = (struct ngd_flight_event){.number = rec->n,
                                   .reason = reason,
                                   .program = about->program,
                                   .graph = about->graph->digest,
                                   .key = about->key,
                                   .first = now};
    snprintf(e->name, sizeof(e->name), "%s", about->graph->name);
    return e;
}

void ngd_recorder_note(struct ngd_recorder *rec, ngd_event_reason_t reason, const struct ngd_event_about *about,
                       const char *fmt, ...)
{
    ngd_nsec_t now = ngd_now();
    struct ngd_flight_event *e;
    char text[NGD_RECORDER_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ngd_metric_row_add(rec->rows[reason], 1);
    ngd_mutex_lock(&rec->lock);
    e = find_repeated_locked(rec, reason, about);
    if (!e)
        e = add_locked(rec, reason, about, now);
    e->tag = about->tag;
    e->count++;
    e->last = now;
    memcpy(e->text, text, sizeof(text));
    ngd_mutex_unlock(&rec->lock);
}

uint32_t ngd_recorder_read(struct ngd_recorder *rec, bool (*match)(void *ctx, const struct ngd_flight_event *event),
                           void *ctx, struct ngd_flight_event *list, uint32_t max)
{
    uint32_t n = 0;

    ngd_mutex_lock(&rec->lock);
    for (uint64_t i = 0; i < NGD_RECORDER_EVENTS && i < rec->n && n < max; i++) {
        const struct ngd_flight_event *e = at(rec, rec->n - i);

        if (!match || match(ctx, e))
            list[n++] = *e;
    }
    ngd_mutex_unlock(&rec->lock);
    return n;
}
