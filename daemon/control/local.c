/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/local.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/passed_fds.h"
#include "base/ring.h"
#include "daemon/audit.h"
#include "daemon/daemon.h"
#include "daemon/front/front.h"
#include "daemon/identity.h"
#include "daemon/reactor.h"
#include "daemon/rpc/ring.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session.h"
#include "daemon/shared.h"
#include "daemon/tokens.h"
#include "proto/npugraph.pb-c.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOCAL_CONNECTIONS 128
#define EACH              16 /* connections of one identity: a request takes microseconds */
#define SILENCE           (10 * NGD_SEC)
#define LOOK_EVERY        NGD_SEC
#define REQUEST_BYTES     256
#define ANSWER_BYTES      (sizeof(((struct ngd_diag *)0)->text) + 128)
#define RING_FDS          2
#define WAITING           16 /* newcomers */
#define FDS_MAX           4  /* that a packet has room for: one more than it may have is told from none */

struct local_conn {
    struct ngd_local *local;
    struct ngd_list link;
    int fd;
    struct ngd_identity *identity; /* a reference; it is charged for the connection */
    char address[NGD_PEER_ADDRESS_MAX];
    struct ngd_reactor_watch *watch;
    ngd_nsec_t heard;      /* when the last packet came */
    struct ngd_ring *ring; /* a reference; NULL: none */
};

struct ngd_local {
    struct ngd_daemon *daemon;
    struct ngd_reactor *reactor;
    pthread_t thread;
    bool started;
    _Atomic uint32_t waiting; /* newcomers that the thread has not taken yet */
    /* The thread's. */
    struct ngd_list conns;
    uint32_t n; /* connections without a ring */
    struct ngd_reactor_watch *timer;
};

/* A connection on its way to the thread. */
struct newcomer {
    struct ngd_local *local;
    int fd;
    struct ngd_front_peer peer;
};

/* A packet with the descriptors that came with it, which it owns. */
struct packet {
    uint8_t data[REQUEST_BYTES];
    size_t n;
    int fds[FDS_MAX];
    size_t n_fds;
    bool cut; /* it had more bytes or descriptors, or the process has no room for another descriptor */
};

/* ---- packets --------------------------------------------------------------------------------------------- */

/* Returns 1 with a packet, 0 if there is none yet, -1 at the connection's end. */
static int receive_packet(int fd, struct packet *p)
{
    const ssize_t n =
        ngd_passed_fds_receive(fd, p->data, sizeof(p->data), MSG_DONTWAIT, FDS_MAX, p->fds, &p->n_fds, &p->cut);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    p->n = (size_t)n;
    return n == 0 && p->n_fds == 0 && !p->cut ? -1 : 1;
}

static void drop_descriptors(struct packet *p)
{
    while (p->n_fds > 0)
        close(p->fds[--p->n_fds]);
}

/* Sends an answer with descriptors, which stay the caller's. If that fails, the connection ends soon: its client would
 * wait for the answer. */
static void send_local_answer(struct local_conn *c, const Npugraph__V1__LocalResponse *answer, const int *fds,
                              size_t n_fds)
{
    uint8_t data[ANSWER_BYTES];
    const size_t n = npugraph__v1__local_response__get_packed_size(answer);

    if (n > sizeof(data))
        return; /* a diagnosis is cut long before */
    npugraph__v1__local_response__pack(answer, data);
    if (ngd_passed_fds_send(c->fd, data, n, fds, n_fds, MSG_DONTWAIT) < 0) {
        ngd_debug("local", "an answer cannot be sent: %s", strerror(errno));
        shutdown(c->fd, SHUT_RDWR); /* on_packet reads the end */
    }
}

static void refuse_packet(struct local_conn *c, ngd_status_t status, const struct ngd_diag *diag)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};
    Npugraph__V1__LocalResponse answer = NPUGRAPH__V1__LOCAL_RESPONSE__INIT;
    Npugraph__V1__ReplayError error = NPUGRAPH__V1__REPLAY_ERROR__INIT;
    const char *text = diag->text[0] ? diag->text : ngd_status_text(status);

    ngd_metric_row_add(ngd_metric_row(NGD_M_RPC_ERRORS, ngd_status_name(status)), 1);
    ngd_log_limited(&limit, NGD_LOG_INFO, "local", "a request of %s failed: reason=%s: %s", c->identity->name,
                    ngd_status_name(status), text);
    error.code = ngd_status_grpc(status);
    error.reason = (char *)(uintptr_t)ngd_status_name(status);
    error.message = (char *)(uintptr_t)text;
    answer.error = &error;
    send_local_answer(c, &answer, NULL, 0);
}

