/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/startup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/audit.h"
#include "daemon/control/drain.h"
#include "daemon/control/listener.h"
#include "daemon/control/local.h"
#include "daemon/control/preload.h"
#include "daemon/control/reload.h"
#include "daemon/control/settings.h"
#include "daemon/control/stats.h"
#include "daemon/control/stats_history.h"
#include "daemon/control/stats_http.h"
#include "daemon/control/stop_guard.h"
#include "daemon/control/watchdog.h"
#include "daemon/daemon.h"
#include "daemon/device_list.h"
#include "daemon/front/front.h"
#include "daemon/front/tls_context.h"
#include "daemon/gift.h"
#include "daemon/graph_names.h"
#include "daemon/handover/handover.h"
#include "daemon/handlers/methods.h"
#include "daemon/health.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/loader.h"
#include "daemon/lockfile.h"
#include "daemon/models.h"
#include "daemon/patterns.h"
#include "daemon/peers.h"
#include "daemon/reactor.h"
#include "daemon/reflection.h"
#include "daemon/rpc/ring.h"
#include "daemon/rpc/rpc_log.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/sdnotify.h"
#include "daemon/session.h"
#include "daemon/oip_sequences.h"
#include "daemon/shm_regions.h"
#include "daemon/tokens.h"
#include "daemon/trace/trace.h"
#include "graphs/store.h"
#include "proto/descriptors.h"
#include "scheduler/run/sched.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define EXPIRE_EVERY   (100 * NGD_MSEC)
#define SAVE_HOT_EVERY (60 * NGD_SEC)

struct part {
    const char *name;
    ngd_status_t (*start)(struct ngd_daemon *d, struct ngd_diag *diag);
    void (*stop)(struct ngd_daemon *d); /* NULL: nothing to undo; must take a half-started part */
};

/* ---- the process itself -------------------------------------------------------------------------------- */

static ngd_status_t start_limits(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct rlimit limit;

    (void)diag;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return NGD_OK;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        ngd_settings_fit_connections(&d->options);
    return NGD_OK;
}

static ngd_status_t start_audit(struct ngd_daemon *d, struct ngd_diag *diag)
{
    return ngd_audit_create(d->options.audit_log, d->options.audit_log_max, &d->audit, diag);
}

static void stop_audit(struct ngd_daemon *d)
{
    ngd_audit_destroy(d->audit);
    d->audit = NULL;
}

static void stop_traces(struct ngd_daemon *d)
{
    ngd_tracer_destroy(d->tracer);
    d->tracer = NULL;
}

static ngd_status_t start_traces(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_trace_params params;
    ngd_status_t status = ngd_tracer_create(&d->tracer, diag);

    if (status != NGD_OK)
        return status;
    ngd_settings_trace(&d->options, &params);
    status = ngd_tracer_set(d->tracer, &params);
    if (status == NGD_OK)
        return NGD_OK;
    stop_traces(d);
    return ngd_diag_set(diag, status, "traces cannot be sent");
}

static ngd_status_t start_locks(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_locks_create(&d->locks);

    for (size_t i = 0; d->gift && i < d->gift->n && status == NGD_OK; i++) {
        struct ngd_gift_item *item = &d->gift->items[i];

        if (item->kind != NGD_ITEM(LOCK) || item->fd < 0)
            continue;
        status = ngd_locks_adopt(d->locks, item->text, item->fd);
        item->fd = -1;
    }
    if (status == NGD_OK && *d->options.lock_file)
        status = ngd_locks_take(d->locks, d->options.lock_file, diag);
    return status;
}

static void stop_locks(struct ngd_daemon *d)
{
    ngd_locks_destroy(d->locks);
    d->locks = NULL;
}

/* ---- loop and job threads ------------------------------------------------------------------------------ */

