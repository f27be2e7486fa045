/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_RELOAD_H
#define NGD_DAEMON_CONTROL_RELOAD_H

/*
 * Changing the configuration: reading it again on SIGHUP, and for Admin.Reload, Admin.Config and Admin.SetConfig.
 *
 * A reload takes all of the options that changed and can change, or nothing: files are parsed, certificates are read
 * and new sockets are opened before anything of the running daemon changes. Options that need a restart keep their old
 * values and are named.
 *
 * Admin.SetConfig changes options in the same way, without the files. Their values stay until the daemon ends or they
 * are unset: reloads keep them.
 *
 * Threads: run, stop and destroy on the loop's; ask from any. Bounds: the askers' (a request belongs to a call).
 */
#include "base/list.h"
#include "daemon/options.h"

struct ngd_daemon;
struct ngd_reload;

/* Names of options, as in the table. */
struct ngd_reload_report {
    const char *changed[NGD_OPTIONS_MAX];
    const char *kept[NGD_OPTIONS_MAX]; /* they need a restart */
    const char *set[NGD_OPTIONS_MAX];  /* the files say something else than Admin.SetConfig, which counts */
    size_t n_changed, n_kept, n_set;
};

typedef enum ngd_reload_kind {
    NGD_RELOAD_APPLY,
    NGD_RELOAD_COMPARE, /* reads the files, and changes nothing */
    NGD_RELOAD_SHOW,    /* does not read the files */
    NGD_RELOAD_SET      /* changes options */
} ngd_reload_kind_t;

/* One option that Admin.SetConfig changes. */
struct ngd_reload_change {
    const struct ngd_config_option *opt;
    char *const *values; /* the caller's until done */
    size_t n_values;
    bool unset; /* gives the option back to the files, which are read for that */
};

struct ngd_reload_request {
    ngd_reload_kind_t kind;
    const struct ngd_reload_change *changes; /* SET; each of another option; the caller's until done */
    size_t n_changes;
    const char *identity; /* who asks; SET */
    /*
     * Called once, on the loop's thread, where the daemon's options may be read; or, if the daemon stops, with DRAINING
     * on another. report: of APPLY and SET. fresh: what the files say; of COMPARE. The request is the caller's
     * again.
     */
    void (*done)(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                 const struct ngd_options *fresh, const struct ngd_diag *diag);
    struct ngd_list link; /* the reload's */
};

ngd_status_t ngd_reload_create(struct ngd_daemon *d, struct ngd_reload **reload_p);
/* Reloads, and logs the result. CONFIG: nothing has changed; the diagnosis has the file and the line. */
ngd_status_t ngd_reload_run(struct ngd_reload *reload, struct ngd_reload_report *report_p, struct ngd_diag *diag);
/* Returns whether Admin.SetConfig has set the option. On the loop's thread. */
bool ngd_reload_has_set(const struct ngd_reload *reload, const struct ngd_config_option *opt);
void ngd_reload_ask(struct ngd_reload *reload, struct ngd_reload_request *req);
/* Ends the requests that wait, and later ones at once. */
void ngd_reload_stop(struct ngd_reload *reload);
void ngd_reload_destroy(struct ngd_reload *reload); /* NULL is fine; after stop */

#endif
