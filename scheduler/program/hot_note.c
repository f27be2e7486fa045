/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/program/hot_note.h"
#include "base/mem.h"
#include "scheduler/program/hot.h"
#include "scheduler/program/stored.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FADE 64 /* each write takes 1/FADE of the old counts away */

/* ---- lists --------------------------------------------------------------------------------------------- */

void ngd_hot_list_fini(struct ngd_hot_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        ngd_free(list->items[i].key);
    ngd_free(list->items);
    *list = (struct ngd_hot_list){.items = NULL};
}

static uint64_t saturating_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/*
 * Replaces the key with the fewest runs, if it has fewer than this one. So many keys that ran once do not keep out one
 * that runs all the time.
 */
static void replace_least(struct ngd_hot_list *list, const char *key, size_t n, uint64_t runs)
{
    struct ngd_hot_item *least = list->items;
    char *copy;

    for (uint32_t i = 1; i < list->n; i++)
        if (list->items[i].runs < least->runs)
            least = &list->items[i];
    if (list->n == 0 || runs <= least->runs || !(copy = ngd_strndup(key, n)))
        return;
    ngd_free(least->key);
    *least = (struct ngd_hot_item){.key = copy, .runs = runs};
}

void ngd_hot_list_add(struct ngd_hot_list *list, const char *key, size_t n, uint64_t runs, uint32_t max)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strncmp(list->items[i].key, key, n) == 0 && list->items[i].key[n] == '\0') {
            list->items[i].runs =
                saturating_sum(list->items[i].runs, runs); /* saturates, since the note may have been edited */
            return;
        }
    }
    if (list->n == max) {
        replace_least(list, key, n, runs);
        return;
    }
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? list->cap * 2 : 32;
        struct ngd_hot_item *items = ngd_reallocarray(list->items, cap, sizeof(*items));

        if (!items)
            return;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n].key = ngd_strndup(key, n);
    list->items[list->n].runs = runs;
    if (list->items[list->n].key)
        list->n++;
}

static int by_runs(const void *pa, const void *pb)
{
    const struct ngd_hot_item *a = pa, *b = pb;

    if (a->runs != b->runs)
        return a->runs > b->runs ? -1 : 1;
    return strcmp(a->key, b->key);
}

void ngd_hot_list_parse(struct ngd_hot_list *list, const char *text, uint32_t max)
{
    while (*text) {
        size_t line = strcspn(text, "\n");
        char *end;
        uint64_t runs = strtoull(text, &end, 10);

        if (end > text && *end == '\t' && end < text + line && runs > 0)
            ngd_hot_list_add(list, end + 1, (size_t)(text + line - end - 1), runs, max);
        text += line + (text[line] == '\n');
    }
    if (list->n)
        qsort(list->items, list->n, sizeof(list->items[0]), by_runs);
}

void ngd_hot_note_merge(void *ctx, const char *text, struct ngd_strbuf *changed)
{
    const struct ngd_hot_list *fresh = ctx;
    struct ngd_hot_list all = {.items = NULL};

    ngd_hot_list_parse(&all, text, NGD_HOT_KEYS);
    for (uint32_t i = 0; i < all.n; i++)
        all.items[i].runs -= all.items[i].runs / FADE;
    for (uint32_t i = 0; i < fresh->n; i++)
        ngd_hot_list_add(&all, fresh->items[i].key, strlen(fresh->items[i].key), fresh->items[i].runs, UINT32_MAX);
    if (all.n)
        qsort(all.items, all.n, sizeof(all.items[0]), by_runs);
    for (uint32_t i = 0; i < all.n && i < NGD_HOT_KEYS; i++)
        ngd_strbuf_printf(changed, "%" PRIu64 "\t%s\n", all.items[i].runs, all.items[i].key);
    ngd_hot_list_fini(&all);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* Returns the field at *at, terminated in place, and moves *at to the next one. */
static char *next_field(char **at)
{
    char *begin = *at, *end = strchr(begin, '\t');

    if (end)
        *end = '\0';
    *at = end ? end + 1 : begin + strlen(begin);
    return begin;
}

static bool parse_options(char *text, struct ngd_graph_options *options)
{
    ngd_graph_options_init(options);
    for (char *next; *text; text = next) {
        char *end = strchr(text, NGD_HOT_SEPARATOR), *equals;

        next = end ? end + 1 : text + strlen(text);
        if (end)
            *end = '\0';
        equals = strchr(text, '=');
        if (!equals)
            return false;
        *equals = '\0';
        if (ngd_graph_options_set(options, text, equals + 1, NULL) != NGD_OK)
            return false;
    }
    return true;
}

bool ngd_hot_key_parse(char *text, struct ngd_hot_key *key_p)
{
    const char *graph = next_field(&text), *patterns;

    memset(key_p, 0, sizeof(*key_p));
    key_p->device = next_field(&text);
    key_p->symbols = next_field(&text);
    if (!parse_options(next_field(&text), &key_p->options))
        return false;
    patterns = next_field(&text);
    key_p->registered = strcmp(patterns, "-") != 0;
    return ngd_stored_digest(graph, &key_p->graph) &&
           (!key_p->registered || ngd_stored_digest(patterns, &key_p->patterns));
}

bool ngd_hot_symbols_parse(const char *text, uint32_t n, int64_t *symbols)
{
    for (uint32_t i = 0; i < n; i++) {
        char *end;

        symbols[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
        text = end + (*end == ',');
    }
    return n == 0 || *text == '\0';
}