static void take_signal_of_loop(void *arg, int signo)
{
    struct ngd_daemon *d = arg;
    struct ngd_audit_event event = {.identity = "signal", .method = strsignal(signo)};
    struct ngd_reload_report report;
    struct ngd_diag diag = {0};

    if (signo == SIGHUP) {
        event.status = ngd_reload_run(d->reload, &report, &diag); /* the log has the result */
        event.text = diag.text;
        ngd_audit_write(d->audit, &event);
        return;
    }
    ngd_notice("daemon", "%s", strsignal(signo));
    ngd_audit_write(d->audit, &event);
    /* A second signal ends the grace period at once. */
    if (d->drain)
        ngd_drain_begin(d->drain, ngd_daemon_state(d) == NGD_DAEMON_DRAINING ? NGD_MSEC : 0, false);
}

static ngd_status_t start_reactor(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_reactor_create(true, &d->reactor);

    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "the event loop cannot be created");
    ngd_reactor_on_signal(d->reactor, take_signal_of_loop, d);
    return NGD_OK;
}

static void stop_reactor(struct ngd_daemon *d)
{
    ngd_reactor_destroy(d->reactor);
    d->reactor = NULL;
}

static ngd_status_t start_jobs(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_jobs_create("jobs", 2, &d->jobs);

    if (status == NGD_OK)
        status = ngd_jobs_create("loads", 2, &d->loads);
    if (status == NGD_OK)
        status = ngd_jobs_create("copies", 2, &d->copies);
    if (status == NGD_OK)
        status = ngd_jobs_create("spans", 2, &d->span_jobs);
    if (status == NGD_OK)
        status = ngd_jobs_create("store", 1, &d->store_jobs);
    if (status == NGD_OK)
        status = ngd_jobs_create("reaper", 1, &d->reaper);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "threads cannot be started");
}

static void stop_jobs(struct ngd_daemon *d)
{
    ngd_jobs_destroy(d->jobs);
    ngd_jobs_destroy(d->loads);
    ngd_jobs_destroy(d->copies);
    ngd_jobs_destroy(d->span_jobs);
    ngd_jobs_destroy(d->store_jobs);
    ngd_jobs_destroy(d->reaper);
    d->jobs = d->loads = d->copies = d->span_jobs = d->store_jobs = d->reaper = NULL;
}

/* ---- store and scheduler -------------------------------------------------------------------------------- */

/* Returns store-dir; for "auto", the first directory that systemd names. */
static const char *store_dir(const struct ngd_daemon *d, char *room, size_t n)
{
    const char *given = getenv("CACHE_DIRECTORY");

    if (strcmp(d->options.store_dir, "off") == 0 || !*d->options.store_dir)
        return NULL;
    if (strcmp(d->options.store_dir, "auto") != 0)
        return d->options.store_dir;
    if (!given || *given != '/' || snprintf(room, n, "%.*s/store", (int)strcspn(given, ":"), given) >= (int)n)
        return NULL;
    return room;
}

/* Opens the store. A bad store costs only time at the next start, so it is no reason not to serve. */
static ngd_status_t start_store(struct ngd_daemon *d, struct ngd_diag *diag)
{
    char room[PATH_MAX];
    struct ngd_store_params params = {.dir = store_dir(d, room, sizeof(room)), .budget = d->options.store_budget};
    struct ngd_store_stats stats;
    struct ngd_diag why = {0};

    (void)diag;
    if (!params.dir)
        return NGD_OK;
    if (ngd_store_open(&params, &d->store, &why) != NGD_OK) {
        ngd_error("daemon", "plans are not kept: %s", why.text);
        return NGD_OK;
    }
    ngd_store_stats(d->store, &stats);
    ngd_notice("daemon", "plans are kept in %s: %u entries, %llu KiB", params.dir, stats.entries,
               (unsigned long long)(stats.bytes >> 10));
    return NGD_OK;
}

static void stop_store(struct ngd_daemon *d)
{
    ngd_store_close(d->store);
    d->store = NULL;
}

/* Returns the compiler; NULL: none. A configured path is not checked here, so a wrong one is reported when it is
 * used. */
