/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_WIRE_IO_H
#define NGD_DAEMON_FRONT_WIRE_IO_H

/*
 * The client's end of one connection: the front reads the client's bytes from it and writes the answers to it.
 *
 * Why: TLS ends in the front. The relay and the frame checker see plain bytes, whatever the transport does to them.
 *
 * Threads: one thread at a time, the front's. No function waits: the descriptor is nonblocking.
 * Memory: `destroy` frees the object; it neither closes nor shuts down the descriptor, which the front owns.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum ngd_wire_result {
    NGD_WIRE_OK,         /* done; read and write have moved at least one byte */
    NGD_WIRE_WANT_READ,  /* call again when the descriptor is readable */
    NGD_WIRE_WANT_WRITE, /* call again when the descriptor is writable; read may want this, and write WANT_READ */
    NGD_WIRE_CLOSED,     /* the client ended its stream properly */
    NGD_WIRE_ERROR,      /* the connection cannot be used any more; diag, if there is one, says why */
} ngd_wire_result_t;

#define NGD_WIRE_IDENTITY_MAX 160

struct ngd_wire_io;

struct ngd_wire_io_ops {
    bool plain; /* the descriptor carries the bytes themselves, so that they may be written to it without `write` */
    /* Required. Continues the handshake until it returns OK; then identity is set. */
    ngd_wire_result_t (*handshake)(struct ngd_wire_io *io, struct ngd_diag *diag);
    /*
     * Required. Reads at most `room` bytes (> 0) from the client. The front reads until it gets WANT_READ, or `pending`
     * returns false. So bytes may stay inside between calls. A front that had stopped reading calls it before it waits
     * again.
     */
    ngd_wire_result_t (*read)(struct ngd_wire_io *io, void *to, size_t room, size_t *n_p);
    /* Optional: false if no bytes are inside, so that the descriptor reports all that arrives. */
    bool (*pending)(const struct ngd_wire_io *io);
    /* Required. Takes *n_p of n bytes (> 0). After WANT_*, the next call begins with the same bytes, perhaps at another
     * address and with more after them. */
    ngd_wire_result_t (*write)(struct ngd_wire_io *io, const void *from, size_t n, size_t *n_p);
    /* Optional, called once a second. Returns a sentence if the connection must end (its certificate expired or was
     * revoked), else NULL. The text lives as long as io. */
    const char *(*over)(struct ngd_wire_io *io);
    /* Required. Closes the transport properly if that is possible without waiting, and frees io. NULL is not passed. */
    void (*destroy)(struct ngd_wire_io *io);
};

/* An implementation embeds this as its first field. */
struct ngd_wire_io {
    const struct ngd_wire_io_ops *ops;
    int fd;
    /* The identity's name, set by the handshake; "": the transport proves none, and the front knows it by other
     * means. */
    char identity[NGD_WIRE_IDENTITY_MAX];
};

/* Makes the client's ends of connections. */
struct ngd_wire_source {
    /* Makes an end for fd, which it borrows. fd is connected, nonblocking and close-on-exec. NO_MEMORY. */
    ngd_status_t (*open)(void *ctx, int fd, struct ngd_wire_io **io_p);
    void *ctx;
};

/* Transport without encryption: no handshake, no identity. */
extern const struct ngd_wire_source ngd_wire_plain;

#endif
