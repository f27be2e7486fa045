/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/local.h"
#include "base/passed_fds.h"
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
    uint8_t data[256];
    const size_t bytes = npugraph__v1__local_request__pack(req, data);
    ssize_t n;

    do
        n = ngd_passed_fds_send(socket, data, bytes, &fd, fd >= 0 ? 1 : 0, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

/* Waits for the answer, for as long as the client's calls may take, and for the descriptors that fds has room for
 * (NULL: none). -1: errno says why there is none. */
static ssize_t receive_local_answer(int socket, uint32_t timeout_ms, uint8_t *data, int *fds, size_t *n_fds_p)
{
    struct pollfd p = {.fd = socket, .events = POLLIN};
    bool cut;
    int rc;

    do
        rc = poll(&p, 1, timeout_ms != 0 ? (int)timeout_ms : -1);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        errno = ETIMEDOUT;
    return rc > 0 ? ngd_passed_fds_receive(socket, data, ANSWER_BYTES, 0, fds != NULL ? NPUGRAPH__LOCAL_FDS : 0, fds,
                                           n_fds_p, &cut)
                  : -1;
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
    size_t n_fds = 0;
    int socket = -1, rc = connect_local(session->local, &socket, err);

    if (rc != 0)
        return rc;
    req->session = session->id;
    req->token = (ProtobufCBinaryData){sizeof(session->token), (uint8_t *)session->token};
    if (send_local_request(socket, req, fd) != 0)
        rc = unreachable(session->local, err);
    else
        rc = take_local_answer(session->local, data, receive_local_answer(socket, timeout_ms, data, fds, &n_fds),
                               answer_p, err);
    if (rc == 0 && fds != NULL && n_fds != NPUGRAPH__LOCAL_FDS) {
        npugraph__v1__local_response__free_unpacked(*answer_p, NULL);
        rc = npugraph__error(err, 13, "", "the daemon sent no descriptors");
    }
    if (rc != 0) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        close(socket);
        return rc;
    }
    *socket_p = socket;
    return 0;
}
