/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/watchdog.h"

#include "base/beat.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/front/front.h"
#include "daemon/health.h"
#include "daemon/reactor.h"
#include "daemon/rpc/ring.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/sdnotify.h"
#include "scheduler/run/sched.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BOUND       (10 * NGD_SEC)
#define EVERY       (2 * NGD_SEC)
#define PARTS       4 /* the threads are asked at least this often in one bound */
#define SLOT_BOUNDS 3
#define OTHERS      3 /* the front, expiry and rings: watched besides the server's threads */

struct watched {
    char name[80];
    const struct ngd_beat *beat;
    ngd_nsec_t silent; /* how long the question has been open */
};

struct ngd_watchdog {
    struct ngd_daemon *daemon;
    struct ngd_reactor_watch *timer;
    ngd_nsec_t bound, interval, last;
    bool threads_answer;
    char why[200], told[200]; /* "": nothing hangs */
    size_t n;
    struct watched watched[];
};

static void watch_beat(struct ngd_watchdog *w, const struct ngd_beat *beat, const char *name)
{
    struct watched *item = &w->watched[w->n++];

    item->beat = beat;
    snprintf(item->name, sizeof(item->name), "%s", name);
}

static void watch_all_beats(struct ngd_watchdog *w)
{
    const struct ngd_rpc_server *rpc = w->daemon->rpc;
    const size_t n = ngd_rpc_server_threads(rpc);
    char name[80];

    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "receiving thread %zu of %zu", i + 1, n);
        watch_beat(w, ngd_rpc_server_beat(rpc, i), name);
    }
    watch_beat(w, ngd_front_beat(w->daemon->front), "the front's thread");
    watch_beat(w, ngd_rings_beat(w->daemon->rings), "the rings' thread");
    watch_beat(w, ngd_sched_beat(w->daemon->sched), "the expiry thread");
    watch_beat(w, ngd_rpc_server_beat(rpc, n), "a call of the daemon to itself");
}

static void note_hang(struct ngd_watchdog *w, const char *text)
{
    if (!w->why[0])
        snprintf(w->why, sizeof(w->why), "%s", text);
}

static void look_at_threads(struct ngd_watchdog *w, ngd_nsec_t step)
{
    char text[sizeof(w->why)];

    w->threads_answer = true;
    for (size_t i = 0; i < w->n; i++) {
        struct watched *item = &w->watched[i];

        item->silent = ngd_beat_is_open(item->beat) ? item->silent + step : 0;
        if (item->silent < w->bound)
            continue;
        w->threads_answer = false;
        snprintf(text, sizeof(text), "hangs: %s has not answered for %" PRId64 " s", item->name,
                 item->silent / NGD_SEC);
        note_hang(w, text);
    }
}

static void look_at_slot(void *ctx, const struct ngd_sched_running *r)
{
    struct ngd_watchdog *w = ctx;
    ngd_nsec_t most = ngd_config_get(w->daemon->options.max_replay_time);
    char text[sizeof(w->why)];

    if (most == 0 || r->since < most + SLOT_BOUNDS * w->bound)
        return;
    snprintf(text, sizeof(text),
             "hangs: device %.64s, stream slot %u has run a replay of graph %016" PRIx64 "... for %" PRId64 " s",
             r->device, r->slot, r->graph, r->since / NGD_SEC);
    note_hang(w, text);
}

/* Logs one line when something hangs, and one when all answer again. */
static void report_hangs(struct ngd_watchdog *w)
{
    if (w->why[0] && !w->told[0])
        ngd_error("daemon", "%s%s", w->why, w->threads_answer ? "" : "; systemd's watchdog is not told");
    else if (!w->why[0] && w->told[0])
        ngd_notice("daemon", "nothing hangs any more");
    memcpy(w->told, w->why, sizeof(w->told));
    if (atomic_exchange(&w->daemon->hangs, w->why[0] != '\0') != (w->why[0] != '\0'))
        ngd_health_changed(w->daemon->health);
    ngd_metric_set(NGD_M_READY, ngd_daemon_ready(w->daemon));
}

static void ask_all(struct ngd_daemon *d)
{
    ngd_rpc_server_ask(d->rpc);
    ngd_front_ask(d->front);
    ngd_rings_ask(d->rings);
    ngd_sched_ask(d->sched);
}

static void tick(void *arg)
{
    struct ngd_watchdog *w = arg;
    const ngd_nsec_t now = ngd_now();
    ngd_nsec_t step = now - w->last;

    while (NGD_FAULT(LOOP_HANG))
        nanosleep(&(struct timespec){.tv_nsec = 10 * NGD_MSEC}, NULL);
    if (step > 2 * w->interval) /* the process was stopped, or the loop was busy: the other threads may have been too */
        step = 2 * w->interval;
    w->last = now;
    w->why[0] = '\0';
    look_at_threads(w, step);
    ngd_sched_for_each_running(w->daemon->sched, look_at_slot, w);
    report_hangs(w);
    ask_all(w->daemon);
}

ngd_status_t ngd_watchdog_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    const size_t n = ngd_rpc_server_threads(d->rpc) + 1 + OTHERS;
    struct ngd_watchdog *w = ngd_calloc(1, sizeof(*w) + n * sizeof(w->watched[0]));
    ngd_nsec_t wanted = ngd_sdnotify_watchdog();
    ngd_status_t status;

    if (!w)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory");
    d->watchdog = w;
    w->daemon = d;
    w->bound = wanted && wanted < BOUND ? wanted : BOUND;
    w->interval = w->bound / PARTS < EVERY ? w->bound / PARTS : EVERY;
    w->last = ngd_now();
    w->threads_answer = true;
    watch_all_beats(w);
    status = ngd_reactor_every(d->reactor, w->interval, tick, w, &w->timer);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "a timer cannot be started");
}

void ngd_watchdog_stop(struct ngd_daemon *d)
{
    if (!d->watchdog)
        return;
    ngd_reactor_remove(d->watchdog->timer);
    ngd_free(d->watchdog);
    d->watchdog = NULL;
}

bool ngd_watchdog_threads_answer(const struct ngd_daemon *d)
{
    return !d->watchdog || d->watchdog->threads_answer;
}

const char *ngd_watchdog_why(const struct ngd_daemon *d)
{
    return d->watchdog && d->watchdog->why[0] ? d->watchdog->why : NULL;
}
