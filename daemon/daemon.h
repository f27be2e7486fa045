/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_DAEMON_H
#define NGD_DAEMON_DAEMON_H

/*
 * Pointers to the daemon's parts. startup.c creates and destroys the parts in order; everything else borrows the
 * pointer. A part is NULL before its start and after its stop. Threads: the pointers change only while no other thread
 * runs.
 */
#include "base/clock.h"
#include "base/dumpdir.h"
#include "base/status.h"
#include "daemon/blocks.h"
#include "daemon/options.h"
#include "daemon/promises.h"
#include "daemon/timeouts.h"
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_audit;
struct ngd_device;
struct ngd_drain;
struct ngd_front;
struct ngd_tls;
struct ngd_gift;
struct ngd_graph_names;
struct ngd_handover;
struct ngd_health;
struct ngd_jobs;
struct ngd_loader;
struct ngd_local;
struct ngd_locks;
struct ngd_models;
struct ngd_identities;
struct ngd_patterns;
struct ngd_listeners;
struct ngd_oip_sequences;
struct ngd_peers;
struct ngd_preload;
struct ngd_refused_device;
struct ngd_reactor;
struct ngd_reactor_watch;
struct ngd_reload;
struct ngd_reflection;
struct ngd_rings;
struct ngd_rpc_server;
struct ngd_sched;
struct ngd_sdnotify;
struct ngd_sessions;
struct ngd_shm_regions;
struct ngd_stats_history;
struct ngd_stats_http;
struct ngd_store;
struct ngd_tokens;
struct ngd_tracer;
struct ngd_stop_guard;
struct ngd_watchdog;

/* STARTING -> SERVING -> DRAINING -> STOPPED. A drain with "stay" remains in DRAINING until another drain or a
 * signal. */
typedef enum ngd_daemon_state {
    NGD_DAEMON_STARTING = 1 << 0,
    NGD_DAEMON_SERVING = 1 << 1,
    NGD_DAEMON_DRAINING = 1 << 2,
    NGD_DAEMON_STOPPED = 1 << 3,
} ngd_daemon_state_t;

struct ngd_daemon {
    struct ngd_options options;
    int argc; /* read again by a reload */
    char **argv;
    ngd_nsec_t started;
    _Atomic int state; /* ngd_daemon_state_t */
    struct ngd_promises promises;
    _Atomic bool replaced;     /* another daemon has taken over; this one serves its sessions to their end */
    _Atomic uint32_t next_pid; /* the process that takes over, or has; 0: none */
    int exit_code;
    struct ngd_stop_guard *stop_guard; /* while it stops */

    struct ngd_handover *handover; /* to the next daemon, and from the one before */
    struct ngd_gift *gift;         /* of the daemon that is replaced, until this one serves; NULL: none */
    struct ngd_locks *locks;
    struct ngd_audit *audit; /* NULL: no log */
    struct ngd_tracer *tracer;
    struct ngd_device **devices;
    size_t n_devices;
    struct ngd_refused_device *refused; /* device_list.h: those that did not open */
    size_t n_refused;
    struct ngd_dumps dumps;              /* directories that diagnostics may write into */
    struct ngd_store *store;             /* NULL: plans are not kept */
    struct ngd_reactor_watch *hot_timer; /* writes the list of hot keys */
    struct ngd_sched *sched;
    struct ngd_reactor *reactor;
    struct ngd_reactor_watch *expiry; /* ends sessions whose grace period is over */
    struct ngd_jobs *jobs;            /* captures of models, large graphs */
    struct ngd_jobs *loads;           /* reads of checkpoint files */
    struct ngd_jobs *copies;          /* copies between buffers and shared buffers */
    struct ngd_jobs *span_jobs;       /* groups that wait for other daemons: at most one does, others are told */
    struct ngd_jobs *store_jobs;      /* calls that list, read or change the store */
    struct ngd_jobs *reaper;          /* releases what ended sessions owned */
    struct ngd_models *models;
    struct ngd_sessions *sessions;
    struct ngd_graph_names *graph_names;
    struct ngd_oip_sequences *oip_sequences;
    struct ngd_timeouts timeouts;
    struct ngd_shm_regions *shm_regions;
    struct ngd_loader *loader;
    struct ngd_blocks blocks; /* for inputs and results in shared buffers */
    struct ngd_identities *identities;
    struct ngd_tokens *tokens;
    struct ngd_patterns *patterns;
    struct ngd_peers *peers;
    struct ngd_front *front;
    struct ngd_tls *tls;
    struct ngd_reactor_watch *tls_timer;
    struct ngd_local *local;
    struct ngd_listeners *listeners;
    struct ngd_reload *reload;
    struct ngd_preload *preload;
    _Atomic unsigned missing_models; /* of the option load */
    struct ngd_reflection *reflection;
    struct ngd_health *health;
    struct ngd_rpc_server *rpc;
    struct ngd_rings *rings;
    struct ngd_stats_history *stats_history;
    struct ngd_stats_http *stats_http;
    struct ngd_watchdog *watchdog;
    _Atomic bool hangs; /* the watchdog's last result */
    struct ngd_sdnotify *sdnotify;
    struct ngd_drain *drain;
};

static inline ngd_daemon_state_t ngd_daemon_state(const struct ngd_daemon *d)
{
    return (ngd_daemon_state_t)atomic_load_explicit(&d->state, memory_order_acquire);
}

/* True while load balancers should send clients here: it takes work, nothing hangs, and the models that it shall have
 * are there. */
static inline bool ngd_daemon_ready(const struct ngd_daemon *d)
{
    return ngd_daemon_state(d) == NGD_DAEMON_SERVING && !atomic_load(&d->hangs) && atomic_load(&d->missing_models) == 0;
}

#endif
