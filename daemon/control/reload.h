/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_RELOAD_H
#define NGD_DAEMON_CONTROL_RELOAD_H

/*
 * Reading the configuration again: on SIGHUP, and for Admin.Reload and Admin.Config.
 *
 * A reload takes all of the options that changed and can change, or nothing: files are parsed, certificates are read
 * and new sockets are opened before anything of the running daemon changes. Options that need a restart keep their old
 * values and are named.
 *
 * Threads: run, stop and destroy on the loop's; ask from any. Bounds: the askers' (a request belongs to a call).
 */
#include "base/list.h"
#include "daemon/options.h"

struct ngd_daemon;
struct ngd_reload;

/* Names of options, as in the table. */
struct ngd_reload_report {
    const char *changed[NGD_OPTIONS_MAX], *kept[NGD_OPTIONS_MAX]; /* kept: they need a restart */
    size_t n_changed, n_kept;
};

typedef enum ngd_reload_kind {
    NGD_RELOAD_APPLY,
    NGD_RELOAD_COMPARE, /* reads the files, and changes nothing */
    NGD_RELOAD_SHOW     /* does not read the files */
} ngd_reload_kind_t;

struct ngd_reload_request {
    ngd_reload_kind_t kind;
    /*
     * Called once, on the loop's thread, where the daemon's options may be read; or, if the daemon stops, with DRAINING
     * on another. report: of APPLY. fresh: what the files say; of COMPARE. The request is the caller's again.
     */
    void (*done)(struct ngd_reload_request *req, ngd_status_t status, const struct ngd_reload_report *report,
                 const struct ngd_options *fresh, const struct ngd_diag *diag);
    struct ngd_list link; /* the reload's */
};

ngd_status_t ngd_reload_create(struct ngd_daemon *d, struct ngd_reload **reload_p);
/* Reloads, and logs the result. CONFIG: nothing has changed; the diagnosis has the file and the line. */
ngd_status_t ngd_reload_run(struct ngd_reload *reload, struct ngd_reload_report *report_p, struct ngd_diag *diag);
void ngd_reload_ask(struct ngd_reload *reload, struct ngd_reload_request *req);
/* Ends the requests that wait, and later ones at once. */
void ngd_reload_stop(struct ngd_reload *reload);
void ngd_reload_destroy(struct ngd_reload *reload); /* NULL is fine; after stop */

#endif
