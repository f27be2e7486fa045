/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GUARD_H
#define NGD_GRAPHS_GUARD_H

/*
 * Checks a request's guards other than the symbols' ranges (key.h): the graph's relations between symbols, and the
 * types of the inputs. A replay carries raw bytes. If the client also states their dtype and shape, these are checked,
 * so that bytes of the right number but the wrong type are refused. A failure is NGD_ERR_GUARD_FAILED; the diagnosis
 * names the input or symbols, the guard and the value. Pure functions. Nothing is allocated unless a guard fails.
 */
#include "graphs/graph.h"

struct ngd_input_type {
    ngd_dtype_t dtype;
    uint8_t rank;
    int64_t dims[NGD_MAX_RANK];
};

/*
 * Checks the relations. symbols: the requested sizes, within their ranges. Sizes that only padding or merged requests
 * lead to need no check: sealing has shown that the rows of a larger run equal those of a run at the requested sizes.
 */
ngd_status_t ngd_guard_check_relations(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_diag *diag);
/*
 * Chooses sizes at which all relations hold, for symbols whose size is not given (NGD_SIZE_ANY): the largest possible
 * for the first such symbol, then for the next. Given sizes stay unchanged; if one is outside its range, no guard is
 * checked. GUARD_FAILED: no such sizes exist, or a bounded search found none; the diagnosis says which.
 */
#define NGD_SIZE_ANY (-1)
ngd_status_t ngd_guard_choose_sizes(const struct ngd_graph *graph, const int64_t *given, int64_t *sizes_p,
                                    struct ngd_diag *diag);
/* Checks the types of all inputs, in the order of their declaration.
 * The symbols are known to be within their ranges. */
ngd_status_t ngd_guard_check_types(const struct ngd_graph *graph, const int64_t *symbols,
                                   const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag);

#endif
