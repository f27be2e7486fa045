/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates are looked at with each handshake (two stat calls), so that a renewal needs no restart. Files that
 * cannot be read then leave the old ones in use.
 */
#include "daemon/tls.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/peers.h"
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/log.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PEM (1 << 20)

static char *read_file(const char *path, struct ngd_diag *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? ngd_malloc(MAX_PEM + 1) : NULL;
    ssize_t n = text ? read(fd, text, MAX_PEM) : -1;

    if (n <= 0) {
        ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %s", path, n == 0 ? "is empty" : strerror(errno));
        ngd_free(text);
        text = NULL;
    } else {
        text[n] = '\0';
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static grpc_ssl_server_certificate_config *read_config(const struct ngd_options *o, struct ngd_diag *diag)
{
    grpc_ssl_pem_key_cert_pair pair = {NULL, NULL};
    grpc_ssl_server_certificate_config *config = NULL;
    char *ca = read_file(o->tls_client_ca, diag), *cert = ca ? read_file(o->tls_cert, diag) : NULL;
    char *key = cert ? read_file(o->tls_key, diag) : NULL;

    if (key) {
        pair.cert_chain = cert;
        pair.private_key = key;
        config = grpc_ssl_server_certificate_config_create(ca, &pair, 1);
    }
    ngd_free(ca);
    ngd_free(cert);
    if (key)
        explicit_bzero(key, strlen(key));
    ngd_free(key);
    return config;
}

static int64_t newest_change(const struct ngd_options *o)
{
    const char *const files[] = {o->tls_client_ca, o->tls_cert, o->tls_key};
    int64_t newest = 0;

    for (size_t i = 0; i < 3; i++) {
        struct stat sb;

        if (stat(files[i], &sb) == 0) {
            int64_t t = (int64_t)sb.st_mtim.tv_sec * NGD_SEC + sb.st_mtim.tv_nsec;

            newest = t > newest ? t : newest;
        }
    }
    return newest;
}

/* What the credentials have seen last; lives as long as the process. */
struct tls_state {
    const struct ngd_options *options;
    int64_t loaded;
};

static grpc_ssl_certificate_config_reload_status reload(void *arg, grpc_ssl_server_certificate_config **config_p)
{
    struct tls_state *state = arg;
    int64_t newest = newest_change(state->options);
    struct ngd_diag diag = {0};

    if (newest == state->loaded)
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *config_p = read_config(state->options, &diag);
    if (!*config_p) {
        ngd_warning("tls", "certificates could not be read, keeping the old ones: %s", diag.text);
        return state->loaded ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    }
    if (state->loaded)
        ngd_notice("tls", "certificates were read again");
    state->loaded = newest;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

ngd_status_t ngd_tls_credentials(const struct ngd_options *o, grpc_server_credentials **creds_p, struct ngd_diag *diag)
{
    static struct tls_state state;
    grpc_ssl_server_credentials_options *options;
    grpc_ssl_server_certificate_config *probe =
        read_config(o, diag); /* a mistake shows at the start, not with the first client */

    if (!probe)
        return NGD_ERR_CONFIG;
    grpc_ssl_server_certificate_config_destroy(probe);
    state.options = o;
    options = grpc_ssl_server_credentials_create_options_using_config_fetcher(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, reload, &state);
    *creds_p = grpc_ssl_server_credentials_create_with_options(options);
    return *creds_p ? NGD_OK : ngd_diag_set(diag, NGD_ERR_CONFIG, "the TLS files do not make valid credentials");
}

static bool first_property(grpc_auth_context *ctx, const char *property, char *name, size_t room)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, property);
    const grpc_auth_property *p = grpc_auth_property_iterator_next(&it);

    if (!p || p->value_length == 0 || p->value_length + 5 > room || memchr(p->value, '\0', p->value_length))
        return false;
    snprintf(name, room, "tls:%.*s", (int)p->value_length, p->value);
    return true;
}

bool ngd_tls_identity(grpc_call *call, char *name, size_t room)
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    bool found = false;

    if (!ctx)
        return false;
    if (grpc_auth_context_peer_is_authenticated(ctx))
        found = first_property(ctx, "peer_uri", name, room) || first_property(ctx, "peer_dns", name, room) ||
                first_property(ctx, GRPC_X509_CN_PROPERTY_NAME, name, room);
    grpc_auth_context_release(ctx);
    return found;
}

/* ---- gRPC's log ----------------------------------------------------------------------------------------------------
 */

/*
 * gRPC tells in its log that a handshake failed and why, but not whose. The text waits here for ngd_tls_report, which
 * finds out which connections ended without a call. The log has no context, so this is the process's.
 */
#define FAILURES_MAX 64
#define FAILURE_TEXT 256

static struct {
    struct ngd_mutex lock;
    pthread_once_t once;
    size_t n NGD_GUARDED_BY(lock);
    char text[FAILURES_MAX][FAILURE_TEXT] NGD_GUARDED_BY(lock);
} failures = {.once = PTHREAD_ONCE_INIT};

static void init_failures(void)
{
    ngd_mutex_init(&failures.lock, NGD_RANK_REFUSALS);
}

static void note_failure(const char *text)
{
    ngd_mutex_lock(&failures.lock);
    if (failures.n < FAILURES_MAX)
        snprintf(failures.text[failures.n++], FAILURE_TEXT, "%s", text);
    ngd_mutex_unlock(&failures.lock);
}

static bool take_failure(char text[FAILURE_TEXT])
{
    bool any;

    ngd_mutex_lock(&failures.lock);
    any = failures.n > 0;
    if (any) {
        memcpy(text, failures.text[0], FAILURE_TEXT);
        failures.n--;
        memmove(failures.text[0], failures.text[1], failures.n * sizeof(failures.text[0]));
    }
    ngd_mutex_unlock(&failures.lock);
    return any;
}

/* When several end between two reports, reasons and addresses are matched in order, and may be swapped among them. */
void ngd_tls_report(struct ngd_peers *peers)
{
    char address[NGD_PEER_ADDRESS_MAX], text[FAILURE_TEXT], quoted[NGD_LOG_VALUE_MAX];

    while (ngd_peers_take_unproven(peers, address)) {
        if (!take_failure(text)) {
            ngd_info("tls", "a TLS connection ended before its first call peer=%s", ngd_log_value(address, quoted));
            continue;
        }
        ngd_metric_row_add(ngd_metric_row(NGD_M_CONNECTIONS_REFUSED, "tls"), 1);
        ngd_warning("tls", "a TLS connection was refused: %s peer=%s", text, ngd_log_value(address, quoted));
    }
}

static void log_line(gpr_log_func_args *args)
{
    bool handshake = strstr(args->message, "andshake") != NULL || strstr(args->message, "SSL_ERROR") != NULL;

    if (handshake)
        note_failure(args->message);
    else if (args->severity == GPR_LOG_SEVERITY_ERROR)
        ngd_warning("grpc", "%s", args->message);
    else
        ngd_debug("grpc", "%s", args->message);
}

void ngd_tls_log_grpc(void)
{
    pthread_once(&failures.once, init_failures);
    gpr_set_log_function(log_line);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
}
