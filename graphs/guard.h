/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GUARD_H
#define NGD_GRAPHS_GUARD_H

/*
 * Guards of a request beside its symbols' ranges (key.h): the graph's relations between symbols, and what the request
 * says about its inputs. A replay carries raw bytes; a client that also says which dtype and shape it means has them
 * checked here, so that bytes of the right number and the wrong meaning are refused. A failure is NGD_ERR_GUARD_FAILED,
 * and the diagnosis names the input or symbols, the guard and the value. Pure functions; nothing is allocated while
 * guards hold.
 */
#include "graphs/graph.h"

struct ngd_input_type {
    ngd_dtype_t dtype;
    uint8_t rank;
    int64_t dims[NGD_MAX_RANK];
};

/*
 * symbols: the values that are asked for, in their ranges. Padding and company need no check of their own: the rows of
 * a larger run are those of a run at the values asked for, which was shown when the graph was sealed.
 */
ngd_status_t ngd_guard_check_relations(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_diag *diag);
/*
 * Sizes at which all relations hold, for symbols whose size is not given (NGD_SIZE_ANY): the largest for the first of
 * them, then for the next. What is given is taken as it is; where some of it is outside its range no guard is looked
 * at. GUARD_FAILED: there are none, or a search of bounded length found none; the diagnosis says which.
 */
#define NGD_SIZE_ANY (-1)
ngd_status_t ngd_guard_choose_sizes(const struct ngd_graph *graph, const int64_t *given, int64_t *sizes_p,
                                    struct ngd_diag *diag);
/* types: of all inputs, in the order of their declaration; symbols have been checked against their ranges. */
ngd_status_t ngd_guard_check_types(const struct ngd_graph *graph, const int64_t *symbols,
                                   const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag);

#endif
