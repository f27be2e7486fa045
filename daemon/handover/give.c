/* SPDX-License-Identifier: Apache-2.0 */
/* The old daemon's side of a handover. */
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/audit.h"
#include "daemon/control/drain.h"
#include "daemon/control/listener.h"
#include "daemon/control/stats_http.h"
#include "daemon/daemon.h"
#include "daemon/handover/handover_int.h"
#include "daemon/lockfile.h"
#include "daemon/reactor.h"
#include "daemon/sdnotify.h"
#include "daemon/session_move.h"
#include "daemon/sockets.h"
#include "scheduler/run/sched.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_WAIT (5 * NGD_SEC)
#define LOOK_EVERY  (100 * NGD_MSEC)
#define ROUNDS_MAX  16 /* offers to one daemon: somebody registers models all the time */

static void on_newcomer(void *arg);
static bool begin_describing(struct ngd_handover *h);
static bool begin_job(struct ngd_handover *h, void (*fn)(struct ngd_job *job));
static void depart_job(struct ngd_job *job);

/* ---- the next daemon ---------------------------------------------------------------------------------------- */

/* Ends a connection so that what was sent arrives: the kernel drops it if something unread is left. */
static void end_channel(int fd)
{
    char rest[256];

    shutdown(fd, SHUT_RDWR);
    while (recv(fd, rest, sizeof(rest), MSG_DONTWAIT | MSG_TRUNC) > 0)
        ;
    close(fd);
}

static void send_refusal(int fd, const char *text)
{
    Npugraph__Handover__V1__Refusal refusal = NPUGRAPH__HANDOVER__V1__REFUSAL__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    refusal.text = (char *)(uintptr_t)text;
    packet.refusal = &refusal;
    packet.kind_case = NGD_PACKET(REFUSAL);
    (void)ngd_packet_send(fd, &packet, NULL, NULL);
}

static void drop_next(struct ngd_handover *h)
{
    ngd_reactor_remove(h->next_watch);
    ngd_reactor_remove(h->timer);
    h->next_watch = h->timer = NULL;
    ngd_mutex_lock(&h->talk);
    if (h->next >= 0)
        end_channel(h->next); /* under the lock: nobody may send to a descriptor that is another one's by then */
    h->next = -1;
    ngd_mutex_unlock(&h->talk);
    h->phase = GIVE_NONE;
    h->wanted = false;
    ngd_description_close(&h->given);
    atomic_store(&h->daemon->next_pid, 0);
}

/* The handover is off, and this daemon serves as if there had been none. text: why, for the next daemon; NULL: it has
 * ended. */
static void call_off(struct ngd_handover *h, const char *text)
{
    struct ngd_daemon *d = h->daemon;
    const give_phase_t phase = h->phase;

    if (text)
        send_refusal(h->next, text);
    ngd_warning("handover", "process %" PRIu32 " does not take over%s: %s", h->pid,
                phase == GIVE_PASSED ? " any more" : "", text ? text : "it has ended");
    drop_next(h);
    if (phase < GIVE_FREEZING)
        return;
    ngd_promises_unseal(&d->promises);
    ngd_departure_undo(&h->leaving);
    if (phase == GIVE_PASSED && !ngd_drain_resume(d->drain)) {
        ngd_error("handover", "this daemon drains already, and does not come back: nobody serves new clients");
        return;
    }
    ngd_locks_sign(d->locks);
    if (ngd_listeners_pause(d->listeners, false) != NGD_OK || ngd_stats_http_pause(d, false) != NGD_OK ||
        ngd_reactor_watch_fd(d->reactor, h->fd, on_newcomer, h, &h->watch) != NGD_OK)
        ngd_error("handover", "no host memory to accept connections again");
    if (phase == GIVE_PASSED)
        ngd_sdnotify_main();
    ngd_notice("handover", "this daemon serves new clients again");
    ngd_metric_add(NGD_M_HANDOVERS_RETURNED, 1);
}

