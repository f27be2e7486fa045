/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/listener.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/control/local.h"
#include "daemon/daemon.h"
#include "daemon/front/front.h"
#include "daemon/gift.h"
#include "daemon/lockfile.h"
#include "daemon/peers.h"
#include "daemon/reactor.h"
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

/* accept fails as long as no descriptor is free; trying again at once would only burn a core. */
#define PAUSE         (100 * NGD_MSEC)
#define LISTENERS_MAX 32

typedef enum listener_fate { STAYS, COMES, GOES } listener_fate_t; /* between prepare and commit */

struct listener {
    struct ngd_daemon *daemon;
    int fd; /* -1: none yet, or closed */
    bool tls, next_tls;
    bool passed; /* by systemd */
    bool handed; /* by the daemon that is replaced, whose path it is until this one serves */
    bool local;  /* the local socket, which gRPC does not get */
    listener_fate_t fate;
    uint32_t shortages; /* failed accepts since the last one that succeeded */
    struct ngd_reactor_watch *watch;
    char text[NGD_ADDRESS_MAX + 16]; /* of the option; "" if it was passed */
    char address[NGD_ADDRESS_MAX + 8];
    char place[NGD_ADDRESS_MAX]; /* a Unix socket's path; "" if it has none */
    char path[NGD_ADDRESS_MAX];  /* "" unless we made it and must remove it */
    dev_t dev;
    ino_t inode;
};

struct ngd_listeners {
    struct ngd_daemon *daemon;
    struct ngd_mutex lock;                     /* for the thread of for_each; the loop reads without it */
    struct listener *items[2 * LISTENERS_MAX]; /* during a reload, those that go and those that come */
    size_t n;
    mode_t mode; /* of the sockets' paths */
    int spare;   /* a descriptor in reserve, for when no other is free; -1: in use */
};

/* ---- accepting ------------------------------------------------------------------------------------------ */

/* Finds the identity that the transport proves, and the peer's address for people. */
static bool identify(int fd, bool tls, struct ngd_front_peer *peer)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct ucred cred;
    char host[NGD_ADDRESS_MAX], full[NGD_ADDRESS_MAX];
    int one = 1;

    *peer = (struct ngd_front_peer){.tls = tls};
    if (getpeername(fd, (struct sockaddr *)&sa, &len) < 0)
        return false;
    if (sa.ss_family == AF_UNIX) {
        len = sizeof(cred);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
            return false;
        peer->local = true;
        peer->uid = cred.uid;
        snprintf(peer->name, sizeof(peer->name), "uid:%lu", (unsigned long)cred.uid);
        snprintf(peer->address, sizeof(peer->address), "unix:pid=%ld", (long)cred.pid);
        return true;
    }
    ngd_sockaddr_print_sender((struct sockaddr *)&sa, len, host);
    ngd_sockaddr_print((struct sockaddr *)&sa, len, full);
    snprintf(peer->name, sizeof(peer->name), "%s:%.100s", tls ? NGD_IDENTITY_NOBODY : "tcp", host);
    snprintf(peer->address, sizeof(peer->address), "%s:%.120s", tls ? "tls" : "tcp", full);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return true;
}

static void refuse_peer(int fd, const struct ngd_front_peer *peer, const char *reason, const char *text)
{
    ngd_front_refused(reason, text, *peer->name ? peer->name : NULL, *peer->address ? peer->address : "unknown");
    close(fd);
}

static void admit_peer(const struct listener *l, int fd)
{
    struct ngd_daemon *d = l->daemon;
    struct ngd_front_peer peer;
    bool known = identify(fd, l->tls, &peer);

    if (known && peer.local && !l->local)
        ngd_socket_refuse_descriptors(fd); /* the listening socket may be another process's */
    if (known && !peer.local)
        ngd_socket_keep_alive(fd, ngd_config_get(d->options.tcp_keepalive));
    if (!known)
        refuse_peer(fd, &peer, "identity", "the peer cannot be identified");
    else if (l->local)
        ngd_local_add(d->local, fd, &peer);
    else
        ngd_front_add(d->front, fd, &peer);
}

/* A function of its own, so that tests/tsan.supp can name it: gRPC closes the accepted descriptor, which
 * ThreadSanitizer does not see. */