/* ---- requests -------------------------------------------------------------------------------------------- */

static void audit_caller(const struct local_conn *c, struct ngd_session *s, const struct ngd_identity *caller,
                         ngd_status_t status, const struct ngd_diag *diag)
{
    const struct ngd_audit_event event = {.identity = caller->name,
                                          .peer = c->address,
                                          .method = "npugraph.v1.LocalRequest",
                                          .text = diag->text,
                                          .status = status,
                                          .session = ngd_session_id(s)};

    if (ngd_audit_is_refusal(status))
        ngd_audit_write(c->local->daemon->audit, &event);
}

/* Says whether the caller is who may use the session: its user, or who has the bearer token that opened it, which the
 * session's own token proves. The token is always needed: a descriptor may have been passed on. */
static ngd_status_t check_caller(const struct local_conn *c, struct ngd_session *s, const ProtobufCBinaryData *token,
                                 struct ngd_diag *diag)
{
    const struct ngd_identity *who = ngd_session_identity(s);
    struct ngd_token *bearer = ngd_session_bearer(s, token->data, token->len);
    ngd_status_t status =
        bearer ? ngd_token_check(bearer, diag)
               : ngd_session_check_user(s, c->identity, token->data ? token->data : (uint8_t *)"", token->len, diag);

    if (status == NGD_OK && atomic_load_explicit(&who->role, memory_order_relaxed) < NGD_ROLE_USER)
        status =
            ngd_diag_set(diag, NGD_ERR_ROLE, "%s may not use the local socket, which needs the role user", who->name);
    audit_caller(c, s, bearer ? who : c->identity, status, diag);
    ngd_token_unref(bearer);
    return status;
}

static ngd_status_t share_memory(struct local_conn *c, struct ngd_session *s, const Npugraph__V1__ShareMemory *q,
                                 struct packet *p, uint64_t *buffer_p, struct ngd_diag *diag)
{
    struct ngd_shared_object *o;
    ngd_status_t status;

    if (p->n_fds != 1)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a shared buffer is one descriptor; the packet has %zu",
                            p->n_fds);
    p->n_fds = 0;
    status = ngd_shared_adopt(p->fds[0], q->bytes, ngd_session_identity(s), c->local->daemon->reaper, &o, diag);
    if (status != NGD_OK)
        return status;
    status = ngd_session_add(s, &o->base, buffer_p, diag);
    if (status != NGD_OK)
        ngd_object_unref(&o->base);
    return status;
}

/* Opens the connection's ring. Takes the session's reference. */
static ngd_status_t open_ring(struct local_conn *c, struct ngd_session *s, Npugraph__V1__LocalResponse *answer,
                              struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    uint32_t n = 0, own = 0;
    int fds[RING_FDS];

    ngd_list_for_each (pos, &c->local->conns) {
        const struct local_conn *other = ngd_container_of(pos, struct local_conn, link);

        n += other->ring != NULL;
        own += other->ring && other->identity == c->identity;
    }
    if (c->ring)
        status = ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                              "this connection has a ring already; open another connection for another ring");
    else if (n >= NGD_RINGS_MAX || own >= NGD_RINGS_EACH)
        status =
            ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                         "%" PRIu32 " of %d rings are open, %" PRIu32 " of %d of this user; close one, or use gRPC", n,
                         NGD_RINGS_MAX, own, NGD_RINGS_EACH);
    if (status != NGD_OK) {
        ngd_session_unref(s);
        return status;
    }
    status = ngd_ring_open(c->local->daemon->rings, s, &c->ring, fds, diag);
    if (status != NGD_OK)
        return status;
    c->local->n--;
    answer->layout = NGD_RING_MAGIC;
    send_local_answer(c, answer, fds, RING_FDS);
    for (int i = 0; i < RING_FDS; i++)
        close(fds[i]);
    return NGD_OK;
}

