/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "graphs/store_int.h"
#include <stdio.h>
#include <string.h>

static bool note_identity(const char *name, char *identity, size_t room)
{
    int n = snprintf(identity, room, NGD_STORE_FORMAT "\nkind note\nname %s\n", name);

    return n > 0 && (size_t)n < room;
}

bool ngd_store_note_read(struct ngd_store *store, const char *name, struct ngd_strbuf *text)
{
    char identity[256];
    struct ngd_store_entry entry;
    uint8_t *data = NULL;
    size_t n = 0;
    ngd_store_reason_t reason = ngd_store_file_read(store, store->notes, name, false, &data, &n);

    if (reason == NGD_STORE_FOUND)
        reason = ngd_store_entry_parse(data, n, &entry);
    if (reason == NGD_STORE_FOUND &&
        (!note_identity(name, identity, sizeof(identity)) || entry.n_identity != strlen(identity) ||
         memcmp(entry.identity, identity, entry.n_identity) != 0))
        reason = NGD_STORE_FOREIGN;
    if (reason == NGD_STORE_FOUND)
        ngd_strbuf_append_n(text, entry.payload, entry.n_payload);
    else if (ngd_store_reason_aside(reason))
        ngd_store_file_aside(store, store->notes, name, reason);
    ngd_free(data);
    return reason == NGD_STORE_FOUND && !text->failed;
}

ngd_status_t ngd_store_note_change(struct ngd_store *store, const char *name,
                                   void (*change)(void *ctx, const char *text, struct ngd_strbuf *changed), void *ctx,
                                   struct ngd_diag *diag)
{
    struct ngd_strbuf old, changed, bytes;
    struct ngd_store_entry entry = {.notes = ""};
    char identity[256];
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!note_identity(name, identity, sizeof(identity)))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the name of a note is too long");
    ngd_strbuf_init(&old);
    ngd_strbuf_init(&changed);
    ngd_strbuf_init(&bytes);
    ngd_store_lock(store);
    (void)ngd_store_note_read(store, name, &old);
    change(ctx, ngd_strbuf_str(&old), &changed);
    entry.identity = identity;
    entry.n_identity = strlen(identity);
    entry.payload = (const uint8_t *)ngd_strbuf_str(&changed);
    entry.n_payload = changed.len;
    if (!old.failed && !changed.failed)
        ngd_store_entry_pack(&entry, &bytes);
    if (!old.failed && !changed.failed && !bytes.failed)
        status = ngd_store_file_write(store, store->notes, name, bytes.data, bytes.len, diag);
    ngd_store_unlock(store);
    ngd_strbuf_fini(&bytes);
    ngd_strbuf_fini(&changed);
    ngd_strbuf_fini(&old);
    return status;
}
