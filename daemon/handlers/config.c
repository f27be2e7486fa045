/* SPDX-License-Identifier: Apache-2.0 */
/* Admin.Reload, Admin.Config and Admin.SetConfig. The loop's thread reads the options and answers. No option holds a
 * secret: keys and certificates are files, which options name. */
#include "base/log.h"
#include "daemon/control/reload.h"
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "proto/npugraph.pb-c.h"
#include <string.h>

#define VALUES_MAX 4096 /* bytes of values in the audit log, about */
#define VALUE_MAX  1024 /* of one value */

struct config_call {
    struct ngd_reload_request req;
    struct ngd_call *call;
};

typedef void config_done_fn(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                            const struct ngd_options *fresh, const struct ngd_diag *diag);

/* NULL: the call has failed for want of memory. */
static struct ngd_reload_request *make_config_request(struct ngd_call *call, ngd_reload_kind_t kind,
                                                      config_done_fn *done)
{
    struct config_call *c = ngd_arena_calloc(&call->life, 1, sizeof(*c));

    if (!c) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return NULL;
    }
    c->call = call;
    c->req.kind = kind;
    c->req.done = done;
    c->req.identity = call->identity->name;
    return &c->req;
}

/* Asks the loop. */
static void ask_loop(struct ngd_call *call, ngd_reload_kind_t kind, config_done_fn *done)
{
    struct ngd_reload_request *req = make_config_request(call, kind, done);

    if (req)
        ngd_reload_ask(call->daemon->reload, req);
}

/* ---- Reload ------------------------------------------------------------------------------------------------ */

static char **borrow_names(struct ngd_arena *arena, const char *const *names, size_t n)
{
    char **to = ngd_arena_calloc(arena, n + 1, sizeof(*to));

    for (size_t i = 0; to && i < n; i++)
        to[i] = ngd_borrow(names[i]);
    return to;
}

static void reload_done(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                        const struct ngd_options *fresh, const struct ngd_diag *diag)
{
    struct ngd_call *call = ngd_container_of(req, struct config_call, req)->call;
    Npugraph__V1__ReloadResponse r = NPUGRAPH__V1__RELOAD_RESPONSE__INIT;

    (void)fresh;
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag);
        return;
    }
    r.changed = borrow_names(&call->arena, report->changed, report->n_changed);
    r.needs_restart = borrow_names(&call->arena, report->kept, report->n_kept);
    r.set = borrow_names(&call->arena, report->set, report->n_set);
    if (!r.changed || !r.needs_restart || !r.set) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    r.n_changed = report->n_changed;
    r.n_needs_restart = report->n_kept;
    r.n_set = report->n_set;
    ngd_call_reply(call, &r.base);
}

static void reload_config(struct ngd_call *call, const void *msg)
{
    char identity[NGD_LOG_VALUE_MAX];

    (void)msg;
    ngd_notice("daemon", "reload requested by identity=%s", ngd_log_value(call->identity->name, identity));
    ask_loop(call, NGD_RELOAD_APPLY, reload_done);
}

/* ---- Config ------------------------------------------------------------------------------------------------ */

/* Fills in an option's values. False: no memory. */
static bool fill_values(struct ngd_arena *arena, const struct ngd_config_option *opt, const struct ngd_options *o,
                        char ***values_p, size_t *n_p)
{
    const struct ngd_config_list *list = (const void *)((const char *)o + opt->offset);
    size_t n = opt->type == NGD_CONFIG_LIST ? list->n : 1;
    char **values = ngd_arena_calloc(arena, n + 1, sizeof(*values));
    struct ngd_strbuf sb;
    bool ok = values != NULL;

    ngd_strbuf_init(&sb);
    if (opt->type != NGD_CONFIG_LIST)
        ngd_config_print(opt, o, &sb);
    for (size_t i = 0; ok && i < n; i++) {
        values[i] = ngd_arena_strdup(arena, opt->type == NGD_CONFIG_LIST ? list->items[i] : ngd_strbuf_str(&sb));
        ok = values[i] && !sb.failed;
    }
    ngd_strbuf_fini(&sb);
    *values_p = values;
    *n_p = n;
    return ok;
}