static const char *static_compiler(const struct ngd_daemon *d)
{
    static const char *const usual[] = {"/usr/bin/cc", "/usr/bin/gcc", "/usr/bin/clang"};
    const char *given = d->options.static_compiler;

    if (strcmp(given, "off") == 0 || !*given)
        return NULL;
    for (size_t i = 0; strcmp(given, "auto") == 0; i++) {
        if (i == sizeof(usual) / sizeof(usual[0]))
            return NULL;
        if (access(usual[i], X_OK) == 0)
            return usual[i];
    }
    return given;
}

static const char *static_dir(const struct ngd_daemon *d)
{
    const char *given = d->options.static_dir, *tmp = getenv("TMPDIR");

    return *given ? given : tmp && *tmp == '/' ? tmp : "/tmp";
}

static ngd_status_t start_sched(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_sched_params params;
    ngd_status_t status;

    ngd_sched_params_init(&params);
    params.devices = d->devices;
    params.n_devices = (uint32_t)d->n_devices;
    ngd_settings_sched(&d->options, &params);
    ngd_dumps_init(&d->dumps, (const char *const *)d->options.dump_dir.items, d->options.dump_dir.n,
                   d->options.dump_limit);
    params.dumps = &d->dumps;
    params.store = d->store;
    params.static_compiler = static_compiler(d);
    params.static_dir = static_dir(d);
    status = ngd_sched_create(&params, &d->sched, diag);
    return status == NGD_OK ? ngd_sched_start(d->sched) : status;
}

static void stop_sched(struct ngd_daemon *d)
{
    if (!d->sched)
        return;
    ngd_sched_stop(d->sched);
    ngd_sched_destroy(d->sched);
    d->sched = NULL;
}

/* ---- what clients hold --------------------------------------------------------------------------------- */

/* Starts before devices and the scheduler, so that it stops after them: what they free last is charged to an
 * identity. */
static ngd_status_t start_identities(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_identities_params params;
    ngd_status_t status;

    ngd_settings_identities(d, &params);
    status = ngd_identities_create(&params, &d->identities);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "the table of identities cannot be created");
}

static ngd_status_t start_tokens(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_tokens_params params;
    struct ngd_token_set *set;
    ngd_status_t status;

    ngd_settings_tokens(&d->options, &params);
    status = ngd_token_set_read(&params, &set, diag);
    if (status != NGD_OK)
        return status;
    ngd_token_set_log(set, params.path);
    status = ngd_tokens_create(set, &d->tokens);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "no host memory for tokens");
}

static void stop_tokens(struct ngd_daemon *d)
{
    ngd_tokens_destroy(d->tokens);
    d->tokens = NULL;
}

static void stop_identities(struct ngd_daemon *d)
{
    ngd_dumps_fini(&d->dumps); /* it has charges of identities */
    ngd_identities_destroy(d->identities);
    d->identities = NULL;
}

/* Warns of directories that cannot be used as they are. They may still be made later, so this is no reason not to
 * serve. */
static void look_at_directories(const char *option, const struct ngd_config_list *list, int mode, const char *effect)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *path = list->items[i];
        struct stat st;
        int err = stat(path, &st) < 0             ? errno
                  : !S_ISDIR(st.st_mode)          ? ENOTDIR
                  : access(path, mode | X_OK) < 0 ? errno
                                                  : 0;

        if (err)
            ngd_warning("daemon", "%s %s: %s; %s until that is mended", option, path, strerror(err), effect);
    }
}

