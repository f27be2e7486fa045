/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/reload.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/audit.h"
#include "daemon/control/listener.h"
#include "daemon/control/preload.h"
#include "daemon/control/settings.h"
#include "daemon/control/stats_http.h"
#include "daemon/daemon.h"
#include "daemon/reactor.h"
#include "daemon/shares.h"
#include "daemon/tokens.h"
#include "graphs/store.h"
#include <stdio.h>

struct ngd_reload {
    struct ngd_daemon *daemon;
    struct ssl_ctx_st *context;   /* of new certificates, between prepare and commit */
    struct ngd_token_set *tokens; /* the same, of token-file and jwt-keys */
    bool set[NGD_OPTIONS_MAX];    /* the option's value is that of Admin.SetConfig; the loop's */
    struct ngd_mutex lock;
    struct ngd_list waiting NGD_GUARDED_BY(lock);
    bool stopped NGD_GUARDED_BY(lock);
};

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* A part of the daemon that options change. */
struct reload_part {
    bool files; /* reads files or opens sockets, which no option of NGD_CONFIG_SET is about */
    /* Makes what `fresh` needs. After an error, it has made nothing. NULL: nothing can fail. */
    ngd_status_t (*prepare)(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag);
    /* take: uses the daemon's options, which are the new ones now; otherwise drops what prepare made. */
    void (*commit)(struct ngd_daemon *d, bool take);
};

static ngd_status_t prepare_tls(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    struct ngd_tls_params params;

    ngd_settings_tls(fresh, &params);
    return ngd_tls_prepare(&params, &d->reload->context, diag);
}

static void commit_tls(struct ngd_daemon *d, bool take)
{
    struct ngd_tls_params params;

    ngd_settings_tls(&d->options, &params);
    if (take)
        ngd_tls_commit(d->tls, &params, d->reload->context);
    else
        ngd_tls_abandon(d->reload->context);
    d->reload->context = NULL;
}

static ngd_status_t prepare_tokens(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    struct ngd_tokens_params params;

    ngd_settings_tokens(fresh, &params);
    return ngd_token_set_read(&params, &d->reload->tokens, diag);
}

static void commit_tokens(struct ngd_daemon *d, bool take)
{
    if (take)
        ngd_tokens_set(d->tokens, d->reload->tokens);
    else
        ngd_token_set_free(d->reload->tokens);
    d->reload->tokens = NULL;
}

static ngd_status_t prepare_listeners(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    return ngd_listeners_prepare(d->listeners, fresh, diag);
}

static void commit_listeners(struct ngd_daemon *d, bool take)
{
    ngd_listeners_commit(d->listeners, take);
}

static void commit_identities(struct ngd_daemon *d, bool take)
{
    struct ngd_identities_params params;

    if (!take)
        return;
    ngd_settings_identities(d, &params);
    ngd_identities_set(d->identities, &params);
    ngd_shares_renew(d);
}

static void commit_limits(struct ngd_daemon *d, bool take)
{
    const struct ngd_options *o = &d->options;
    struct ngd_sched_params sched;
    struct ngd_front_params front;

    if (!take)
        return;
    ngd_settings_sched(o, &sched);
    ngd_sched_set(d->sched, &sched);
    ngd_settings_front(o, &front);
    ngd_front_set(d->front, &front);
    ngd_dumps_set(&d->dumps, (const char *const *)o->dump_dir.items, o->dump_dir.n, o->dump_limit);
    if (d->store)
        ngd_store_set_budget(d->store, o->store_budget);
    ngd_settings_log(o);
}

static void commit_trace(struct ngd_daemon *d, bool take)
{
    struct ngd_trace_params params;

    if (!take)
        return;
    ngd_settings_trace(&d->options, &params);
    if (ngd_tracer_set(d->tracer, &params) != NGD_OK)
        ngd_error("trace", "nothing is traced: there is no memory or no thread for it");
}

/* In the order in which they are prepared: what is likeliest to fail is first. */
static const struct reload_part reload_parts[] = {
    {true, prepare_tls, commit_tls},
    {true, prepare_tokens, commit_tokens},
    {true, ngd_stats_http_prepare, ngd_stats_http_commit},
    {true, prepare_listeners, commit_listeners},
    {true, ngd_preload_prepare, ngd_preload_commit},
    {false, NULL, commit_identities},
    {false, NULL, commit_limits},
    {false, NULL, commit_trace},
};
#define N_RELOAD_PARTS (sizeof(reload_parts) / sizeof(reload_parts[0]))