static void check_patience(void *arg)
{
    struct ngd_handover *h = arg;

    if ((h->phase == GIVE_HELLO || h->phase == GIVE_PASSING) && ngd_now() >= h->until)
        call_off(h, "it does not answer");
}

/* ---- offers ------------------------------------------------------------------------------------------------- */

static void add_lock_to_gift(void *ctx, const char *path, int fd)
{
    (void)ngd_gift_add(ctx, NGD_ITEM(LOCK), fd, path, NULL); /* without it, the next daemon cannot take the lock */
}

static ngd_status_t fill_gift(struct ngd_handover *h, struct ngd_gift *gift, struct ngd_diag *diag)
{
    struct ngd_daemon *d = h->daemon;
    ngd_status_t status = ngd_listeners_give(d->listeners, gift, diag);

    if (status == NGD_OK)
        status = ngd_stats_http_give(d, gift, diag);
    if (status == NGD_OK)
        status = ngd_gift_add(gift, NGD_ITEM(HANDOVER), h->fd, h->path, diag);
    ngd_locks_for_each(d->locks, add_lock_to_gift, gift);
    return status;
}

/* Sends the offer with descriptors: the gift with the first one, and the description with each. */
static ngd_status_t send_offer(struct ngd_handover *h, const struct ngd_gift *gift, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Offer offer = NPUGRAPH__HANDOVER__V1__OFFER__INIT;
    Npugraph__Handover__V1__Item items[NGD_GIFT_MAX], *list[NGD_GIFT_MAX];
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;
    struct ngd_packet_fds fds = {.n = 0};

    for (size_t i = 0; gift && i < gift->n; i++) {
        npugraph__handover__v1__item__init(&items[i]);
        items[i].kind = gift->items[i].kind;
        items[i].text = (char *)(uintptr_t)gift->items[i].text;
        list[i] = &items[i];
        fds.fds[fds.n++] = gift->items[i].fd;
    }
    fds.fds[fds.n++] = h->given.fd;
    if (h->given.upload_bytes)
        fds.fds[fds.n++] = h->given.uploads_fd;
    offer.version = (char *)(uintptr_t)PACKAGE_VERSION;
    offer.pid = (uint32_t)getpid();
    offer.items = list;
    offer.n_items = gift ? gift->n : 0;
    offer.description_bytes = h->given.bytes;
    offer.upload_bytes = h->given.upload_bytes;
    offer.digest = (ProtobufCBinaryData){.data = (uint8_t *)&h->given.digest, .len = sizeof(h->given.digest)};
    packet.offer = &offer;
    packet.kind_case = NGD_PACKET(OFFER);
    return ngd_packet_send(h->next, &packet, &fds, diag);
}

static ngd_status_t make_offer(struct ngd_handover *h, struct ngd_diag *diag)
{
    struct ngd_gift *gift = NULL;
    ngd_status_t status = NGD_OK;

    if (++h->rounds > ROUNDS_MAX)
        return ngd_diag_set(diag, NGD_ERR_BUSY, "models were registered or unloaded each time that it was ready");
    if (h->rounds == 1) {
        ngd_handover_leave_old(h); /* whoever has the gift goes on alone, so nobody may come back beside it */
        gift = NGD_NEW(struct ngd_gift);
        status = gift ? fill_gift(h, gift, diag) : NGD_ERR_NO_MEMORY;
    }
    if (status == NGD_OK)
        status = send_offer(h, gift, diag);
    ngd_free(gift); /* its descriptors are not the gift's */
    if (status == NGD_OK)
        h->phase = GIVE_OFFERED;
    return status;
}

/* ---- passing ------------------------------------------------------------------------------------------------ */

static ngd_status_t send_bye(struct ngd_handover *h, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Bye bye = NPUGRAPH__HANDOVER__V1__BYE__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;

    packet.kind_case = NGD_PACKET(BYE);
    packet.bye = &bye;
    return ngd_packet_send(h->next, &packet, NULL, diag);
}

