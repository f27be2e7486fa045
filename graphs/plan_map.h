/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_MAP_H
#define NGD_GRAPHS_PLAN_MAP_H

/*
 * The map of a plan's pool over time: which block lies where, from which step to which. As text for a terminal, and as
 * an SVG whose blocks say what they are when pointed at. Pure functions of a plan.
 */
#include "graphs/plan.h"

struct ngd_plan_block {
    uint64_t offset, bytes;
    uint32_t first, last; /* steps; the last step of all is n_calls, at which outputs are read */
    uint32_t tensor;      /* NGD_PLAN_NONE: the workspace of call `first` */
    uint32_t maker;       /* call that wrote it first; NGD_PLAN_NONE: an input */
};

/* Blocks of the pool that something touches, by offset, then by first step. Free with ngd_free. */
ngd_status_t ngd_plan_blocks(const struct ngd_plan *plan, struct ngd_plan_block **list_p, uint32_t *n_p);
/* What a block is, for people: "%q.3 of aten.linear", "input tokens", "workspace of aten.linear". */
void ngd_plan_block_name(const struct ngd_plan *plan, const struct ngd_plan_block *block, struct ngd_strbuf *sb);

ngd_status_t ngd_plan_map_text(const struct ngd_plan *plan, struct ngd_strbuf *sb);
ngd_status_t ngd_plan_map_svg(const struct ngd_plan *plan, struct ngd_strbuf *sb);

#endif
