/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The note of hot keys (scheduler/program/hot_note.h), which is a file on disk. Whatever it says, what was added is
 * kept, the note that is written has the keys that are read from it, most runs first, and fields of keys end.
 */
#include "scheduler/program/hot.h"
#include "scheduler/program/hot_note.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

#define GRAPH    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define PATTERNS "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
#define ADDED    GRAPH "\thost:0\t1\t\t-\t\"added\""

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static const char *const seeds[] = {
        "12\t" GRAPH "\thost:0\t16,1\t\t-\t\"decode\"\n3\t" GRAPH "\thost:1\t-\t\t-\t\"\"\n",
        "7\t" GRAPH "\thost:0\t-\tforce_eager=true\x1f"
        "capture_limit=3\t" PATTERNS "\t\"g\"\n",
        "18446744073709551615\t" ADDED "\n1\t\n-1\tx\n",
    };

    if (i >= sizeof(seeds) / sizeof(seeds[0]))
        return false;
    ngd_strbuf_append(out, seeds[i]);
    return true;
}

static void read_key(char *text)
{
    int64_t symbols[4] = {0};
    struct ngd_hot_key key;

    if (!ngd_hot_key_parse(text, &key))
        return;
    fuzz_demand(strlen(key.device) + strlen(key.symbols) < SIZE_MAX / 2, "a field does not end");
    for (uint32_t n = 0; n <= 4; n++)
        (void)ngd_hot_symbols_parse(key.symbols, n, symbols);
}

static void merge(const char *text, struct ngd_strbuf *changed)
{
    struct ngd_hot_list fresh = {.items = NULL};

    ngd_hot_list_add(&fresh, ADDED, strlen(ADDED), UINT64_MAX, 1);
    ngd_strbuf_init(changed);
    ngd_hot_note_merge(&fresh, text, changed);
    fuzz_demand(!changed->failed, "out of memory");
    ngd_hot_list_fini(&fresh);
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = fuzz_text(data, n);
    struct ngd_hot_list list = {.items = NULL};
    struct ngd_strbuf changed;
    bool added = false;

    merge(text, &changed);
    ngd_hot_list_parse(&list, ngd_strbuf_str(&changed), NGD_HOT_KEYS);
    fuzz_demand(list.n <= NGD_HOT_KEYS && list.n == count_lines(ngd_strbuf_str(&changed)), "a key is not read again");
    for (uint32_t i = 0; i < list.n; i++) {
        fuzz_demand(list.items[i].runs > 0, "a key without runs is kept");
        fuzz_demand(i == 0 || list.items[i - 1].runs >= list.items[i].runs, "keys are not in their order");
        added |= strcmp(list.items[i].key, ADDED) == 0;
        read_key(list.items[i].key);
    }
    fuzz_demand(added, "what was added is lost");
    ngd_hot_list_fini(&list);
    ngd_strbuf_fini(&changed);
    ngd_free(text);
    return 0;
}
