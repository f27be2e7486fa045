/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_TLS_CONTEXT_H
#define NGD_DAEMON_FRONT_TLS_CONTEXT_H

/*
 * TLS, with client certificates unless they are optional: reads the files, and is the source of TLS connections
 * (tls_io.c).
 *
 * All files are read into one new context, which replaces the old one completely or not at all. Session tickets are
 * encrypted with keys of their context, so after a reload each client shows its certificate again. A ticket is accepted
 * only while its certificate would be accepted.
 * Threads: look and reload on the loop; the source's connections on the front's thread.
 */
#include "base/lock.h"
#include "daemon/front/wire_io.h"

struct ngd_tls;

struct ngd_tls_params {
    /* Paths of PEM files, borrowed while tls lives or until a commit. cert "": no TLS; crl "": no revocation lists. */
    const char *cert, *key, *client_ca, *crl;
    bool allow_cn;
    bool client_optional; /* a client may show no certificate, and has no identity of its own; client_ca may be "" */
};

struct ssl_ctx_st;
struct ssl_st;

/* Reads the files. CONFIG says what is wrong with them. */
ngd_status_t ngd_tls_create(const struct ngd_tls_params *params, struct ngd_tls **tls_p, struct ngd_diag *diag);
void ngd_tls_destroy(struct ngd_tls *tls); /* NULL is fine; no connection may be open */
/* Returns the source of TLS connections, which lives as long as tls. */
const struct ngd_wire_source *ngd_tls_source(const struct ngd_tls *tls);
/* Reads the files again. If one of them is not valid, all old ones stay in use, and the log says why. */
void ngd_tls_reload(struct ngd_tls *tls);
/* Reads the files of params into *context_p; NULL: params have none. CONFIG says what is wrong with them. */
ngd_status_t ngd_tls_prepare(const struct ngd_tls_params *params, struct ssl_ctx_st **context_p, struct ngd_diag *diag);
/* Takes what was prepared. Certificates of open connections are checked again with it. */
void ngd_tls_commit(struct ngd_tls *tls, const struct ngd_tls_params *params, struct ssl_ctx_st *context);
void ngd_tls_abandon(struct ssl_ctx_st *context); /* NULL is fine */
/* For a timer: reloads if the files have changed, and have not changed since the previous look. */
void ngd_tls_look(struct ngd_tls *tls);

/* ---- for tls_io.c ---- */

/* Returns the present context with a reference, or NULL; *generation_p changes with each reload. */
struct ssl_ctx_st *ngd_tls_take_context(struct ngd_tls *tls, uint64_t *generation_p);
uint64_t ngd_tls_generation(const struct ngd_tls *tls); /* one atomic load */
bool ngd_tls_allows_cn(const struct ngd_tls *tls);
/* Checks the connection's client certificate with the present context. On the front's thread. */
ngd_status_t ngd_tls_verify_again(struct ngd_tls *tls, struct ssl_st *ssl, struct ngd_diag *diag);
ngd_status_t ngd_tls_open(void *tls, int fd, struct ngd_wire_io **io_p);

#endif
