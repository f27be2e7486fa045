/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover/packet.h"
#include "base/mem.h"
#include "base/memfd.h"
#include "base/passed_fds.h"
#include "daemon/reactor.h"
#include "daemon/rpc/wire_check.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIGNAL_EVERY (100 * NGD_MSEC)

void ngd_packet_fds_close(struct ngd_packet_fds *fds)
{
    while (fds->n > 0)
        close(fds->fds[--fds->n]);
}

bool ngd_packet_peer_is_ours(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == geteuid() || cred.uid == 0);
}

/* ---- sending --------------------------------------------------------------------------------------------- */

ngd_status_t ngd_packet_send(int fd, ngd_packet *packet, const struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    size_t n;
    uint8_t *data;
    int error;

    packet->protocol = NGD_HANDOVER_PROTOCOL;
    n = npugraph__handover__v1__packet__get_packed_size(packet);
    if (n > NGD_PACKET_BYTES)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "a packet of the handover would have %zu bytes, above %u",
                            n, NGD_PACKET_BYTES);
    data = ngd_malloc(n);
    if (!data)
        return NGD_ERR_NO_MEMORY;
    npugraph__handover__v1__packet__pack(packet, data);
    error = ngd_passed_fds_send(fd, data, n, fds ? fds->fds : NULL, fds ? fds->n : 0, MSG_DONTWAIT) < 0 ? errno : 0;
    ngd_free(data);
    if (error == 0)
        return NGD_OK;
    return ngd_diag_set(diag, error == EAGAIN || error == ENOBUFS ? NGD_ERR_BUSY : NGD_ERR_IO,
                        "the other daemon cannot be told: %s", strerror(error));
}

/* ---- receiving ------------------------------------------------------------------------------------------- */

static ngd_status_t wait_for_packet(int fd, ngd_nsec_t wait, struct ngd_diag *diag)
{
    const ngd_nsec_t until = ngd_now() + wait;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int rc;

    do {
        const ngd_nsec_t left = until - ngd_now();

        if (ngd_reactor_stop_asked())
            return ngd_diag_set(diag, NGD_ERR_CANCELLED, "a signal has ended the handover");
        rc = poll(&p, 1,
                  left > SIGNAL_EVERY ? (int)(SIGNAL_EVERY / NGD_MSEC)
                  : left > 0          ? (int)(left / NGD_MSEC) + 1
                                      : 0);
    } while (rc < 0 ? errno == EINTR : rc == 0 && ngd_now() < until);
    return rc > 0 ? NGD_OK : ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "the other daemon has said nothing in time");
}

/* Receives the bytes of one packet. */
static ngd_status_t receive_bytes(int fd, uint8_t *data, size_t *n_p, struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    bool cut;
    const ssize_t n =
        ngd_passed_fds_receive(fd, data, NGD_PACKET_BYTES, MSG_DONTWAIT, NGD_PACKET_FDS, fds->fds, &fds->n, &cut);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return NGD_ERR_UNAVAILABLE;
    if (n < 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "the other daemon cannot be heard: %s", strerror(errno));
    if (cut)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "a packet of the handover has more than %u bytes or %d descriptors, or this process has no "
                            "room for another descriptor",
                            NGD_PACKET_BYTES, NGD_PACKET_FDS);
    *n_p = (size_t)n;
    return n == 0 ? ngd_diag_set(diag, NGD_ERR_IO, "the other daemon has ended the handover") : NGD_OK;
}

static ngd_status_t unpack_packet_of(const uint8_t *data, size_t n, struct ngd_arena *arena,
                                     const ngd_packet **packet_p, struct ngd_diag *diag)
{
    const void *message;
    const ngd_packet *packet;
    ngd_status_t status = ngd_wire_unpack(&npugraph__handover__v1__packet__descriptor, data, n, arena, &message, diag);

    if (status != NGD_OK)
        return status;
    packet = message;
    if (packet->protocol != NGD_HANDOVER_PROTOCOL)
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                            "the other daemon hands over by protocol %" PRIu32 ", and this one by %d: stop one and "
                            "start the other",
                            packet->protocol, NGD_HANDOVER_PROTOCOL);
    *packet_p = packet;
    return NGD_OK;
}

ngd_status_t ngd_packet_receive(int fd, ngd_nsec_t wait, struct ngd_arena *arena, const ngd_packet **packet_p,
                                struct ngd_packet_fds *fds, struct ngd_diag *diag)
{
    uint8_t *data = ngd_arena_alloc(arena, NGD_PACKET_BYTES);
    ngd_status_t status = data ? NGD_OK : NGD_ERR_NO_MEMORY;
    size_t n = 0;

    fds->n = 0;
    if (status == NGD_OK && wait > 0)
        status = wait_for_packet(fd, wait, diag);
    if (status == NGD_OK)
        status = receive_bytes(fd, data, &n, fds, diag);
    if (status == NGD_OK)
        status = unpack_packet_of(data, n, arena, packet_p, diag);
    if (status != NGD_OK)
        ngd_packet_fds_close(fds);
    return status;
}

/* ---- what is large --------------------------------------------------------------------------------------- */

ngd_status_t ngd_packet_memfd(const char *name, const void *data, size_t n, int *fd_p, struct ngd_diag *diag)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    for (size_t done = 0; fd >= 0 && done < n;) {
        const ssize_t put = write(fd, (const uint8_t *)data + done, n - done);

        if (put < 0 && errno != EINTR) {
            close(fd);
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the handover: %s", strerror(errno));
        }
        done += put > 0 ? (size_t)put : 0;
    }
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, NGD_MEMFD_WRITTEN) < 0) {
        if (fd >= 0)
            close(fd);
        return ngd_diag_set(diag, NGD_ERR_IO, "no memory can be shared with the next daemon: %s", strerror(errno));
    }
    *fd_p = fd;
    return NGD_OK;
}

ngd_status_t ngd_packet_map(int fd, uint64_t n, const void **data_p, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    void *data;

    if (ngd_memfd_check(fd, n, NGD_MEMFD_WRITTEN, &why) != NGD_OK)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the handover's memory cannot be used: %s", why.text);
    data = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "the handover's memory cannot be mapped: %s", strerror(errno));
    *data_p = data;
    return NGD_OK;
}
