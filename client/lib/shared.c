/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the daemon reads and writes by a descriptor, which it gets over its local socket. */
#include "client/lib/shared.h"
#include "base/memfd.h"
#include "client/lib/client_int.h"
#include "client/lib/local.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ---- the memory ---------------------------------------------------------------------------------------- */

static int give_shared_memory(struct npugraph_client *client, int fd, uint64_t bytes, uint64_t *buffer_p,
                              struct npugraph_error *err)
{
    Npugraph__V1__LocalRequest req = NPUGRAPH__V1__LOCAL_REQUEST__INIT;
    Npugraph__V1__ShareMemory share = NPUGRAPH__V1__SHARE_MEMORY__INIT;
    Npugraph__V1__LocalResponse *answer;
    int socket, rc;

    share.bytes = bytes;
    req.share = &share;
    npugraph__client_hold(client, false);
    rc = npugraph__local_ask(npugraph__client_session(client), npugraph__client_timeout(client), &req, fd, &socket,
                             NULL, &answer, err);
    if (rc != 0)
        return rc;
    *buffer_p = answer->buffer;
    npugraph__v1__local_response__free_unpacked(answer, NULL);
    close(socket);
    return 0;
}

static int make_memory(uint64_t bytes, int *fd_p, void **data_p, struct npugraph_error *err)
{
    int fd = memfd_create("npugraph", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, NGD_MEMFD_SIZED) != 0 ||
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