static ngd_status_t start_objects(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_patterns_create(&d->promises, &d->patterns);

    ngd_timeouts_init(&d->timeouts);
    look_at_directories("models-dir", &d->options.models_dir, R_OK, "no file can be loaded from it");
    look_at_directories("dump-dir", &d->options.dump_dir, W_OK, "diagnostics cannot write there");
    if (status == NGD_OK)
        status = ngd_peers_create(&d->peers);
    if (status == NGD_OK)
        status = ngd_models_create(d, &d->models);
    if (status == NGD_OK)
        status = ngd_graph_names_create(&d->graph_names);
    if (status == NGD_OK)
        status = ngd_oip_sequences_create(d->graph_names, &d->oip_sequences);
    if (status == NGD_OK)
        status = ngd_shm_regions_create(d->reaper, &d->shm_regions);
    if (status == NGD_OK)
        status = ngd_sessions_create(d, &d->sessions);
    if (status == NGD_OK)
        status = ngd_loader_create(d, &d->loader);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "out of memory");
}

static void stop_objects(struct ngd_daemon *d)
{
    ngd_oip_sequences_clear(d->oip_sequences);
    ngd_sessions_destroy(d->sessions);
    ngd_oip_sequences_destroy(d->oip_sequences);
    ngd_graph_names_destroy(d->graph_names);
    ngd_shm_regions_destroy(d->shm_regions);
    ngd_models_destroy(d->models);
    ngd_loader_destroy(d->loader);
    ngd_peers_destroy(d->peers);
    ngd_patterns_destroy(d->patterns);
    ngd_blocks_fini(&d->blocks);
    ngd_timeouts_fini(&d->timeouts);
    d->patterns = NULL;
    d->sessions = NULL;
    d->graph_names = NULL;
    d->oip_sequences = NULL;
    d->shm_regions = NULL;
    d->models = NULL;
    d->loader = NULL;
    d->peers = NULL;
}

static void expire(void *arg)
{
    struct ngd_daemon *d = arg;

    ngd_timeouts_run(&d->timeouts, ngd_now());
    ngd_oip_sequences_expire(d->oip_sequences, ngd_config_get(d->options.oip_sequence_timeout));
    ngd_sessions_expire(d->sessions);
    ngd_loader_forget(d->loader);
}

static ngd_status_t start_expiry(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_reactor_every(d->reactor, EXPIRE_EVERY, expire, d, &d->expiry);

    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "a timer cannot be started");
}

static void stop_expiry(struct ngd_daemon *d)
{
    ngd_reactor_remove(d->expiry);
    d->expiry = NULL;
}

/* ---- hot keys ------------------------------------------------------------------------------------------ */

struct hot_job {
    struct ngd_job job;
    struct ngd_daemon *daemon;
};

static void save_hot(struct ngd_job *job)
{
    struct hot_job *hot = ngd_container_of(job, struct hot_job, job);

    ngd_sched_save_hot(hot->daemon->sched);
    ngd_free(hot);
}

/* Saves the hot keys on a job thread, because it writes a file. */
static void save_hot_later(void *arg)
{
    struct hot_job *hot = NGD_NEW(struct hot_job);

    if (!hot)
        return;
    hot->daemon = arg;
    hot->job.fn = save_hot;
    ngd_jobs_add(hot->daemon->reaper, &hot->job);
}

static ngd_status_t start_hot(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status;

    if (!d->store)
        return NGD_OK;
    status = ngd_reactor_every(d->reactor, SAVE_HOT_EVERY, save_hot_later, d, &d->hot_timer);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "a timer cannot be started");
    ngd_sched_warm(d->sched);
    return NGD_OK;
}

static void stop_hot(struct ngd_daemon *d)
{
    ngd_reactor_remove(d->hot_timer);
    d->hot_timer = NULL;
}

/* ---- the outside --------------------------------------------------------------------------------------- */

static ngd_status_t start_services(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_reflection_create(ngd_proto_descriptors, ngd_proto_descriptors_len, &d->reflection);

    if (status == NGD_OK)
        status = ngd_health_create(&d->health);
    if (status == NGD_OK)
        status = ngd_drain_create(d, &d->drain);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "the services cannot be created");
}

static void stop_services(struct ngd_daemon *d)
{
    ngd_drain_destroy(d->drain);
    ngd_health_destroy(d->health);
    ngd_reflection_destroy(d->reflection);
    d->drain = NULL;
    d->health = NULL;
    d->reflection = NULL;
}

