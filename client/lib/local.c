/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/local.h"
#include "client/lib/error.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES 4096

static int unreachable(const char *path, struct npugraph_error *err)
{
    return npugraph__error(err, 14, "UNREACHABLE", "the daemon's local socket %s cannot be reached: %s", path,
                           strerror(errno));
}

static int connect_local(const char *path, int *fd_p, struct npugraph_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd;

    if (*path == '\0')
        return npugraph__error(err, 14, "UNAVAILABLE",
                               "the daemon shares no memory with this client: connect by a Unix socket of the same "
                               "machine, and see the daemon's option local-socket");
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        int rc = unreachable(path, err);

        if (fd >= 0)
            close(fd);
        return rc;
    }
    *fd_p = fd;
    return 0;
}

static int send_local_request(int socket, const Npugraph__V1__LocalRequest *req, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    uint8_t data[256];
    struct iovec iov = {data, npugraph__v1__local_request__pack(req, data)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;
    ssize_t n;

    if (fd >= 0) {
        msg.msg_control = control.room;
        msg.msg_controllen = sizeof(control.room);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    do
        n = sendmsg(socket, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

/* Takes the descriptors of an answer. False: there are not as many as there must be. */
static bool take_fds(struct msghdr *msg, int *fds)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);

    if (c == NULL || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(NPUGRAPH__LOCAL_FDS * sizeof(int)))
        return false;
    memcpy(fds, CMSG_DATA(c), NPUGRAPH__LOCAL_FDS * sizeof(int));
    return true;
}

/* Waits for the answer, for as long as the client's calls may take. -1: errno says why there is none. */
static ssize_t receive_local_answer(int socket, uint32_t timeout_ms, uint8_t *data, int *fds, bool *with_fds_p)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(NPUGRAPH__LOCAL_FDS * sizeof(int))];
    } control;
    struct iovec iov = {data, ANSWER_BYTES};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    struct pollfd p = {.fd = socket, .events = POLLIN};
    ssize_t n;
    int rc;

    do
        rc = poll(&p, 1, timeout_ms != 0 ? (int)timeout_ms : -1);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        errno = ETIMEDOUT;
    n = rc > 0 ? recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) : -1;
    *with_fds_p = n > 0 && fds != NULL && take_fds(&msg, fds);
    return n;
}

static int take_local_answer(const char *path, const uint8_t *data, ssize_t n, Npugraph__V1__LocalResponse **answer_p,
                             struct npugraph_error *err)
{
    Npugraph__V1__LocalResponse *answer = n > 0 ? npugraph__v1__local_response__unpack(NULL, (size_t)n, data) : NULL;
    int rc;

    if (answer == NULL) {
        errno = n < 0 ? errno : n == 0 ? ECONNRESET : EPROTO;
        return unreachable(path, err);
    }
    if (answer->error == NULL) {
        *answer_p = answer;
        return 0;
    }
    rc = npugraph__error(err, answer->error->code, answer->error->reason, "%s", answer->error->message);
    npugraph__v1__local_response__free_unpacked(answer, NULL);
    return rc;
}

int npugraph__local_ask(const struct npugraph__session *session, uint32_t timeout_ms, Npugraph__V1__LocalRequest *req,
                        int fd, int *socket_p, int *fds, Npugraph__V1__LocalResponse **answer_p,
                        struct npugraph_error *err)
{
    uint8_t data[ANSWER_BYTES];
    bool with_fds = false;
    int socket = -1, rc = connect_local(session->local, &socket, err);

    if (rc != 0)
        return rc;
    req->session = session->id;
    req->token = (ProtobufCBinaryData){sizeof(session->token), (uint8_t *)session->token};
    if (send_local_request(socket, req, fd) != 0)
        rc = unreachable(session->local, err);
    else
        rc = take_local_answer(session->local, data, receive_local_answer(socket, timeout_ms, data, fds, &with_fds),
                               answer_p, err);
    if (rc == 0 && fds != NULL && !with_fds) {
        npugraph__v1__local_response__free_unpacked(*answer_p, NULL);
        rc = npugraph__error(err, 13, "", "the daemon sent no descriptors");
    }
    if (rc != 0) {
        close(socket);
        return rc;
    }
    *socket_p = socket;
    return 0;
}
