/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/trace.h"

#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/trace/export.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RANDOM_BITS 56      /* of a trace id, by which a trace is sampled: its last ones, as W3C's level 2 says */
#define BURST       NGD_SEC /* spans of so much time may come at once */

bool ngd_trace_sample_parse(const char *text, double *sample_p)
{
    char *end;
    double v;

    if (strspn(text, "0123456789.") != strlen(text))
        return false;
    v = strtod(text, &end);
    if (end == text || *end || !(v >= 0 && v <= 1))
        return false;
    *sample_p = v;
    return true;
}

/* ---- ids ------------------------------------------------------------------------------------------------- */

static uint64_t rotate_bits(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* A generator for each thread (xoroshiro128+). Ids must differ and spread well; nobody is kept out by them. */
static uint64_t random_bits(void)
{
    static _Thread_local uint64_t s[2];
    uint64_t sum;

    while (s[0] == 0 && s[1] == 0)
        if (getrandom(s, sizeof(s), 0) != (ssize_t)sizeof(s))
            s[0] = (uint64_t)ngd_clock_real() ^ (uint64_t)(uintptr_t)&s;
    sum = s[0] + s[1];
    s[1] ^= s[0];
    s[0] = rotate_bits(s[0], 24) ^ s[1] ^ (s[1] << 16);
    s[1] = rotate_bits(s[1], 37);
    return sum;
}

static void put_bits(uint8_t *to, uint64_t v)
{
    for (int i = 7; i >= 0; i--, v >>= 8)
        to[i] = (uint8_t)v;
}

/* Never all zero. */
void ngd_trace_make_span_id(uint8_t id[NGD_SPAN_ID])
{
    put_bits(id, random_bits() | 1);
}

bool ngd_trace_decide(struct ngd_tracer *tracer, const struct ngd_trace_context *parent, struct ngd_trace_ids *ids_p)
{
    uint64_t low;

    if (parent && !parent->sampled)
        return false;
    if (parent) {
        memcpy(ids_p->trace, parent->trace, NGD_TRACE_ID);
    } else {
        low = random_bits();
        if ((low & ((UINT64_C(1) << RANDOM_BITS) - 1)) >=
            atomic_load_explicit(&tracer->threshold, memory_order_relaxed))
            return false;
        put_bits(ids_p->trace, random_bits() | 1);
        put_bits(ids_p->trace + 8, low);
    }
    ngd_trace_make_span_id(ids_p->span);
    return true;
}

void ngd_trace_begin(struct ngd_trace_record *record, const struct ngd_trace_ids *ids,
                     const struct ngd_trace_context *parent, ngd_nsec_t begin)
{
    memset(record, 0, offsetof(struct ngd_trace_record, parts));
    record->name_key = NULL;
    record->name[0] = record->device[0] = record->identity[0] = record->text[0] = record->state[0] = '\0';
    record->key = 0;
    memcpy(record->trace, ids->trace, NGD_TRACE_ID);
    memcpy(record->span, ids->span, NGD_SPAN_ID);
    record->begin = begin;
    if (!parent)
        return;
    record->has_parent = true;
    memcpy(record->parent, parent->span, NGD_SPAN_ID);
    memcpy(record->state, parent->state, strlen(parent->state) + 1);
}

/* ---- the ring -------------------------------------------------------------------------------------------- */

/* Takes n spans of an identity, whose rate is the time up to which its spans so far would last. False: it has had too
 * many. */
static bool take_spans(struct ngd_tracer *tracer, _Atomic int64_t *rate, ngd_nsec_t now, int64_t n)
{
    const int64_t interval = atomic_load_explicit(&tracer->interval, memory_order_relaxed);
    int64_t had = atomic_load_explicit(rate, memory_order_relaxed), from;

    do {
        from = had > now ? had : now;
        if (from - now >= BURST)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(rate, &had, from + n * interval, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static bool push_record(struct ngd_tracer *tracer, const struct ngd_trace_record *record)
{
    bool room;

    ngd_mutex_lock(&tracer->lock);
    room = tracer->ring && tracer->n < NGD_TRACE_RING;
    if (room) {
        memcpy(&tracer->ring[(tracer->first + tracer->n++) % NGD_TRACE_RING], record,
               offsetof(struct ngd_trace_record, state) + strlen(record->state) + 1);
        if (tracer->n == 1 || tracer->n == NGD_TRACE_BATCH)
            ngd_cond_signal(&tracer->wake);
    }
    ngd_mutex_unlock(&tracer->lock);
    return room;
}

bool ngd_trace_end(struct ngd_tracer *tracer, _Atomic int64_t *rate, const struct ngd_trace_record *record)
{
    const uint32_t spans = 1 + record->n_parts;
    const char *why = NULL;

    if (!take_spans(tracer, rate, record->end, spans))
        why = "limit";
    else if (!push_record(tracer, record))
        why = "ring";
    if (why)
        ngd_metric_row_add(ngd_metric_row(NGD_M_TRACE_SPANS_DROPPED, why), spans);
    return !why;
}

/* ---- life ------------------------------------------------------------------------------------------------ */

ngd_status_t ngd_tracer_create(struct ngd_tracer **tracer_p, struct ngd_diag *diag)
{
    struct ngd_tracer *tracer = NGD_NEW(struct ngd_tracer);

    if (!tracer)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for traces");
    ngd_mutex_init(&tracer->lock, NGD_RANK_TRACE);
    ngd_cond_init(&tracer->wake);
    ngd_cond_init(&tracer->left);
    snprintf(tracer->instance, sizeof(tracer->instance), "%016llx%016llx", (unsigned long long)random_bits(),
             (unsigned long long)random_bits());
    *tracer_p = tracer;
    return NGD_OK;
}

/* Gets what it needs to be on for the first time: the ring and the thread. */
static ngd_status_t equip(struct ngd_tracer *tracer)
{
    struct ngd_trace_record *ring;

    if (tracer->started)
        return NGD_OK;
    ring = NGD_NEW_N(struct ngd_trace_record, NGD_TRACE_RING);
    if (!ring)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_lock(&tracer->lock);
    tracer->ring = ring;
    ngd_mutex_unlock(&tracer->lock);
    if (ngd_thread_start(&tracer->thread, "traces", ngd_trace_export, tracer) == 0) {
        tracer->started = true;
        return NGD_OK;
    }
    ngd_mutex_lock(&tracer->lock);
    tracer->ring = NULL;
    ngd_mutex_unlock(&tracer->lock);
    ngd_free(ring);
    return NGD_ERR_RESOURCE_EXHAUSTED;
}

ngd_status_t ngd_tracer_set(struct ngd_tracer *tracer, const struct ngd_trace_params *params)
{
    struct ngd_trace_endpoint endpoint;
    const bool on = *params->endpoint && ngd_trace_endpoint_parse(params->endpoint, &endpoint);
    ngd_status_t status = on ? equip(tracer) : NGD_OK;

    if (!on || status != NGD_OK) {
        atomic_store(&tracer->on, false);
        return status;
    }
    atomic_store(&tracer->threshold, (uint64_t)(params->sample * (double)(UINT64_C(1) << RANDOM_BITS)));
    atomic_store(&tracer->interval, NGD_SEC / (params->limit > 0 ? params->limit : 1));
    ngd_mutex_lock(&tracer->lock);
    tracer->endpoint = endpoint;
    ngd_mutex_unlock(&tracer->lock);
    atomic_store(&tracer->on, true); /* at last: a call that sees it is decided by the new options */
    return NGD_OK;
}

/* No other thread uses it any more. */
void ngd_tracer_free(struct ngd_tracer *tracer) NGD_NO_THREAD_SAFETY
{
    ngd_free(tracer->ring);
    ngd_cond_fini(&tracer->wake);
    ngd_cond_fini(&tracer->left);
    ngd_mutex_fini(&tracer->lock);
    ngd_free(tracer);
}

void ngd_tracer_destroy(struct ngd_tracer *tracer)
{
    if (!tracer)
        return;
    atomic_store(&tracer->on, false);
    if (!tracer->started || ngd_trace_export_stop(tracer))
        ngd_tracer_free(tracer);
}
