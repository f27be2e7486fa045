/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_AUDIT_H
#define NGD_DAEMON_AUDIT_H

/*
 * The audit log (option audit-log): a line of JSON for each call that changes something, and for each that was refused
 * for its token, role or owner.
 *
 * A thread writes the lines, so that a slow disk holds up no call. Bounds: AUDIT_QUEUE lines wait; more are dropped,
 * counted (audit_dropped_total), and the log says how many. A file that would exceed audit-log-max becomes FILE.1,
 * whose predecessor goes.
 *
 * Threads: any. All functions take NULL, which is no log.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_audit;

/* Strings may be NULL: the line lacks them. */
struct ngd_audit_event {
    const char *identity, *peer;
    const char *method, *object; /* what was asked for, and of what */
    const char *text;            /* why it failed */
    ngd_status_t status;
    uint64_t session; /* 0: none */
};

/* path: "" makes no log. CONFIG: the file cannot be opened, or others may read or write it. */
ngd_status_t ngd_audit_create(const char *path, uint64_t max_bytes, struct ngd_audit **audit_p, struct ngd_diag *diag);
void ngd_audit_destroy(struct ngd_audit *audit); /* writes what waits */
/* At most 10 refusals a second are written. */
void ngd_audit_write(struct ngd_audit *audit, const struct ngd_audit_event *event);
/* Returns whether the status refuses a caller for its token, role or owner. The log has such calls of every method. */
bool ngd_audit_is_refusal(ngd_status_t status);
void ngd_audit_reopen(struct ngd_audit *audit); /* for programs that rename the file */

#endif
