/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "daemon/front/wire_io.h"
#include <errno.h>
#include <sys/socket.h>

static ngd_wire_result_t plain_handshake(struct ngd_wire_io *io, struct ngd_diag *diag)
{
    (void)io;
    (void)diag;
    return NGD_WIRE_OK;
}

static ngd_wire_result_t plain_read(struct ngd_wire_io *io, void *to, size_t room, size_t *n_p)
{
    ssize_t n;

    do
        n = recv(io->fd, to, room, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? NGD_WIRE_WANT_READ : NGD_WIRE_ERROR;
    *n_p = (size_t)n;
    return n == 0 ? NGD_WIRE_CLOSED : NGD_WIRE_OK;
}

static ngd_wire_result_t plain_write(struct ngd_wire_io *io, const void *from, size_t n, size_t *n_p)
{
    ssize_t done;

    do
        done = send(io->fd, from, n, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? NGD_WIRE_WANT_WRITE : NGD_WIRE_ERROR;
    *n_p = (size_t)done;
    return NGD_WIRE_OK;
}

static bool plain_pending(const struct ngd_wire_io *io)
{
    (void)io;
    return false;
}

static void plain_destroy(struct ngd_wire_io *io)
{
    ngd_free(io);
}

static const struct ngd_wire_io_ops plain_ops = {.plain = true,
                                                 .handshake = plain_handshake,
                                                 .read = plain_read,
                                                 .pending = plain_pending,
                                                 .write = plain_write,
                                                 .destroy = plain_destroy};

static ngd_status_t plain_open(void *ctx, int fd, struct ngd_wire_io **io_p)
{
    struct ngd_wire_io *io = NGD_NEW(struct ngd_wire_io);

    (void)ctx;
    if (!io)
        return NGD_ERR_NO_MEMORY;
    *io = (struct ngd_wire_io){.ops = &plain_ops, .fd = fd};
    *io_p = io;
    return NGD_OK;
}

const struct ngd_wire_source ngd_wire_plain = {.open = plain_open};
