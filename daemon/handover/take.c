/* SPDX-License-Identifier: Apache-2.0 */
/* The new daemon's side of a handover. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/wakeup.h"
#include "daemon/control/listener.h"
#include "daemon/daemon.h"
#include "daemon/handover/arrive.h"
#include "daemon/handover/handover_int.h"
#include "daemon/handover/restore.h"
#include "daemon/models.h"
#include "daemon/patterns.h"
#include "daemon/reactor.h"
#include "daemon/session_move.h"
#include "daemon/sockets.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RESTORE_NICE 10
#define OFFER_WAIT   (10 * 60 * NGD_SEC) /* the old one may have weights to copy */

/* ---- the channel -------------------------------------------------------------------------------------------- */

ngd_status_t ngd_handover_path(const struct ngd_options *o, char path[108], struct ngd_diag *diag)
{
    const bool is_auto = strcmp(o->replace_socket, "auto") == 0;
    struct ngd_address address = {.path = ""};
    int n;

    path[0] = '\0';
    if (!*o->replace_socket || strcmp(o->replace_socket, "off") == 0)
        return NGD_OK;
    for (size_t i = 0; is_auto && i < o->listen.n && !address.path[0]; i++)
        if (ngd_address_parse(o->listen.items[i], &address, NULL) != NGD_OK || address.kind != NGD_ADDRESS_UNIX)
            address.path[0] = '\0';
    if (is_auto && !address.path[0])
        return NGD_OK;
    n = snprintf(path, 108, "%s%s", is_auto ? address.path : o->replace_socket, is_auto ? ".replace" : "");
    if (n < 108)
        return NGD_OK;
    path[0] = '\0';
    return ngd_diag_set(diag, NGD_ERR_CONFIG, "replace-socket: the path %.120s... has more than 107 characters",
                        is_auto ? address.path : o->replace_socket);
}

/* Connects to the daemon that runs. *fd_p is -1 if none listens there. */
static ngd_status_t connect_to_old(const char *path, int *fd_p, struct ngd_diag *diag)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const int error = fd < 0 ? errno : 0;

    *fd_p = -1;
    if (fd < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "a socket for the handover cannot be created: %s", strerror(error));
    memcpy(sa.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0) {
        *fd_p = fd;
        return ngd_packet_peer_is_ours(fd)
                   ? NGD_OK
                   : ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                                  "a process of another user listens at %s: it is not replaced", path);
    }
    if (errno == ENOENT || errno == ECONNREFUSED) {
        close(fd);
        return NGD_OK;
    }
    ngd_diag_set(diag, NGD_ERR_IO, "the running daemon cannot be reached at %s: %s", path, strerror(errno));
    close(fd);
    return NGD_ERR_IO;
}

static void drop_old(struct ngd_handover *h)
{
    ngd_reactor_remove(h->old_watch);
    h->old_watch = NULL;
    ngd_mutex_lock(&h->talk);
    if (h->old >= 0)
        close(h->old);
    h->old = -1;
    ngd_mutex_unlock(&h->talk);
}

void ngd_handover_take_time(void)
{
    if (NGD_FAULT(HANDOVER_SLOW))
        nanosleep(&(struct timespec){.tv_nsec = 300 * NGD_MSEC}, NULL);
}

struct hurry {
    void (*fn)(void *arg);
    void *arg;
};

static void *run_hurry(void *arg)
{
    const struct hurry *hurry = arg;

    ngd_wakeup_ask(NGD_WAKEUP_REALTIME);
    hurry->fn(hurry->arg);
    return NULL;
}

/* On a thread of its own, whose priority ends with it. */
void ngd_handover_hurry(void (*fn)(void *arg), void *arg)
{
    struct hurry hurry = {fn, arg};
    pthread_t thread;

    if (ngd_thread_start(&thread, "handover-now", run_hurry, &hurry) == 0)
        pthread_join(thread, NULL);
    else
        fn(arg);
}

/* ---- what the old one says ---------------------------------------------------------------------------------- */