static __attribute__((noinline)) int accept_for_grpc(int listening)
{
    return accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Accepts a connection when no descriptor is free, with the one kept in reserve. An administrator on a Unix socket is
 * let in; others are refused at once. */
static void admit_in_need(struct listener *l)
{
    struct ngd_listeners *all = l->daemon->listeners;
    struct ngd_front_peer peer;
    int fd;

    if (all->spare < 0)
        return;
    close(all->spare);
    all->spare = -1;
    fd = accept_for_grpc(l->fd);
    if (fd >= 0 && identify(fd, l->tls, &peer) && peer.local && !l->local && (peer.uid == 0 || peer.uid == geteuid()))
        ngd_front_add(l->daemon->front, fd, &peer);
    else if (fd >= 0)
        refuse_peer(fd, &peer, "descriptors", "no file descriptor is free");
    all->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Logs one line each time that descriptors run out, and one when they are back. */
static void on_shortage(struct listener *l, int error)
{
    static struct ngd_log_limit limit;

    if (l->shortages++ == 0)
        ngd_log_limited(&limit, NGD_LOG_WARNING, "daemon",
                        "%s cannot accept: %s; trying again every 100 ms, without further lines", l->address,
                        strerror(error));
    if (error == EMFILE || error == ENFILE)
        admit_in_need(l);
    ngd_reactor_pause(l->watch, PAUSE);
}

/* True if the local socket's thread is behind: its connections wait in the kernel then. */
static bool must_wait(const struct listener *l)
{
    if (!l->local || ngd_local_has_room(l->daemon->local))
        return false;
    ngd_reactor_pause(l->watch, PAUSE);
    return true;
}

static void on_readable(void *arg)
{
    static struct ngd_log_limit limit;
    struct listener *l = arg;
    int fd = 0;

    while (!must_wait(l) && (fd = accept_for_grpc(l->fd)) >= 0) {
        if (l->shortages > 0)
            ngd_log_limited(&limit, NGD_LOG_NOTICE, "daemon", "%s accepts again; it could not %u times", l->address,
                            l->shortages);
        l->shortages = 0;
        if (l->daemon->listeners->spare < 0)
            l->daemon->listeners->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
        admit_peer(l, fd);
    }
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        on_shortage(l, errno);
}

/* ---- making --------------------------------------------------------------------------------------------- */

static size_t count_lasting(const struct ngd_listeners *all)
{
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++)
        n += all->items[i]->fate != GOES;
    return n;
}

static struct listener *new_listener(struct ngd_listeners *all, const char *text, struct ngd_diag *diag)
{
    struct listener *l = NULL;

    if (count_lasting(all) >= LISTENERS_MAX || all->n == 2 * LISTENERS_MAX) {
        ngd_diag_set(diag, NGD_ERR_CONFIG, "more than %d addresses to listen on", LISTENERS_MAX);
        return NULL;
    }
    l = NGD_NEW(struct listener);
    if (!l) {
        ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a listening socket");
        return NULL;
    }
    l->daemon = all->daemon;
    l->fd = -1;
    l->fate = COMES;
    snprintf(l->text, sizeof(l->text), "%s", text);
    ngd_mutex_lock(&all->lock);
    all->items[all->n++] = l;
    ngd_mutex_unlock(&all->lock);
    return l;
}

static void set_fate(struct ngd_listeners *all, struct listener *l, listener_fate_t fate)
{
    ngd_mutex_lock(&all->lock);
    l->fate = fate;
    ngd_mutex_unlock(&all->lock);
}

static bool is_tcp(const struct listener *l)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);

    return getsockname(l->fd, (struct sockaddr *)&sa, &len) == 0 && sa.ss_family != AF_UNIX;
}

static void name_tcp(struct listener *l)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    char text[NGD_ADDRESS_MAX];

    if (getsockname(l->fd, (struct sockaddr *)&sa, &len) < 0)
        return;
    ngd_sockaddr_print((struct sockaddr *)&sa, len, text);
    snprintf(l->address, sizeof(l->address), "%s%s", sa.ss_family == AF_UNIX ? "" : l->tls ? "tls:" : "tcp:", text);
}