/* Answers the request, or returns why it failed. */
static ngd_status_t serve_request(struct local_conn *c, const Npugraph__V1__LocalRequest *q, struct packet *p,
                                  struct ngd_diag *diag)
{
    Npugraph__V1__LocalResponse answer = NPUGRAPH__V1__LOCAL_RESPONSE__INIT;
    struct ngd_daemon *d = c->local->daemon;
    struct ngd_session *s;
    ngd_status_t status;

    if (ngd_daemon_state(d) != NGD_DAEMON_SERVING)
        return ngd_diag_set(diag, NGD_ERR_DRAINING, "the daemon is draining; use another one");
    if (!q->share == !q->ring)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the request must ask for one thing that this daemon knows");
    status = ngd_sessions_find(d->sessions, q->session, &s, diag);
    if (status != NGD_OK)
        return status;
    status = check_caller(c, s, &q->token, diag);
    if (status == NGD_OK && q->ring)
        return open_ring(c, s, &answer, diag);
    if (status == NGD_OK)
        status = share_memory(c, s, q->share, p, &answer.buffer, diag);
    ngd_session_unref(s);
    if (status == NGD_OK)
        send_local_answer(c, &answer, NULL, 0);
    return status;
}

static ngd_status_t unpack_packet(const struct packet *p, struct ngd_arena *arena, const void **q_p,
                                  struct ngd_diag *diag)
{
    if (p->cut)
        return ngd_diag_set(
            diag, NGD_ERR_MESSAGE_TOO_LARGE,
            "the packet has more than %d bytes or %d descriptors, or the daemon has no room for another "
            "descriptor",
            REQUEST_BYTES, FDS_MAX);
    return ngd_wire_unpack(&npugraph__v1__local_request__descriptor, p->data, p->n, arena, q_p, diag);
}

static void serve_packet(struct local_conn *c, struct packet *p)
{
    const void *q = NULL;
    struct ngd_diag diag = {0};
    struct ngd_arena arena;
    ngd_status_t status;

    ngd_arena_init(&arena, 4 * REQUEST_BYTES);
    status = unpack_packet(p, &arena, &q, &diag);
    if (status == NGD_OK)
        status = serve_request(c, q, p, &diag);
    if (status != NGD_OK)
        refuse_packet(c, status, &diag);
    drop_descriptors(p);
    ngd_arena_fini(&arena);
}

/* ---- connections ----------------------------------------------------------------------------------------- */

static void end_conn(struct local_conn *c)
{
    if (c->ring)
        ngd_ring_close(c->ring);
    else
        c->local->n--;
    ngd_reactor_remove(c->watch);
    close(c->fd);
    ngd_list_remove(&c->link);
    ngd_identity_give(c->identity, NGD_QUOTA_CONNECTIONS, 1);
    ngd_identity_unref(c->identity);
    ngd_free(c);
}

/* Serves one packet, so that a client which sends many lets the thread do other things in between. */
static void on_packet(void *arg)
{
    struct local_conn *c = arg;
    struct packet p;
    int rc = receive_packet(c->fd, &p);

    if (rc > 0) {
        c->heard = ngd_now();
        serve_packet(c, &p);
    } else if (rc < 0) {
        end_conn(c);
    }
}

static void end_silent(void *arg)
{
    struct ngd_local *local = arg;
    ngd_nsec_t now = ngd_now();

    ngd_list_for_each_safe (pos, tmp, &local->conns) {
        struct local_conn *c = ngd_container_of(pos, struct local_conn, link);

        if (!c->ring && now - c->heard >= SILENCE)
            end_conn(c);
    }
}

/* Ends the identity's connection that has been silent longest, if there is no room for another one. */
static void end_oldest_conn(struct ngd_local *local, const struct ngd_identity *identity)
{
    struct local_conn *oldest = NULL;
    uint32_t n = 0;

    ngd_list_for_each (pos, &local->conns) {
        struct local_conn *c = ngd_container_of(pos, struct local_conn, link);

        if (c->identity != identity || c->ring)
            continue;
        n++;
        if (!oldest || c->heard < oldest->heard)
            oldest = c;
    }
    if (oldest && (n >= EACH || local->n >= LOCAL_CONNECTIONS))
        end_conn(oldest);
}

