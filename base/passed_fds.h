/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_PASSED_FDS_H
#define NGD_BASE_PASSED_FDS_H

/*
 * Packets of a Unix socket with descriptors (SCM_RIGHTS). What comes may be hostile: each descriptor that came is
 * either in the caller's array or closed, and the caller learns that something is missing.
 * Inline, since libnpugraph is linked without libngdbase. Threads: any.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define NGD_PASSED_FDS_MAX 253 /* of one packet: the kernel's limit */

union ngd_passed_fds_control {
    struct cmsghdr align;
    char room[CMSG_SPACE(NGD_PASSED_FDS_MAX * sizeof(int))];
};

/* Sends n bytes with up to NGD_PASSED_FDS_MAX descriptors, which stay the caller's. Returns and fails as sendmsg. */
static inline ssize_t ngd_passed_fds_send(int socket, const void *data, size_t n, const int *fds, size_t n_fds,
                                          int flags)
{
    union ngd_passed_fds_control control;
    struct iovec iov = {(void *)(uintptr_t)data, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *head;

    if (n_fds) {
        msg.msg_control = control.room;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        memset(control.room, 0, msg.msg_controllen);
        head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, n_fds * sizeof(int));
    }
    return sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
}

/*
 * Receives up to `bytes` bytes and up to `most` descriptors, which are closed on exec and the caller's to close. cut:
 * the packet had more bytes or descriptors, or this process has no room for another descriptor. Returns and fails as
 * recvmsg; then nothing is written.
 */
static inline ssize_t ngd_passed_fds_receive(int socket, void *data, size_t bytes, int flags, size_t most, int *fds_p,
                                             size_t *n_fds_p, bool *cut_p)
{
    union ngd_passed_fds_control control;
    struct iovec iov = {data, bytes};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    const ssize_t n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    size_t taken = 0;

    if (n < 0)
        return n;
    *cut_p = msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        const size_t came =
            c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        for (size_t i = 0; i < came; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (taken < most) {
                fds_p[taken++] = fd;
            } else {
                close(fd);
                *cut_p = true;
            }
        }
    }
    *n_fds_p = taken;
    return n;
}

#endif
