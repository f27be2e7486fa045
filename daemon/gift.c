/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gift.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ngd_status_t ngd_gift_add(struct ngd_gift *gift, Npugraph__Handover__V1__ItemKind kind, int fd, const char *text,
                          struct ngd_diag *diag)
{
    struct ngd_gift_item *item;

    if (gift->n == NGD_GIFT_MAX)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED, "more than %d sockets and locks to hand over",
                            NGD_GIFT_MAX);
    if (strlen(text) > NGD_GIFT_TEXT_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the name %.100s... of a socket is too long to hand over",
                            text);
    item = &gift->items[gift->n++];
    item->kind = kind;
    item->fd = fd;
    snprintf(item->text, sizeof(item->text), "%s", text);
    return NGD_OK;
}

int ngd_gift_take(struct ngd_gift *gift, Npugraph__Handover__V1__ItemKind kind, const char *text)
{
    for (size_t i = 0; gift && i < gift->n; i++) {
        struct ngd_gift_item *item = &gift->items[i];
        const int fd = item->fd;

        if (fd < 0 || item->kind != kind || (text && strcmp(item->text, text) != 0))
            continue;
        item->fd = -1;
        return fd;
    }
    return -1;
}

void ngd_gift_close(struct ngd_gift *gift)
{
    if (!gift)
        return;
    for (size_t i = 0; i < gift->n; i++)
        if (gift->items[i].fd >= 0)
            close(gift->items[i].fd);
    ngd_free(gift);
}