/* NULL: no memory. */
static Npugraph__V1__ConfigOption *make_option(struct ngd_call *call, const struct ngd_config_option *opt,
                                               const struct ngd_options *fresh)
{
    const struct ngd_options *now = &call->daemon->options;
    struct ngd_arena *arena = &call->arena;
    Npugraph__V1__ConfigOption *item = ngd_arena_alloc(arena, sizeof(*item));
    bool ok = item != NULL;

    if (!ok)
        return NULL;
    npugraph__v1__config_option__init(item);
    item->name = ngd_borrow(opt->name);
    item->live = opt->change != NGD_CONFIG_RESTART;
    item->settable = opt->change == NGD_CONFIG_SET;
    item->set = ngd_reload_has_set(call->daemon->reload, opt);
    item->source = ngd_arena_strdup(arena, ngd_config_source(ngd_options_table, opt, now));
    ok = item->source && fill_values(arena, opt, now, &item->values, &item->n_values);
    if (ok && fresh) {
        item->new_source = ngd_arena_strdup(arena, ngd_config_source(ngd_options_table, opt, fresh));
        ok = item->new_source && fill_values(arena, opt, fresh, &item->new_values, &item->n_new_values);
    }
    return ok ? item : NULL;
}

static void config_done(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                        const struct ngd_options *fresh, const struct ngd_diag *diag)
{
    struct ngd_call *call = ngd_container_of(req, struct config_call, req)->call;
    const struct ngd_options *now = &call->daemon->options;
    Npugraph__V1__ConfigResponse r = NPUGRAPH__V1__CONFIG_RESPONSE__INIT;

    (void)report;
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag);
        return;
    }
    r.options = ngd_arena_calloc(&call->arena, NGD_OPTIONS_MAX, sizeof(*r.options));
    for (const struct ngd_config_option *opt = ngd_options_table; opt->name && r.options; opt++) {
        if (fresh && ngd_config_same(opt, now, fresh))
            continue;
        r.options[r.n_options] = make_option(call, opt, fresh);
        if (!r.options[r.n_options++])
            r.options = NULL;
    }
    if (r.options)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
}

static void show_config(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ConfigRequest *q = msg;

    ask_loop(call, q->compare ? NGD_RELOAD_COMPARE : NGD_RELOAD_SHOW, config_done);
}

/* ---- SetConfig --------------------------------------------------------------------------------------------- */

static void set_done(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                     const struct ngd_options *fresh, const struct ngd_diag *diag)
{
    struct ngd_call *call = ngd_container_of(req, struct config_call, req)->call;
    Npugraph__V1__SetConfigResponse r = NPUGRAPH__V1__SET_CONFIG_RESPONSE__INIT;
    bool ok;

    (void)report;
    (void)fresh;
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag);
        return;
    }
    r.options = ngd_arena_calloc(&call->arena, req->n_changes, sizeof(*r.options));
    ok = r.options != NULL;
    for (; ok && r.n_options < req->n_changes; r.n_options++) {
        r.options[r.n_options] = make_option(call, req->changes[r.n_options].opt, NULL);
        ok = r.options[r.n_options] != NULL;
    }
    if (ok) {
        r.option = r.options[0];
        ngd_call_reply(call, &r.base);
    } else {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
    }
}

static ngd_status_t check_change(const Npugraph__V1__SetConfigChange *q, struct ngd_reload_change *change,
                                 struct ngd_diag *diag)
{
    const struct ngd_config_option *opt = ngd_config_find(ngd_options_table, q->name, diag);