static ngd_status_t take_description(struct ngd_handover *h, const Npugraph__Handover__V1__Offer *offer,
                                     struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    const size_t n = 1 + (offer->upload_bytes > 0);

    if (fds->n != offer->n_items + n || offer->digest.len != sizeof(h->offer.digest))
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE,
                            "the running daemon offers %zu sockets and locks with %zu descriptors", offer->n_items,
                            fds->n);
    ngd_description_close(&h->offer);
    h->offer.bytes = offer->description_bytes;
    h->offer.upload_bytes = offer->upload_bytes;
    memcpy(&h->offer.digest, offer->digest.data, sizeof(h->offer.digest));
    if (n > 1)
        h->offer.uploads_fd = fds->fds[--fds->n];
    h->offer.fd = fds->fds[--fds->n];
    return NGD_OK;
}

static ngd_status_t take_items(struct ngd_daemon *d, const Npugraph__Handover__V1__Offer *offer,
                               struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    d->gift = NGD_NEW(struct ngd_gift);
    if (!d->gift)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < offer->n_items && status == NGD_OK; i++) {
        status = ngd_gift_add(d->gift, offer->items[i]->kind, fds->fds[i], offer->items[i]->text, diag);
        if (status == NGD_OK)
            fds->fds[i] = -1;
    }
    return status;
}

static void close_rest(struct ngd_packet_fds *fds)
{
    for (size_t i = 0; i < fds->n; i++)
        if (fds->fds[i] >= 0)
            close(fds->fds[i]);
    fds->n = 0;
}

static ngd_status_t refuse_packet_kind(const ngd_packet *packet, struct ngd_diag *diag)
{
    if (packet->kind_case == NGD_PACKET(REFUSAL))
        return ngd_diag_set(diag, NGD_ERR_BUSY, "the running daemon is not replaced: %.800s", packet->refusal->text);
    return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the running daemon sends a packet that is not expected here");
}

/* Takes the first offer. */
static ngd_status_t take_offer(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_handover *h = d->handover;
    struct ngd_packet_fds fds;
    struct ngd_arena arena;
    const ngd_packet *packet;
    ngd_status_t status;

    ngd_arena_init(&arena, 2 * NGD_PACKET_BYTES);
    status = ngd_packet_receive(h->old, OFFER_WAIT, &arena, &packet, &fds, diag);
    if (status == NGD_OK) {
        status = packet->kind_case != NGD_PACKET(OFFER) ? refuse_packet_kind(packet, diag)
                                                        : take_description(h, packet->offer, &fds, diag);
        if (status == NGD_OK)
            status = take_items(d, packet->offer, &fds, diag);
        if (status == NGD_OK)
            ngd_notice("handover", "taking over from npugraphd %s, process %" PRIu32, packet->offer->version,
                       packet->offer->pid);
        close_rest(&fds);
    }
    ngd_arena_fini(&arena);
    return status;
}

static ngd_status_t say_hello(struct ngd_handover *h, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Hello hello = NPUGRAPH__HANDOVER__V1__HELLO__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    hello.version = (char *)(uintptr_t)PACKAGE_VERSION;
    hello.pid = (uint32_t)getpid();
    packet.hello = &hello;
    packet.kind_case = NGD_PACKET(HELLO);
    return ngd_packet_send(h->old, &packet, NULL, diag);
}

ngd_status_t ngd_handover_take(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_handover *h = d->handover = NGD_NEW(struct ngd_handover);
    ngd_status_t status;

    if (!h)
        return NGD_ERR_NO_MEMORY;
    h->daemon = d;
    h->old = h->fd = h->next = -1;
    h->offer.fd = h->offer.uploads_fd = h->given.fd = h->given.uploads_fd = h->fresh.fd = h->fresh.uploads_fd = -1;
    h->leaving.record.fd = h->leaving.record.uploads_fd = -1;
    h->fresh_leaving.record.fd = h->fresh_leaving.record.uploads_fd = -1;
    ngd_mutex_init(&h->lock, NGD_RANK_DRAIN);
    ngd_mutex_init(&h->talk, NGD_RANK_HANDOVER);
    ngd_cond_init(&h->over);
    status = ngd_handover_path(&d->options, h->path, diag);
    if (status != NGD_OK || !d->options.replace)
        return status;
    if (!h->path[0])
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "replace-socket: there is none, so that no daemon can be replaced");
    status = connect_to_old(h->path, &h->old, diag);
    if (status == NGD_OK && h->old < 0)
        ngd_notice("handover", "no daemon listens at %s; starting without one to replace", h->path);
    if (status != NGD_OK || h->old < 0)
        return status;
    (void)say_hello(h, NULL); /* if it cannot be said, there may be a refusal that says why */
    status = take_offer(d, diag);
    if (status != NGD_ERR_IO)
        return status;
    ngd_warning("handover", "the running daemon ended before it could hand over; starting without it");
    drop_old(h);
    *diag = (struct ngd_diag){0};
    return NGD_OK;
}

