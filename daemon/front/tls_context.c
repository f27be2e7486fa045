/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/tls_context.h"
#include "base/log.h"
#include "base/mem.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CHAIN_DEPTH 4          /* most authorities between a client's certificate and a trusted one */
#define CHAIN_BYTES (32 << 10) /* most bytes of the certificates that a client sends */
#define N_FILES     4

/* State of the files by stat: a difference means that one of them was changed. */
struct look {
    struct {
        ino_t inode;
        off_t size;
        struct timespec modified, changed;
    } files[N_FILES];
};

struct ngd_tls {
    struct ngd_tls_params params;
    struct ngd_wire_source source;
    struct look loaded, last; /* used by the loop */
    struct ngd_mutex lock;
    SSL_CTX *context NGD_GUARDED_BY(lock); /* NULL: no certificates are configured */
    _Atomic bool allow_cn;
    _Atomic uint64_t generation;
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Returns OpenSSL's text for its last failure. */
static const char *reason(void)
{
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);

    return ERR_SYSTEM_ERROR(error) ? strerror(ERR_GET_REASON(error)) : text ? text : "it cannot be read";
}

static ngd_status_t bad_file(struct ngd_diag *diag, const char *option, const char *path)
{
    ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %s: %s", option, path, reason());
    ERR_clear_error();
    return NGD_ERR_CONFIG;
}

static ngd_status_t use_certificate(SSL_CTX *context, const struct ngd_tls_params *p, struct ngd_diag *diag)
{
    if (SSL_CTX_use_certificate_chain_file(context, p->cert) != 1)
        return bad_file(diag, "tls-cert", p->cert);
    if (SSL_CTX_use_PrivateKey_file(context, p->key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
        return bad_file(diag, "tls-key", p->key);
    return NGD_OK;
}

static ngd_status_t use_authorities(SSL_CTX *context, const struct ngd_tls_params *p, struct ngd_diag *diag)
{
    STACK_OF(X509_NAME) * names;

    if (!*p->client_ca)
        return NGD_OK;
    if (SSL_CTX_load_verify_file(context, p->client_ca) != 1)
        return bad_file(diag, "tls-client-ca", p->client_ca);
    names = SSL_load_client_CA_file(p->client_ca);
    if (!names)
        return bad_file(diag, "tls-client-ca", p->client_ca);
    SSL_CTX_set_client_CA_list(context, names); /* takes it */
    return NGD_OK;
}

/* Checks a revocation list: one of our authorities must have signed it, and it must not have expired. */
static ngd_status_t check_crl(X509_STORE *store, X509_CRL *crl, const char *path, struct ngd_diag *diag)
{
    const ASN1_TIME *end = X509_CRL_get0_nextUpdate(crl);
    X509_STORE_CTX *lookup = X509_STORE_CTX_new();
    X509_OBJECT *object = NULL;
    char issuer[160];
    bool signed_by_ours = false;

    X509_NAME_oneline(X509_CRL_get_issuer(crl), issuer, sizeof(issuer));
    if (lookup && X509_STORE_CTX_init(lookup, store, NULL, NULL) == 1)
        object = X509_STORE_CTX_get_obj_by_subject(lookup, X509_LU_X509, X509_CRL_get_issuer(crl));
    if (object)
        signed_by_ours = X509_CRL_verify(crl, X509_get0_pubkey(X509_OBJECT_get0_X509(object))) == 1;
    X509_OBJECT_free(object);
    X509_STORE_CTX_free(lookup);
    ERR_clear_error();
    if (!signed_by_ours)
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "tls-crl: %s: the list of %s was not signed by an authority in tls-client-ca", path,
                            issuer);
    if (end && X509_cmp_current_time(end) <= 0)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "tls-crl: %s: the list of %s has expired; install a current one",
                            path, issuer);
    return NGD_OK;
}

static ngd_status_t use_crls(SSL_CTX *context, const struct ngd_tls_params *p, struct ngd_diag *diag)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    BIO *file = *p->crl ? BIO_new_file(p->crl, "r") : NULL;
    ngd_status_t status = NGD_OK;
    X509_CRL *crl = NULL;
    int n = 0;

    if (!*p->crl)
        return NGD_OK;
    if (!file)
        return bad_file(diag, "tls-crl", p->crl);
    while (status == NGD_OK && (crl = PEM_read_bio_X509_CRL(file, NULL, NULL, NULL))) {
        n++;
        status = check_crl(store, crl, p->crl, diag);
        if (status == NGD_OK && X509_STORE_add_crl(store, crl) != 1)
            status = bad_file(diag, "tls-crl", p->crl);
        X509_CRL_free(crl);
    }
    BIO_free(file);
    if (status == NGD_OK && (n == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE))
        return bad_file(diag, "tls-crl", p->crl);
    ERR_clear_error();
    if (status == NGD_OK)
        X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return status;
}