/* Prints the path of a socket's own lock. False: the option lock-file names one lock for all sockets, which startup
 * has taken. */
static bool lock_path(const struct ngd_daemon *d, const char *path, char lock[NGD_ADDRESS_MAX + 8])
{
    snprintf(lock, NGD_ADDRESS_MAX + 8, "%s.lock", path);
    return !*d->options.lock_file;
}

static ngd_status_t take_lock(struct ngd_daemon *d, const char *path, struct ngd_diag *diag)
{
    char lock[NGD_ADDRESS_MAX + 8];

    return lock_path(d, path, lock) ? ngd_locks_take(d->locks, lock, diag) : NGD_OK;
}

static void release_lock(struct ngd_daemon *d, const char *path)
{
    char lock[NGD_ADDRESS_MAX + 8];

    if (lock_path(d, path, lock))
        ngd_locks_release(d->locks, lock);
}

/* From now on the daemon removes the path at its end, unless somebody puts something else there. */
static void own_path(struct listener *l)
{
    struct stat st;

    if (lstat(l->place, &st) != 0)
        return;
    snprintf(l->path, sizeof(l->path), "%s", l->place);
    l->dev = st.st_dev;
    l->inode = st.st_ino;
}

static void adopt_path(struct listener *l, const char *path)
{
    snprintf(l->address, sizeof(l->address), "%s:%s", l->local ? "local" : "unix", path);
    snprintf(l->place, sizeof(l->place), "%s", path);
    own_path(l);
}

static ngd_status_t listen_unix(struct ngd_listeners *all, const struct ngd_options *o, const char *text,
                                const char *path, struct ngd_diag *diag)
{
    ngd_status_t status = take_lock(all->daemon, path, diag);
    struct listener *l;
    int fd;

    if (status != NGD_OK)
        return status;
    status = ngd_socket_unix(path, SOCK_STREAM, (mode_t)ngd_options_socket_mode(o), &fd, diag);
    if (status != NGD_OK) {
        release_lock(all->daemon, path);
        return status;
    }
    l = new_listener(all, text, diag);
    if (!l) {
        close(fd);
        unlink(path);
        release_lock(all->daemon, path);
        return NGD_ERR_CONFIG;
    }
    l->fd = fd;
    adopt_path(l, path);
    return NGD_OK;
}

/* Decides whether a TCP listener uses TLS: it does if certificates are configured. */
static ngd_status_t choose_tls(struct listener *l, const struct ngd_options *o, const char *text, struct ngd_diag *diag)
{
    l->next_tls = *o->tls_cert != '\0';
    if (!l->next_tls && !o->allow_plaintext)
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "listen %s: plaintext TCP does not authenticate clients, not even on a loopback address. "
                            "Listen on unix:PATH, set tls-cert, tls-key and tls-client-ca, or allow it with "
                            "allow-plaintext = yes (--allow-plaintext=yes)",
                            text);
    return NGD_OK;
}

static ngd_status_t listen_tcp(struct ngd_listeners *all, const struct ngd_options *o, const char *text,
                               const struct addrinfo *ai, struct ngd_diag *diag)
{
    struct listener *l = new_listener(all, text, diag);
    ngd_status_t status = l ? choose_tls(l, o, text, diag) : NGD_ERR_CONFIG;

    if (status == NGD_OK)
        status = ngd_socket_tcp(ai, &l->fd, diag);
    if (status == NGD_OK) {
        l->tls = l->next_tls;
        name_tcp(l);
    }
    return status;
}

static ngd_status_t listen_on(struct ngd_listeners *all, const struct ngd_options *o, const char *text,
                              struct ngd_diag *diag)
{
    struct ngd_address address;
    struct addrinfo *list = NULL;
    ngd_status_t status = ngd_address_parse(text, &address, diag);

    if (status != NGD_OK)
        return status;
    if (address.kind == NGD_ADDRESS_UNIX)
        return listen_unix(all, o, text, address.path, diag);
    status = ngd_address_resolve(&address, &list, diag);
    if (status != NGD_OK)
        return status;
    for (const struct addrinfo *ai = list; ai && status == NGD_OK; ai = ai->ai_next)
        status = listen_tcp(all, o, text, ai, diag);
    freeaddrinfo(list);
    return status;
}

