/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/listener.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/lockfile.h"
#include "daemon/peers.h"
#include "daemon/reactor.h"
#include "daemon/rpc_server.h"
#include "daemon/sdnotify.h"
#include "daemon/sockets.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* accept fails for as long as no descriptor is free; asking again at once would only burn a core. */
#define PAUSE         (100 * NGD_MSEC)
#define LISTENERS_MAX 32

struct listener {
    struct ngd_daemon *daemon;
    int fd; /* -1: none yet, or closed */
    bool tls;
    struct ngd_reactor_watch *watch;
    char address[NGD_ADDRESS_MAX + 8];
    char path[NGD_ADDRESS_MAX]; /* "" unless it is ours to remove */
    dev_t dev;
    ino_t inode;
};

struct ngd_listeners {
    struct ngd_daemon *daemon;
    struct listener items[LISTENERS_MAX];
    size_t n;
};

/* ---- accepting ------------------------------------------------------------------------------------------ */

static void refuse(int fd, const char *address, const char *reason, const char *text)
{
    char quoted[NGD_LOG_VALUE_MAX];

    ngd_metric_row_add(ngd_metric_row(NGD_M_CONNECTIONS_REFUSED, reason), 1);
    ngd_warning("daemon", "connection refused: %s peer=%s", text, ngd_log_value(address, quoted));
    close(fd);
}

/* The identity that the transport proves, and the peer as people should see it. */
static bool identify(int fd, bool tls, char name[NGD_IDENTITY_MAX], char address[NGD_PEER_ADDRESS_MAX])
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct ucred cred;
    char host[NGD_ADDRESS_MAX], full[NGD_ADDRESS_MAX];
    int one = 1;

    if (getpeername(fd, (struct sockaddr *)&sa, &len) < 0)
        return false;
    if (sa.ss_family == AF_UNIX) {
        len = sizeof(cred);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
            return false;
        snprintf(name, NGD_IDENTITY_MAX, "uid:%lu", (unsigned long)cred.uid);
        snprintf(address, NGD_PEER_ADDRESS_MAX, "unix:pid=%ld", (long)cred.pid);
        return true;
    }
    ngd_sockaddr_print((struct sockaddr *)&sa, len, false, host);
    ngd_sockaddr_print((struct sockaddr *)&sa, len, true, full);
    snprintf(name, NGD_IDENTITY_MAX, "tcp:%.100s", host);
    snprintf(address, NGD_PEER_ADDRESS_MAX, "%s:%.120s", tls ? "tls" : "tcp", full);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return true;
}

/* Who a TLS peer is, its certificate says with each call. */
static void admit(struct ngd_daemon *d, int fd, bool tls)
{
    char name[NGD_IDENTITY_MAX], address[NGD_PEER_ADDRESS_MAX] = "unknown";
    struct ngd_identity *identity;
    ngd_status_t status;

    if (!identify(fd, tls, name, address)) {
        refuse(fd, address, "identity", "the peer cannot be identified");
        return;
    }
    identity = tls ? NULL : ngd_identity_get(d->identities, name);
    if (!identity && !tls) {
        refuse(fd, address, "memory", "out of memory");
        return;
    }
    status = ngd_peers_add(d->peers, fd, identity, address);
    if (identity)
        ngd_identity_unref(identity);
    if (status == NGD_ERR_RESOURCE_EXHAUSTED)
        refuse(fd, address, "max-connections", "max-connections is reached");
    else if (status != NGD_OK)
        refuse(fd, address, "memory", "out of memory");
    else
        ngd_rpc_server_add_connection(d->rpc, fd, tls);
}

/* By itself, so that tests/tsan.supp can name it: gRPC closes what is accepted, which ThreadSanitizer does not see. */
static __attribute__((noinline)) int accept_for_grpc(int listening)
{
    return accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static void on_readable(void *arg)
{
    struct listener *l = arg;
    int fd;

    while ((fd = accept_for_grpc(l->fd)) >= 0)
        admit(l->daemon, fd, l->tls);
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        ngd_warning("daemon", "%s cannot accept: %s; trying again in 100 ms", l->address, strerror(errno));
        ngd_reactor_pause(l->watch, PAUSE);
    }
}