/* Tells the old daemon. If it is gone, that shows when it is heard: behind what it said last, which may be a refusal.
 */
static ngd_status_t tell_old(struct ngd_handover *h, ngd_packet *packet, struct ngd_diag *diag)
{
    const ngd_status_t status = ngd_packet_send(h->old, packet, NULL, diag);

    return status == NGD_ERR_IO ? NGD_OK : status;
}

/* ---- making it ready ---------------------------------------------------------------------------------------- */

struct restore {
    struct ngd_daemon *daemon;
    const void *data;
    ngd_status_t status;
    struct ngd_diag *diag;
};

/* Runs on a thread of its own, at a low priority: the old daemon serves meanwhile, on the same CPUs. A thread may not
 * raise its priority again. */
static void *run_restore(void *arg)
{
    struct restore *r = arg;
    const struct ngd_description *offer = &r->daemon->handover->offer;

    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), RESTORE_NICE);
    r->status = ngd_restore(r->daemon,
                            &(struct ngd_handed){.data = r->data,
                                                 .bytes = offer->bytes,
                                                 .uploads_fd = offer->uploads_fd,
                                                 .upload_bytes = offer->upload_bytes},
                            r->diag);
    return NULL;
}

ngd_status_t ngd_handover_restore(struct ngd_daemon *d, struct ngd_diag *diag)
{
    const struct ngd_description *offer = &d->handover->offer;
    struct restore r = {.daemon = d, .diag = diag};
    pthread_t thread;
    ngd_status_t status;

    if (offer->fd < 0)
        return NGD_OK;
    ngd_handover_take_time();
    status = ngd_packet_map(offer->fd, offer->bytes, &r.data, diag);
    if (status != NGD_OK)
        return status;
    if (ngd_thread_start(&thread, "handover", run_restore, &r) == 0)
        pthread_join(thread, NULL);
    else
        r.status = ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED, "no thread can be started for the handover");
    munmap((void *)(uintptr_t)r.data, (size_t)offer->bytes);
    return r.status;
}

static ngd_status_t say_ready(struct ngd_handover *h, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Ready ready = NPUGRAPH__HANDOVER__V1__READY__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    ready.digest = (ProtobufCBinaryData){.data = (uint8_t *)&h->offer.digest, .len = sizeof(h->offer.digest)};
    packet.ready = &ready;
    packet.kind_case = NGD_PACKET(READY);
    return tell_old(h, &packet, diag);
}

static ngd_status_t say_serving(struct ngd_handover *h, uint64_t *taken, size_t n, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Serving serving = NPUGRAPH__HANDOVER__V1__SERVING__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    serving.taken = taken;
    serving.n_taken = n;
    packet.serving = &serving;
    packet.kind_case = NGD_PACKET(SERVING);
    return tell_old(h, &packet, diag);
}

struct arrival {
    struct ngd_daemon *daemon;
    const Npugraph__Handover__V1__Go *go;
    const struct ngd_packet_fds *fds;
    uint64_t *taken;
    size_t n;
};