/* Adopts a socket that systemd passes. systemd made its path and removes it; the lock still keeps another daemon
 * away. */
static ngd_status_t adopt_socket(struct ngd_listeners *all, int fd, struct ngd_diag *diag)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    const struct sockaddr_un *un = (const void *)&sa;
    struct listener *l = new_listener(all, "", diag);

    if (!l)
        return NGD_ERR_CONFIG;
    l->passed = true;
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "passed descriptor %d is not a socket: %s", fd, strerror(errno));
    if (sa.ss_family != AF_UNIX) {
        char text[NGD_ADDRESS_MAX];
        ngd_status_t status;

        ngd_sockaddr_print((struct sockaddr *)&sa, len, text);
        status = choose_tls(l, &all->daemon->options, text, diag);
        if (status != NGD_OK)
            return status;
        l->tls = l->next_tls;
    }
    /* systemd passes a blocking socket by default, and accept on it would stop the loop. */
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "passed descriptor %d: %s", fd, strerror(errno));
    l->fd = fd;
    name_tcp(l);
    if (sa.ss_family == AF_UNIX)
        snprintf(l->place, sizeof(l->place), "%.107s", un->sun_path);
    return sa.ss_family == AF_UNIX && un->sun_path[0] ? take_lock(all->daemon, un->sun_path, diag) : NGD_OK;
}

/* Lets the listeners of one configured address stay, or makes them. */
static ngd_status_t keep_or_listen(struct ngd_listeners *all, const struct ngd_options *o, const char *text,
                                   struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    bool kept = false;

    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = all->items[i];

        if (strcmp(l->text, text) != 0)
            continue;
        if (l->fate != GOES)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "listen %s is given more than once", text);
        set_fate(all, l, STAYS);
        kept = true;
    }
    if (!kept)
        status = listen_on(all, o, text, diag);
    if (status != NGD_OK && diag && strncmp(diag->text, "listen ", 7) != 0)
        ngd_diag_prefix(diag, "listen: ");
    return status;
}

/* ---- the local socket ----------------------------------------------------------------------------------- */

static const struct listener *first_unix(const struct ngd_listeners *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->fate != GOES && !all->items[i]->local && !is_tcp(all->items[i]) && all->items[i]->place[0])
            return all->items[i];
    return NULL;
}

/* Prints the path that the option asks for. False: there is to be none. */
static bool local_place(const struct ngd_listeners *all, const struct ngd_options *o, char *place, size_t n,
                        struct ngd_diag *diag)
{
    const struct listener *beside = first_unix(all);
    const bool is_auto = strcmp(o->local_socket, "auto") == 0;

    if (!*o->local_socket || strcmp(o->local_socket, "off") == 0 || (is_auto && !beside))
        return false;
    snprintf(place, n, "%s%s", is_auto ? beside->place : o->local_socket, is_auto ? ".local" : "");
    if (strlen(place) < sizeof(((struct sockaddr_un *)0)->sun_path))
        return true;
    ngd_diag_set(diag, NGD_ERR_CONFIG, "local-socket: the path %.200s has more than 107 characters", place);
    return false;
}

static ngd_status_t listen_local(struct ngd_listeners *all, const struct ngd_options *o, const char *place,
                                 struct ngd_diag *diag)
{
    ngd_status_t status = take_lock(all->daemon, place, diag);
    struct listener *l;
    int fd;

    if (status != NGD_OK)
        return status;
    status = ngd_socket_unix(place, SOCK_SEQPACKET, (mode_t)ngd_options_socket_mode(o), &fd, diag);
    l = status == NGD_OK ? new_listener(all, "", diag) : NULL;
    if (!l) {
        if (status == NGD_OK) {
            close(fd);
            unlink(place);
        }
        release_lock(all->daemon, place);
        return status == NGD_OK ? NGD_ERR_CONFIG : status;
    }
    l->fd = fd;
    l->local = true;
    adopt_path(l, place);
    return NGD_OK;
}

