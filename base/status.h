/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_STATUS_H
#define NGD_BASE_STATUS_H

/*
 * Status codes and diagnoses.
 *
 * A function that can fail returns ngd_status_t: 0, or a negative code from status.def. The text for
 * the client goes to an optional last parameter, struct ngd_diag. The function that first knows the
 * cause sets it. Callers may pass NULL everywhere.
 * Threads: all functions are pure, or touch only their argument.
 */
#include <stdbool.h>
#include <stddef.h>

typedef enum ngd_status {
#define NGD_STATUS(name, value, scope, grpc, text) NGD_##name = (value),
#include "base/status.def"
#undef NGD_STATUS
} ngd_status_t;

typedef enum ngd_scope {
    NGD_SCOPE_REQUEST,
    NGD_SCOPE_SESSION,
    NGD_SCOPE_GRAPH,
    NGD_SCOPE_DEVICE,
    NGD_SCOPE_DAEMON,
} ngd_scope_t;

#define NGD_DIAG_MAX 1024

/* A sentence for the person who can act on it. text is always terminated. */
struct ngd_diag {
    ngd_status_t status;
    char text[NGD_DIAG_MAX];
};

const char *ngd_status_name(ngd_status_t status); /* "GRAPH_UNKNOWN_OP": the stable reason, no NGD_ERR_ */
const char *ngd_status_text(ngd_status_t status); /* the default sentence */
ngd_scope_t ngd_status_scope(ngd_status_t status);
int ngd_status_grpc(ngd_status_t status);    /* gRPC status code, 0..16 */
ngd_status_t ngd_status_from_errno(int err); /* ENOSPC -> DISK_FULL, ENOENT -> FILE_NOT_FOUND, ... */

/* Sets the diagnosis (unless diag is NULL) and returns status, so that a caller can write
 * `return ngd_diag_set(diag, NGD_ERR_..., "node %s: ...", ...)`. The last call wins. */
ngd_status_t ngd_diag_set(struct ngd_diag *diag, ngd_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts a context in front of the text: "graph g1: node %7: ...". Does nothing if diag is NULL or its status is OK. */
void ngd_diag_prefix(struct ngd_diag *diag, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
