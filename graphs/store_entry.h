/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_STORE_ENTRY_H
#define NGD_GRAPHS_STORE_ENTRY_H

/*
 * The format of an entry of the store. These functions do not touch files.
 *
 *     0  "npgstor1"
 *     8  u32 bytes of the identity, 12 u32 bytes of the notes, 16 u64 bytes of the payload
 *    24  identity, notes, payload
 *        SHA-256 of everything before it
 *
 * The identity is text in lines "name value". It states everything that the payload depends on; its digest is the
 * entry's name. The first line is "npugraph-store 1", the second "kind KIND". Notes are lines of the same form, on
 * which the payload does not depend. All numbers are little endian. Pure functions; any bytes are safe.
 */
#include "base/digest.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_STORE_FORMAT       "npugraph-store 1"
#define NGD_STORE_HEAD_BYTES   24
#define NGD_STORE_IDENTITY_MAX (256u << 10)
#define NGD_STORE_NOTES_MAX    (64u << 10)
#define NGD_STORE_ENTRY_MAX    (256u << 20)

typedef enum ngd_store_reason {
#define NGD_STORE_REASON(ID, name, aside, text) NGD_STORE_##ID,
#include "graphs/store_reasons.def"
#undef NGD_STORE_REASON
    NGD_STORE_REASON_MAX
} ngd_store_reason_t;
#define NGD_STORE_FOUND NGD_STORE_REASON_MAX /* the entry is there and good */

const char *ngd_store_reason_name(ngd_store_reason_t reason);
const char *ngd_store_reason_text(ngd_store_reason_t reason);
bool ngd_store_reason_aside(ngd_store_reason_t reason);

/* Points into the bytes that were parsed. */
struct ngd_store_entry {
    const char *identity, *notes;
    const uint8_t *payload;
    size_t n_identity, n_notes, n_payload;
};

/* Appends an entry's bytes to out. out->failed: there was no memory, or a part is larger than allowed. */
void ngd_store_entry_pack(const struct ngd_store_entry *entry, struct ngd_strbuf *out);
/* Parses an entry's bytes. Returns FOUND, TRUNCATED, CHECKSUM or FORMAT. */
ngd_store_reason_t ngd_store_entry_parse(const void *data, size_t n, struct ngd_store_entry *entry_p);

/* Gives the value of the first line "name value" in lines, cut to `room` bytes. Returns false if there is none. */
bool ngd_store_line(const char *lines, size_t n, const char *name, char *value, size_t room);

#endif
