/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_KEY_H
#define NGD_GRAPHS_KEY_H

/*
 * Keys. A key names an executable: by the graph's digest, the options, the device architecture, and the pinned values
 * of the symbols.
 *
 * ngd_key_make checks the requested symbol values against the graph's ranges and relations. (Sealing has shown for all
 * values in range that the inputs' dimensions fit each other.) Then it pins each symbol: an exact one at its value, a
 * bucketed one at the next bucket. A failure is NGD_ERR_GUARD_FAILED; the diagnosis names the guard and the value. Pure
 * functions; no allocation.
 */
#include "graphs/graph.h"

struct ngd_key {
    struct ngd_digest graph;
    struct ngd_digest options; /* of all else that the executable depends on: options, arch, versions of tables */
    uint32_t n_symbols;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* pinned values */
    uint64_t hash;                          /* of all of the above */
};

/* Checks that there is a value for each symbol, within its range. Sizes may then be computed from the values. */
ngd_status_t ngd_key_check_ranges(const struct ngd_graph *graph, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_diag *diag);
ngd_status_t ngd_key_make(const struct ngd_graph *graph, const struct ngd_digest *options, const int64_t *symbols,
                          uint32_t n_symbols, struct ngd_key *key_p, struct ngd_diag *diag);
/* Makes a key with other buckets. sets: a set for each symbol; a set with n = 0 stands for the graph's own buckets. */
struct ngd_bucket_set;
ngd_status_t ngd_key_make_buckets(const struct ngd_graph *graph, const struct ngd_digest *options,
                                  const struct ngd_bucket_set *sets, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_key *key_p, struct ngd_diag *diag);
/*
 * Makes a key of sizes that no request asked for, such as a bucket or the rows of several merged requests. Checks
 * ranges only, because relations are about requested sizes (guard.h).
 */
ngd_status_t ngd_key_make_sizes(const struct ngd_graph *graph, const struct ngd_digest *options,
                                const struct ngd_bucket_set *sets, const int64_t *sizes, uint32_t n_sizes,
                                struct ngd_key *key_p, struct ngd_diag *diag);
bool ngd_key_equal(const struct ngd_key *a, const struct ngd_key *b);
/* Prints "B<=16 T==1", or "(no symbols)". */
void ngd_key_print_symbols(const struct ngd_graph *graph, const struct ngd_key *key, struct ngd_strbuf *sb);
void ngd_key_print(const struct ngd_graph *graph, const struct ngd_key *key,
                   struct ngd_strbuf *sb); /* "B<=16 T==1 arch=..." */
/* Version of the operator table, passes and planner; part of the options digest. Raise it when their results change. */
#define NGD_PLANNER_VERSION 5

#endif