static ngd_status_t start_server(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status;

    ngd_rpc_log_start();
    status = ngd_rpc_server_create(d, ngd_methods, ngd_n_methods, &d->rpc, diag);
    if (status == NGD_OK && ngd_rings_create(d, &d->rings) != NGD_OK)
        status = ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED, "rings cannot be served");
    return status;
}

static void stop_server(struct ngd_daemon *d)
{
    ngd_rings_destroy(d->rings);
    d->rings = NULL;
    ngd_rpc_server_destroy(d->rpc);
    d->rpc = NULL;
}

static void deliver_to_server(void *ctx, int fd)
{
    struct ngd_daemon *d = ctx;

    ngd_rpc_server_add_connection(d->rpc, fd);
}

/* Reads certificates and keys of issuers again if their files have changed. */
static void look_at_trusted_files(void *arg)
{
    struct ngd_daemon *d = arg;
    struct ngd_identities_params identities;
    struct ngd_jwt_params jwt;

    ngd_tls_look(d->tls);
    ngd_options_jwt(&d->options, &jwt);
    if (!ngd_tokens_look(d->tokens, &jwt))
        return;
    ngd_settings_identities(d, &identities);
    ngd_identities_set(d->identities, &identities); /* groups of keys that are gone give no role */
}

static ngd_status_t start_tls(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_tls_params params;
    ngd_status_t status;

    ngd_settings_tls(&d->options, &params);
    status = ngd_tls_create(&params, &d->tls, diag);
    if (status == NGD_OK)
        status = ngd_reactor_every(d->reactor, NGD_SEC, look_at_trusted_files, d, &d->tls_timer);
    return status;
}

static ngd_status_t start_front(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_front_params params = {
        .identities = d->identities,
        .peers = d->peers,
        .deliver = deliver_to_server,
        .ctx = d,
    };
    ngd_status_t status = start_tls(d, diag);

    if (status != NGD_OK)
        return status;
    ngd_settings_front(&d->options, &params);
    params.tls = ngd_tls_source(d->tls);
    status = ngd_front_create(&params, &d->front);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "the front cannot be created");
}

static void stop_front(struct ngd_daemon *d)
{
    ngd_front_destroy(d->front);
    ngd_reactor_remove(d->tls_timer);
    ngd_tls_destroy(d->tls);
    d->front = NULL;
    d->tls_timer = NULL;
    d->tls = NULL;
}

static ngd_status_t start_local(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_local_create(d, &d->local);

    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "the local socket cannot be served");
}

static void stop_local(struct ngd_daemon *d)
{
    ngd_local_destroy(d->local);
    d->local = NULL;
}

static ngd_status_t start_listeners(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_listeners_create(d, &d->listeners, diag);

    if (status == NGD_OK && ngd_reload_create(d, &d->reload) != NGD_OK)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory");
    return status;
}

static void stop_listeners(struct ngd_daemon *d)
{
    ngd_reload_destroy(d->reload);
    ngd_listeners_destroy(d->listeners);
    d->reload = NULL;
    d->listeners = NULL;
}

static ngd_status_t start_systemd(struct ngd_daemon *d, struct ngd_diag *diag)
{
    (void)diag;
    return ngd_sdnotify_start(d, ngd_watchdog_threads_answer);
}