/* Charges the connection, as the front does. NULL: refused. */
static struct ngd_identity *charge_peer(struct ngd_local *local, const struct ngd_front_peer *peer,
                                        const char **reason_p)
{
    struct ngd_identity *identity = ngd_identity_get(local->daemon->identities, peer->name);

    *reason_p = identity ? NULL : "memory";
    if (identity)
        end_oldest_conn(local, identity);
    if (identity && local->n >= LOCAL_CONNECTIONS)
        *reason_p = "max-connections";
    else if (identity && identity->admin)
        ngd_identity_hold(identity, NGD_QUOTA_CONNECTIONS, 1);
    else if (identity && ngd_identity_take(identity, NGD_QUOTA_CONNECTIONS, 1, NULL) != NGD_OK)
        *reason_p = "max-connections-per-identity";
    return *reason_p ? ngd_identity_unref(identity) : identity;
}

static void take_newcomer(void *arg)
{
    struct newcomer *next = arg;
    struct ngd_local *local = next->local;
    const char *reason;
    struct ngd_identity *identity = charge_peer(local, &next->peer, &reason);
    struct local_conn *c = identity ? NGD_NEW(struct local_conn) : NULL;

    if (c) {
        *c = (struct local_conn){.local = local, .fd = next->fd, .identity = identity, .heard = ngd_now()};
        memcpy(c->address, next->peer.address, sizeof(c->address));
        ngd_list_push_back(&local->conns, &c->link);
        local->n++;
        if (ngd_reactor_watch_fd(local->reactor, c->fd, on_packet, c, &c->watch) != NGD_OK)
            end_conn(c);
    } else {
        if (identity)
            ngd_identity_give(identity, NGD_QUOTA_CONNECTIONS, 1);
        ngd_identity_unref(identity);
        ngd_front_refused(reason ? reason : "memory", "the local socket cannot take it", next->peer.name,
                          next->peer.address);
        close(next->fd);
    }
    ngd_free(next);
    atomic_fetch_sub(&local->waiting, 1);
}

bool ngd_local_has_room(const struct ngd_local *local)
{
    return atomic_load(&local->waiting) < WAITING;
}

void ngd_local_add(struct ngd_local *local, int fd, const struct ngd_front_peer *peer)
{
    struct newcomer *next = NGD_NEW(struct newcomer);

    atomic_fetch_add(&local->waiting, 1);
    if (next)
        *next = (struct newcomer){.local = local, .fd = fd, .peer = *peer};
    if (next && ngd_reactor_post(local->reactor, take_newcomer, next) == NGD_OK)
        return;
    atomic_fetch_sub(&local->waiting, 1);
    ngd_free(next);
    ngd_front_refused("memory", "the local socket cannot take it", peer->name, peer->address);
    close(fd);
}

static void *run_local(void *arg)
{
    struct ngd_local *local = arg;

    ngd_reactor_run(local->reactor);
    return NULL;
}

ngd_status_t ngd_local_create(struct ngd_daemon *d, struct ngd_local **local_p)
{
    struct ngd_local *local = NGD_NEW(struct ngd_local);
    ngd_status_t status;

    if (!local)
        return NGD_ERR_NO_MEMORY;
    local->daemon = d;
    ngd_list_init(&local->conns);
    status = ngd_reactor_create(false, &local->reactor);
    if (status == NGD_OK)
        status = ngd_reactor_every(local->reactor, LOOK_EVERY, end_silent, local, &local->timer);
    if (status == NGD_OK && ngd_thread_start(&local->thread, "local", run_local, local) != 0)
        status = NGD_ERR_RESOURCE_EXHAUSTED;
    local->started = status == NGD_OK;
    if (status != NGD_OK)
        ngd_local_destroy(local);
    else
        *local_p = local;
    return status;
}

void ngd_local_stop(struct ngd_local *local)
{
    if (local->started) {
        ngd_reactor_stop(local->reactor); /* behind the newcomers */
        pthread_join(local->thread, NULL);
    }
    local->started = false;
    ngd_list_for_each_safe (pos, tmp, &local->conns)
        end_conn(ngd_container_of(pos, struct local_conn, link));
}

void ngd_local_destroy(struct ngd_local *local)
{
    if (!local)
        return;
    ngd_local_stop(local);
    ngd_reactor_remove(local->timer);
    ngd_reactor_destroy(local->reactor);
    ngd_free(local);
}
