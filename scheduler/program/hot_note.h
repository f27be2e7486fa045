/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_HOT_NOTE_H
#define NGD_SCHEDULER_PROGRAM_HOT_NOTE_H

/*
 * The text of the note of hot keys (hot.h). A line is a key, its fields separated by tabs:
 *
 *     runs, digest of the graph, device, values of the symbols ("16,1", "-" without any), options that are not at their
 *     defaults ("name=value", separated by NGD_HOT_SEPARATOR), digest of the patterns ("-": the built-in ones), name
 *     of the graph
 *
 * All fields but the first identify the key. The note is a file that anybody may have changed, so lines that cannot be
 * read are skipped. Pure functions: they know neither programs nor files.
 */
#include "base/strbuf.h"
#include "graphs/options.h"

#define NGD_HOT_SEPARATOR '\x1f'

struct ngd_hot_item {
    char *key; /* the fields after the runs */
    uint64_t runs;
};

struct ngd_hot_list {
    struct ngd_hot_item *items;
    uint32_t n, cap;
};

void ngd_hot_list_fini(struct ngd_hot_list *list);
/*
 * Adds runs to a key of n bytes. If the list has `max` keys, a new key replaces the one with the fewest runs, if that
 * has fewer. Otherwise, or without memory, the new key is dropped.
 */
void ngd_hot_list_add(struct ngd_hot_list *list, const char *key, size_t n, uint64_t runs, uint32_t max);
/* Parses the keys of a note, most runs first. */
void ngd_hot_list_parse(struct ngd_hot_list *list, const char *text, uint32_t max);
/* Makes the new note for ngd_store_note_change: the old counts, reduced, plus those of the list ctx. */
void ngd_hot_note_merge(void *ctx, const char *text, struct ngd_strbuf *changed);

struct ngd_hot_key {
    struct ngd_digest graph, patterns;
    const char *device, *symbols;
    struct ngd_graph_options options;
    bool registered; /* false: the patterns are the built-in ones */
};

/* Parses the fields after the runs, and terminates them in place. False: they are not a key. */
bool ngd_hot_key_parse(char *text, struct ngd_hot_key *key_p);
/* Parses the values of n symbols. */
bool ngd_hot_symbols_parse(const char *text, uint32_t n, int64_t *symbols);

#endif
