/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_FRONT_INT_H
#define NGD_DAEMON_FRONT_FRONT_INT_H

/* front.c: the thread, who gets in. conn.c: one connection. All of it on the front's thread. */
#include "base/list.h"
#include "daemon/front/bytes.h"
#include "daemon/front/front.h"
#include "daemon/front/h2_guard.h"
#include <sys/epoll.h>

#define FRONT_CHUNK (64 << 10) /* bytes that are read at once */

typedef enum front_state {
    FRONT_PEEK,      /* not guarded: waits for the first bytes, then goes to gRPC */
    FRONT_HANDSHAKE, /* of the transport */
    FRONT_RELAY,
    FRONT_FLUSH, /* gRPC has ended it; what it said last goes out */
    FRONT_ENDED, /* freed after this round of events */
} front_state_t;

struct front_side {
    int fd;          /* -1: none */
    uint32_t events; /* that epoll watches; 0: it does not know the descriptor */
};

struct front_conn {
    struct ngd_front *front;
    struct ngd_list link;          /* front's all, in order of arrival; then its dead */
    struct ngd_list unproven_link; /* until its first bytes were good */
    struct ngd_list timed_link;    /* while something may get late */
    struct ngd_list paused_link;   /* while it pauses */
    front_state_t state;
    bool proven, admin;
    struct front_side client, server; /* server: our end of the pair */
    struct ngd_wire_io *io;
    struct ngd_h2_guard *guard;
    struct ngd_identity *identity; /* charged with the connection */
    struct front_bytes in;         /* said, and not looked at: it pauses */
    struct front_bytes up, down;   /* for gRPC, for the client: the other one is not read meanwhile */
    bool server_gone;              /* gRPC takes nothing more */
    bool read_wants_write, write_wants_read;
    bool was_reading;
    bool failed; /* ends as soon as the guard has returned; fail_reason NULL: without a word */
    const char *fail_reason, *fail_text;
    ngd_nsec_t opened, paused_until, down_moved, flush_until;
    ngd_nsec_t ends; /* by max-connection-age; NGD_NSEC_NEVER: not */
    char address[NGD_PEER_ADDRESS_MAX];
};

struct ngd_front {
    struct ngd_front_params params;
    int epoll, wake; /* wake: an eventfd */
    pthread_t thread;
    bool started;
    struct ngd_list all, unproven, timed, paused, dead;
    uint32_t n_unproven;
    uint32_t ages; /* connections that were given an end */
    uint8_t *chunk;
    _Atomic uint32_t n_all;
    _Atomic bool stopping;
    struct ngd_beat beat;
    struct ngd_mutex lock;
    struct ngd_list newcomers NGD_GUARDED_BY(lock);
};

/* conn.c */
/* Takes fd and a counted identity that is charged with the connection; NULL: out of memory, and neither was taken. */
struct front_conn *front_conn_create(struct ngd_front *front, int fd, const struct ngd_front_peer *peer, bool guarded,
                                     struct ngd_identity *identity);
void front_conn_event(struct front_conn *conn, bool of_server, uint32_t events);
/* Goes on after a pause. */
void front_conn_resume(struct front_conn *conn, ngd_nsec_t now);
void front_conn_tick(struct front_conn *conn, ngd_nsec_t now);
/* Tells, counts and ends. */
void front_conn_close(struct front_conn *conn, const char *reason, const char *text);
void front_conn_end(struct front_conn *conn); /* without a word */
void front_conn_free(struct front_conn *conn);

/* front.c: charges the connection to an identity. False: it has too many. Gives up its oldest silent one for it. */
bool front_charge(struct ngd_front *front, struct ngd_identity *identity);
void front_prove(struct front_conn *conn);

#endif