    *change = (struct ngd_reload_change){.opt = opt, .values = q->values, .n_values = q->n_values, .unset = q->unset};
    if (!opt)
        return NGD_ERR_CONFIG;
    if (opt->change == NGD_CONFIG_RESTART)
        return ngd_diag_set(diag, NGD_ERR_NEEDS_RESTART,
                            "%s needs a restart: write it to the daemon's files, and start it again", opt->name);
    if (opt->change == NGD_CONFIG_RELOAD)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "%s is set by the daemon's files alone: write it there, and reload the daemon", opt->name);
    if (q->unset && q->n_values > 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "unset takes no values; %zu were given for %s", q->n_values,
                            opt->name);
    return NGD_OK;
}

/* Checks all changes before the first one is made. NGD_ERR_NO_MEMORY has no diagnosis. */
static ngd_status_t check_changes(struct ngd_call *call, Npugraph__V1__SetConfigChange *const *all, size_t n,
                                  struct ngd_reload_request *req, struct ngd_diag *diag)
{
    struct ngd_reload_change *changes = ngd_arena_calloc(&call->life, n, sizeof(*changes));

    if (!changes)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        ngd_status_t status = check_change(all[i], &changes[i], diag);

        for (size_t j = 0; j < i && status == NGD_OK; j++)
            if (changes[j].opt == changes[i].opt)
                status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                      "%s is changed twice; a list takes all its values in one change",
                                      changes[i].opt->name);
        if (status != NGD_OK) {
            if (changes[i].opt)
                call->object = changes[i].opt->name; /* for the audit log, which would have none of several */
            return status;
        }
    }
    req->changes = changes;
    req->n_changes = n;
    return NGD_OK;
}

/* Writes the first value whatever came before: a long list must not hide what another option was set to. */
static void note_change(struct ngd_strbuf *sb, const struct ngd_reload_change *change)
{
    size_t i = 0;

    ngd_strbuf_printf(sb, change->unset ? "%s unset" : "%s =", change->opt->name);
    for (; i < change->n_values && (i == 0 || sb->len < VALUES_MAX); i++)
        ngd_strbuf_printf(sb, "%s %.*s", i ? "," : "", VALUE_MAX, change->values[i]);
    if (i < change->n_values)
        ngd_strbuf_printf(sb, ", and %zu more", change->n_values - i);
}

/* For the audit log, which would have only an option's name. Without memory, that is what it has. */
static void note_changes(struct ngd_call *call, const struct ngd_reload_request *req)
{
    struct ngd_strbuf sb;
    const char *text;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < req->n_changes; i++) {
        ngd_strbuf_append(&sb, i ? "; " : "");
        note_change(&sb, &req->changes[i]);
    }
    text = ngd_arena_strdup(&call->life, ngd_strbuf_str(&sb));
    if (text && !sb.failed)
        call->object = text;
    ngd_strbuf_fini(&sb);
}

static ngd_status_t read_set_config(struct ngd_call *call, const Npugraph__V1__SetConfigRequest *q,
                                    struct ngd_reload_request *req, struct ngd_diag *diag)
{
    Npugraph__V1__SetConfigChange single = NPUGRAPH__V1__SET_CONFIG_CHANGE__INIT, *only = &single;

    if (q->n_changes == 0) {
        single.name = q->name;
        single.values = q->values;
        single.n_values = q->n_values;
        single.unset = q->unset;
        return check_changes(call, &only, 1, req, diag);
    }
    if (*q->name || q->n_values || q->unset)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the request has changes, and an option of its own too: give it as one of the changes");
    return check_changes(call, q->changes, q->n_changes, req, diag);
}

static void set_config(struct ngd_call *call, const void *msg)
{
    struct ngd_reload_request *req = make_config_request(call, NGD_RELOAD_SET, set_done);
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (!req)
        return;
    status = read_set_config(call, msg, req, &diag);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
        return;
    }
    note_changes(call, req);
    ngd_reload_ask(call->daemon->reload, req);
}

const struct ngd_rpc_ops ngd_rpc_admin_reload = {.request = reload_config};
const struct ngd_rpc_ops ngd_rpc_admin_config = {.request = show_config};
const struct ngd_rpc_ops ngd_rpc_admin_set_config = {.request = set_config};