/* Gives the next daemon the sessions that move. */
static ngd_status_t send_go(struct ngd_handover *h, struct ngd_diag *diag)
{
    const struct ngd_description *record = &h->leaving.record;
    Npugraph__Handover__V1__Go go = NPUGRAPH__HANDOVER__V1__GO__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;
    struct ngd_packet_fds fds = {.n = 0};

    if (h->leaving.n) {
        fds.fds[fds.n++] = record->fd;
        go.departure_bytes = record->bytes;
        go.upload_bytes = record->upload_bytes;
        ngd_pause_put(&h->leaving.pause, &go);
    }
    if (go.upload_bytes)
        fds.fds[fds.n++] = record->uploads_fd;
    packet.kind_case = NGD_PACKET(GO);
    packet.go = &go;
    return ngd_packet_send(h->next, &packet, &fds, diag);
}

/* Stops accepting: connections wait in the kernel until the next daemon takes them. Then the sessions that move are
 * frozen and described, by a job. */
static ngd_status_t begin_freezing(struct ngd_handover *h, struct ngd_diag *diag)
{
    h->phase = GIVE_FREEZING;
    h->frozen = ngd_now();
    (void)ngd_listeners_pause(h->daemon->listeners, true);
    (void)ngd_stats_http_pause(h->daemon, true);
    ngd_reactor_remove(h->watch); /* the next handover is the next daemon's */
    h->watch = NULL;
    return begin_job(h, depart_job) ? NGD_OK : ngd_diag_set(diag, NGD_ERR_BUSY, "it is busy");
}

static ngd_status_t begin_passing(struct ngd_handover *h, struct ngd_diag *diag)
{
    h->leaving = h->fresh_leaving;
    h->fresh_leaving = (struct ngd_departure){.record = {.fd = -1, .uploads_fd = -1}};
    h->phase = GIVE_PASSING;
    h->until = ngd_now() + ANSWER_WAIT;
    return send_go(h, diag);
}

/* The point of no return for the next daemon: from here on it serves. */
static ngd_status_t finish_passing(struct ngd_handover *h, const Npugraph__Handover__V1__Serving *serving,
                                   struct ngd_diag *diag)
{
    const struct ngd_audit_event event = {.identity = "process", .method = "npugraphd --replace"};
    struct ngd_daemon *d = h->daemon;
    ngd_status_t status = send_bye(h, diag);

    if (status != NGD_OK)
        return status;
    h->phase = GIVE_PASSED;
    ngd_notice("handover", "process %" PRIu32 " has taken over; this one serves its sessions to their end", h->pid);
    ngd_metric_add(NGD_M_HANDOVERS_GIVEN, 1);
    ngd_audit_write(d->audit, &event);
    ngd_description_close(&h->given);
    ngd_departure_commit(&h->leaving, serving->taken, serving->n_taken); /* before the sessions are told */
    if (h->leaving.n)
        ngd_notice("handover", "%zu of %zu sessions have moved; they waited %lld ms", serving->n_taken, h->leaving.n,
                   (long long)((ngd_now() - h->frozen) / NGD_MSEC));
    ngd_description_close(&h->leaving.record);
    if (ngd_drain_yield(d->drain) == NGD_ERR_NO_MEMORY)
        ngd_drain_begin(d->drain, 0, false);
    return NGD_OK;
}

/* ---- the description, on a thread of its own ------------------------------------------------------------------ */

/* Something has changed since the description was made. */
static ngd_status_t describe_again(struct ngd_handover *h, struct ngd_diag *diag)
{
    return begin_describing(h) ? NGD_OK : ngd_diag_set(diag, NGD_ERR_BUSY, "it is busy");
}