/* Takes the sessions that come with a Go. What cannot be read is not taken, and stays. */
static size_t take_sessions(struct ngd_daemon *d, const Npugraph__Handover__V1__Go *go,
                            const struct ngd_packet_fds *fds, uint64_t *taken)
{
    const bool has_uploads = go->upload_bytes > 0;
    struct ngd_handed handed = {.bytes = go->departure_bytes,
                                .uploads_fd = has_uploads && fds->n > 1 ? fds->fds[1] : -1,
                                .upload_bytes = go->upload_bytes};
    struct ngd_diag diag = {0};
    size_t n = 0;

    if (fds->n != 1u + has_uploads || ngd_packet_map(fds->fds[0], handed.bytes, &handed.data, &diag) != NGD_OK) {
        ngd_warning("handover", "no session can be taken: %s", diag.text[0] ? diag.text : "a descriptor is missing");
        return 0;
    }
    ngd_arrive(d, &handed, taken, NGD_DEPART_SESSIONS, &n);
    munmap((void *)(uintptr_t)handed.data, (size_t)handed.bytes);
    return n;
}

static void run_arrival(void *arg)
{
    struct arrival *a = arg;

    a->n = take_sessions(a->daemon, a->go, a->fds, a->taken);
}

static ngd_status_t take_go(struct ngd_daemon *d, const Npugraph__Handover__V1__Go *go,
                            const struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    struct ngd_handover *h = d->handover;
    struct arrival a = {.daemon = d, .go = go, .fds = fds, .taken = NGD_NEW_N(uint64_t, NGD_DEPART_SESSIONS)};
    ngd_status_t status;

    ngd_pause_begin(&h->pause, go);
    if (a.taken && go->departure_bytes)
        ngd_handover_hurry(run_arrival, &a);
    h->n_came = a.n;
    ngd_pause_mark(&h->pause, NGD_PAUSE_MAKE);
    status = say_serving(h, a.taken, a.n, diag);
    ngd_free(a.taken);
    return status;
}

/* Makes everything again, as the old daemon describes it now. What is still the same is not read again. */
static ngd_status_t begin_again(struct ngd_daemon *d, const ngd_packet *packet, struct ngd_packet_fds *fds,
                                struct ngd_diag *diag)
{
    ngd_status_t status = packet->offer->n_items ? refuse_packet_kind(packet, diag)
                                                 : take_description(d->handover, packet->offer, fds, diag);

    if (status != NGD_OK)
        return status;
    ngd_notice("handover", "the running daemon has changed its models meanwhile; making them again");
    ngd_models_remove_all(d->models);
    ngd_patterns_remove_all(d->patterns);
    status = ngd_handover_restore(d, diag);
    return status == NGD_OK ? say_ready(d->handover, diag) : status;
}

/* Answers one packet of the old daemon. *over_p: it has passed its clients on. */
static ngd_status_t answer_old(struct ngd_daemon *d, bool *over_p, struct ngd_diag *diag)
{
    struct ngd_packet_fds fds;
    struct ngd_arena arena;
    const ngd_packet *packet;
    ngd_status_t status;

    ngd_arena_init(&arena, 2 * NGD_PACKET_BYTES);
    status = ngd_packet_receive(d->handover->old, OFFER_WAIT, &arena, &packet, &fds, diag);
    if (status == NGD_OK) {
        ngd_handover_take_time();
        if (packet->kind_case == NGD_PACKET(OFFER))
            status = begin_again(d, packet, &fds, diag);
        else if (packet->kind_case == NGD_PACKET(GO))
            status = take_go(d, packet->go, &fds, diag);
        else if ((*over_p = packet->kind_case == NGD_PACKET(BYE)))
            ngd_pause_mark(&d->handover->pause, NGD_PAUSE_COMMIT);
        else
            status = refuse_packet_kind(packet, diag);
        close_rest(&fds);
    }
    ngd_arena_fini(&arena);
    return status;
}

/* Tells of the pause without the clients that have not come: nobody waits for them any more but their sessions. */
static void tell_pause_at_end(struct ngd_handover *h)
{
    struct ngd_pause pause;
    bool some;

    ngd_mutex_lock(&h->talk);
    some = ngd_pause_end(&h->pause);
    pause = h->pause;
    ngd_mutex_unlock(&h->talk);
    if (some)
        ngd_pause_tell(&pause);
}