static ngd_status_t start_serving(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_rpc_server_start(d->rpc, diag);

    if (status == NGD_OK)
        status = ngd_front_start(d->front);
    if (status == NGD_OK)
        status = ngd_rings_start(d->rings);
    if (status != NGD_OK)
        return status;
    status = ngd_handover_enter(d, diag);
    if (status != NGD_OK)
        return status;
    atomic_store(&d->state, NGD_DAEMON_SERVING);
    status = ngd_listeners_start(d->listeners, diag);
    if (status == NGD_OK && d->gift)
        status = ngd_stats_http_serve(d, diag);
    if (status == NGD_OK)
        status = ngd_handover_listen(d, diag);
    if (status != NGD_OK)
        return status;
    if (d->gift) {
        ngd_locks_sign(d->locks);
        ngd_sdnotify_main();
    }
    ngd_gift_close(d->gift);
    d->gift = NULL;
    ngd_metric_set(NGD_M_READY, ngd_daemon_ready(d));
    ngd_sdnotify_ready(atomic_load(&d->missing_models) ? "serving; models of the option load are missing" : "serving");
    ngd_notice("daemon", "ready");
    return NGD_OK;
}

static void stop_serving(struct ngd_daemon *d)
{
    atomic_store(&d->state, NGD_DAEMON_STOPPED);
    ngd_metric_set(NGD_M_READY, 0);
    if (d->reload)
        ngd_reload_stop(d->reload);
    ngd_handover_stop(d);
    if (d->listeners)
        ngd_listeners_stop(d->listeners);
    if (d->local)
        ngd_local_stop(d->local);
    if (d->rings)
        ngd_rings_stop(d->rings);
    if (d->peers)
        ngd_peers_hang_up(d->peers);
    if (d->front)
        ngd_front_stop(d->front);
    if (d->rpc)
        ngd_rpc_server_stop(d->rpc);
}

/* ------------------------------------------------------------------------------------------------------------ */

static const struct part parts[] = {
    {"limits", start_limits, NULL},
    {"loop", start_reactor, stop_reactor}, /* blocks the signals, so it starts before any thread */
    {"handover", ngd_handover_take, ngd_handover_destroy},
    {"locks", start_locks, stop_locks},
    {"audit log", start_audit, stop_audit},
    {"traces", start_traces, stop_traces},
    {"tokens", start_tokens, stop_tokens},
    {"identities", start_identities, stop_identities},
    {"devices", ngd_device_list_start, ngd_device_list_stop},
    {"store", start_store, stop_store},
    {"scheduler", start_sched, stop_sched},
    {"jobs", start_jobs, stop_jobs},
    {"objects", start_objects, stop_objects},
    {"services", start_services, stop_services},
    {"rpc", start_server, stop_server},
    {"front", start_front, stop_front},
    {"local socket", start_local, stop_local},
    {"listeners", start_listeners, stop_listeners},
    {"expiry", start_expiry, stop_expiry},
    {"hot keys", start_hot, stop_hot},
    {"history", ngd_stats_history_start, ngd_stats_history_stop},
    {"statistics", ngd_stats_http_start, ngd_stats_http_stop},
    {"watchdog", ngd_watchdog_start, ngd_watchdog_stop},
    {"systemd", start_systemd, ngd_sdnotify_stop},
    {"handed models", ngd_handover_restore, NULL},
    {"models to load", ngd_preload_start, ngd_preload_stop},
    {"serving", start_serving, stop_serving},
};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static void stop_from(struct ngd_daemon *d, size_t n)
{
    while (n-- > 0) {
        ngd_debug("daemon", "stopping %s", parts[n].name);
        ngd_stop_guard_at(d->stop_guard, parts[n].name);
        if (parts[n].stop)
            parts[n].stop(d);
    }
}

ngd_status_t ngd_startup(struct ngd_daemon *d, struct ngd_diag *diag)
{
    d->started = ngd_now();
    atomic_store(&d->state, NGD_DAEMON_STARTING);
    ngd_stats_started(d);
    for (size_t i = 0; i < N_PARTS; i++) {
        ngd_status_t status = parts[i].start(d, diag);

        if (status != NGD_OK) {
            if (diag->status == NGD_OK)
                ngd_diag_set(diag, status, "%s: %s", parts[i].name, ngd_status_text(status));
            stop_from(d, i + 1);
            return status;
        }
    }
    return NGD_OK;
}

void ngd_shutdown(struct ngd_daemon *d)
{
    stop_from(d, N_PARTS);
}
