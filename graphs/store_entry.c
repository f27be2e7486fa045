/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/store_entry.h"
#include "base/le.h"
#include "base/utf8.h"
#include <string.h>

static const char magic[8] = "npgstor1";

static const struct {
    const char *name;
    bool aside;
    const char *text;
} reasons[] = {
#define NGD_STORE_REASON(ID, name, aside, text) {name, aside, text},
#include "graphs/store_reasons.def"
#undef NGD_STORE_REASON
};

const char *ngd_store_reason_name(ngd_store_reason_t reason)
{
    return reason < NGD_STORE_REASON_MAX ? reasons[reason].name : "found";
}

const char *ngd_store_reason_text(ngd_store_reason_t reason)
{
    return reason < NGD_STORE_REASON_MAX ? reasons[reason].text : "the entry is good";
}

bool ngd_store_reason_aside(ngd_store_reason_t reason)
{
    return reason < NGD_STORE_REASON_MAX && reasons[reason].aside;
}

void ngd_store_entry_pack(const struct ngd_store_entry *entry, struct ngd_strbuf *out)
{
    struct ngd_digest sum;

    if (out->len || entry->n_identity > NGD_STORE_IDENTITY_MAX || entry->n_notes > NGD_STORE_NOTES_MAX ||
        entry->n_payload > NGD_STORE_ENTRY_MAX - NGD_STORE_IDENTITY_MAX - NGD_STORE_NOTES_MAX - 64) {
        out->failed = true;
        return;
    }
    ngd_strbuf_append_n(out, magic, sizeof(magic));
    ngd_le_put(out, entry->n_identity, 4);
    ngd_le_put(out, entry->n_notes, 4);
    ngd_le_put(out, entry->n_payload, 8);
    ngd_strbuf_append_n(out, entry->identity, entry->n_identity);
    ngd_strbuf_append_n(out, entry->notes, entry->n_notes);
    ngd_strbuf_append_n(out, entry->payload, entry->n_payload);
    if (out->failed)
        return;
    ngd_digest_of(out->data, out->len, &sum);
    ngd_strbuf_append_n(out, sum.b, sizeof(sum.b));
}

static bool is_entry_text(const char *s, size_t n)
{
    for (size_t step; n > 0; s += step, n -= step) {
        if (*s == '\0')
            return false;
        step = ngd_utf8_step(s, n);
        if (step == 0)
            return false;
    }
    return true;
}

ngd_store_reason_t ngd_store_entry_parse(const void *data, size_t n, struct ngd_store_entry *entry_p)
{
    const uint8_t *p = data;
    struct ngd_store_entry e;
    struct ngd_digest sum;

    if (n < NGD_STORE_HEAD_BYTES + sizeof(sum.b))
        return NGD_STORE_TRUNCATED;
    if (memcmp(p, magic, sizeof(magic)) != 0)
        return NGD_STORE_FORMAT_OTHER;
    e.n_identity = (size_t)ngd_le_get(p + 8, 4);
    e.n_notes = (size_t)ngd_le_get(p + 12, 4);
    if (ngd_le_get(p + 16, 8) > NGD_STORE_ENTRY_MAX)
        return NGD_STORE_TRUNCATED;
    e.n_payload = (size_t)ngd_le_get(p + 16, 8);
    if (n != NGD_STORE_HEAD_BYTES + e.n_identity + e.n_notes + e.n_payload + sizeof(sum.b))
        return NGD_STORE_TRUNCATED;
    ngd_digest_of(data, n - sizeof(sum.b), &sum);
    if (memcmp(sum.b, p + n - sizeof(sum.b), sizeof(sum.b)) != 0)
        return NGD_STORE_CHECKSUM;
    e.identity = (const char *)p + NGD_STORE_HEAD_BYTES;
    e.notes = e.identity + e.n_identity;
    e.payload = (const uint8_t *)e.notes + e.n_notes;
    if (e.n_identity > NGD_STORE_IDENTITY_MAX || e.n_notes > NGD_STORE_NOTES_MAX ||
        !is_entry_text(e.identity, e.n_identity) || !is_entry_text(e.notes, e.n_notes) ||
        e.n_identity < sizeof(NGD_STORE_FORMAT) || memcmp(e.identity, NGD_STORE_FORMAT "\n", sizeof(NGD_STORE_FORMAT)))
        return NGD_STORE_FORMAT_OTHER;
    *entry_p = e;
    return NGD_STORE_FOUND;
}

bool ngd_store_line(const char *lines, size_t n, const char *name, char *value, size_t room)
{
    size_t len = strlen(name);

    for (const char *end = lines + n, *next; lines < end; lines = next) {
        const char *stop = memchr(lines, '\n', (size_t)(end - lines));
        size_t line = stop ? (size_t)(stop - lines) : (size_t)(end - lines);

        next = lines + line + (stop ? 1 : 0);
        if (line > len && memcmp(lines, name, len) == 0 && lines[len] == ' ') {
            size_t keep = line - len - 1 < room - 1 ? line - len - 1 : room - 1;

            memcpy(value, lines + len + 1, keep);
            value[keep] = '\0';
            return true;
        }
    }
    return false;
}
