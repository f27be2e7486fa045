/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stop_guard.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/rpc/rpc_server.h"
#include "scheduler/run/sched.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct ngd_stop_guard {
    struct ngd_daemon *daemon;
    ngd_nsec_t limit, until;
    int exit_code;
    pthread_t thread;
    struct ngd_mutex lock;
    struct ngd_cond wake;
    bool over NGD_GUARDED_BY(lock);
    const char *part NGD_GUARDED_BY(lock);
};

static void log_slot(void *ctx, const struct ngd_sched_running *r)
{
    (void)ctx;
    ngd_error("daemon", "stuck: device %s, stream slot %u runs graph %016" PRIx64 "... for %.1f s", r->device, r->slot,
              r->graph, (double)r->since / (double)NGD_SEC);
}

/* Logs what is stuck. The scheduler and the server exist until their own part, or a later one in this order, has
 * stopped. */
static void log_stuck(struct ngd_stop_guard *guard, const char *part)
{
    struct ngd_daemon *d = guard->daemon;

    ngd_error("daemon", "stopping takes longer than stop-grace, %.1f s; part=%s",
              (double)guard->limit / (double)NGD_SEC, part);
    if (strcmp(part, "serving") == 0)
        ngd_error("daemon", "stuck: %u calls under way have no answer", ngd_rpc_server_inflight(d->rpc));
    if (d->sched)
        ngd_sched_for_each_running(d->sched, log_slot, NULL);
    ngd_error("daemon", "exiting with status %d; work under way is lost", guard->exit_code);
}

static void *run_stop_guard(void *arg)
{
    struct ngd_stop_guard *guard = arg;

    ngd_mutex_lock(&guard->lock);
    while (!guard->over && ngd_now() < guard->until)
        ngd_cond_wait_until(&guard->wake, &guard->lock, guard->until);
    if (!guard->over) {
        /* The lock is held, so no other part is freed meanwhile. */
        log_stuck(guard, guard->part);
        /* Not exit: its handlers may wait for the thread that is stuck. */
        _exit(guard->exit_code);
    }
    ngd_mutex_unlock(&guard->lock);
    return NULL;
}

ngd_status_t ngd_stop_guard_start(struct ngd_daemon *d, ngd_nsec_t limit, int exit_code,
                                  struct ngd_stop_guard **guard_p)
{
    struct ngd_stop_guard *guard = NGD_NEW(struct ngd_stop_guard);

    if (!guard)
        return NGD_ERR_NO_MEMORY;
    guard->daemon = d;
    guard->limit = limit;
    guard->until = ngd_now() + limit;
    guard->exit_code = exit_code;
    ngd_mutex_init(&guard->lock, NGD_RANK_DRAIN);
    ngd_cond_init(&guard->wake);
    ngd_stop_guard_at(guard, "start");
    if (ngd_thread_start(&guard->thread, "stop-guard", run_stop_guard, guard) != 0) {
        ngd_cond_fini(&guard->wake);
        ngd_mutex_fini(&guard->lock);
        ngd_free(guard);
        return NGD_ERR_RESOURCE_EXHAUSTED;
    }
    *guard_p = guard;
    return NGD_OK;
}

void ngd_stop_guard_at(struct ngd_stop_guard *guard, const char *part)
{
    if (!guard)
        return;
    ngd_mutex_lock(&guard->lock);
    guard->part = part;
    ngd_mutex_unlock(&guard->lock);
}

void ngd_stop_guard_stop(struct ngd_stop_guard *guard)
{
    if (!guard)
        return;
    ngd_mutex_lock(&guard->lock);
    guard->over = true;
    ngd_cond_signal(&guard->wake);
    ngd_mutex_unlock(&guard->lock);
    pthread_join(guard->thread, NULL);
    ngd_cond_fini(&guard->wake);
    ngd_mutex_fini(&guard->lock);
    ngd_free(guard);
}