/* ---- verifying -------------------------------------------------------------------------------------------------- */

static ngd_status_t verify_cert(SSL_CTX *context, X509 *cert, STACK_OF(X509) * others, struct ngd_diag *diag)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (check && X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), cert, others) == 1 &&
        X509_STORE_CTX_set_default(check, "ssl_client") == 1) {
        X509_STORE_CTX_set_depth(check, CHAIN_DEPTH);
        status = X509_verify_cert(check) == 1
                     ? NGD_OK
                     : ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client's certificate is refused: %s",
                                    X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    }
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return status;
}

ngd_status_t ngd_tls_verify_again(struct ngd_tls *tls, SSL *ssl, struct ngd_diag *diag)
{
    X509 *cert = SSL_get0_peer_certificate(ssl);
    uint64_t generation;
    SSL_CTX *context = ngd_tls_take_context(tls, &generation);
    ngd_status_t status = NGD_ERR_UNAUTHENTICATED;

    if (!context)
        return ngd_diag_set(diag, status, "TLS is no longer configured");
    if (cert)
        status = verify_cert(context, cert, SSL_get_peer_cert_chain(ssl), diag);
    else if (SSL_CTX_get_verify_mode(context) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT)
        ngd_diag_set(diag, status, "the client sent no certificate");
    else
        status = NGD_OK;
    SSL_CTX_free(context);
    return status;
}

/*
 * Decides about a session ticket, which has only the certificate. A ticket whose certificate would not be accepted now
 * is ignored. The full handshake then either fails with the reason, or succeeds with what the client sends in addition.
 */