/* Lets the local socket stay, or makes it. Where nobody asked for it by name, the daemon serves without it. */
static ngd_status_t want_local(struct ngd_listeners *all, const struct ngd_options *o, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    ngd_status_t status;
    char place[NGD_ADDRESS_MAX + 8];
    bool wanted = local_place(all, o, place, sizeof(place), &why);

    for (size_t i = 0; i < all->n && wanted; i++) {
        if (all->items[i]->local && strcmp(all->items[i]->place, place) == 0) {
            set_fate(all, all->items[i], STAYS);
            return NGD_OK;
        }
    }
    status = wanted ? listen_local(all, o, place, &why) : why.status;
    if (status == NGD_OK)
        return NGD_OK;
    if (strcmp(o->local_socket, "auto") != 0)
        return ngd_diag_set(diag, status, "%s%s",
                            strncmp(why.text, "local-", 6) == 0 ? "" : "local-socket: ", why.text);
    ngd_notice("daemon", "there is no local socket, so clients cannot give shared buffers: %s", why.text);
    return NGD_OK;
}

bool ngd_listeners_local_path(struct ngd_listeners *all, char path[NGD_ADDRESS_MAX])
{
    path[0] = '\0';
    ngd_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->local && all->items[i]->fate != COMES)
            snprintf(path, NGD_ADDRESS_MAX, "%s", all->items[i]->place);
    ngd_mutex_unlock(&all->lock);
    return path[0] != '\0';
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

static ngd_status_t want_listeners(struct ngd_listeners *all, const struct ngd_options *o, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    bool passed = false;

    for (size_t i = 0; i < all->n; i++)
        passed |= all->items[i]->passed;
    /* A passed socket replaces the default address; only configured addresses are added to it. */
    for (size_t i = 0; i < o->listen.n && status == NGD_OK && !(passed && o->listen.is_default); i++)
        status = keep_or_listen(all, o, o->listen.items[i], diag);
    if (status == NGD_OK && count_lasting(all) == 0)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "no address to listen on is configured; set the option listen");
    return status == NGD_OK ? want_local(all, o, diag) : status;
}

/* ---- of the daemon that is replaced ----------------------------------------------------------------------- */

/* Makes a listener of a handed socket. It goes unless the options want it. */
static ngd_status_t adopt_handed(struct ngd_listeners *all, int fd, const char *text, bool local, struct ngd_diag *diag)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    const struct sockaddr_un *un = (const void *)&sa;
    struct listener *l = new_listener(all, text, diag);

    if (!l || getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
        close(fd);
        return l ? ngd_diag_set(diag, NGD_ERR_IO, "a handed socket cannot be used: %s", strerror(errno))
                 : NGD_ERR_CONFIG;
    }
    l->fd = fd;
    l->fate = GOES;
    l->handed = true;
    l->local = local;
    if (local)
        l->text[0] = '\0';
    if (sa.ss_family == AF_UNIX) {
        snprintf(l->place, sizeof(l->place), "%.107s", un->sun_path);
        snprintf(l->address, sizeof(l->address), "%s:%s", local ? "local" : "unix", l->place);
    }
    return NGD_OK;
}

static ngd_status_t adopt_all_handed(struct ngd_listeners *all, struct ngd_diag *diag)
{
    struct ngd_gift *gift = all->daemon->gift;
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; gift && i < gift->n && status == NGD_OK; i++) {
        struct ngd_gift_item *item = &gift->items[i];
        const int fd = item->fd;

        if (fd < 0)
            continue;
        switch (item->kind) {
        case NGD_ITEM(PASSED):
            status = adopt_socket(all, fd, diag);
            break;
        case NGD_ITEM(LISTENER):
        case NGD_ITEM(LOCAL):
            status = adopt_handed(all, fd, item->text, item->kind == NGD_ITEM(LOCAL), diag);
            break;
        default:
            continue;
        }
        item->fd = -1;
    }
    return status;
}

/* Decides on TLS for handed TCP sockets that stay, as for those that are made. */
static ngd_status_t choose_tls_of_handed(struct ngd_listeners *all, struct ngd_diag *diag)
{
    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = all->items[i];

        if (!l->handed || l->fate != STAYS || !is_tcp(l))
            continue;
        if (choose_tls(l, &all->daemon->options, l->text, diag) != NGD_OK)
            return NGD_ERR_CONFIG;
        l->tls = l->next_tls;
        name_tcp(l);
    }
    return NGD_OK;
}

