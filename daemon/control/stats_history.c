/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_history.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/history.h"
#include "daemon/reactor.h"
#include "devices/telemetry.h"
#include "scheduler/run/sched.h"
#include <math.h>
#include <time.h>

struct ngd_stats_history {
    struct ngd_history *history;
    struct ngd_reactor_watch *timer;
};

static void read_device(struct ngd_daemon *d, uint32_t i, struct ngd_history_device *device_p)
{
    struct ngd_sched_device_stats stats = {0};
    struct ngd_telemetry readings;
    double value;

    ngd_sched_device_stats(d->sched, i, &stats);
    ngd_telemetry_read(d->devices[i], &readings);
    *device_p = (struct ngd_history_device){
        .busy = stats.busy, .used = ngd_device_used_bytes(d->devices[i]), .temperature = NAN, .power = NAN};
    if (ngd_telemetry_get(&readings, NGD_TELEMETRY_TEMPERATURE, &value))
        device_p->temperature = (float)value;
    if (ngd_telemetry_get(&readings, NGD_TELEMETRY_POWER, &value))
        device_p->power = (float)value;
}

static void take_sample(void *arg)
{
    struct ngd_daemon *d = arg;
    struct ngd_history_sample sample = {.at = ngd_now()};

    ngd_history_read(&sample);
    for (uint32_t i = 0; i < d->n_devices && i < NGD_HISTORY_DEVICES; i++)
        read_device(d, i, &sample.device[i]);
    ngd_history_add(d->stats_history->history, &sample);
}

static ngd_status_t create_history(struct ngd_daemon *d, struct ngd_history **history_p)
{
    const char *names[NGD_HISTORY_DEVICES];
    uint32_t slots[NGD_HISTORY_DEVICES], n = 0;

    for (; n < d->n_devices && n < NGD_HISTORY_DEVICES; n++) {
        struct ngd_sched_device_stats stats = {0};

        ngd_sched_device_stats(d->sched, n, &stats);
        names[n] = ngd_device_info(d->devices[n])->name;
        slots[n] = stats.slots;
    }
    return ngd_history_create(&(struct ngd_history_params){n, names, slots}, history_p);
}

ngd_status_t ngd_stats_history_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_stats_history *h = d->stats_history = NGD_NEW(struct ngd_stats_history);
    ngd_status_t status = h ? create_history(d, &h->history) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = ngd_reactor_every(d->reactor, NGD_SEC, take_sample, d, &h->timer);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "the history cannot be kept: %s", ngd_status_text(status));
    take_sample(d);
    return NGD_OK;
}

void ngd_stats_history_stop(struct ngd_daemon *d)
{
    if (!d->stats_history)
        return;
    ngd_reactor_remove(d->stats_history->timer);
    ngd_history_destroy(d->stats_history->history);
    ngd_free(d->stats_history);
    d->stats_history = NULL;
}

bool ngd_stats_history_json(struct ngd_daemon *d, uint64_t step, uint64_t since, struct ngd_strbuf *sb)
{
    const int level = ngd_history_level(step);
    struct timespec now;

    if (level < 0)
        return false;
    clock_gettime(CLOCK_REALTIME, &now);
    ngd_history_json(d->stats_history->history, level, since, (double)now.tv_sec + (double)now.tv_nsec / 1e9, sb);
    return true;
}
