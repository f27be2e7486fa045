/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/store_owners.h"
#include "base/le.h"
#include "base/mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "owner "

void ngd_store_owners_fini(struct ngd_store_owners *owners)
{
    ngd_free(owners->items);
    *owners = (struct ngd_store_owners){.items = NULL};
}

struct ngd_store_owner *ngd_store_owners_find(const struct ngd_store_owners *owners, const char *name)
{
    for (uint32_t i = 0; i < owners->n; i++)
        if (strcmp(owners->items[i].name, name) == 0)
            return &owners->items[i];
    return NULL;
}

static bool append_owner(struct ngd_store_owners *owners, const char *name)
{
    if (owners->n == owners->cap) {
        const uint32_t cap = owners->cap ? owners->cap * 2 : 8;
        struct ngd_store_owner *items = ngd_reallocarray(owners->items, cap, sizeof(*items));

        if (!items)
            return false;
        owners->items = items;
        owners->cap = cap;
    }
    owners->items[owners->n] = (struct ngd_store_owner){.bytes = 0};
    snprintf(owners->items[owners->n++].name, NGD_STORE_OWNER_MAX, "%s", name);
    return true;
}

bool ngd_store_owners_add(struct ngd_store_owners *owners, const char *name, uint32_t *index_p)
{
    const struct ngd_store_owner *owner;

    if (owners->n == 0 && !append_owner(owners, ""))
        return false;
    owner = ngd_store_owners_find(owners, name);
    if (!owner && !append_owner(owners, name))
        return false;
    *index_p = owner ? (uint32_t)(owner - owners->items) : owners->n - 1;
    return true;
}

void ngd_store_owner_of_notes(const char *notes, size_t n, char owner[NGD_STORE_OWNER_MAX])
{
    if (n < strlen(PREFIX) || memcmp(notes, PREFIX, strlen(PREFIX)) != 0 ||
        !ngd_store_line(notes, n, "owner", owner, NGD_STORE_OWNER_MAX))
        owner[0] = '\0';
}

void ngd_store_owner_of_file(int dir, const char *name, char owner[NGD_STORE_OWNER_MAX])
{
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    char notes[sizeof(PREFIX) + NGD_STORE_OWNER_MAX];
    uint8_t head[NGD_STORE_HEAD_BYTES];
    uint64_t n_identity, n_notes;
    ssize_t n = 0;

    owner[0] = '\0';
    if (fd < 0)
        return;
    if (pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head)) {
        n_identity = ngd_le_get(head + 8, 4);
        n_notes = ngd_le_get(head + 12, 4);
        n = pread(fd, notes, n_notes < sizeof(notes) ? n_notes : sizeof(notes), (off_t)(sizeof(head) + n_identity));
    }
    close(fd);
    if (n > 0)
        ngd_store_owner_of_notes(notes, (size_t)n, owner);
}