/* Takes the description that the job has made: the first one is offered, and another one only if it differs. */
static ngd_status_t use_description(struct ngd_handover *h, struct ngd_diag *diag)
{
    const bool same = h->rounds > 0 && ngd_digest_equal(&h->fresh.digest, &h->given.digest);

    if (h->status != NGD_OK) {
        *diag = h->diag;
        return h->status;
    }
    if (same)
        ngd_description_close(&h->fresh);
    if (same)
        return ngd_promises_seal(&h->daemon->promises, h->promises) ? begin_freezing(h, diag) : describe_again(h, diag);
    ngd_description_close(&h->given);
    h->given = h->fresh;
    h->fresh.fd = h->fresh.uploads_fd = -1;
    return make_offer(h, diag);
}

static void on_described(void *arg)
{
    struct ngd_handover *h = arg;
    struct ngd_diag diag = {0};
    bool running;

    ngd_mutex_lock(&h->lock);
    running = h->running;
    ngd_mutex_unlock(&h->lock);
    if (running) /* another one has begun since, and posts again */
        return;
    if (!h->wanted) {
        ngd_description_close(&h->fresh);
        ngd_departure_undo(&h->fresh_leaving);
        return;
    }
    h->wanted = false;
    if ((h->phase == GIVE_FREEZING ? begin_passing(h, &diag) : use_description(h, &diag)) != NGD_OK)
        call_off(h, diag.text[0] ? diag.text : "no host memory for the handover");
}

static void end_job(struct ngd_handover *h)
{
    ngd_mutex_lock(&h->lock);
    h->running = false;
    ngd_cond_broadcast(&h->over);
    (void)ngd_reactor_post(h->daemon->reactor, on_described, h);
    ngd_mutex_unlock(&h->lock);
}

static void describe_job(struct ngd_job *job)
{
    struct ngd_handover *h = ngd_container_of(job, struct ngd_handover, job);

    ngd_handover_take_time();
    ngd_sched_save_hot(h->daemon->sched); /* what the next daemon captures ahead */
    h->promises = ngd_promises_count(&h->daemon->promises);
    h->diag = (struct ngd_diag){0};
    h->status = ngd_describe(h->daemon, &h->fresh, &h->diag);
    end_job(h);
}

static void run_departure(void *arg)
{
    struct ngd_handover *h = arg;

    ngd_depart(h->daemon, h->frozen, &h->fresh_leaving);
}

static void depart_job(struct ngd_job *job)
{
    struct ngd_handover *h = ngd_container_of(job, struct ngd_handover, job);

    ngd_handover_hurry(run_departure, h);
    ngd_handover_take_time();
    end_job(h);
}

/* False: what was begun for an earlier daemon, which has ended, is still being made. */
static bool begin_job(struct ngd_handover *h, void (*fn)(struct ngd_job *job))
{
    bool busy;

    ngd_mutex_lock(&h->lock);
    busy = h->running;
    h->running = true;
    ngd_mutex_unlock(&h->lock);
    if (busy)
        return false;
    ngd_description_close(&h->fresh);
    ngd_departure_undo(&h->fresh_leaving);
    h->wanted = true;
    h->job = (struct ngd_job){.fn = fn, .slow = true};
    ngd_jobs_add(h->daemon->jobs, &h->job);
    return true;
}

static bool begin_describing(struct ngd_handover *h)
{
    const bool begun = begin_job(h, describe_job);

    if (begun)
        h->phase = GIVE_DESCRIBING;
    return begun;
}

/* ---- packets ------------------------------------------------------------------------------------------------ */

static ngd_status_t take_hello(struct ngd_handover *h, const Npugraph__Handover__V1__Hello *hello,
                               struct ngd_diag *diag)
{
    char version[NGD_LOG_VALUE_MAX];

    h->pid = hello->pid;
    atomic_store(&h->daemon->next_pid, h->pid);
    ngd_notice("handover", "process %" PRIu32 ", npugraphd %s, asks to take over", h->pid,
               ngd_log_value(hello->version, version));
    return begin_describing(h)
               ? NGD_OK
               : ngd_diag_set(diag, NGD_ERR_BUSY, "it is still busy with a handover that was given up; try again");
}