static ngd_status_t prepare_parts(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    for (size_t i = 0; i < N_RELOAD_PARTS; i++) {
        ngd_status_t status = reload_parts[i].prepare ? reload_parts[i].prepare(d, fresh, diag) : NGD_OK;

        if (status == NGD_OK)
            continue;
        ngd_options_locate(fresh, diag);
        while (i-- > 0)
            reload_parts[i].commit(d, false);
        return status;
    }
    return NGD_OK;
}

/* ---- reloading --------------------------------------------------------------------------------------------- */

static ngd_status_t read_again(struct ngd_daemon *d, struct ngd_options *fresh, struct ngd_diag *diag)
{
    ngd_options_action_t action;
    const char *path;
    ngd_status_t status = ngd_options_parse(fresh, d->argc, d->argv, &path, &action, diag);

    if (status == NGD_OK)
        ngd_settings_fit_connections(fresh);
    return status;
}

static void note_changed(void *ctx, const struct ngd_config_option *opt, bool taken)
{
    struct ngd_reload_report *report = ctx;

    if (taken)
        report->changed[report->n_changed++] = opt->name;
    else
        report->kept[report->n_kept++] = opt->name;
}

static void log_names(ngd_log_level_t level, const char *text, const char *const *names, size_t n)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_printf(&sb, "%s%s", i ? ", " : "", names[i]);
    ngd_log(level, "daemon", "%s%s", text, n ? ngd_strbuf_str(&sb) : "nothing");
    ngd_strbuf_fini(&sb);
}

/* Runs with the options of `fresh` from now on; `fresh` gets the old ones. files: also with what they name. */
static void take_over(struct ngd_daemon *d, struct ngd_options *fresh, bool files, struct ngd_reload_report *report)
{
    ngd_mutex_lock(&d->options.live_lock);
    ngd_config_reload(ngd_options_table, &d->options, fresh, note_changed, report);
    ngd_mutex_unlock(&d->options.live_lock);
    for (size_t i = 0; i < N_RELOAD_PARTS; i++)
        if (files || !reload_parts[i].files)
            reload_parts[i].commit(d, true);
}

/* Puts the values of Admin.SetConfig over those of the files. */
static ngd_status_t keep_set(const struct ngd_reload *reload, struct ngd_options *fresh,
                             struct ngd_reload_report *report, struct ngd_diag *diag)
{
    const struct ngd_options *now = &reload->daemon->options;

    for (const struct ngd_config_option *opt = ngd_options_table; opt->name; opt++) {
        if (!ngd_reload_has_set(reload, opt))
            continue;
        if (!ngd_config_same(opt, now, fresh))
            report->set[report->n_set++] = opt->name;
        if (ngd_config_copy_option(ngd_options_table, opt, fresh, now) != NGD_OK)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to keep what was set");
    }
    return ngd_options_check(fresh, diag);
}

static ngd_status_t take_files(struct ngd_reload *reload, struct ngd_reload_report *report, struct ngd_diag *diag)
{
    struct ngd_daemon *d = reload->daemon;
    struct ngd_options fresh;
    ngd_status_t status = read_again(d, &fresh, diag);

    if (status != NGD_OK)
        return status;
    status = keep_set(reload, &fresh, report, diag);
    if (status == NGD_OK)
        status = prepare_parts(d, &fresh, diag);
    if (status == NGD_OK)
        take_over(d, &fresh, true, report);
    ngd_options_fini(&fresh); /* the old strings and lists, which no part reads any more */
    return status;
}

/* Refuses changes for which this is the wrong time or the wrong daemon. */
static ngd_status_t may_change(struct ngd_daemon *d, struct ngd_diag *diag)
{
    if (ngd_daemon_state(d) == NGD_DAEMON_STARTING)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "the daemon is starting; reload it once it is ready");
    if (atomic_load(&d->next_pid))
        return ngd_diag_set(diag, NGD_ERR_BUSY, "another daemon is taking over; reload that one");
    return NGD_OK;
}

