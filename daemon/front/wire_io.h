/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_WIRE_IO_H
#define NGD_DAEMON_FRONT_WIRE_IO_H

/*
 * The client's end of one connection: where the front gets the client's bytes and puts the answers.
 *
 * Why: TLS ends in the front. The relay and the frame checker see plain bytes, whatever the transport does to them.
 * Threads: one thread at a time, the front's. No function waits: the descriptor is nonblocking.
 * Memory: `destroy` frees the object; it neither closes nor shuts down the descriptor, which is the front's.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum ngd_wire_result {
    NGD_WIRE_OK,         /* done; of read and write: at least one byte was moved */
    NGD_WIRE_WANT_READ,  /* call again when the descriptor is readable */
    NGD_WIRE_WANT_WRITE, /* call again when the descriptor is writable; read may want this, and write WANT_READ */
    NGD_WIRE_CLOSED,     /* the client ended its stream in the proper way */
    NGD_WIRE_ERROR,      /* the connection is of no use any more; the diag says why, if there was one */
} ngd_wire_result_t;

#define NGD_WIRE_IDENTITY_MAX 160

struct ngd_wire_io;

struct ngd_wire_io_ops {
    /* Required. Goes on with the handshake, until it says OK; then identity is set. */
    ngd_wire_result_t (*handshake)(struct ngd_wire_io *io, struct ngd_diag *diag);
    /* Required. At most `room` bytes (> 0) of what the client says. The front reads on until it says WANT_READ, or
     * `pending` says no, so bytes may stay inside between calls; a front that had stopped reading calls it before it
     * waits again. */
    ngd_wire_result_t (*read)(struct ngd_wire_io *io, void *to, size_t room, size_t *n_p);
    /* Optional: false when read has nothing inside, and the descriptor tells of all that comes. */
    bool (*pending)(const struct ngd_wire_io *io);
    /* Required. Takes a part of n bytes (> 0), *n_p of them. After WANT_*, the next call has the same bytes at its
     * start, perhaps at another address and with more behind them. */
    ngd_wire_result_t (*write)(struct ngd_wire_io *io, const void *from, size_t n, size_t *n_p);
    /* Optional: once a second. A sentence when the connection may not go on (its certificate expired or was revoked),
     * else NULL; the text lives as long as io. */
    const char *(*over)(struct ngd_wire_io *io);
    /* Required. Says goodbye if that is possible without waiting, and frees io. NULL is not passed. */
    void (*destroy)(struct ngd_wire_io *io);
};

/* An implementation embeds this as its first field. */
struct ngd_wire_io {
    const struct ngd_wire_io_ops *ops;
    int fd;
    /* Set by the handshake. The identity's name; "": the transport proves none, and the front knows by other means. */
    char identity[NGD_WIRE_IDENTITY_MAX];
};

/* Makes the ends of a listener's connections. */
struct ngd_wire_source {
    /* Borrows fd, which is connected, nonblocking and close-on-exec. Any allocation may fail: NO_MEMORY. */
    ngd_status_t (*open)(void *ctx, int fd, struct ngd_wire_io **io_p);
    void *ctx;
};

/* Plain bytes: no handshake, no identity. */
extern const struct ngd_wire_source ngd_wire_plain;

#endif