/* Takes over the paths of handed sockets, which this daemon removes at its end. */
static void own_paths(struct ngd_listeners *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->handed && !all->items[i]->passed && all->items[i]->place[0])
            own_path(all->items[i]);
}

ngd_status_t ngd_listeners_give(struct ngd_listeners *all, struct ngd_gift *gift, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; i < all->n && status == NGD_OK; i++) {
        const struct listener *l = all->items[i];
        Npugraph__Handover__V1__ItemKind kind = l->local    ? NGD_ITEM(LOCAL)
                                                : l->passed ? NGD_ITEM(PASSED)
                                                            : NGD_ITEM(LISTENER);

        if (l->fd >= 0)
            status = ngd_gift_add(gift, kind, l->fd, l->local ? l->place : l->text, diag);
    }
    return status;
}

/* ---- making all ------------------------------------------------------------------------------------------- */

static ngd_status_t make_all(struct ngd_listeners *all, struct ngd_diag *diag)
{
    int first = 0, passed = ngd_sdnotify_listen_fds(&first);
    ngd_status_t status = adopt_all_handed(all, diag);

    for (int i = 0; i < passed && status == NGD_OK; i++)
        status = adopt_socket(all, first + i, diag);
    if (status == NGD_OK)
        status = want_listeners(all, &all->daemon->options, diag);
    return status == NGD_OK ? choose_tls_of_handed(all, diag) : status;
}

ngd_status_t ngd_listeners_create(struct ngd_daemon *d, struct ngd_listeners **listeners_p, struct ngd_diag *diag)
{
    struct ngd_listeners *all = NGD_NEW(struct ngd_listeners);
    ngd_status_t status;

    if (!all)
        return NGD_ERR_NO_MEMORY;
    all->daemon = d;
    all->mode = (mode_t)ngd_options_socket_mode(&d->options);
    ngd_mutex_init(&all->lock, NGD_RANK_LISTENERS);
    all->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    status = make_all(all, diag);
    if (status != NGD_OK) {
        ngd_listeners_destroy(all);
        return status;
    }
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->fate == COMES)
            all->items[i]->fate = STAYS;
    *listeners_p = all;
    return NGD_OK;
}

static void remove_listeners(struct ngd_listeners *all, listener_fate_t fate);

static ngd_status_t watch_listener(struct listener *l)
{
    return l->fd >= 0 ? ngd_reactor_watch_fd(l->daemon->reactor, l->fd, on_readable, l, &l->watch) : NGD_OK;
}

ngd_status_t ngd_listeners_start(struct ngd_listeners *all, struct ngd_diag *diag)
{
    own_paths(all);
    remove_listeners(all, GOES); /* handed sockets that nobody wants */
    for (size_t i = 0; i < all->n; i++) {
        ngd_notice("daemon", "listening on %s", all->items[i]->address);
        if (watch_listener(all->items[i]) != NGD_OK)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "%s cannot be watched", all->items[i]->address);
    }
    return NGD_OK;
}

/* ---- ending --------------------------------------------------------------------------------------------- */

/* Says whether the path still is the socket that we made: a person may have put something else in its place. */
static bool has_own_path(const struct listener *l)
{
    struct stat st;

    return l->path[0] && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->inode;
}

static void remove_path(struct listener *l)
{
    if (has_own_path(l))
        unlink(l->path);
    l->path[0] = '\0';
}

static void close_listener(struct listener *l)
{
    ngd_reactor_remove(l->watch);
    l->watch = NULL;
    remove_path(l);
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

ngd_status_t ngd_listeners_pause(struct ngd_listeners *all, bool pause)
{
    ngd_status_t status = NGD_OK;

    if (!pause)
        own_paths(all);
    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = all->items[i];

        if (pause) {
            ngd_reactor_remove(l->watch);
            l->watch = NULL;
            l->path[0] = '\0';
            l->handed = true;
        } else if (watch_listener(l) != NGD_OK) {
            status = NGD_ERR_NO_MEMORY;
        }
    }
    return status;
}

