/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_MATCH_H
#define NGD_GRAPHS_PATTERN_MATCH_H

/* Finds a pattern in a graph under rewrite, and replaces it. */
#include "graphs/pass.h"
#include "graphs/pattern.h"

/*
 * Tries a pattern with its anchor at a node, and replaces what it matches. *replaced_p: the graph has changed, and the
 * anchor is gone. Fails only if the host has no memory; a node that does not fit is no match.
 */
ngd_status_t ngd_pattern_apply(struct ngd_pass_context *ctx, const struct ngd_pattern *p, uint32_t anchor,
                               bool *replaced_p);

#endif