static ngd_status_t take_packet(struct ngd_handover *h, const ngd_packet *packet, struct ngd_diag *diag)
{
    const int kind = (int)packet->kind_case;

    if (h->phase == GIVE_HELLO && kind == NGD_PACKET(HELLO))
        return take_hello(h, packet->hello, diag);
    if (h->phase == GIVE_OFFERED && kind == NGD_PACKET(READY) && packet->ready->digest.len == sizeof(h->given.digest) &&
        memcmp(packet->ready->digest.data, &h->given.digest, sizeof(h->given.digest)) == 0)
        return describe_again(h, diag);
    if (h->phase == GIVE_PASSING && kind == NGD_PACKET(SERVING))
        return finish_passing(h, packet->serving, diag);
    if (h->phase == GIVE_PASSED && kind == NGD_PACKET(ADOPTED)) {
        ngd_session_adopted(h->daemon->sessions, packet->adopted->session);
        return NGD_OK;
    }
    if (h->phase == GIVE_PASSED && kind == NGD_PACKET(BYE)) { /* it ends in order, and nobody is to come back */
        ngd_departure_let_go(&h->leaving);
        drop_next(h);
        atomic_store(&h->daemon->next_pid, h->pid); /* this one still is replaced */
        return NGD_OK;
    }
    if (kind == NGD_PACKET(REFUSAL))
        return ngd_diag_set(diag, NGD_ERR_INTERNAL, "%.800s", packet->refusal->text);
    return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "it sends a packet that is not expected here");
}

/* Takes what a daemon that has ended had said before. The kernel reports first that it has read less than all. */
static void take_last_words(struct ngd_handover *h, struct ngd_arena *arena)
{
    const ngd_packet *packet;
    struct ngd_packet_fds fds;

    while (h->phase == GIVE_PASSED && ngd_packet_receive(h->next, 0, arena, &packet, &fds, NULL) == NGD_OK) {
        ngd_packet_fds_close(&fds);
        if (packet->kind_case != NGD_PACKET(ADOPTED))
            return;
        ngd_session_adopted(h->daemon->sessions, packet->adopted->session);
        ngd_arena_reset(arena);
    }
}

static void on_next(void *arg)
{
    struct ngd_handover *h = arg;
    struct ngd_packet_fds fds;
    struct ngd_diag diag = {0};
    struct ngd_arena arena;
    const ngd_packet *packet;
    ngd_status_t status;

    ngd_arena_init(&arena, 2 * NGD_PACKET_BYTES);
    status = ngd_packet_receive(h->next, 0, &arena, &packet, &fds, &diag);
    if (status == NGD_OK) {
        ngd_packet_fds_close(&fds);
        status = take_packet(h, packet, &diag);
        if (status != NGD_OK)
            call_off(h, diag.text[0] ? diag.text : ngd_status_text(status));
    } else if (status == NGD_ERR_IO) {
        take_last_words(h, &arena);
        call_off(h, NULL);
    } else if (status != NGD_ERR_UNAVAILABLE) {
        call_off(h, diag.text);
    }
    ngd_arena_fini(&arena);
}

void ngd_handover_tell_left(void *ctx, uint64_t session, bool broken)
{
    Npugraph__Handover__V1__Left left = NPUGRAPH__HANDOVER__V1__LEFT__INIT;
    ngd_packet packet = NPUGRAPH__HANDOVER__V1__PACKET__INIT;
    struct ngd_handover *h = ctx;

    left.session = session;
    left.broken = broken;
    packet.kind_case = NGD_PACKET(LEFT);
    packet.left = &left;
    ngd_mutex_lock(&h->talk);
    if (h->next >= 0)
        (void)ngd_packet_send(h->next, &packet, NULL, NULL); /* without it, the session lasts longer there */
    ngd_mutex_unlock(&h->talk);
}