ngd_status_t ngd_reload_run(struct ngd_reload *reload, struct ngd_reload_report *report, struct ngd_diag *diag)
{
    struct ngd_daemon *d = reload->daemon;
    ngd_status_t status;

    report->n_changed = report->n_kept = report->n_set = 0;
    ngd_audit_reopen(d->audit);
    status = may_change(d, diag);
    if (status == NGD_OK)
        status = take_files(reload, report, diag);
    if (status != NGD_OK) {
        ngd_error("daemon", "the configuration was not reloaded, and nothing of it changed: %s", diag->text);
        return status;
    }
    if (report->n_kept)
        log_names(NGD_LOG_WARNING, "needs a restart: ", report->kept, report->n_kept);
    if (report->n_set)
        log_names(NGD_LOG_WARNING, "the files are not followed, because of config set: ", report->set, report->n_set);
    log_names(NGD_LOG_NOTICE, "configuration reloaded; changed: ", report->changed, report->n_changed);
    return NGD_OK;
}

/* ---- options that are set ---------------------------------------------------------------------------------------- */

bool ngd_reload_has_set(const struct ngd_reload *reload, const struct ngd_config_option *opt)
{
    return reload->set[opt - ngd_options_table];
}

/* Takes the values that the files have for the options that are unset over into `fresh`. */
static ngd_status_t take_from_files(struct ngd_daemon *d, const struct ngd_reload_request *req,
                                    struct ngd_options *fresh, struct ngd_diag *diag)
{
    struct ngd_options files;
    ngd_status_t status = read_again(d, &files, diag);

    if (status != NGD_OK)
        return status;
    for (size_t i = 0; i < req->n_changes && status == NGD_OK; i++)
        if (req->changes[i].unset)
            status = ngd_config_copy_option(ngd_options_table, req->changes[i].opt, fresh, &files);
    if (status != NGD_OK)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to unset options");
    ngd_options_fini(&files);
    return status;
}

static ngd_status_t change_options(struct ngd_daemon *d, const struct ngd_reload_request *req,
                                   struct ngd_options *fresh, struct ngd_diag *diag)
{
    char identity[NGD_LOG_VALUE_MAX], source[NGD_LOG_VALUE_MAX + 16];
    ngd_status_t status = NGD_OK;
    bool unset = false;

    snprintf(source, sizeof(source), "set by %s", ngd_log_value(req->identity, identity));
    for (size_t i = 0; i < req->n_changes && status == NGD_OK; i++) {
        const struct ngd_reload_change *c = &req->changes[i];

        unset |= c->unset;
        if (!c->unset)
            status = ngd_config_replace(ngd_options_table, fresh, c->opt, c->values, c->n_values, source, diag);
    }
    if (status == NGD_OK && unset)
        status = take_from_files(d, req, fresh, diag);
    if (status == NGD_OK)
        status = ngd_options_check(fresh, diag);
    if (status == NGD_OK)
        ngd_settings_fit_connections(fresh);
    return status;
}

static void note_set(struct ngd_reload *reload, const struct ngd_reload_change *change, const char *who)
{
    char identity[NGD_LOG_VALUE_MAX], value[NGD_LOG_VALUE_MAX];
    struct ngd_strbuf sb;

    reload->set[change->opt - ngd_options_table] = !change->unset;
    ngd_strbuf_init(&sb);
    ngd_config_print(change->opt, &reload->daemon->options, &sb);
    ngd_notice("daemon", "configuration: %s %s=%s identity=%s", change->unset ? "unset" : "set", change->opt->name,
               ngd_log_value(ngd_strbuf_str(&sb), value), ngd_log_value(who, identity));
    ngd_strbuf_fini(&sb);
}

/* Changes these options, and nothing else: neither files nor certificates that changed meanwhile are taken over. */
static ngd_status_t set_options(struct ngd_reload *reload, const struct ngd_reload_request *req,
                                struct ngd_reload_report *report, struct ngd_diag *diag)
{
    struct ngd_daemon *d = reload->daemon;
    ngd_status_t status = may_change(d, diag);
    struct ngd_options fresh;

    report->n_changed = report->n_kept = report->n_set = 0;
    if (status != NGD_OK)
        return status;
    if (ngd_options_copy(&d->options, &fresh) != NGD_OK)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to change options");
    status = change_options(d, req, &fresh, diag);
    if (status == NGD_OK) {
        take_over(d, &fresh, false, report);
        for (size_t i = 0; i < req->n_changes; i++)
            note_set(reload, &req->changes[i], req->identity);
    }
    ngd_options_fini(&fresh);
    return status;
}

/* ---- requests ---------------------------------------------------------------------------------------------- */