/* Hears the daemon that was replaced: of clients that leave it, and of its end. */
static void on_old(void *arg)
{
    struct ngd_handover *h = arg;
    struct ngd_packet_fds fds;
    struct ngd_arena arena;
    const ngd_packet *packet;
    ngd_status_t status;

    ngd_arena_init(&arena, 2 * NGD_PACKET_BYTES);
    status = ngd_packet_receive(h->old, 0, &arena, &packet, &fds, NULL);
    if (status == NGD_OK) {
        ngd_packet_fds_close(&fds);
        if (packet->kind_case == NGD_PACKET(LEFT))
            ngd_session_left_before(h->daemon->sessions, packet->left->session, packet->left->broken);
    } else if (status != NGD_ERR_UNAVAILABLE) {
        ngd_notice("handover", "the daemon that was replaced has ended");
        drop_old(h);
        tell_pause_at_end(h);
    }
    ngd_arena_fini(&arena);
}

/* Tells the old daemon, on a thread that serves a call, that the client of a session has come. */
static ngd_status_t tell_adopted(void *ctx, uint64_t session, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Adopted adopted = NPUGRAPH__HANDOVER__V1__ADOPTED__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;
    struct ngd_handover *h = ctx;
    ngd_status_t status = NGD_OK;
    struct ngd_pause pause; /* a copy, told without the lock */
    bool over;

    adopted.session = session;
    packet.kind_case = NGD_PACKET(ADOPTED);
    packet.adopted = &adopted;
    ngd_mutex_lock(&h->talk);
    if (h->old >= 0)
        status = ngd_packet_send(h->old, &packet, NULL, NULL);
    over = status != NGD_ERR_BUSY && ngd_pause_came(&h->pause);
    pause = h->pause;
    ngd_mutex_unlock(&h->talk);
    if (over)
        ngd_pause_tell(&pause);
    if (status == NGD_OK || status == NGD_ERR_IO) /* told, or gone: it cannot take the session back */
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_DRAINING, "the daemon before this one cannot be told; try again");
}

ngd_status_t ngd_handover_enter(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_handover *h = d->handover;
    bool over = false;
    ngd_status_t status;

    ngd_sessions_watch(d->sessions,
                       &(struct ngd_session_watcher){.ctx = h, .left = ngd_handover_tell_left, .came = tell_adopted});
    if (h->old < 0)
        return NGD_OK;
    ngd_handover_take_time();
    status = say_ready(h, diag);
    while (status == NGD_OK && !over)
        status = answer_old(d, &over, diag);
    if (status == NGD_ERR_IO) { /* no refusal: it has ended, and its sockets are ours alone */
        ngd_warning("handover", "the daemon that is replaced has ended; going on without it");
        *diag = (struct ngd_diag){0};
        drop_old(h);
        status = NGD_OK;
    }
    ngd_description_close(&h->offer);
    ngd_pause_open(&h->pause, h->n_came);
    ngd_metric_add(NGD_M_HANDOVERS_TAKEN, 1);
    return status;
}

ngd_status_t ngd_handover_watch_old(struct ngd_handover *h)
{
    return h->old >= 0 ? ngd_reactor_watch_fd(h->daemon->reactor, h->old, on_old, h, &h->old_watch) : NGD_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

void ngd_handover_leave_old(struct ngd_handover *h)
{
    Npugraph__Handover__V1__Bye bye = NPUGRAPH__HANDOVER__V1__BYE__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    packet.bye = &bye;
    packet.kind_case = NGD_PACKET(BYE);
    if (h->old_watch)
        (void)ngd_packet_send(h->old, &packet, NULL, NULL);
    drop_old(h);
}

void ngd_handover_stop(struct ngd_daemon *d)
{
    struct ngd_handover *h = d->handover;

    if (!h)
        return;
    if (h->old >= 0 && !h->old_watch) /* this one has failed to start: the old one comes back, to the paths */
        (void)ngd_listeners_pause(d->listeners, true);
    ngd_handover_stop_giving(h);
    ngd_handover_leave_old(h);
}

void ngd_handover_destroy(struct ngd_daemon *d)
{
    struct ngd_handover *h = d->handover;

    if (!h)
        return;
    drop_old(h);
    ngd_description_close(&h->offer);
    ngd_gift_close(d->gift);
    d->gift = NULL;
    ngd_cond_fini(&h->over);
    ngd_mutex_fini(&h->lock);
    ngd_mutex_fini(&h->talk);
    ngd_free(h);
    d->handover = NULL;
}