void ngd_listeners_stop(struct ngd_listeners *all)
{
    for (size_t i = 0; i < all->n; i++)
        close_listener(all->items[i]);
}

void ngd_listeners_destroy(struct ngd_listeners *all)
{
    if (!all)
        return;
    ngd_listeners_stop(all);
    for (size_t i = 0; i < all->n; i++)
        ngd_free(all->items[i]);
    if (all->spare >= 0)
        close(all->spare);
    ngd_mutex_fini(&all->lock);
    ngd_free(all);
}

void ngd_listeners_for_each(struct ngd_listeners *all, void (*fn)(void *ctx, const char *address), void *ctx)
{
    ngd_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->fate != COMES && !all->items[i]->local)
            fn(ctx, all->items[i]->address);
    ngd_mutex_unlock(&all->lock);
}

/* ---- reloading ------------------------------------------------------------------------------------------ */

/* Removes the listeners of that fate, and lets the others stay. */
static void remove_listeners(struct ngd_listeners *all, listener_fate_t fate)
{
    struct listener *gone[2 * LISTENERS_MAX];
    size_t n = 0, n_gone = 0;

    ngd_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        struct listener *l = all->items[i];

        if (l->fate == fate)
            gone[n_gone++] = l;
        else
            all->items[n++] = l;
        l->fate = STAYS;
    }
    all->n = n;
    ngd_mutex_unlock(&all->lock);
    for (size_t i = 0; i < n_gone; i++) {
        struct listener *l = gone[i];
        char path[NGD_ADDRESS_MAX];

        snprintf(path, sizeof(path), "%s", l->path);
        close_listener(l);
        if (path[0])
            release_lock(all->daemon, path);
        if (fate == GOES)
            ngd_notice("daemon", "no longer listening on %s", l->address);
        ngd_free(l);
    }
}

/* Checks and notes whether the TCP sockets that stay will use TLS. */
static ngd_status_t choose_tls_again(struct ngd_listeners *all, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; i < all->n && status == NGD_OK; i++)
        if (all->items[i]->fate == STAYS && is_tcp(all->items[i]))
            status = choose_tls(all->items[i], fresh, all->items[i]->address, diag);
    return status;
}

/* Watches the new sockets, which nothing accepts from before commit: the loop is here. */
static ngd_status_t watch_new(struct ngd_listeners *all, struct ngd_diag *diag)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->fate == COMES && watch_listener(all->items[i]) != NGD_OK)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "%s cannot be watched", all->items[i]->address);
    return NGD_OK;
}

ngd_status_t ngd_listeners_prepare(struct ngd_listeners *all, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    ngd_status_t status;

    for (size_t i = 0; i < all->n; i++)
        set_fate(all, all->items[i], all->items[i]->passed ? STAYS : GOES);
    status = want_listeners(all, fresh, diag);
    if (status == NGD_OK)
        status = choose_tls_again(all, fresh, diag);
    if (status == NGD_OK)
        status = watch_new(all, diag);
    if (status != NGD_OK)
        ngd_listeners_commit(all, false);
    return status;
}

static void change_mode(const struct listener *l, mode_t mode)
{
    if (has_own_path(l) && chmod(l->path, mode) != 0)
        ngd_error("daemon", "socket-mode of %s cannot be changed: %s", l->path, strerror(errno));
}

void ngd_listeners_commit(struct ngd_listeners *all, bool take)
{
    const mode_t mode = (mode_t)ngd_options_socket_mode(&all->daemon->options);
    const bool other_mode = take && mode != all->mode;

    all->mode = take ? mode : all->mode;
    for (size_t i = 0; i < all->n && take; i++)
        if (all->items[i]->fate == COMES)
            ngd_notice("daemon", "listening on %s", all->items[i]->address);
    remove_listeners(all, take ? GOES : COMES);
    for (size_t i = 0; i < all->n && take; i++) {
        struct listener *l = all->items[i];

        if (other_mode)
            change_mode(l, mode);
        if (!is_tcp(l) || l->tls == l->next_tls)
            continue;
        ngd_mutex_lock(&all->lock);
        l->tls = l->next_tls;
        name_tcp(l);
        ngd_mutex_unlock(&all->lock);
        ngd_notice("daemon", "listening on %s", l->address);
    }
}
