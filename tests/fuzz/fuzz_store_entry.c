/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the store (graphs/store_entry.h). Whatever the bytes are, an entry that is found lies within them, and
 * packs to the same bytes again. The checksum would refuse nearly all inputs, so each is tried again with a right one
 * behind it.
 */
#include "base/digest.h"
#include "graphs/store_entry.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static const char identity[] = NGD_STORE_FORMAT "\nkind plan\ngraph 00\n", notes[] = "made 1\nby x\n";
    const struct ngd_store_entry entry = {.identity = identity,
                                          .n_identity = sizeof(identity) - 1,
                                          .notes = notes,
                                          .n_notes = i ? sizeof(notes) - 1 : 0,
                                          .payload = (const uint8_t *)"payload",
                                          .n_payload = i ? 7 : 0};

    ngd_store_entry_pack(&entry, out);
    return i < 2;
}

static bool within(const void *part, size_t n_part, const uint8_t *data, size_t n)
{
    const uint8_t *p = part;

    return p >= data && n_part <= n && (size_t)(p - data) <= n - n_part;
}

static void check(const uint8_t *data, size_t n)
{
    struct ngd_store_entry entry;
    struct ngd_strbuf again;
    char value[16];

    if (ngd_store_entry_parse(data, n, &entry) != NGD_STORE_FOUND)
        return;
    fuzz_demand(within(entry.identity, entry.n_identity, data, n), "the identity is not in the entry");
    fuzz_demand(within(entry.notes, entry.n_notes, data, n), "the notes are not in the entry");
    fuzz_demand(within(entry.payload, entry.n_payload, data, n), "the payload is not in the entry");
    (void)ngd_store_line(entry.identity, entry.n_identity, "kind", value, sizeof(value));
    (void)ngd_store_line(entry.notes, entry.n_notes, "made", value, sizeof(value));
    ngd_strbuf_init(&again);
    ngd_store_entry_pack(&entry, &again);
    fuzz_demand(!again.failed && again.len == n && memcmp(again.data, data, n) == 0, "an entry packs to other bytes");
    ngd_strbuf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_digest digest;
    uint8_t *summed;

    check(data, n);
    if (n < sizeof(digest))
        return 0;
    summed = ngd_memdup(data, n);
    fuzz_demand(summed != NULL, "out of memory");
    ngd_digest_of(summed, n - sizeof(digest), &digest);
    memcpy(summed + n - sizeof(digest), &digest, sizeof(digest));
    check(summed, n);
    ngd_free(summed);
    return 0;
}
