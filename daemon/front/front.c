/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's thread, and the decision who gets in.
 *
 * A connection is unproven until its first bytes are good, and one that shows no certificate where it could, until a
 * call on it shows a token. If there is no room, the oldest unproven connection is closed: an honest client sends its
 * first bytes at once, and connects in order to call. None stays unproven for long. A part of max-connections is
 * reserved for administrators on Unix sockets.
 */
#include "daemon/front/front_int.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS        64
#define TICK          NGD_SEC
#define STOP_TIME     NGD_SEC
#define RESERVE_MAX   16 /* most connections reserved for administrators; a quarter of all if that is less */
#define UNPROVEN_PART 4  /* one in this many connections may be unproven */

struct newcomer {
    struct ngd_list link;
    int fd;
    struct ngd_front_peer peer;
};

void ngd_front_refused(const char *reason, const char *text, const char *identity, const char *address)
{
    static struct ngd_log_limit limit;
    char name[NGD_LOG_VALUE_MAX], from[NGD_LOG_VALUE_MAX];

    ngd_metric_row_add(ngd_metric_row(NGD_M_CONNECTIONS_REFUSED, reason), 1);
    ngd_log_limited(&limit, NGD_LOG_WARNING, "front", "connection refused: %s peer=%s identity=%s reason=%s", text,
                    ngd_log_value(address, from), ngd_log_value(identity, name), reason);
}

/* ---- who gets in ------------------------------------------------------------------------------------------------- */

void front_prove(struct front_conn *conn)
{
    if (conn->proven)
        return;
    conn->proven = true;
    ngd_list_remove(&conn->unproven_link);
    conn->front->n_unproven--;
}

bool front_is_proven(struct front_conn *conn)
{
    if (!conn->proven && conn->server.fd >= 0 && ngd_peers_is_known(conn->front->params.peers, conn->given))
        front_prove(conn);
    return conn->proven;
}

/* Ends the oldest unproven connection of that identity, or of any identity (NULL) except administrators'. */
static bool end_oldest(struct ngd_front *front, const struct ngd_identity *identity)
{
    ngd_list_for_each_safe (pos, tmp, &front->unproven) {
        struct front_conn *conn = ngd_container_of(pos, struct front_conn, unproven_link);

        if (front_is_proven(conn))
            continue;
        if (identity ? conn->identity != identity : conn->admin)
            continue;
        front_conn_close(conn, "silent", "it had not proven itself yet, and another one needed its place");
        return true;
    }
    return false;
}

/* Charges a connection. Administrators are counted, but not limited. */
static bool charge_conn(struct ngd_identity *identity)
{
    if (identity->admin) {
        ngd_identity_hold(identity, NGD_QUOTA_CONNECTIONS, 1);
        return true;
    }
    return ngd_identity_take(identity, NGD_QUOTA_CONNECTIONS, 1, NULL) == NGD_OK;
}

bool front_charge(struct ngd_front *front, struct ngd_identity *identity)
{
    if (charge_conn(identity))
        return true;
    ngd_peers_count(front->params.peers, true);
    return charge_conn(identity) || (end_oldest(front, identity) && charge_conn(identity));
}

static uint32_t admin_reserve(uint32_t max_connections)
{
    uint32_t part = max_connections / 4;

    return part < RESERVE_MAX ? part : RESERVE_MAX;
}

static bool find_room(struct ngd_front *front, bool admin)
{
    const uint32_t all = FRONT_PARAM(front, max_connections), max = all - (admin ? 0 : admin_reserve(all));

    if (!admin && front->n_unproven >= all / UNPROVEN_PART + 1)
        end_oldest(front, NULL);
    return ngd_front_count(front, false) < max || ngd_front_count(front, true) < max ||
           (end_oldest(front, NULL) && ngd_front_count(front, false) < max);
}

static bool is_guarded(const struct ngd_front *front, const struct ngd_front_peer *peer)
{
    if (!peer->local || FRONT_PARAM(front, guard_unix) == NGD_GUARD_ALL)
        return true;
    return FRONT_PARAM(front, guard_unix) == NGD_GUARD_OTHERS && peer->uid != 0 && peer->uid != geteuid();
}

static void admit_newcomer(struct ngd_front *front, int fd, const struct ngd_front_peer *peer)
{
    struct ngd_identity *identity = ngd_identity_get(front->params.identities, peer->name);
    const char *reason = NULL, *text = NULL;

    if (!identity) {
        reason = "memory";
        text = "out of memory";
    } else if (!find_room(front, peer->local && identity->admin)) {
        reason = "max-connections";
        text = "max-connections is reached";
    } else if (!front_charge(front, identity)) {
        reason = "max-connections-per-identity";
        text = "its identity has max-connections-per-identity";
    } else if (!front_conn_create(front, fd, peer, is_guarded(front, peer), identity)) {
        ngd_identity_give(identity, NGD_QUOTA_CONNECTIONS, 1);
        reason = "memory";
        text = "out of memory";
    }
    if (!reason)
        return;
    ngd_front_refused(reason, text, peer->name, peer->address);
    ngd_identity_unref(identity);
    close(fd);
}