/* ---- making --------------------------------------------------------------------------------------------- */

static struct listener *new_listener(struct ngd_listeners *all, struct ngd_diag *diag)
{
    struct listener *l;

    if (all->n == LISTENERS_MAX) {
        ngd_diag_set(diag, NGD_ERR_CONFIG, "more than %d addresses to listen on", LISTENERS_MAX);
        return NULL;
    }
    l = &all->items[all->n++];
    l->daemon = all->daemon;
    l->fd = -1;
    return l;
}

static void name_tcp(struct listener *l)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    char text[NGD_ADDRESS_MAX];

    if (getsockname(l->fd, (struct sockaddr *)&sa, &len) < 0)
        return;
    ngd_sockaddr_print((struct sockaddr *)&sa, len, true, text);
    snprintf(l->address, sizeof(l->address), "%s%s", sa.ss_family == AF_UNIX ? "" : l->tls ? "tls:" : "tcp:", text);
}

static ngd_status_t take_lock(struct ngd_daemon *d, const char *path, struct ngd_diag *diag)
{
    char lock[NGD_ADDRESS_MAX + 8];

    if (*d->options.lock_file) /* taken by startup, once for all */
        return NGD_OK;
    snprintf(lock, sizeof(lock), "%s.lock", path);
    return ngd_locks_take(d->locks, lock, diag);
}

static ngd_status_t listen_unix(struct ngd_listeners *all, const char *path, struct ngd_diag *diag)
{
    ngd_status_t status = take_lock(all->daemon, path, diag);
    struct listener *l;
    struct stat st;
    int fd;

    if (status == NGD_OK)
        status = ngd_socket_unix(path, (mode_t)all->daemon->options.socket_mode, &fd, diag);
    if (status != NGD_OK)
        return status;
    l = new_listener(all, diag);
    if (!l) {
        close(fd);
        return NGD_ERR_CONFIG;
    }
    l->fd = fd;
    snprintf(l->address, sizeof(l->address), "unix:%s", path);
    if (lstat(path, &st) == 0) {
        snprintf(l->path, sizeof(l->path), "%s", path);
        l->dev = st.st_dev;
        l->inode = st.st_ino;
    }
    return NGD_OK;
}

/* With certificates, TCP is TLS. */
static ngd_status_t choose_tls(struct listener *l, const char *text, const struct sockaddr *sa, struct ngd_diag *diag)
{
    const struct ngd_options *o = &l->daemon->options;

    l->tls = *o->tls_cert != '\0';
    if (l->tls)
        return ngd_rpc_server_serve_tls(l->daemon->rpc, diag);
    if (!ngd_sockaddr_is_loopback(sa) && !o->allow_plaintext)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "listen %s: plaintext TCP on other than a loopback address; set tls-cert, tls-key and tls-client-ca, or "
            "allow-plaintext",
            text);
    return NGD_OK;
}

static ngd_status_t listen_tcp(struct ngd_listeners *all, const char *text, const struct addrinfo *ai,
                               struct ngd_diag *diag)
{
    struct listener *l = new_listener(all, diag);
    ngd_status_t status = l ? choose_tls(l, text, ai->ai_addr, diag) : NGD_ERR_CONFIG;

    if (status == NGD_OK)
        status = ngd_socket_tcp(ai, &l->fd, diag);
    if (status == NGD_OK)
        name_tcp(l);
    return status;
}

static ngd_status_t listen_on(struct ngd_listeners *all, const char *text, struct ngd_diag *diag)
{
    struct ngd_address address;
    struct addrinfo *list = NULL;
    ngd_status_t status = ngd_address_parse(text, &address, diag);

    if (status != NGD_OK)
        return status;
    if (address.kind == NGD_ADDRESS_UNIX)
        return listen_unix(all, address.path, diag);
    status = ngd_address_resolve(&address, &list, diag);
    if (status != NGD_OK)
        return status;
    for (const struct addrinfo *ai = list; ai && status == NGD_OK; ai = ai->ai_next)
        status = listen_tcp(all, text, ai, diag);
    freeaddrinfo(list);
    return status;
}