static SSL_TICKET_RETURN on_ticket(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t n,
                                   SSL_TICKET_STATUS status, void *arg)
{
    X509 *cert = session ? SSL_SESSION_get0_peer(session) : NULL;

    (void)name;
    (void)n;
    (void)arg;
    if (status == SSL_TICKET_FATAL_ERR_MALLOC || status == SSL_TICKET_FATAL_ERR_OTHER)
        return SSL_TICKET_RETURN_ABORT;
    if ((status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) || !cert ||
        verify_cert(SSL_get_SSL_CTX(ssl), cert, NULL, NULL) != NGD_OK)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned in_n,
                   void *arg)
{
    (void)ssl;
    (void)arg;
    for (unsigned i = 0; i < in_n; i += 1U + in[i])
        if (in[i] == 2 && i + 2 < in_n && in[i + 1] == 'h' && in[i + 2] == '2') {
            *out = in + i + 1;
            *out_n = 2;
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* ---- the context --------------------------------------------------------------------------------------------------
 */

static void set_rules(SSL_CTX *context, const struct ngd_tls_params *p)
{
    static const unsigned char id[] = "npugraphd";

    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_security_level(context, 2);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    if (!p->client_optional)
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    else /* without authorities none is asked for, since none could be checked */
        SSL_CTX_set_verify(context, *p->client_ca ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_verify_depth(context, CHAIN_DEPTH);
    SSL_CTX_set_max_cert_list(context, CHAIN_BYTES);
    SSL_CTX_set_session_id_context(context, id, sizeof(id) - 1);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF); /* tickets are used; no session is kept here */
    SSL_CTX_set_session_ticket_cb(context, NULL, on_ticket, NULL);
    SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
}

static ngd_status_t make_context(const struct ngd_tls_params *p, SSL_CTX **context_p, struct ngd_diag *diag)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    ngd_status_t status;

    if (!context)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory");
    ERR_clear_error();
    set_rules(context, p);
    status = use_certificate(context, p, diag);
    if (status == NGD_OK)
        status = use_authorities(context, p, diag);
    if (status == NGD_OK)
        status = use_crls(context, p, diag);
    if (status != NGD_OK) {
        SSL_CTX_free(context);
        return status;
    }
    *context_p = context;
    return NGD_OK;
}

SSL_CTX *ngd_tls_take_context(struct ngd_tls *tls, uint64_t *generation_p)
{
    SSL_CTX *context;

    ngd_mutex_lock(&tls->lock);
    context = tls->context;
    if (context)
        SSL_CTX_up_ref(context);
    *generation_p = atomic_load_explicit(&tls->generation, memory_order_relaxed);
    ngd_mutex_unlock(&tls->lock);
    return context;
}

uint64_t ngd_tls_generation(const struct ngd_tls *tls)
{
    return atomic_load_explicit(&tls->generation, memory_order_acquire);
}

bool ngd_tls_allows_cn(const struct ngd_tls *tls)
{
    return atomic_load_explicit(&tls->allow_cn, memory_order_relaxed);
}

const struct ngd_wire_source *ngd_tls_source(const struct ngd_tls *tls)
{
    return &tls->source;
}

/* ---- reloading -------------------------------------------------------------------------------------------------- */

/* Refuses what may block its reader, such as a FIFO: a reload reads the files on the loop. */
static ngd_status_t check_tls_files(const struct ngd_tls_params *p, struct ngd_diag *diag)
{
    static const char *const options[N_FILES] = {"tls-cert", "tls-key", "tls-client-ca", "tls-crl"};
    const char *const paths[N_FILES] = {p->cert, p->key, p->client_ca, p->crl};

    for (int i = 0; i < N_FILES; i++) {
        struct stat st;

        if (*paths[i] && stat(paths[i], &st) == 0 && !S_ISREG(st.st_mode))
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %s: not a regular file", options[i], paths[i]);
    }
    return NGD_OK;
}

static void look_at_files(const struct ngd_tls_params *p, struct look *look)
{
    const char *const paths[N_FILES] = {p->cert, p->key, p->client_ca, p->crl};

    memset(look, 0, sizeof(*look));
    for (int i = 0; i < N_FILES; i++) {
        struct stat st;

        if (!*paths[i] || stat(paths[i], &st) != 0)
            continue;
        look->files[i].inode = st.st_ino;
        look->files[i].size = st.st_size;
        look->files[i].modified = st.st_mtim;
        look->files[i].changed = st.st_ctim;
    }
}

ngd_status_t ngd_tls_prepare(const struct ngd_tls_params *params, SSL_CTX **context_p, struct ngd_diag *diag)
{
    ngd_status_t status;

    *context_p = NULL;
    if (!*params->cert)
        return NGD_OK;
    status = check_tls_files(params, diag);
    return status == NGD_OK ? make_context(params, context_p, diag) : status;
}

void ngd_tls_abandon(SSL_CTX *context)
{
    SSL_CTX_free(context);
}

void ngd_tls_commit(struct ngd_tls *tls, const struct ngd_tls_params *params, SSL_CTX *context)
{
    SSL_CTX *old;

    tls->params = *params;
    look_at_files(&tls->params, &tls->loaded);
    tls->last = tls->loaded;
    atomic_store_explicit(&tls->allow_cn, params->allow_cn, memory_order_relaxed);
    ngd_mutex_lock(&tls->lock);
    old = tls->context;
    tls->context = context;
    atomic_fetch_add_explicit(&tls->generation, 1, memory_order_release);
    ngd_mutex_unlock(&tls->lock);
    SSL_CTX_free(old);
    if (context)
        ngd_notice("tls", "certificates and revocation lists were reloaded");
}

void ngd_tls_reload(struct ngd_tls *tls)
{
    const struct ngd_tls_params params = tls->params;
    struct ngd_diag diag = {0};
    SSL_CTX *fresh;

    if (ngd_tls_prepare(&params, &fresh, &diag) == NGD_OK) {
        ngd_tls_commit(tls, &params, fresh);
        return;
    }
    look_at_files(&tls->params, &tls->loaded);
    tls->last = tls->loaded;
    ngd_warning("tls", "certificates and revocation lists were not reloaded, the old ones stay in use: %s", diag.text);
}

void ngd_tls_look(struct ngd_tls *tls)
{
    struct look now;
    bool settled;

    if (!*tls->params.cert)
        return;
    look_at_files(&tls->params, &now);
    settled = memcmp(&now, &tls->last, sizeof(now)) == 0;
    tls->last = now;
    if (settled && memcmp(&now, &tls->loaded, sizeof(now)) != 0)
        ngd_tls_reload(tls);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_tls_create(const struct ngd_tls_params *params, struct ngd_tls **tls_p, struct ngd_diag *diag)
{
    struct ngd_tls *tls = NGD_NEW(struct ngd_tls);
    SSL_CTX *context = NULL;
    ngd_status_t status;

    if (!tls)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory");
    tls->params = *params;
    look_at_files(params, &tls->loaded);
    tls->last = tls->loaded;
    atomic_init(&tls->allow_cn, params->allow_cn);
    status = ngd_tls_prepare(params, &context, diag);
    if (status != NGD_OK) {
        ngd_free(tls);
        return status;
    }
    ngd_mutex_init(&tls->lock, NGD_RANK_TLS);
    ngd_mutex_lock(&tls->lock);
    tls->context = context;
    ngd_mutex_unlock(&tls->lock);
    tls->source = (struct ngd_wire_source){.open = ngd_tls_open, .ctx = tls};
    *tls_p = tls;
    return NGD_OK;
}

void ngd_tls_destroy(struct ngd_tls *tls)
{
    if (!tls)
        return;
    ngd_mutex_lock(&tls->lock);
    SSL_CTX_free(tls->context);
    ngd_mutex_unlock(&tls->lock);
    ngd_mutex_fini(&tls->lock);
    ngd_free(tls);
}
