/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: the client's end, gRPC's end, and the relay between them.
 *
 * Bytes are written to their destination as soon as they are read. Only bytes that do not fit are kept, and their
 * source is not read until they are gone. So each direction holds at most a chunk and one frame. Payloads of gRPC's
 * large DATA frames go to a plain socket inside the kernel (splice.h); the guard only counts them. epoll watches a
 * descriptor only while something is wanted from it, since it would report a hang-up again and again.
 */
#include "daemon/front/front_int.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEGIN_TIME  (10 * NGD_SEC) /* until a connection is proven, with the handshake */
#define READER_TIME (60 * NGD_SEC) /* for a client that does not read what waits for it */
#define FLUSH_TIME  (10 * NGD_SEC) /* for the last bytes */
#define ROUNDS      4              /* chunks that are read from one side before others get their turn */
#define DRAIN       16

/* ---- watching -------------------------------------------------------------------------------------------------- */

static void watch_side(struct front_conn *conn, struct front_side *side, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u64 = (uintptr_t)conn | (side == &conn->server)};
    int op = side->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;

    if (side->fd < 0 || events == side->events)
        return;
    if (epoll_ctl(conn->front->epoll, op, side->fd, &ev) == 0)
        side->events = events;
    else
        front_conn_close(conn, "memory", "it cannot be watched");
}

static bool may_read(const struct front_conn *conn)
{
    return conn->state == FRONT_RELAY && conn->paused_until == 0 && conn->up.n == 0 && !conn->server_gone &&
           conn->down.n + ngd_h2_guard_late(conn->guard) < FRONT_CHUNK;
}

static void set_timed(struct front_conn *conn, bool timed)
{
    bool is = !ngd_list_empty(&conn->timed_link);

    if (is && !timed)
        ngd_list_remove(&conn->timed_link);
    else if (!is && timed)
        ngd_list_push_back(&conn->front->timed, &conn->timed_link);
}

