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

enum phase { IDLE, FINISHING, LEAVING };

struct ngd_drain {
    struct ngd_daemon *daemon;
    struct ngd_reactor_watch *timer;
    enum phase phase;
    ngd_nsec_t until; /* FINISHING */
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

static void check_drain(void *arg)
{
    struct ngd_drain *drain = arg;
    struct ngd_daemon *d = drain->daemon;

    if (drain->phase == FINISHING && (ngd_now() >= drain->until || !work_left(d)))
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
    if (!stay)
        ngd_sdnotify_stopping("draining");
    ngd_sessions_announce_drain(d->sessions, (uint32_t)(grace / NGD_MSEC));
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
    if (drain->phase == IDLE || until < drain->until)
        drain->until = until;
    drain->phase = FINISHING;
    if (!drain->timer &&
        ngd_reactor_every(drain->daemon->reactor, LOOK_EVERY, check_drain, drain, &drain->timer) != NGD_OK) {
        ngd_error("daemon", "out of memory; stopping at once");
        ngd_reactor_stop(drain->daemon->reactor);
    }
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