static void take_newcomers(struct ngd_front *front)
{
    uint64_t n;

    if (read(front->wake, &n, sizeof(n)) < 0 && errno != EAGAIN)
        ngd_debug("front", "the eventfd cannot be read: %s", strerror(errno));
    for (;;) {
        struct ngd_list *first;
        struct newcomer *new;

        ngd_mutex_lock(&front->lock);
        first = ngd_list_pop_front(&front->newcomers);
        ngd_mutex_unlock(&front->lock);
        if (!first)
            return;
        new = ngd_container_of(first, struct newcomer, link);
        if (atomic_load(&front->stopping))
            close(new->fd);
        else
            admit_newcomer(front, new->fd, &new->peer);
        ngd_free(new);
    }
}

static void wake(struct ngd_front *front)
{
    uint64_t one = 1;

    if (write(front->wake, &one, sizeof(one)) < 0)
        ngd_debug("front", "the eventfd cannot be written: %s", strerror(errno));
}

void ngd_front_add(struct ngd_front *front, int fd, const struct ngd_front_peer *peer)
{
    struct newcomer *new = NGD_NEW(struct newcomer);

    if (!new) {
        ngd_front_refused("memory", "out of memory", peer->name, peer->address);
        close(fd);
        return;
    }
    new->fd = fd;
    new->peer = *peer;
    ngd_mutex_lock(&front->lock);
    ngd_list_push_back(&front->newcomers, &new->link);
    ngd_mutex_unlock(&front->lock);
    wake(front);
}

uint32_t ngd_front_count(struct ngd_front *front, bool now)
{
    return atomic_load_explicit(&front->n_all, memory_order_relaxed) + ngd_peers_count(front->params.peers, now);
}

/* ---- the thread ----------------------------------------------------------------------------------------------------
 */

/* Frees ended connections after a round of events, because its events may still refer to them. */
static void free_dead(struct ngd_front *front)
{
    struct ngd_list *first;

    while ((first = ngd_list_pop_front(&front->dead)))
        front_conn_free(ngd_container_of(first, struct front_conn, link));
}

/* Handles what is due, and returns when to look again. */
static ngd_nsec_t look_at_time(struct ngd_front *front, ngd_nsec_t now, ngd_nsec_t *tick_at)
{
    ngd_nsec_t next;

    ngd_list_for_each_safe (pos, tmp, &front->paused)
        front_conn_resume(ngd_container_of(pos, struct front_conn, paused_link), now);
    if (now >= *tick_at) {
        *tick_at = now + TICK;
        ngd_list_for_each_safe (pos, tmp, &front->timed)
            front_conn_tick(ngd_container_of(pos, struct front_conn, timed_link), now);
    }
    next = ngd_list_empty(&front->timed) ? NGD_NSEC_NEVER : *tick_at;
    ngd_list_for_each (pos, &front->paused) {
        ngd_nsec_t until = ngd_container_of(pos, struct front_conn, paused_link)->paused_until;

        next = until < next ? until : next;
    }
    return next;
}

static int milliseconds(ngd_nsec_t until)
{
    ngd_nsec_t left;

    if (until == NGD_NSEC_NEVER)
        return -1;
    left = until - ngd_now();
    return left <= 0 ? 0 : (int)((left + NGD_MSEC - 1) / NGD_MSEC);
}

/* Waits for events until a time. Looks for some until poll_end first: an answer mostly follows a request soon, and who
 * sleeps is woken late. */
static int await_events(struct ngd_front *front, struct epoll_event *events, ngd_nsec_t until, ngd_nsec_t poll_end)
{
    while (poll_end != 0 && ngd_now() < poll_end) {
        const int n = epoll_wait(front->epoll, events, EVENTS, 0);

        if (n != 0)
            return n;
    }
    return epoll_wait(front->epoll, events, EVENTS, milliseconds(until));
}

static void serve_event(struct ngd_front *front, const struct epoll_event *ev)
{
    struct front_conn *conn = (struct front_conn *)(uintptr_t)(ev->data.u64 & ~(uint64_t)1);

    if (ev->data.u64 == 0)
        take_newcomers(front);
    else
        front_conn_event(conn, ev->data.u64 & 1, ev->events);
}

