/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ATTENTION_ROWS_H
#define NGD_DEVICES_ASCEND_ATTENTION_ROWS_H

/*
 * Attention over a paged cache on a chip: which way each call of an executable takes, and what a launch prepares for
 * it.
 *
 * Two ways need a row of the block table and a context for each row of the query. A launch makes them in the staging
 * memory, from the table and the host parameters: rows of a sequence share its blocks, and each sees one key more than
 * the one before it. A row of padding has context 1 and block 0, which models give to no sequence, and nobody reads its
 * result. Where the table has as many rows as the query, and nothing else reads it, they take the place of the input;
 * else the graph copies them for each call.
 */
#include "devices/ascend/ascend.h"

struct ascend_issue;
struct ascend_view;

struct ascend_rows {
    const struct ngd_plan_call *call; /* the first one that they are for */
    const struct ascend_check *check; /* of its table */
    int64_t rows;
    uint64_t table_at, contexts_at, narrow_at; /* in the staging memory: i32, i64 and i32 */
    bool in_place;
};

bool ngd_ascend_is_attention(const struct ngd_plan_call *call);
/*
 * Which way a call takes, and the workspace that it needs. An operator that refuses a way is asked for the next one;
 * *refused_p is what it has answered last. way_p and refused_p are NULL while planning.
 */
ngd_status_t ngd_ascend_attention_measure(struct ascend_device *dev, const struct ngd_plan *plan,
                                          const struct ngd_plan_call *call, enum ascend_way *way_p,
                                          struct ngd_diag *refused_p, uint64_t *workspace_p, struct ngd_diag *diag);
/* Of all calls of an executable; behind ngd_ascend_find_checks. */
ngd_status_t ngd_ascend_find_ways(struct ascend_exec *exec, struct ngd_diag *diag);
/* Makes the rows of a launch, whose inputs have been checked. */
void ngd_ascend_spread_rows(const struct ascend_inst *inst, const struct ngd_launch *launch);

/* Where the last sequence ends. */
static inline int64_t ngd_ascend_last_row(const struct ngd_host_value *ends)
{
    return ends->n ? ends->values[ends->n - 1] : 0;
}
/*
 * Rows of an attention's result belong to no sequence, and must be 0, or no sequence has a row. A captured graph does
 * not fill rows, since their number changes with the launch, and its operator takes no empty query: such a launch runs
 * operator by operator.
 */
bool ngd_ascend_leaves_rows(const struct ascend_inst *inst, const struct ngd_launch *launch);

/* For the builder. NULL in MEASURE. */
const struct ascend_rows *ngd_ascend_rows_of(const struct ascend_issue *c);
int64_t ngd_ascend_row_context(const struct ascend_inst *inst, const struct ascend_rows *rows, int64_t row);
/* On the device: [rows, width] of the table, and the contexts, both i32. */
struct ascend_view ngd_ascend_row_tables(struct ascend_issue *c, const struct ascend_view *table, int64_t rows);
struct ascend_view ngd_ascend_row_contexts(struct ascend_issue *c, int64_t rows);

#endif
