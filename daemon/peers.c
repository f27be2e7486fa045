/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers.h"
#include "base/mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct entry {
    ino_t inode; /* 0: empty */
    struct ngd_identity *identity;
    bool guarded, charged, known;
    char address[NGD_PEER_ADDRESS_MAX];
};

struct ngd_peers {
    struct ngd_mutex lock;
    struct entry **by_fd NGD_GUARDED_BY(lock);
    size_t cap NGD_GUARDED_BY(lock);
    uint32_t count NGD_GUARDED_BY(lock); /* entries that are not guarded; at least as many as are open */
};

ngd_status_t ngd_peers_create(struct ngd_peers **peers_p)
{
    struct ngd_peers *peers = NGD_NEW(struct ngd_peers);

    if (!peers)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&peers->lock, NGD_RANK_PEERS);
    *peers_p = peers;
    return NGD_OK;
}

static void drop_peer(struct ngd_peers *peers, size_t fd) NGD_REQUIRES(peers->lock)
{
    struct entry *entry = peers->by_fd[fd];

    if (entry->charged)
        ngd_identity_give(entry->identity, NGD_QUOTA_CONNECTIONS, 1);
    ngd_identity_unref(entry->identity);
    peers->count -= !entry->guarded;
    ngd_free(entry);
    peers->by_fd[fd] = NULL;
}

void ngd_peers_destroy(struct ngd_peers *peers)
{
    if (!peers)
        return;
    ngd_mutex_lock(&peers->lock);
    for (size_t fd = 0; fd < peers->cap; fd++)
        if (peers->by_fd[fd])
            drop_peer(peers, fd);
    ngd_free(peers->by_fd);
    peers->by_fd = NULL;
    ngd_mutex_unlock(&peers->lock);
    ngd_mutex_fini(&peers->lock);
    ngd_free(peers);
}

/*
 * True if the descriptor is still the entry's socket. gRPC owns the number, and by now it may be another file, which
 * has another inode. Uses statx, because ThreadSanitizer takes fstat for a use of the other file.
 */
static bool is_peer_open(const struct entry *entry, size_t fd)
{
    struct statx st;

    return statx((int)fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &st) == 0 && S_ISSOCK(st.stx_mode) &&
           st.stx_ino == entry->inode;
}

static void sweep(struct ngd_peers *peers) NGD_REQUIRES(peers->lock)
{
    for (size_t fd = 0; fd < peers->cap; fd++)
        if (peers->by_fd[fd] && !is_peer_open(peers->by_fd[fd], fd))
            drop_peer(peers, fd);
}

void ngd_peers_hang_up(struct ngd_peers *peers)
{
    ngd_mutex_lock(&peers->lock);
    for (size_t fd = 0; fd < peers->cap; fd++)
        if (peers->by_fd[fd] && is_peer_open(peers->by_fd[fd], fd))
            (void)shutdown((int)fd, SHUT_RDWR);
    ngd_mutex_unlock(&peers->lock);
}

static ngd_status_t make_peer_room(struct ngd_peers *peers, size_t fd) NGD_REQUIRES(peers->lock)
{
    size_t cap = peers->cap ? peers->cap : 64;
    struct entry **by_fd;

    if (fd < peers->cap)
        return NGD_OK;
    while (cap <= fd)
        cap *= 2;
    by_fd = ngd_reallocarray(peers->by_fd, cap, sizeof(*by_fd));
    if (!by_fd)
        return NGD_ERR_NO_MEMORY;
    memset(by_fd + peers->cap, 0, (cap - peers->cap) * sizeof(*by_fd));
    peers->by_fd = by_fd;
    peers->cap = cap;
    return NGD_OK;
}

static ngd_status_t put_peer(struct ngd_peers *peers, size_t fd, struct entry *entry) NGD_REQUIRES(peers->lock)
{
    ngd_status_t status = make_peer_room(peers, fd);

    if (status != NGD_OK)
        return status;
    if (peers->by_fd[fd])
        drop_peer(peers, fd);
    peers->by_fd[fd] = entry;
    peers->count += !entry->guarded;
    return NGD_OK;
}

ngd_status_t ngd_peers_add(struct ngd_peers *peers, int fd, struct ngd_identity *identity, const char *address,
                           bool guarded)
{
    struct entry *entry;
    ngd_status_t status;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return NGD_ERR_IO;
    entry = NGD_NEW(struct entry);
    if (!entry)
        return NGD_ERR_NO_MEMORY;
    entry->inode = st.st_ino;
    entry->identity = ngd_identity_ref(identity);
    entry->guarded = guarded;
    entry->charged = !guarded;
    snprintf(entry->address, sizeof(entry->address), "%s", address);
    ngd_mutex_lock(&peers->lock);
    status = put_peer(peers, (size_t)fd, entry);
    ngd_mutex_unlock(&peers->lock);
    if (status != NGD_OK) {
        ngd_identity_unref(entry->identity);
        ngd_free(entry);
    }
    return status;
}

static struct entry *find_peer(const struct ngd_peers *peers, int fd) NGD_REQUIRES(peers->lock)
{
    return fd >= 0 && (size_t)fd < peers->cap ? peers->by_fd[fd] : NULL;
}

ngd_status_t ngd_peers_get(struct ngd_peers *peers, int fd, struct ngd_peer *peer_p)
{
    ngd_status_t status = NGD_ERR_NOT_FOUND;
    const struct entry *entry;

    ngd_mutex_lock(&peers->lock);
    entry = find_peer(peers, fd);
    if (entry) {
        peer_p->identity = ngd_identity_ref(entry->identity);
        peer_p->known = entry->known;
        memcpy(peer_p->address, entry->address, sizeof(peer_p->address));
        status = NGD_OK;
    }
    ngd_mutex_unlock(&peers->lock);
    return status;
}

void ngd_peers_know(struct ngd_peers *peers, int fd)
{
    struct entry *entry;

    ngd_mutex_lock(&peers->lock);
    entry = find_peer(peers, fd);
    if (entry)
        entry->known = true;
    ngd_mutex_unlock(&peers->lock);
}

bool ngd_peers_is_known(struct ngd_peers *peers, int fd)
{
    const struct entry *entry;
    bool known;

    ngd_mutex_lock(&peers->lock);
    entry = find_peer(peers, fd);
    known = entry && entry->known;
    ngd_mutex_unlock(&peers->lock);
    return known;
}

uint32_t ngd_peers_count(struct ngd_peers *peers, bool now)
{
    uint32_t n;

    ngd_mutex_lock(&peers->lock);
    if (now)
        sweep(peers);
    n = peers->count;
    ngd_mutex_unlock(&peers->lock);
    return n;
}