/* ---- connections -------------------------------------------------------------------------------------------- */

/* Says why no other daemon may take over now; NULL: it may. */
static const char *why_not(const struct ngd_handover *h, char text[128])
{
    const struct ngd_daemon *d = h->daemon;

    if (h->next >= 0)
        snprintf(text, 128, "process %" PRIu32 " is taking over; wait for it, or end it", h->pid);
    else if (ngd_daemon_state(d) != NGD_DAEMON_SERVING || d->replaced)
        snprintf(text, 128, "it is draining; start the other daemon when it has ended");
    else
        return NULL;
    return text;
}

static void on_newcomer(void *arg)
{
    static struct ngd_log_limit limit;
    struct ngd_handover *h = arg;
    const int fd = accept4(h->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const char *why;
    char text[128];

    if (fd < 0)
        return;
    if (!ngd_packet_peer_is_ours(fd)) {
        ngd_log_limited(&limit, NGD_LOG_WARNING, "handover", "a process of another user may not take over");
        close(fd);
        return;
    }
    why = why_not(h, text);
    if (why) {
        send_refusal(fd, why);
        end_channel(fd);
        return;
    }
    ngd_mutex_lock(&h->talk);
    h->next = fd;
    ngd_mutex_unlock(&h->talk);
    h->pid = 0;
    h->rounds = 0;
    h->phase = GIVE_HELLO;
    h->until = ngd_now() + ANSWER_WAIT;
    if (ngd_reactor_watch_fd(h->daemon->reactor, fd, on_next, h, &h->next_watch) != NGD_OK ||
        ngd_reactor_every(h->daemon->reactor, LOOK_EVERY, check_patience, h, &h->timer) != NGD_OK)
        call_off(h, "no host memory");
}

/* ---- life --------------------------------------------------------------------------------------------------- */

static ngd_status_t listen_for_next(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_handover *h = d->handover;
    struct ngd_diag why = {0};
    ngd_status_t status = NGD_OK;

    if (!h->path[0])
        return NGD_OK;
    h->fd = ngd_gift_take(d->gift, NGD_ITEM(HANDOVER), h->path);
    if (h->fd < 0)
        status = ngd_socket_unix(h->path, SOCK_SEQPACKET, 0600, &h->fd, &why);
    if (status == NGD_OK)
        return ngd_reactor_watch_fd(d->reactor, h->fd, on_newcomer, h, &h->watch);
    if (strcmp(d->options.replace_socket, "auto") != 0)
        return ngd_diag_set(diag, status, "replace-socket: %s", why.text);
    ngd_notice("daemon", "this daemon cannot be replaced while it runs: %s", why.text);
    return NGD_OK;
}

ngd_status_t ngd_handover_listen(struct ngd_daemon *d, struct ngd_diag *diag)
{
    const ngd_status_t status = listen_for_next(d, diag);

    return status == NGD_OK ? ngd_handover_watch_old(d->handover) : status;
}

void ngd_handover_stop_giving(struct ngd_handover *h)
{
    const bool passed_on = h->next >= 0 && h->rounds > 0; /* the next daemon goes on alone, with the paths */

    if (passed_on && h->phase < GIVE_PASSING)
        (void)ngd_listeners_pause(h->daemon->listeners, true);
    h->wanted = false;
    ngd_mutex_lock(&h->lock);
    while (h->running)
        ngd_cond_wait(&h->over, &h->lock);
    ngd_mutex_unlock(&h->lock);
    ngd_description_close(&h->fresh);
    ngd_departure_undo(&h->fresh_leaving);
    ngd_departure_fini(&h->leaving);
    ngd_reactor_remove(h->watch);
    h->watch = NULL;
    if (h->fd >= 0) {
        close(h->fd);
        if (!passed_on && !h->daemon->replaced)
            unlink(h->path);
    }
    h->fd = -1;
    if (h->next >= 0)
        drop_next(h);
}
