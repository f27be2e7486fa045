/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_MATCH_H
#define NGD_GRAPHS_PATTERN_MATCH_H

/* Finding and replacing a pattern in a graph under rewrite. */
#include "graphs/pass.h"
#include "graphs/pattern.h"

/*
 * Tries a pattern with its anchor at a node, and replaces what it matches. *replaced_p: the graph has changed; then
 * the anchor is gone. An error only when the host has no memory: what does not fit is no match.
 */
ngd_status_t ngd_pattern_apply(struct ngd_pass_context *ctx, const struct ngd_pattern *p, uint32_t anchor,
                               bool *replaced_p);

#endif