/* Begins the stop. gRPC's ends were shut down, and the bytes in the pairs go out. Connections without gRPC end at
 * once. */
static void begin_stop(struct ngd_front *front)
{
    ngd_list_for_each_safe (pos, tmp, &front->all) {
        struct front_conn *conn = ngd_container_of(pos, struct front_conn, link);

        if (conn->server.fd < 0)
            front_conn_end(conn);
    }
}

static void *run_front(void *arg)
{
    struct ngd_front *front = arg;
    ngd_nsec_t until = NGD_NSEC_NEVER, tick_at = 0, stop_at = NGD_NSEC_NEVER, poll_end = 0;
    struct epoll_event events[EVENTS];

    ngd_wakeup_ask(NGD_WAKEUP_SLICE);
    while (stop_at == NGD_NSEC_NEVER || (!ngd_list_empty(&front->all) && ngd_now() < stop_at)) {
        int n = await_events(front, events, until < stop_at ? until : stop_at, poll_end);
        const ngd_nsec_t poll = FRONT_PARAM(front, poll);

        while (NGD_FAULT(FRONT_HANG))
            nanosleep(&(struct timespec){.tv_nsec = 10 * NGD_MSEC}, NULL);
        for (int i = 0; i < n; i++)
            serve_event(front, &events[i]);
        if (atomic_load(&front->stopping) && stop_at == NGD_NSEC_NEVER) {
            stop_at = ngd_now() + STOP_TIME;
            begin_stop(front);
        }
        poll_end = n > 0 && poll != 0 ? ngd_now() + poll : 0;
        until = look_at_time(front, ngd_now(), &tick_at);
        free_dead(front);
        ngd_beat_answer(&front->beat);
    }
    while (!ngd_list_empty(&front->all))
        front_conn_end(ngd_container_of(front->all.next, struct front_conn, link));
    free_dead(front);
    return NULL;
}

void ngd_front_ask(struct ngd_front *front)
{
    if (ngd_beat_ask(&front->beat))
        wake(front);
}

const struct ngd_beat *ngd_front_beat(const struct ngd_front *front)
{
    return &front->beat;
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

void ngd_front_set(struct ngd_front *front, const struct ngd_front_params *params)
{
    __atomic_store_n(&front->params.guard_unix, params->guard_unix, __ATOMIC_RELAXED);
    __atomic_store_n(&front->params.max_connections, params->max_connections, __ATOMIC_RELAXED);
    __atomic_store_n(&front->params.max_age, params->max_age, __ATOMIC_RELAXED);
    __atomic_store_n(&front->params.poll, params->poll, __ATOMIC_RELAXED);
}

ngd_status_t ngd_front_create(const struct ngd_front_params *params, struct ngd_front **front_p)
{
    struct ngd_front *front = NGD_NEW(struct ngd_front);
    struct epoll_event ev = {.events = EPOLLIN};

    if (!front)
        return NGD_ERR_NO_MEMORY;
    front->params = *params;
    ngd_mutex_init(&front->lock, NGD_RANK_FRONT);
    ngd_list_init(&front->all);
    ngd_list_init(&front->unproven);
    ngd_list_init(&front->timed);
    ngd_list_init(&front->paused);
    ngd_list_init(&front->dead);
    ngd_list_init(&front->newcomers);
    front->chunk = ngd_malloc(FRONT_CHUNK);
    front_splice_init(&front->splice);
    front->epoll = epoll_create1(EPOLL_CLOEXEC);
    front->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!front->chunk || front->epoll < 0 || front->wake < 0 ||
        epoll_ctl(front->epoll, EPOLL_CTL_ADD, front->wake, &ev) < 0) {
        ngd_front_destroy(front);
        return NGD_ERR_RESOURCE_EXHAUSTED;
    }
    *front_p = front;
    return NGD_OK;
}

ngd_status_t ngd_front_start(struct ngd_front *front)
{
    if (ngd_thread_start(&front->thread, "front", run_front, front) != 0)
        return NGD_ERR_RESOURCE_EXHAUSTED;
    front->started = true;
    return NGD_OK;
}

void ngd_front_stop(struct ngd_front *front)
{
    if (!front->started)
        return;
    atomic_store(&front->stopping, true);
    wake(front);
    pthread_join(front->thread, NULL);
    front->started = false;
    take_newcomers(front);
}

void ngd_front_destroy(struct ngd_front *front)
{
    if (!front)
        return;
    ngd_front_stop(front);
    if (front->epoll >= 0)
        close(front->epoll);
    if (front->wake >= 0)
        close(front->wake);
    ngd_mutex_fini(&front->lock);
    front_splice_fini(&front->splice);
    ngd_free(front->chunk);
    ngd_free(front);
}
