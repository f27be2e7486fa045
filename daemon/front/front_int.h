/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_FRONT_INT_H
#define NGD_DAEMON_FRONT_FRONT_INT_H

/* front.c has the thread and decides who gets in; conn.c has one connection. All of it runs on the front's thread. */
#include "base/list.h"
#include "daemon/front/bytes.h"
#include "daemon/front/front.h"
#include "daemon/front/h2_guard.h"
#include "daemon/front/splice.h"
#include <sys/epoll.h>

#define FRONT_CHUNK (64 << 10) /* most bytes of one read */

typedef enum front_state {
    FRONT_PEEK,      /* not guarded: waits for the first bytes, then gRPC gets the socket */
    FRONT_HANDSHAKE, /* the transport's handshake is under way */
    FRONT_RELAY,
    FRONT_FLUSH, /* gRPC has ended it; its last bytes go out */
    FRONT_ENDED, /* freed after this round of events */
} front_state_t;

struct front_side {
    int fd;          /* -1: none */
    uint32_t events; /* events that epoll watches; 0: it does not know the descriptor */
};

struct front_conn {
    struct ngd_front *front;
    struct ngd_list link;          /* in front->all, in order of arrival; then in front->dead */
    struct ngd_list unproven_link; /* until its first bytes were good, and it is known whose it is */
    struct ngd_list timed_link;    /* in front->timed while something may become late */
    struct ngd_list paused_link;   /* while it pauses */
    front_state_t state;
    bool proven, admin;
    struct front_side client, server; /* server: our end of the pair */
    int given;                        /* gRPC's end, by whose number peers knows the connection */
    struct ngd_wire_io *io;
    struct ngd_h2_guard *guard;
    struct ngd_identity *identity; /* charged with the connection */
    struct front_bytes in;         /* received during a pause, and not checked yet */
    struct front_bytes up, down; /* bytes that wait for gRPC and for the client; meanwhile the other side is not read */
    bool server_gone;            /* gRPC accepts no more bytes */
    bool read_wants_write, write_wants_read;
    bool was_reading;
    bool failed; /* ends as soon as the guard has returned; fail_reason NULL: without a log line */
    const char *fail_reason, *fail_text;
    ngd_nsec_t opened, paused_until, down_moved, flush_until;
    ngd_nsec_t ends; /* set by max-connection-age; NGD_NSEC_NEVER: none */
    char address[NGD_PEER_ADDRESS_MAX];
};

/* Reads a parameter that ngd_front_set may change. */
#define FRONT_PARAM(front, field) __atomic_load_n(&(front)->params.field, __ATOMIC_RELAXED)

struct ngd_front {
    struct ngd_front_params params;
    int epoll, wake; /* wake: an eventfd */
    pthread_t thread;
    bool started;
    struct ngd_list all, unproven, timed, paused, dead;
    uint32_t n_unproven;
    uint32_t ages; /* number of connections that were given an end */
    uint8_t *chunk;
    struct front_splice splice;
    _Atomic uint32_t n_all;
    _Atomic bool stopping;
    struct ngd_beat beat;
    struct ngd_mutex lock;
    struct ngd_list newcomers NGD_GUARDED_BY(lock);
};

/* conn.c */
/* Takes fd and a counted identity that is charged with the connection; NULL: out of memory, and nothing was taken. */
struct front_conn *front_conn_create(struct ngd_front *front, int fd, const struct ngd_front_peer *peer, bool guarded,
                                     struct ngd_identity *identity);
void front_conn_event(struct front_conn *conn, bool of_server, uint32_t events);
/* Continues after a pause. */
void front_conn_resume(struct front_conn *conn, ngd_nsec_t now);
void front_conn_tick(struct front_conn *conn, ngd_nsec_t now);
/* Logs and counts the reason, and ends the connection. */
void front_conn_close(struct front_conn *conn, const char *reason, const char *text);
void front_conn_end(struct front_conn *conn); /* without a log line */
void front_conn_free(struct front_conn *conn);

/* front.c: charges a connection to an identity; may end the identity's oldest silent connection to make room. False:
 * the identity has too many. */
bool front_charge(struct ngd_front *front, struct ngd_identity *identity);
void front_prove(struct front_conn *conn);
/* Proves a connection without a certificate if a call on it has shown a token, which only peers hears of. */
bool front_is_proven(struct front_conn *conn);

#endif
