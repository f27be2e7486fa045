/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's end of a connection with TLS. A read takes one record from the kernel and returns all of it if the
 * buffer has room for a record. So no bytes stay inside without epoll reporting them.
 */
#include "base/list.h"
#include "base/mem.h"
#include "daemon/front/tls_context.h"
#include "daemon/front/tls_names.h"
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct tls_io {
    struct ngd_wire_io io;
    struct ngd_tls *tls;
    SSL *ssl;
    uint64_t generation; /* of the context that accepted its certificate last */
    int64_t ends;        /* earliest end of the certificate and those above it; seconds of the wall clock */
    bool open, failed;
    char why[256];
};

static struct tls_io *tls_of(const struct ngd_wire_io *io)
{
    return ngd_container_of(io, struct tls_io, io);
}

/* Returns the result of an operation that returned r <= 0. */
static ngd_wire_result_t result(struct tls_io *t, int r)
{
    switch (SSL_get_error(t->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return NGD_WIRE_WANT_READ;
    case SSL_ERROR_WANT_WRITE:
        return NGD_WIRE_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN:
        return NGD_WIRE_CLOSED;
    default:
        t->failed = true;
        return NGD_WIRE_ERROR;
    }
}

static ngd_wire_result_t refuse_peer_tls(struct tls_io *t)
{
    t->failed = true;
    return NGD_WIRE_ERROR;
}

/* ---- the handshake ---------------------------------------------------------------------------------------------- */

static int64_t end_of_cert(const X509 *cert)
{
    struct tm tm;

    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static int64_t end_of_chain(const SSL *ssl)
{
    STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl); /* a resumed session has no chain */
    int64_t ends = end_of_cert(SSL_get0_peer_certificate(ssl));

    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t one = end_of_cert(sk_X509_value(chain, i));

        ends = one < ends ? one : ends;
    }
    return ends;
}

static void tell_handshake_error(const struct tls_io *t, struct ngd_diag *diag)
{
    long verdict = SSL_get_verify_result(t->ssl);
    unsigned long error = ERR_peek_error();
    const char *text = ERR_reason_error_string(error);

    if (verdict != X509_V_OK)
        ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client's certificate is refused: %s",
                     X509_verify_cert_error_string(verdict));
    else if (error == 0)
        ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client ended the connection in the TLS handshake");
    else
        ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the TLS handshake failed: %s", text ? text : "unknown error");
}

static ngd_wire_result_t accept_peer(struct tls_io *t, struct ngd_diag *diag)
{
    const unsigned char *protocol = NULL;
    unsigned n = 0;

    SSL_get0_alpn_selected(t->ssl, &protocol, &n);
    if (n != 2 || memcmp(protocol, "h2", 2) != 0) {
        ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client did not ask for HTTP/2 (ALPN h2)");
        return refuse_peer_tls(t);
    }
    t->open = true;
    t->ends = INT64_MAX;
    if (!SSL_get0_peer_certificate(t->ssl)) /* the handshake refuses that where one is required */
        return NGD_WIRE_OK;
    if (ngd_tls_name(SSL_get0_peer_certificate(t->ssl), ngd_tls_allows_cn(t->tls), t->io.identity, diag) != NGD_OK)
        return refuse_peer_tls(t);
    t->ends = end_of_chain(t->ssl);
    return NGD_WIRE_OK;
}

static ngd_wire_result_t tls_handshake(struct ngd_wire_io *io, struct ngd_diag *diag)
{
    struct tls_io *t = tls_of(io);
    ngd_wire_result_t done;
    int r;

    ERR_clear_error();
    r = SSL_accept(t->ssl);
    if (r == 1)
        return accept_peer(t, diag);
    done = result(t, r);
    if (done == NGD_WIRE_ERROR || done == NGD_WIRE_CLOSED)
        tell_handshake_error(t, diag);
    ERR_clear_error();
    return done;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static ngd_wire_result_t tls_read(struct ngd_wire_io *io, void *to, size_t room, size_t *n_p)
{
    struct tls_io *t = tls_of(io);

    ERR_clear_error();
    return SSL_read_ex(t->ssl, to, room, n_p) == 1 ? NGD_WIRE_OK : result(t, 0);
}

static ngd_wire_result_t tls_write(struct ngd_wire_io *io, const void *from, size_t n, size_t *n_p)
{
    struct tls_io *t = tls_of(io);

    ERR_clear_error();
    return SSL_write_ex(t->ssl, from, n, n_p) == 1 ? NGD_WIRE_OK : result(t, 0);
}

static bool tls_pending(const struct ngd_wire_io *io)
{
    return SSL_pending(tls_of(io)->ssl) > 0;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static const char *tls_over(struct ngd_wire_io *io)
{
    struct tls_io *t = tls_of(io);
    struct ngd_diag diag = {0};
    uint64_t generation = ngd_tls_generation(t->tls);

    if (!t->open)
        return NULL;
    if (time(NULL) > t->ends)
        return "the client's certificate has expired";
    if (generation == t->generation)
        return NULL;
    if (ngd_tls_verify_again(t->tls, t->ssl, &diag) != NGD_OK) {
        snprintf(t->why, sizeof(t->why), "%.250s",
                 diag.text[0] ? diag.text : "the client's certificate cannot be checked");
        return t->why;
    }
    t->generation = generation;
    return NULL;
}

static void tls_destroy(struct ngd_wire_io *io)
{
    struct tls_io *t = tls_of(io);

    ERR_clear_error();
    if (t->open && !t->failed)
        (void)SSL_shutdown(t->ssl);
    SSL_free(t->ssl);
    ERR_clear_error();
    ngd_free(t);
}

static const struct ngd_wire_io_ops tls_ops = {.handshake = tls_handshake,
                                               .read = tls_read,
                                               .pending = tls_pending,
                                               .write = tls_write,
                                               .over = tls_over,
                                               .destroy = tls_destroy};

ngd_status_t ngd_tls_open(void *arg, int fd, struct ngd_wire_io **io_p)
{
    struct tls_io *t = NGD_NEW(struct tls_io);
    SSL_CTX *context;

    if (!t)
        return NGD_ERR_NO_MEMORY;
    t->tls = arg;
    context = ngd_tls_take_context(t->tls, &t->generation);
    t->ssl = context ? SSL_new(context) : NULL;
    SSL_CTX_free(context);
    if (!t->ssl || SSL_set_fd(t->ssl, fd) != 1) {
        SSL_free(t->ssl);
        ngd_free(t);
        return NGD_ERR_NO_MEMORY;
    }
    SSL_set_accept_state(t->ssl);
    t->io = (struct ngd_wire_io){.ops = &tls_ops, .fd = fd};
    *io_p = &t->io;
    return NGD_OK;
}