static void serve_apply(struct ngd_reload *reload, struct ngd_reload_request *req)
{
    struct ngd_reload_report report;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_reload_run(reload, &report, &diag);

    req->done(req, status, &report, NULL, &diag);
}

static void serve_set(struct ngd_reload *reload, struct ngd_reload_request *req)
{
    struct ngd_reload_report report;
    struct ngd_diag diag = {0};
    ngd_status_t status = set_options(reload, req, &report, &diag);

    req->done(req, status, &report, NULL, &diag);
}

static void serve_compare(struct ngd_reload *reload, struct ngd_reload_request *req)
{
    struct ngd_options fresh;
    struct ngd_diag diag = {0};
    ngd_status_t status = read_again(reload->daemon, &fresh, &diag);

    req->done(req, status, NULL, status == NGD_OK ? &fresh : NULL, &diag);
    if (status == NGD_OK)
        ngd_options_fini(&fresh);
}

static struct ngd_reload_request *next_request(struct ngd_reload *reload)
{
    struct ngd_list *link;

    ngd_mutex_lock(&reload->lock);
    link = ngd_list_pop_front(&reload->waiting);
    ngd_mutex_unlock(&reload->lock);
    return link ? ngd_container_of(link, struct ngd_reload_request, link) : NULL;
}

static void serve_requests(void *arg)
{
    struct ngd_reload *reload = arg;
    struct ngd_reload_request *req;

    while ((req = next_request(reload))) {
        const struct ngd_diag none = {0};

        switch (req->kind) {
        case NGD_RELOAD_APPLY:
            serve_apply(reload, req);
            break;
        case NGD_RELOAD_COMPARE:
            serve_compare(reload, req);
            break;
        case NGD_RELOAD_SHOW:
            req->done(req, NGD_OK, NULL, NULL, &none);
            break;
        case NGD_RELOAD_SET:
            serve_set(reload, req);
            break;
        }
    }
}

static void fail_request(struct ngd_reload_request *req, ngd_status_t status, const char *text)
{
    struct ngd_diag diag = {0};

    ngd_diag_set(&diag, status, "%s", text);
    req->done(req, status, NULL, NULL, &diag);
}

/* Takes a request out of those that wait. Returns false if it is not among them any more: it was served meanwhile. */
static bool take_request_back(struct ngd_reload *reload, struct ngd_reload_request *req)
{
    bool waits = false;

    ngd_mutex_lock(&reload->lock);
    ngd_list_for_each (l, &reload->waiting)
        waits |= l == &req->link;
    if (waits)
        ngd_list_remove(&req->link);
    ngd_mutex_unlock(&reload->lock);
    return waits;
}

void ngd_reload_ask(struct ngd_reload *reload, struct ngd_reload_request *req)
{
    bool stopped;

    ngd_mutex_lock(&reload->lock);
    stopped = reload->stopped;
    if (!stopped)
        ngd_list_push_back(&reload->waiting, &req->link);
    ngd_mutex_unlock(&reload->lock);
    if (stopped)
        fail_request(req, NGD_ERR_DRAINING, "the daemon is stopping");
    else if (ngd_reactor_post(reload->daemon->reactor, serve_requests, reload) != NGD_OK &&
             take_request_back(reload, req))
        fail_request(req, NGD_ERR_NO_MEMORY, "no host memory to ask for the configuration");
}

/* ---- life -------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_reload_create(struct ngd_daemon *d, struct ngd_reload **reload_p)
{
    struct ngd_reload *reload = NGD_NEW(struct ngd_reload);

    if (!reload)
        return NGD_ERR_NO_MEMORY;
    reload->daemon = d;
    ngd_mutex_init(&reload->lock, NGD_RANK_RELOAD);
    ngd_mutex_lock(&reload->lock);
    ngd_list_init(&reload->waiting);
    ngd_mutex_unlock(&reload->lock);
    *reload_p = reload;
    return NGD_OK;
}

void ngd_reload_stop(struct ngd_reload *reload)
{
    struct ngd_reload_request *req;

    ngd_mutex_lock(&reload->lock);
    reload->stopped = true;
    ngd_mutex_unlock(&reload->lock);
    while ((req = next_request(reload)))
        fail_request(req, NGD_ERR_DRAINING, "the daemon is stopping");
}

void ngd_reload_destroy(struct ngd_reload *reload)
{
    if (!reload)
        return;
    ngd_mutex_fini(&reload->lock);
    ngd_free(reload);
}
