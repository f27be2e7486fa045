/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_MAP_H
#define NGD_GRAPHS_PLAN_MAP_H

/*
 * Maps a plan's pool over time: which block lies where, from which step to which. It is printed as text for a terminal,
 * or as an SVG that shows a block's name when the mouse points at it. Pure functions of a plan.
 */
#include "graphs/plan.h"

struct ngd_plan_block {
    uint64_t offset, bytes;
    uint32_t first, last; /* steps; outputs are read at step n_calls, the last one */
    uint32_t tensor;      /* NGD_PLAN_NONE: the workspace of call `first` */
    uint32_t maker;       /* call that wrote it first; NGD_PLAN_NONE: an input */
};

/* Lists the used blocks of the pool, sorted by offset, then by first step. Free the list with ngd_free. */
ngd_status_t ngd_plan_blocks(const struct ngd_plan *plan, struct ngd_plan_block **list_p, uint32_t *n_p);
/* Prints a block's name: "%q.3 of aten.linear", "input tokens", "workspace of aten.linear". */
void ngd_plan_block_name(const struct ngd_plan *plan, const struct ngd_plan_block *block, struct ngd_strbuf *sb);

ngd_status_t ngd_plan_map_text(const struct ngd_plan *plan, struct ngd_strbuf *sb);
ngd_status_t ngd_plan_map_svg(const struct ngd_plan *plan, struct ngd_strbuf *sb);

#endif
