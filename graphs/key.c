/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys. Sealing a graph has shown that no dimension is negative or too large anywhere within the symbols' ranges and
 * buckets. So a replay has to check only the ranges, and the relations that the graph states.
 */
#include "graphs/key.h"
#include "graphs/buckets.h"
#include "graphs/guard.h"
#include <inttypes.h>
#include <string.h>

static ngd_status_t check_symbol_range(const struct ngd_symbol *sym, int64_t value, struct ngd_diag *diag)
{
    const char *op = value < sym->min ? ">=" : "<=";
    int64_t limit = value < sym->min ? sym->min : sym->max;

    if (value >= sym->min && value <= sym->max)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                        "symbol %s = %" PRId64 " is outside %" PRId64 "..%" PRId64 " (guard %s %s %" PRId64 ")",
                        sym->name, value, sym->min, sym->max, sym->name, op, limit);
}

/* Pins a symbol's value. set: buckets to use instead of the symbol's own; NULL or empty: its own. */
static ngd_status_t pin(const struct ngd_symbol *sym, const struct ngd_bucket_set *set, int64_t value,
                        int64_t *pinned_p, struct ngd_diag *diag)
{
    const int64_t *buckets = set && set->n ? set->sizes : sym->buckets;
    uint32_t n = set && set->n ? set->n : sym->n_buckets;

    if (sym->policy == NGD_SYMBOL_EXACT) {
        *pinned_p = value;
        return NGD_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (buckets[i] >= value) {
            *pinned_p = buckets[i];
            return NGD_OK;
        }
    }
    /* Only an unsealed graph gets here: in a sealed graph the last bucket reaches the maximum. */
    return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "symbol %s = %" PRId64 " is above its last bucket", sym->name,
                        value);
}

static uint64_t hash_key(const struct ngd_key *key)
{
    uint64_t h = ngd_hash64(key->graph.b, sizeof(key->graph.b), key->n_symbols);

    h = ngd_hash64(key->options.b, sizeof(key->options.b), h);
    return ngd_hash64(key->symbols, key->n_symbols * sizeof(key->symbols[0]), h);
}

ngd_status_t ngd_key_check_ranges(const struct ngd_graph *graph, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (n_symbols != graph->n_symbols)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "graph %s has %" PRIu32 " symbols, and values of %" PRIu32 " were given", graph->name,
                            graph->n_symbols, n_symbols);
    for (uint32_t i = 0; i < n_symbols && !status; i++)
        status = check_symbol_range(&graph->symbols[i], symbols[i], diag);
    return status;
}

/* asked: a request asks for these sizes, so the relations must hold. */
static ngd_status_t make_graph_key(const struct ngd_graph *graph, const struct ngd_digest *options,
                                   const struct ngd_bucket_set *sets, const int64_t *symbols, uint32_t n_symbols,
                                   bool asked, struct ngd_key *key_p, struct ngd_diag *diag)
{
    struct ngd_key key = {.graph = graph->digest, .options = *options, .n_symbols = n_symbols};
    ngd_status_t status = ngd_key_check_ranges(graph, symbols, n_symbols, diag);

    if (status)
        return status;
    for (uint32_t i = 0; i < n_symbols; i++) {
        status = pin(&graph->symbols[i], sets ? &sets[i] : NULL, symbols[i], &key.symbols[i], diag);
        if (status)
            return status;
    }
    if (asked && graph->n_relations) {
        status = ngd_guard_check_relations(graph, symbols, diag);
        if (status)
            return status;
    }
    key.hash = hash_key(&key);
    *key_p = key;
    return NGD_OK;
}

ngd_status_t ngd_key_make_buckets(const struct ngd_graph *graph, const struct ngd_digest *options,
                                  const struct ngd_bucket_set *sets, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_key *key_p, struct ngd_diag *diag)
{
    return make_graph_key(graph, options, sets, symbols, n_symbols, true, key_p, diag);
}

ngd_status_t ngd_key_make_sizes(const struct ngd_graph *graph, const struct ngd_digest *options,
                                const struct ngd_bucket_set *sets, const int64_t *sizes, uint32_t n_sizes,
                                struct ngd_key *key_p, struct ngd_diag *diag)
{
    return make_graph_key(graph, options, sets, sizes, n_sizes, false, key_p, diag);
}

ngd_status_t ngd_key_make(const struct ngd_graph *graph, const struct ngd_digest *options, const int64_t *symbols,
                          uint32_t n_symbols, struct ngd_key *key_p, struct ngd_diag *diag)
{
    return make_graph_key(graph, options, NULL, symbols, n_symbols, true, key_p, diag);
}

bool ngd_key_equal(const struct ngd_key *a, const struct ngd_key *b)
{
    return a->hash == b->hash && a->n_symbols == b->n_symbols &&
           memcmp(a->symbols, b->symbols, a->n_symbols * sizeof(a->symbols[0])) == 0 &&
           ngd_digest_equal(&a->graph, &b->graph) && ngd_digest_equal(&a->options, &b->options);
}

/* Prints enough of a digest to tell two apart. */
static void print_digest(const char *what, const struct ngd_digest *d, struct ngd_strbuf *sb)
{
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(d, hex);
    ngd_strbuf_printf(sb, "%s=%.12s", what, hex);
}

void ngd_key_print_symbols(const struct ngd_graph *graph, const struct ngd_key *key, struct ngd_strbuf *sb)
{
    for (uint32_t i = 0; i < key->n_symbols && i < graph->n_symbols; i++)
        ngd_strbuf_printf(sb, "%s%s%s%" PRId64, i ? " " : "", graph->symbols[i].name,
                          graph->symbols[i].policy == NGD_SYMBOL_BUCKETS ? "<=" : "==", key->symbols[i]);
    if (key->n_symbols == 0)
        ngd_strbuf_append(sb, "(no symbols)");
}

void ngd_key_print(const struct ngd_graph *graph, const struct ngd_key *key, struct ngd_strbuf *sb)
{
    if (key->n_symbols) {
        ngd_key_print_symbols(graph, key, sb);
        ngd_strbuf_putc(sb, ' ');
    }
    print_digest("graph", &key->graph, sb);
    ngd_strbuf_putc(sb, ' ');
    print_digest("options", &key->options, sb);
}
