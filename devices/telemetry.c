/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/telemetry.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define STOP_WAIT       (NGD_SEC / 2)
#define STALE_INTERVALS 3 /* after so many missed ones, and STALE_MARGIN, readings are dropped */
#define STALE_MARGIN    (2 * NGD_SEC)
#define MIB             1048576.0
#define PERCENT         100.0

static const struct ngd_telemetry_row telemetry_rows[] = {
#define NGD_TELEMETRY(ID, name, unit, least, most, vendor, column, help) \
    [NGD_TELEMETRY_##ID] = {name, NGD_UNIT_##unit, least, most, vendor, column, help},
#include "devices/telemetry.def"
#undef NGD_TELEMETRY
};
_Static_assert(NGD_TELEMETRY_MAX <= 32, "struct ngd_telemetry has a bit for each row");

const struct ngd_telemetry_row *ngd_telemetry_row(ngd_telemetry_id_t id)
{
    return &telemetry_rows[id];
}

void ngd_telemetry_set(struct ngd_telemetry *t, ngd_telemetry_id_t id, double value)
{
    if (!(value >= telemetry_rows[id].least && value <= telemetry_rows[id].most)) /* NaN is refused too */
        return;
    t->known |= UINT32_C(1) << id;
    t->value[id] = value;
}

bool ngd_telemetry_get(const struct ngd_telemetry *t, ngd_telemetry_id_t id, double *value_p)
{
    if (!(t->known & UINT32_C(1) << id))
        return false;
    *value_p = t->value[id];
    return true;
}

double ngd_telemetry_vendor_value(ngd_telemetry_id_t id, double value)
{
    if (telemetry_rows[id].unit == NGD_UNIT_BYTES)
        return value / MIB;
    return telemetry_rows[id].unit == NGD_UNIT_RATIO ? value * PERCENT : value;
}

/* ---- the sampling thread ------------------------------------------------------------------------------- */

/* Belongs to the device, or to its thread once that was left behind. */
struct ngd_sampler {
    const struct ngd_backend *backend;
    void *source;
    ngd_nsec_t interval;
    pthread_t thread;
    struct ngd_mutex lock;
    struct ngd_cond wake, left;
    bool stop NGD_GUARDED_BY(lock);
    bool gone NGD_GUARDED_BY(lock);        /* the thread makes no more calls */
    bool left_behind NGD_GUARDED_BY(lock); /* the thread frees this when it returns */
    struct ngd_telemetry last NGD_GUARDED_BY(lock);
    ngd_nsec_t at NGD_GUARDED_BY(lock); /* of the last readings */
};

static void destroy_sampler(struct ngd_sampler *s)
{
    ngd_cond_fini(&s->wake);
    ngd_cond_fini(&s->left);
    ngd_mutex_fini(&s->lock);
    ngd_free(s);
}

static void keep_sample(struct ngd_sampler *s, const struct ngd_telemetry *fresh) NGD_REQUIRES(s->lock)
{
    const int32_t physical = s->last.physical;

    s->last = *fresh;
    if (s->last.physical == NGD_NUMBER_UNKNOWN)
        s->last.physical = physical; /* a chip keeps its number */
    s->at = ngd_now();
}

static void *sampler_main(void *arg)
{
    struct ngd_sampler *s = arg;
    bool destroy;

    ngd_mutex_lock(&s->lock);
    while (!s->stop) {
        struct ngd_telemetry fresh = {.logical = NGD_NUMBER_UNKNOWN, .physical = NGD_NUMBER_UNKNOWN};
        ngd_nsec_t next = ngd_clock_real() + s->interval;

        ngd_mutex_unlock(&s->lock);
        s->backend->telemetry.sample(s->source, &fresh);
        ngd_mutex_lock(&s->lock);
        keep_sample(s, &fresh);
        while (!s->stop && ngd_cond_wait_until(&s->wake, &s->lock, next))
            continue;
    }
    ngd_mutex_unlock(&s->lock);
    s->backend->telemetry.close(s->source);
    ngd_mutex_lock(&s->lock);
    s->gone = true;
    destroy = s->left_behind;
    ngd_cond_signal(&s->left);
    ngd_mutex_unlock(&s->lock);
    if (destroy)
        destroy_sampler(s);
    return NULL;
}

ngd_status_t ngd_telemetry_start(struct ngd_device *dev, ngd_nsec_t interval, struct ngd_diag *diag)
{
    struct ngd_sampler *s;
    void *source;

    if (interval <= 0 || !dev->backend->telemetry.open || dev->sampler)
        return NGD_OK;
    source = dev->backend->telemetry.open(dev->handle);
    if (!source)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no memory for the readings of device %s", dev->info.name);
    s = NGD_NEW(struct ngd_sampler);
    if (!s) {
        dev->backend->telemetry.close(source);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no memory for the readings of device %s", dev->info.name);
    }
    s->backend = dev->backend;
    s->source = source;
    s->interval = interval;
    ngd_mutex_init(&s->lock, NGD_RANK_STREAM);
    ngd_cond_init(&s->wake);
    ngd_cond_init(&s->left);
    ngd_mutex_lock(&s->lock);
    s->last.logical = s->last.physical = NGD_NUMBER_UNKNOWN;
    ngd_mutex_unlock(&s->lock);
    if (ngd_thread_start(&s->thread, "telemetry", sampler_main, s)) {
        dev->backend->telemetry.close(source);
        destroy_sampler(s);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no thread for the readings of device %s", dev->info.name);
    }
    dev->sampler = s;
    return NGD_OK;
}

void ngd_telemetry_stop(struct ngd_device *dev)
{
    struct ngd_sampler *s = dev->sampler;
    const ngd_nsec_t until = ngd_clock_real() + STOP_WAIT;
    bool gone;

    if (!s)
        return;
    dev->sampler = NULL;
    ngd_mutex_lock(&s->lock);
    s->stop = true;
    ngd_cond_signal(&s->wake);
    while (!s->gone && ngd_cond_wait_until(&s->left, &s->lock, until))
        continue;
    gone = s->gone;
    s->left_behind = !gone;
    if (!gone)
        pthread_detach(s->thread);
    ngd_mutex_unlock(&s->lock); /* without gone, s may be free from here on */
    if (gone) {
        pthread_join(s->thread, NULL);
        destroy_sampler(s);
    } else {
        ngd_warning("devices", "device %s: reading its hardware does not return; the thread is left behind",
                    dev->info.name);
    }
}

void ngd_telemetry_read(struct ngd_device *dev, struct ngd_telemetry *t_p)
{
    struct ngd_sampler *s = dev->sampler;
    struct ngd_telemetry numbers = {.logical = NGD_NUMBER_UNKNOWN, .physical = NGD_NUMBER_UNKNOWN};

    *t_p = numbers;
    if (dev->backend->telemetry.numbers)
        dev->backend->telemetry.numbers(dev->handle, &numbers);
    if (s) {
        ngd_mutex_lock(&s->lock);
        *t_p = s->last;
        if (ngd_now() - s->at > STALE_INTERVALS * s->interval + STALE_MARGIN)
            t_p->known = 0;
        ngd_mutex_unlock(&s->lock);
    }
    if (t_p->logical == NGD_NUMBER_UNKNOWN)
        t_p->logical = numbers.logical;
    if (t_p->physical == NGD_NUMBER_UNKNOWN)
        t_p->physical = numbers.physical;
}