/* Tells epoll what the connection waits for. Called after each step. */
static void settle_conn(struct front_conn *conn)
{
    bool reading = may_read(conn);
    uint32_t client = 0, server = 0;

    if (conn->state == FRONT_ENDED)
        return;
    if (reading && !conn->was_reading && conn->guard)
        ngd_h2_guard_resume(conn->guard, ngd_now());
    conn->was_reading = reading;
    if (conn->state == FRONT_PEEK) {
        client = EPOLLIN | EPOLLET; /* not again for the same bytes */
    } else {
        bool hand = conn->state == FRONT_HANDSHAKE;

        /* A client that is gone does not wait for its turn. But while TLS must write before it can read, the end of the
         * stream cannot be read, and epoll would report it without pause. */
        if (!conn->read_wants_write)
            client = EPOLLRDHUP;
        if ((reading && !conn->read_wants_write) || (hand && !conn->read_wants_write) || conn->write_wants_read)
            client |= EPOLLIN;
        if (conn->read_wants_write || (conn->down.n > 0 && !conn->write_wants_read))
            client |= EPOLLOUT;
        if (conn->state == FRONT_RELAY && conn->down.n == 0)
            server |= EPOLLIN;
        if (conn->up.n > 0)
            server |= EPOLLOUT;
    }
    watch_side(conn, &conn->client, client);
    if (conn->state != FRONT_ENDED)
        watch_side(conn, &conn->server, server);
    if (conn->state != FRONT_ENDED)
        set_timed(conn, !conn->proven || conn->down.n > 0 || conn->state == FRONT_FLUSH || conn->io->ops->over ||
                            conn->ends != NGD_NSEC_NEVER || (conn->guard && ngd_h2_guard_timed(conn->guard)));
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

void front_conn_free(struct front_conn *conn)
{
    if (conn->io)
        conn->io->ops->destroy(conn->io);
    front_bytes_fini(&conn->in);
    front_bytes_fini(&conn->up);
    front_bytes_fini(&conn->down);
    ngd_free(conn);
}

/* Closes the client's socket after reading what is left: unread bytes would make the kernel reset the connection, and
 * the client might not see why it ended. */
static void close_client(struct front_conn *conn)
{
    if (conn->client.fd < 0)
        return;
    shutdown(conn->client.fd, SHUT_WR);
    for (int i = 0; i < DRAIN; i++)
        if (recv(conn->client.fd, conn->front->chunk, FRONT_CHUNK, MSG_DONTWAIT) <= 0)
            break;
    close(conn->client.fd);
    conn->client.fd = -1;
}

void front_conn_end(struct front_conn *conn)
{
    struct ngd_front *front = conn->front;

    if (conn->state == FRONT_ENDED)
        return;
    conn->state = FRONT_ENDED;
    if (conn->io) {
        conn->io->ops->destroy(conn->io);
        conn->io = NULL;
    }
    close_client(conn);
    if (conn->server.fd >= 0)
        close(conn->server.fd);
    ngd_h2_guard_destroy(conn->guard);
    conn->guard = NULL;
    if (conn->identity) {
        ngd_identity_give(conn->identity, NGD_QUOTA_CONNECTIONS, 1);
        conn->identity = ngd_identity_unref(conn->identity);
    }
    front_prove(conn);
    ngd_list_remove(&conn->timed_link);
    ngd_list_remove(&conn->paused_link);
    ngd_list_remove(&conn->link);
    ngd_list_push_back(&front->dead, &conn->link);
    atomic_fetch_sub_explicit(&front->n_all, 1, memory_order_relaxed);
}

void front_conn_close(struct front_conn *conn, const char *reason, const char *text)
{
    if (conn->state == FRONT_ENDED)
        return;
    ngd_front_refused(reason, text, conn->identity ? conn->identity->name : NULL, conn->address);
    front_conn_end(conn);
}

static void say_goodbye(struct front_conn *conn, bool fault, const char *text)
{
    if (conn->guard && conn->server.fd >= 0 && conn->down.n == 0)
        ngd_h2_guard_goodbye(conn->guard, fault, text);
}

static void close_for(struct front_conn *conn, ngd_h2_reason_t why)
{
    say_goodbye(conn, true, ngd_h2_reason_text(why));
    front_conn_close(conn, ngd_h2_reason_name(why), ngd_h2_reason_text(why));
}

/* Notes that the connection must end. The guard is still running when its callbacks find that, so it ends
 * afterwards. */
static void fail_conn(struct front_conn *conn, const char *reason, const char *text)
{
    if (conn->failed)
        return;
    conn->failed = true;
    conn->fail_reason = reason;
    conn->fail_text = text;
}

static bool went_well(struct front_conn *conn)
{
    if (conn->failed && conn->fail_reason)
        front_conn_close(conn, conn->fail_reason, conn->fail_text);
    else if (conn->failed)
        front_conn_end(conn);
    return conn->state != FRONT_ENDED;
}

/* ---- to gRPC ---------------------------------------------------------------------------------------------------- */

/* A function of its own, so that tests/tsan.supp can name it: gRPC closes its end, which ThreadSanitizer does not
 * see. */
static __attribute__((noinline)) int pair_for_grpc(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
}

static bool make_pair(struct front_conn *conn)
{
    int fds[2];

    if (pair_for_grpc(fds) < 0) {
        fail_conn(conn, "descriptors", "no file descriptor is free for the connection");
        return false;
    }
    if (ngd_peers_add(conn->front->params.peers, fds[1], conn->identity, conn->address, true) != NGD_OK) {
        close(fds[0]);
        close(fds[1]);
        fail_conn(conn, "memory", "out of memory");
        return false;
    }
    conn->server.fd = fds[0];
    conn->given = fds[1];
    conn->front->params.deliver(conn->front->params.ctx, fds[1]);
    if (!conn->identity->nobody)
        front_prove(conn);
    return true;
}

/*
 * Sends bytes to gRPC, and returns how many. If gRPC accepts no more, it has ended the connection, and its last bytes
 * are still to be read. If the kernel has no memory at that moment, bytes are lost, so gRPC is told that no more
 * follow.
 */
static size_t send_up(struct front_conn *conn, const uint8_t *bytes, size_t n)
{
    ssize_t done;

    do
        done = send(conn->server.fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    if (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        conn->server_gone = true;
        shutdown(conn->server.fd, SHUT_WR);
        return n;
    }
    return done < 0 ? 0 : (size_t)done;
}

static void to_server(void *ctx, const uint8_t *bytes, size_t n)
{
    struct front_conn *conn = ctx;
    size_t done = 0;

    if (conn->failed || conn->server_gone || (conn->server.fd < 0 && !make_pair(conn)))
        return;
    if (conn->up.n == 0)
        done = send_up(conn, bytes, n);
    if (done < n && !front_bytes_keep(&conn->up, bytes + done, n - done))
        fail_conn(conn, "memory", "out of memory");
}

static void flush_up(struct front_conn *conn)
{
    if (conn->up.n > 0)
        front_bytes_drop(&conn->up, send_up(conn, conn->up.at, conn->up.n));
}

/* ---- to the client ---------------------------------------------------------------------------------------------- */

static size_t send_down(struct front_conn *conn, const uint8_t *bytes, size_t n)
{
    size_t sent = 0;

    conn->write_wants_read = false;
    while (sent < n) {
        size_t done = 0;
        ngd_wire_result_t r = conn->io->ops->write(conn->io, bytes + sent, n - sent, &done);

        if (r == NGD_WIRE_OK) {
            sent += done;
            continue;
        }
        conn->write_wants_read = r == NGD_WIRE_WANT_READ;
        if (r == NGD_WIRE_CLOSED || r == NGD_WIRE_ERROR)
            fail_conn(conn, NULL, NULL);
        break;
    }
    return sent;
}

/* Keeps bytes until the client accepts them. */
static void keep_down(struct front_conn *conn, const uint8_t *bytes, size_t n)
{
    if (conn->down.n == 0)
        conn->down_moved = ngd_now();
    if (!front_bytes_keep(&conn->down, bytes, n))
        fail_conn(conn, "memory", "out of memory");
}

static void to_client(void *ctx, const uint8_t *bytes, size_t n)
{
    struct front_conn *conn = ctx;
    size_t done = 0;

    if (conn->failed)
        return;
    if (conn->down.n == 0) {
        done = send_down(conn, bytes, n);
        if (conn->failed || done == n)
            return;
    }
    keep_down(conn, bytes + done, n - done);
}

static void flush_down(struct front_conn *conn)
{
    size_t done;

    if (conn->down.n == 0)
        return;
    done = send_down(conn, conn->down.at, conn->down.n);
    if (!went_well(conn))
        return;
    if (done > 0)
        conn->down_moved = ngd_now();
    front_bytes_drop(&conn->down, done);
    if (conn->down.n == 0 && conn->state == FRONT_FLUSH)
        front_conn_end(conn);
}

/* ---- charges ---------------------------------------------------------------------------------------------------- */

static bool take_call(void *ctx)
{
    return ngd_identity_take(((struct front_conn *)ctx)->identity, NGD_QUOTA_CALLS, 1, NULL) == NGD_OK;
}
static bool take_unfinished(void *ctx, uint64_t n)
{
    return ngd_identity_take(((struct front_conn *)ctx)->identity, NGD_QUOTA_UNFINISHED, n, NULL) == NGD_OK;
}
static void give_call(void *ctx)
{
    ngd_identity_give(((struct front_conn *)ctx)->identity, NGD_QUOTA_CALLS, 1);
}
static void give_unfinished(void *ctx, uint64_t n)
{
    ngd_identity_give(((struct front_conn *)ctx)->identity, NGD_QUOTA_UNFINISHED, n);
}

static_assert(NGD_IDENTITY_BUCKETS == NGD_H2_BUCKETS, "an identity has one bucket for each kind of frame");

static ngd_nsec_t *shared_buckets(void *ctx)
{
    return ((struct front_conn *)ctx)->identity->frame_buckets;
}

static void refused_call(void *ctx, const char *sentence)
{
    static struct ngd_log_limit limit;
    struct front_conn *conn = ctx;
    char identity[NGD_LOG_VALUE_MAX], address[NGD_LOG_VALUE_MAX];

    ngd_metric_row_add(ngd_metric_row(NGD_M_REQUESTS_REJECTED, "front"), 1);
    ngd_log_limited(&limit, NGD_LOG_INFO, "front", "a call was refused: %s identity=%s peer=%s", sentence,
                    ngd_log_value(conn->identity->name, identity), ngd_log_value(conn->address, address));
}

static const struct ngd_h2_ops guard_ops = {.to_server = to_server,
                                            .to_client = to_client,
                                            .take_stream = take_call,
                                            .take_bytes = take_unfinished,
                                            .give_stream = give_call,
                                            .give_bytes = give_unfinished,
                                            .shared_buckets = shared_buckets,
                                            .refused = refused_call};

/* ---- from the client -------------------------------------------------------------------------------------------- */

/* Checks bytes of the client. kept: they are those in conn->in. False: the client is not read further now. */
static bool check_input(struct front_conn *conn, const uint8_t *bytes, size_t n, bool kept)
{
    struct ngd_h2_result r = ngd_h2_guard_input(conn->guard, bytes, n, ngd_now());

    if (!went_well(conn))
        return false;
    if (r.verdict == NGD_H2_CLOSE) {
        close_for(conn, r.reason);
        return false;
    }
    if (r.verdict == NGD_H2_PAUSE) {
        conn->paused_until = r.until;
        ngd_list_push_back(&conn->front->paused, &conn->paused_link);
        if (!kept && !front_bytes_keep(&conn->in, bytes + r.used, n - r.used))
            close_for(conn, NGD_H2_WHY_MEMORY);
    }
    if (kept)
        front_bytes_drop(&conn->in, r.used);
    return may_read(conn);
}

static void read_client(struct front_conn *conn)
{
    for (int i = 0; i < ROUNDS && may_read(conn); i++) {
        size_t n = 0;
        ngd_wire_result_t r = conn->io->ops->read(conn->io, conn->front->chunk, FRONT_CHUNK, &n);

        conn->read_wants_write = r == NGD_WIRE_WANT_WRITE;
        if (r == NGD_WIRE_CLOSED || r == NGD_WIRE_ERROR)
            front_conn_end(conn);
        if (r != NGD_WIRE_OK || !check_input(conn, conn->front->chunk, n, false))
            return;
        if (conn->io->ops->pending && !conn->io->ops->pending(conn->io))
            return; /* epoll reports more */
    }
}

void front_conn_resume(struct front_conn *conn, ngd_nsec_t now)
{
    if (conn->state != FRONT_RELAY || conn->paused_until == 0 || now < conn->paused_until)
        return;
    conn->paused_until = 0;
    ngd_list_remove(&conn->paused_link);
    if (conn->in.n > 0)
        check_input(conn, conn->in.at, conn->in.n, true);
    if (may_read(conn))
        read_client(conn);
    settle_conn(conn);
}

/* ---- from gRPC -------------------------------------------------------------------------------------------------- */

static void begin_flush(struct front_conn *conn)
{
    conn->state = FRONT_FLUSH;
    conn->flush_until = ngd_now() + FLUSH_TIME;
    if (conn->down.n == 0)
        front_conn_end(conn);
}

/* Moves bytes of a large DATA frame without reading them. False: there are none, or read_server finds out. */
static bool move_payload(struct front_conn *conn)
{
    struct front_splice *splice = &conn->front->splice;
    struct front_moved moved;

    if (!conn->io->ops->plain || !front_splice_usable(splice) || ngd_h2_guard_payload(conn->guard) < FRONT_CHUNK)
        return false;
    moved = front_splice_move(splice, conn->server.fd, conn->client.fd, FRONT_CHUNK, conn->front->chunk);
    if (moved.taken == 0)
        return false;
    if (moved.failed)
        fail_conn(conn, NULL, NULL);
    else if (moved.sent < moved.taken)
        keep_down(conn, conn->front->chunk, moved.taken - moved.sent);
    ngd_h2_guard_moved(conn->guard, moved.taken);
    return true;
}

static void read_server(struct front_conn *conn)
{
    for (int i = 0; i < ROUNDS && conn->state == FRONT_RELAY && conn->down.n == 0; i++) {
        ssize_t n;

        if (move_payload(conn)) {
            if (!went_well(conn))
                return;
            continue;
        }
        n = recv(conn->server.fd, conn->front->chunk, FRONT_CHUNK, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (n <= 0) {
            begin_flush(conn);
            return;
        }
        ngd_h2_guard_output(conn->guard, conn->front->chunk, (size_t)n, ngd_now());
        if (!went_well(conn) || n < FRONT_CHUNK)
            return;
    }
}

/* ---- the beginning ---------------------------------------------------------------------------------------------- */

/* Gives gRPC the socket itself; `peers` finds out when it ends. */
static void deliver_socket(struct front_conn *conn)
{
    struct ngd_front *front = conn->front;
    int fd = conn->client.fd;

    watch_side(conn, &conn->client, 0);
    if (ngd_peers_add(front->params.peers, fd, conn->identity, conn->address, false) != NGD_OK) {
        front_conn_close(conn, "memory", "out of memory");
        return;
    }
    conn->client.fd = -1;
    conn->identity = ngd_identity_unref(conn->identity); /* the charge belongs to peers now */
    front->params.deliver(front->params.ctx, fd);
    front_conn_end(conn);
}

static void peek_preface(struct front_conn *conn)
{
    char first[NGD_H2_PREFACE_LEN];
    ssize_t n;

    do
        n = recv(conn->client.fd, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (n <= 0)
        front_conn_end(conn);
    else if (memcmp(first, NGD_H2_PREFACE, (size_t)n) != 0)
        close_for(conn, NGD_H2_WHY_PREFACE);
    else if (n == sizeof(first))
        deliver_socket(conn);
}

/* Charges the certificate's identity from now on. */
static bool take_name(struct front_conn *conn)
{
    struct ngd_identity *identity;

    if (!*conn->io->identity)
        return true;
    identity = ngd_identity_get(conn->front->params.identities, conn->io->identity);
    if (!identity || !front_charge(conn->front, identity)) {
        ngd_front_refused(identity ? "max-connections-per-identity" : "memory",
                          identity ? "its identity has max-connections-per-identity" : "out of memory",
                          conn->io->identity, conn->address);
        front_conn_end(conn);
        ngd_identity_unref(identity);
        return false;
    }
    ngd_identity_give(conn->identity, NGD_QUOTA_CONNECTIONS, 1);
    ngd_identity_unref(conn->identity);
    conn->identity = identity;
    return true;
}

static void shake_hands(struct front_conn *conn)
{
    struct ngd_diag diag = {0};
    ngd_wire_result_t r = conn->io->ops->handshake(conn->io, &diag);

    conn->read_wants_write = r == NGD_WIRE_WANT_WRITE;
    if (r == NGD_WIRE_CLOSED || r == NGD_WIRE_ERROR)
        front_conn_close(conn, "tls", diag.status != NGD_OK ? diag.text : "the TLS handshake was given up");
    if (r == NGD_WIRE_OK && take_name(conn)) {
        conn->state = FRONT_RELAY;
        read_client(conn);
    }
}

/* Computes the end by max-connection-age, up to a tenth earlier, so that connections that began together do not end
 * together. */
static ngd_nsec_t end_by_age(struct ngd_front *front, const struct ngd_front_peer *peer, ngd_nsec_t now)
{
    ngd_nsec_t age = FRONT_PARAM(front, max_age);

    if (age == 0 || peer->local)
        return NGD_NSEC_NEVER;
    return now + age - age / 10 * (front->ages++ % 16) / 16;
}

struct front_conn *front_conn_create(struct ngd_front *front, int fd, const struct ngd_front_peer *peer, bool guarded,
                                     struct ngd_identity *identity)
{
    const struct ngd_wire_source *source = peer->tls ? front->params.tls : &ngd_wire_plain;
    struct ngd_h2_params params = {
        .ops = &guard_ops, .max_streams = front->params.max_streams, .max_message = front->params.max_message};
    struct front_conn *conn = NGD_NEW(struct front_conn);

    if (!conn)
        return NULL;
    params.ctx = conn;
    if (guarded)
        conn->guard = ngd_h2_guard_create(&params);
    if ((guarded && !conn->guard) || source->open(source->ctx, fd, &conn->io) != NGD_OK) {
        ngd_h2_guard_destroy(conn->guard);
        ngd_free(conn);
        return NULL;
    }
    conn->front = front;
    conn->client.fd = fd;
    conn->server.fd = -1;
    conn->state = guarded ? FRONT_HANDSHAKE : FRONT_PEEK;
    conn->identity = identity;
    conn->admin = peer->local && identity->admin;
    conn->opened = ngd_now();
    conn->ends = end_by_age(front, peer, conn->opened);
    snprintf(conn->address, sizeof(conn->address), "%s", peer->address);
    ngd_list_push_back(&front->all, &conn->link);
    ngd_list_push_back(&front->unproven, &conn->unproven_link);
    ngd_list_init(&conn->timed_link);
    ngd_list_init(&conn->paused_link);
    front->n_unproven++;
    atomic_fetch_add_explicit(&front->n_all, 1, memory_order_relaxed);
    if (!guarded)
        peek_preface(conn);
    else
        shake_hands(conn);
    settle_conn(conn);
    return conn;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

void front_conn_event(struct front_conn *conn, bool of_server, uint32_t events)
{
    bool hang_up = (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;

    if (conn->state == FRONT_ENDED)
        return;
    if (of_server) {
        if (events & EPOLLOUT)
            flush_up(conn);
        if (conn->state == FRONT_RELAY && ((events & EPOLLIN) || hang_up))
            read_server(conn);
    } else if (conn->state == FRONT_PEEK) {
        peek_preface(conn);
    } else if (conn->state == FRONT_HANDSHAKE) {
        shake_hands(conn);
    } else {
        flush_down(conn);
        if (may_read(conn))
            read_client(conn);
        else if (hang_up)
            front_conn_end(conn);
    }
    settle_conn(conn);
}

static void end_unproven(struct front_conn *conn)
{
    static const char text[] = "it had shown neither a certificate nor a token";

    if (conn->server.fd < 0) {
        close_for(conn, NGD_H2_WHY_HANDSHAKE);
        return;
    }
    say_goodbye(conn, false, text);
    front_conn_close(conn, "no-token", text);
}

void front_conn_tick(struct front_conn *conn, ngd_nsec_t now)
{
    struct ngd_h2_result r = {0};
    const char *over;

    if (conn->state == FRONT_ENDED)
        return;
    if (!front_is_proven(conn) && now - conn->opened >= BEGIN_TIME) {
        end_unproven(conn);
    } else if (conn->down.n > 0 && now - conn->down_moved >= READER_TIME) {
        close_for(conn, NGD_H2_WHY_SLOW_READER);
    } else if (conn->state == FRONT_FLUSH && now >= conn->flush_until) {
        front_conn_end(conn);
    } else if (conn->io->ops->over && (over = conn->io->ops->over(conn->io))) {
        say_goodbye(conn, true, over);
        front_conn_close(conn, "tls", over);
    } else if (now >= conn->ends) {
        say_goodbye(conn, false, "max-connection-age is reached");
        front_conn_end(conn);
    } else if (conn->guard && may_read(conn)) {
        r = ngd_h2_guard_tick(conn->guard, now);
        if (went_well(conn) && r.verdict == NGD_H2_CLOSE)
            close_for(conn, r.reason);
    }
    settle_conn(conn);
}
