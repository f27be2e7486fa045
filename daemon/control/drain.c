/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/drain.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/health.h"
#include "daemon/jobs.h"
#include "daemon/reactor.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/sdnotify.h"
#include "daemon/session.h"

#define LOOK_EVERY (10 * NGD_MSEC)
/* Looks during which the ends of streams may reach their clients: one second of them. A process that was stopped has
 * sent nothing, so this counts looks instead of time. */
#define GOODBYE    (NGD_SEC / LOOK_EVERY)

/* Least time in which the sessions may come of connections that were accepted before the handover. */
#define YIELD_LEAST (500 * NGD_MSEC)

enum phase { IDLE, YIELDING, FINISHING, LEAVING };

struct ngd_drain {
    struct ngd_daemon *daemon;
    struct ngd_reactor_watch *timer;
    enum phase phase;
    ngd_nsec_t until; /* YIELDING, FINISHING */
    ngd_nsec_t began; /* YIELDING */
    int64_t looks;    /* LEAVING: looks that are left */
    struct ngd_mutex lock;
    ngd_nsec_t grace NGD_GUARDED_BY(lock); /* what begin_drain will use */
    bool stay NGD_GUARDED_BY(lock);
};

ngd_status_t ngd_drain_create(struct ngd_daemon *d, struct ngd_drain **drain_p)
{
    struct ngd_drain *drain = NGD_NEW(struct ngd_drain);

    if (!drain)
        return NGD_ERR_NO_MEMORY;
    drain->daemon = d;
    ngd_mutex_init(&drain->lock, NGD_RANK_DRAIN);
    *drain_p = drain;
    return NGD_OK;
}

void ngd_drain_destroy(struct ngd_drain *drain)
{
    if (!drain)
        return;
    ngd_reactor_remove(drain->timer);
    ngd_mutex_fini(&drain->lock);
    ngd_free(drain);
}

static bool work_left(struct ngd_daemon *d)
{
    return ngd_rpc_server_busy(d->rpc) || ngd_jobs_pending(d->jobs) || ngd_jobs_pending(d->loads);
}

static void start_leaving(struct ngd_drain *drain)
{
    struct ngd_daemon *d = drain->daemon;

    if (work_left(d))
        ngd_warning("daemon", "the grace period is over; work that is left is given up");
    drain->phase = LEAVING;
    drain->looks = GOODBYE;
    ngd_rpc_server_end_streams(d->rpc, NGD_ERR_DRAINING, "the daemon is stopping; use another one");
}

/* Leaves when the last session has ended. After the grace period the others get a drain as by SIGTERM. */
static void check_yield(struct ngd_drain *drain)
{
    struct ngd_daemon *d = drain->daemon;
    const ngd_nsec_t now = ngd_now();

    if (now >= drain->until) {
        ngd_sessions_forget_drain(d->sessions);
        ngd_drain_begin(drain, 0, false);
    } else if (now - drain->began >= YIELD_LEAST && ngd_sessions_count(d->sessions) == 0 && !work_left(d)) {
        start_leaving(drain);
    }
}

static void check_drain(void *arg)
{
    struct ngd_drain *drain = arg;
    struct ngd_daemon *d = drain->daemon;

    if (drain->phase == YIELDING)
        check_yield(drain);
    else if (drain->phase == FINISHING && (ngd_now() >= drain->until || !work_left(d)))
        start_leaving(drain);
    else if (drain->phase == LEAVING && (--drain->looks <= 0 || ngd_rpc_server_inflight(d->rpc) == 0))
        ngd_reactor_stop(d->reactor);
}

static void announce_drain(struct ngd_drain *drain, ngd_nsec_t grace, bool stay)
{
    struct ngd_daemon *d = drain->daemon;
    int serving = NGD_DAEMON_SERVING;

    if (!atomic_compare_exchange_strong(&d->state, &serving, NGD_DAEMON_DRAINING))
        return;
    ngd_notice("daemon", "draining: new work is refused; running work has %lld ms to finish%s",
               (long long)(grace / NGD_MSEC), stay ? "; the process stays" : "");
    ngd_metric_set(NGD_M_READY, 0);
    ngd_health_changed(d->health);
    if (!stay && !d->replaced)
        ngd_sdnotify_stopping("draining");
    ngd_sessions_announce_drain(d->sessions, (uint32_t)(grace / NGD_MSEC));
}

static ngd_status_t start_timer(struct ngd_drain *drain)
{
    return drain->timer ? NGD_OK
                        : ngd_reactor_every(drain->daemon->reactor, LOOK_EVERY, check_drain, drain, &drain->timer);
}

static void begin_drain(void *arg)
{
    struct ngd_drain *drain = arg;
    ngd_nsec_t grace, until;
    bool stay;

    ngd_mutex_lock(&drain->lock);
    grace = drain->grace;
    stay = drain->stay;
    ngd_mutex_unlock(&drain->lock);
    announce_drain(drain, grace, stay);
    if (stay || drain->phase == LEAVING)
        return;
    until = ngd_now() + grace;
    if (drain->phase != FINISHING || until < drain->until)
        drain->until = until;
    drain->phase = FINISHING;
    if (start_timer(drain) != NGD_OK) {
        ngd_error("daemon", "out of memory; stopping at once");
        ngd_reactor_stop(drain->daemon->reactor);
    }
}

ngd_status_t ngd_drain_yield(struct ngd_drain *drain)
{
    struct ngd_daemon *d = drain->daemon;
    const ngd_nsec_t grace = ngd_config_get(d->options.drain_grace);

    if (drain->phase != IDLE || ngd_daemon_state(d) != NGD_DAEMON_SERVING)
        return NGD_ERR_DRAINING;
    if (start_timer(drain) != NGD_OK)
        return NGD_ERR_NO_MEMORY;
    drain->phase = YIELDING;
    drain->began = ngd_now();
    drain->until = drain->began + grace;
    atomic_store(&d->replaced, true);
    ngd_metric_set(NGD_M_READY, 0);
    ngd_sessions_announce_drain(d->sessions, (uint32_t)(grace / NGD_MSEC));
    return NGD_OK;
}

bool ngd_drain_resume(struct ngd_drain *drain)
{
    struct ngd_daemon *d = drain->daemon;

    if (drain->phase != YIELDING)
        return false;
    drain->phase = IDLE;
    ngd_reactor_remove(drain->timer);
    drain->timer = NULL;
    atomic_store(&d->replaced, false);
    ngd_metric_set(NGD_M_READY, ngd_daemon_ready(d));
    ngd_sessions_forget_drain(d->sessions);
    return true;
}

void ngd_drain_begin(struct ngd_drain *drain, ngd_nsec_t grace, bool stay)
{
    ngd_mutex_lock(&drain->lock);
    drain->grace = grace ? grace : ngd_config_get(drain->daemon->options.drain_grace);
    drain->stay = stay;
    ngd_mutex_unlock(&drain->lock);
    if (ngd_reactor_post(drain->daemon->reactor, begin_drain, drain) != NGD_OK)
        ngd_error("daemon", "out of memory; the drain cannot begin");
}
