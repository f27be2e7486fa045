/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the daemon reads and writes by a descriptor, which it gets over its local socket. */
#include "client/lib/shared.h"
#include "client/lib/client_int.h"
#include "client/lib/session.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES 4096
#define SEALS        (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct npugraph__shared_item {
    const char *data;
    uint64_t bytes, buffer;
};

/* ---- the list ------------------------------------------------------------------------------------------ */

void npugraph__shared_init(struct npugraph__shared *all)
{
    pthread_mutex_init(&all->lock, NULL);
    all->items = NULL;
    atomic_init(&all->n, 0);
}

void npugraph__shared_fini(struct npugraph__shared *all)
{
    free(all->items);
    pthread_mutex_destroy(&all->lock);
}

bool npugraph__shared_find(struct npugraph__shared *all, const void *data, uint64_t bytes,
                           struct npugraph__shared_at *at_p)
{
    const char *p = data;
    bool found = false;

    if (npugraph__shared_is_empty(all))
        return false;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n && !found; i++) {
        const struct npugraph__shared_item *item = &all->items[i];

        found = p >= item->data && p < item->data + item->bytes && bytes <= (uint64_t)(item->data + item->bytes - p);
        if (found)
            *at_p = (struct npugraph__shared_at){item->buffer, (uint64_t)(p - item->data)};
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

void npugraph__shared_forget(struct npugraph__shared *all, uint64_t buffer)
{
    if (npugraph__shared_is_empty(all))
        return;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].buffer != buffer)
            continue;
        all->items[i] = all->items[all->n - 1];
        all->n--;
        break;
    }
    pthread_mutex_unlock(&all->lock);
}

static int remember(struct npugraph__shared *all, const struct npugraph_shared *shared, struct npugraph_error *err)
{
    struct npugraph__shared_item *items;

    pthread_mutex_lock(&all->lock);
    items = realloc(all->items, (all->n + 1) * sizeof(*items));
    if (items != NULL) {
        all->items = items;
        items[all->n] = (struct npugraph__shared_item){shared->data, shared->bytes, shared->buffer};
        all->n++;
    }
    pthread_mutex_unlock(&all->lock);
    return items != NULL ? 0 : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}

/* ---- the local socket ---------------------------------------------------------------------------------- */

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
                               "the daemon takes no shared buffers from this client: connect by a Unix socket of the "
                               "same machine, and see the daemon's option local-socket");
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

static int send_descriptor(int socket, const Npugraph__V1__LocalRequest *req, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    uint8_t data[256];
    struct iovec iov = {data, npugraph__v1__local_request__pack(req, data)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    ssize_t n;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    do
        n = sendmsg(socket, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

/* Waits for the answer, for as long as the client's calls may take. */
static ssize_t receive_local_answer(int socket, uint32_t timeout_ms, uint8_t *data, size_t room)
{
    struct pollfd p = {.fd = socket, .events = POLLIN};
    int rc;

    do
        rc = poll(&p, 1, timeout_ms != 0 ? (int)timeout_ms : -1);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        errno = ETIMEDOUT;
    return rc > 0 ? recv(socket, data, room, 0) : -1;
}

static int take_local_answer(const char *path, const uint8_t *data, ssize_t n, uint64_t *buffer_p,
                             struct npugraph_error *err)
{
    Npugraph__V1__LocalResponse *answer = n > 0 ? npugraph__v1__local_response__unpack(NULL, (size_t)n, data) : NULL;
    int rc = 0;

    if (answer == NULL) {
        errno = n < 0 ? errno : n == 0 ? ECONNRESET : EPROTO;
        return unreachable(path, err);
    }
    if (answer->error != NULL)
        rc = npugraph__error(err, answer->error->code, answer->error->reason, "%s", answer->error->message);
    else
        *buffer_p = answer->buffer;
    npugraph__v1__local_response__free_unpacked(answer, NULL);
    return rc;
}

static int give_shared_memory(struct npugraph_client *client, int fd, uint64_t bytes, uint64_t *buffer_p,
                              struct npugraph_error *err)
{
    const struct npugraph__session *session = npugraph__client_session(client);
    Npugraph__V1__LocalRequest req = NPUGRAPH__V1__LOCAL_REQUEST__INIT;
    Npugraph__V1__ShareMemory share = NPUGRAPH__V1__SHARE_MEMORY__INIT;
    uint8_t data[ANSWER_BYTES];
    int socket = -1, rc = connect_local(session->local, &socket, err);

    if (rc != 0)
        return rc;
    share.bytes = bytes;
    req.session = session->id;
    req.token = (ProtobufCBinaryData){sizeof(session->token), (uint8_t *)session->token};
    req.share = &share;
    if (send_descriptor(socket, &req, fd) != 0)
        rc = unreachable(session->local, err);
    else
        rc = take_local_answer(session->local, data,
                               receive_local_answer(socket, npugraph__client_timeout(client), data, sizeof(data)),
                               buffer_p, err);
    close(socket);
    return rc;
}

/* ---- the memory ---------------------------------------------------------------------------------------- */

static int make_memory(uint64_t bytes, int *fd_p, void **data_p, struct npugraph_error *err)
{
    int fd = memfd_create("npugraph", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0 ||
        (*data_p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        int rc = npugraph__error(err, 8, "NO_MEMORY", "no %" PRIu64 " bytes of memory can be shared: %s", bytes,
                                 strerror(errno));

        if (fd >= 0)
            close(fd);
        return rc;
    }
    *fd_p = fd;
    return 0;
}

int npugraph_shared_alloc(struct npugraph_client *client, uint64_t bytes, struct npugraph_shared *shared_p,
                          struct npugraph_error *err)
{
    struct npugraph_shared shared = {.bytes = bytes};
    int fd = -1, rc;

    if (bytes == 0 || bytes > (uint64_t)1 << 46)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "a shared buffer has 1 to 2^46 bytes, not %" PRIu64, bytes);
    rc = make_memory(bytes, &fd, &shared.data, err);
    if (rc != 0)
        return rc;
    rc = give_shared_memory(client, fd, bytes, &shared.buffer, err);
    close(fd);
    if (rc == 0) {
        rc = remember(npugraph__client_shared(client), &shared, err);
        if (rc != 0)
            npugraph_buffer_free(client, &shared.buffer, 1, NULL);
    }
    if (rc != 0)
        munmap(shared.data, bytes);
    else
        *shared_p = shared;
    return rc;
}

int npugraph_shared_free(struct npugraph_client *client, const struct npugraph_shared *shared,
                         struct npugraph_error *err)
{
    int rc = client != NULL ? npugraph_buffer_free(client, &shared->buffer, 1, err) : 0;

    munmap(shared->data, shared->bytes);
    return rc;
}
