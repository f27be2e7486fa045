/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers.h"
#include "base/mem.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct entry {
    ino_t inode;     /* 0: empty */
    uint64_t number; /* in the order of arrival */
    struct ngd_identity *identity;
    char address[NGD_PEER_ADDRESS_MAX];
};

struct ngd_peers {
    struct ngd_mutex lock;
    struct entry **by_fd NGD_GUARDED_BY(lock);
    size_t cap NGD_GUARDED_BY(lock);
    uint32_t count NGD_GUARDED_BY(lock); /* entries; at least the open ones */
    uint64_t next_number NGD_GUARDED_BY(lock);
    uint32_t max;
};

ngd_status_t ngd_peers_create(uint32_t max_connections, struct ngd_peers **peers_p)
{
    struct ngd_peers *peers = NGD_NEW(struct ngd_peers);

    if (!peers)
        return NGD_ERR_NO_MEMORY;
    peers->max = max_connections;
    ngd_mutex_init(&peers->lock, NGD_RANK_PEERS);
    *peers_p = peers;
    return NGD_OK;
}

static void drop(struct ngd_peers *peers, size_t fd) NGD_REQUIRES(peers->lock)
{
    ngd_identity_unref(peers->by_fd[fd]->identity);
    ngd_free(peers->by_fd[fd]);
    peers->by_fd[fd] = NULL;
    peers->count--;
}

void ngd_peers_destroy(struct ngd_peers *peers)
{
    if (!peers)
        return;
    ngd_mutex_lock(&peers->lock);
    for (size_t fd = 0; fd < peers->cap; fd++)
        if (peers->by_fd[fd])
            drop(peers, fd);
    ngd_free(peers->by_fd);
    peers->by_fd = NULL;
    ngd_mutex_unlock(&peers->lock);
    ngd_mutex_fini(&peers->lock);
    ngd_free(peers);
}

static bool is_open(const struct entry *entry, size_t fd)
{
    struct stat st;

    return fstat((int)fd, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == entry->inode;
}

static void sweep(struct ngd_peers *peers) NGD_REQUIRES(peers->lock)
{
    for (size_t fd = 0; fd < peers->cap && peers->count > 0; fd++)
        if (peers->by_fd[fd] && !is_open(peers->by_fd[fd], fd))
            drop(peers, fd);
}

static ngd_status_t make_room(struct ngd_peers *peers, size_t fd) NGD_REQUIRES(peers->lock)
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

static ngd_status_t put_entry(struct ngd_peers *peers, size_t fd, struct entry *entry) NGD_REQUIRES(peers->lock)
{
    ngd_status_t status = make_room(peers, fd);

    if (status != NGD_OK)
        return status;
    if (peers->by_fd[fd])
        drop(peers, fd);
    if (peers->count >= peers->max)
        sweep(peers);
    if (peers->count >= peers->max)
        return NGD_ERR_RESOURCE_EXHAUSTED;
    entry->number = ++peers->next_number;
    peers->by_fd[fd] = entry;
    peers->count++;
    return NGD_OK;
}

ngd_status_t ngd_peers_add(struct ngd_peers *peers, int fd, struct ngd_identity *identity, const char *address)
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
    entry->identity = identity ? ngd_identity_ref(identity) : NULL;
    snprintf(entry->address, sizeof(entry->address), "%s", address);
    ngd_mutex_lock(&peers->lock);
    status = put_entry(peers, (size_t)fd, entry);
    ngd_mutex_unlock(&peers->lock);
    if (status != NGD_OK) {
        ngd_identity_unref(entry->identity);
        ngd_free(entry);
    }
    return status;
}

ngd_status_t ngd_peers_get(struct ngd_peers *peers, int fd, struct ngd_peer *peer_p)
{
    ngd_status_t status = NGD_ERR_NOT_FOUND;

    ngd_mutex_lock(&peers->lock);
    if (fd >= 0 && (size_t)fd < peers->cap && peers->by_fd[fd]) {
        struct entry *entry = peers->by_fd[fd];

        peer_p->identity = entry->identity ? ngd_identity_ref(entry->identity) : NULL;
        memcpy(peer_p->address, entry->address, sizeof(peer_p->address));
        status = NGD_OK;
    }
    ngd_mutex_unlock(&peers->lock);
    return status;
}

/* Shut down by us, or given up by the peer, but its descriptor is still open: what a failed handshake looks like. */
static bool is_closing(int fd)
{
    struct tcp_info info;
    socklen_t n = sizeof(info);

    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_state != TCP_ESTABLISHED;
}

bool ngd_peers_failed_handshake(struct ngd_peers *peers, char address[NGD_PEER_ADDRESS_MAX])
{
    uint64_t newest = 0;

    ngd_mutex_lock(&peers->lock);
    for (size_t fd = 0; fd < peers->cap; fd++) {
        const struct entry *entry = peers->by_fd[fd];

        if (!entry || entry->identity || entry->number < newest || !is_open(entry, fd) || !is_closing((int)fd))
            continue;
        newest = entry->number;
        memcpy(address, entry->address, NGD_PEER_ADDRESS_MAX);
    }
    ngd_mutex_unlock(&peers->lock);
    return newest != 0;
}

uint32_t ngd_peers_count(struct ngd_peers *peers)
{
    uint32_t n;

    ngd_mutex_lock(&peers->lock);
    sweep(peers);
    n = peers->count;
    ngd_mutex_unlock(&peers->lock);
    return n;
}

uint32_t ngd_peers_limit(const struct ngd_peers *peers)
{
    return peers->max;
}