/* A socket of systemd's: it made the path and removes it; the lock still keeps another daemon away. */
static ngd_status_t adopt(struct ngd_listeners *all, int fd, struct ngd_diag *diag)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    const struct sockaddr_un *un = (const void *)&sa;
    struct listener *l = new_listener(all, diag);

    if (!l)
        return NGD_ERR_CONFIG;
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "passed descriptor %d is not a socket: %s", fd, strerror(errno));
    if (sa.ss_family != AF_UNIX) {
        char text[NGD_ADDRESS_MAX];
        ngd_status_t status;

        ngd_sockaddr_print((struct sockaddr *)&sa, len, true, text);
        status = choose_tls(l, text, (struct sockaddr *)&sa, diag);
        if (status != NGD_OK)
            return status;
    }
    /* systemd passes a blocking socket unless told otherwise, and accept would stop the loop. */
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "passed descriptor %d: %s", fd, strerror(errno));
    l->fd = fd;
    name_tcp(l);
    return sa.ss_family == AF_UNIX && un->sun_path[0] ? take_lock(all->daemon, un->sun_path, diag) : NGD_OK;
}

static ngd_status_t make_all(struct ngd_listeners *all, struct ngd_diag *diag)
{
    const struct ngd_config_list *list = &all->daemon->options.listen;
    int first = 0, passed = ngd_sdnotify_listen_fds(&first);
    ngd_status_t status = NGD_OK;

    for (int i = 0; i < passed && status == NGD_OK; i++)
        status = adopt(all, first + i, diag);
    /* The default address is what the passed socket stands for; only addresses that were asked for come besides. */
    if (passed > 0 && list->is_default)
        return status;
    for (size_t i = 0; i < list->n && status == NGD_OK; i++)
        status = listen_on(all, list->items[i], diag);
    if (status == NGD_OK && all->n == 0)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "there is no address to listen on; set listen");
    return status;
}

ngd_status_t ngd_listeners_create(struct ngd_daemon *d, struct ngd_listeners **listeners_p, struct ngd_diag *diag)
{
    struct ngd_listeners *all = NGD_NEW(struct ngd_listeners);
    ngd_status_t status;

    if (!all)
        return NGD_ERR_NO_MEMORY;
    all->daemon = d;
    status = make_all(all, diag);
    if (status != NGD_OK) {
        ngd_listeners_destroy(all);
        return status;
    }
    *listeners_p = all;
    return NGD_OK;
}

ngd_status_t ngd_listeners_start(struct ngd_listeners *all, struct ngd_diag *diag)
{
    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = &all->items[i];

        ngd_notice("daemon", "listening on %s", l->address);
        if (l->fd >= 0 && ngd_reactor_watch_fd(all->daemon->reactor, l->fd, on_readable, l, &l->watch) != NGD_OK)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "%s cannot be watched", l->address);
    }
    return NGD_OK;
}

/* Only the socket that we made: somebody may have put another one in its place by hand. */
static void remove_path(struct listener *l)
{
    struct stat st;

    if (l->path[0] && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->inode)
        unlink(l->path);
    l->path[0] = '\0';
}

void ngd_listeners_stop(struct ngd_listeners *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = &all->items[i];

        ngd_reactor_remove(l->watch);
        l->watch = NULL;
        remove_path(l);
        if (l->fd >= 0)
            close(l->fd);
        l->fd = -1;
    }
}

void ngd_listeners_destroy(struct ngd_listeners *all)
{
    if (!all)
        return;
    ngd_listeners_stop(all);
    ngd_free(all);
}

void ngd_listeners_for_each(const struct ngd_listeners *all, void (*fn)(void *ctx, const char *address), void *ctx)
{
    for (size_t i = 0; i < all->n; i++)
        fn(ctx, all->items[i].address);
}
