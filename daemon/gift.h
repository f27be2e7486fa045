/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_GIFT_H
#define NGD_DAEMON_GIFT_H

/*
 * Descriptors that one daemon hands over to the next (proto/handover.proto): listening sockets and locks, each with
 * what it is for. Both processes have the sockets then, and what a client sends to one of them waits for whoever
 * accepts; a lock is held until both have closed it.
 *
 * The old daemon fills a gift with descriptors that stay its own. The new one takes them out of the gift one by one;
 * what is left is closed with it.
 * Threads: the loop's.
 */
#include "base/status.h"
#include "proto/handover.pb-c.h"
#include <stdbool.h>

#define NGD_ITEM(name)    NPUGRAPH__HANDOVER__V1__ITEM_KIND__ITEM_KIND_##name
#define NGD_GIFT_MAX      128 /* descriptors: 32 addresses, each with a lock, and some */
#define NGD_GIFT_TEXT_MAX 271

struct ngd_gift_item {
    Npugraph__Handover__V1__ItemKind kind;
    int fd; /* -1: taken */
    char text[NGD_GIFT_TEXT_MAX + 1];
};

struct ngd_gift {
    struct ngd_gift_item items[NGD_GIFT_MAX];
    size_t n;
};

/* Adds a descriptor. RESOURCE_EXHAUSTED: the gift is full. */
ngd_status_t ngd_gift_add(struct ngd_gift *gift, Npugraph__Handover__V1__ItemKind kind, int fd, const char *text,
                          struct ngd_diag *diag);
/* Takes the first descriptor of that kind and text (NULL: any). Returns -1 if there is none, or no gift. */
int ngd_gift_take(struct ngd_gift *gift, Npugraph__Handover__V1__ItemKind kind, const char *text);
void ngd_gift_close(struct ngd_gift *gift); /* closes what nobody took, and frees the gift; NULL is fine */

#endif
