/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LOG_RING_H
#define NGD_BASE_LOG_RING_H

/*
 * The newest lines of the log, in memory, for readers that cannot see where the log goes (Admin.Logs).
 *
 * Bounds: the bytes given at the start; the oldest lines go when a new one needs their room. A line is a header, the
 * component and the text, without a gap to the next one.
 * Threads: any. The lock has the greatest rank, because any code may log; it is held while lines are copied, and never
 * while the log is written. Memory: lines that were read are in the reader's arena.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_log_line {
    uint64_t number;  /* from 1 on, without gaps */
    uint64_t time_ms; /* since 1970 */
    ngd_log_level_t level;
    const char *component, *text; /* control characters are escaped */
};

struct ngd_log_query {
    uint64_t start;        /* that `after` is of; 0: this one */
    uint64_t after;        /* only lines with a greater number; 0: all that are kept */
    uint64_t since_ms;     /* only lines of this time and later ones */
    ngd_log_level_t level; /* only lines of this level, and of more severe ones */
    size_t limit;          /* lines */
};

struct ngd_log_lines {
    struct ngd_log_line *items; /* oldest first */
    size_t n;
    uint64_t start; /* whose numbers these are: each start of the log has another value */
    uint64_t last;  /* number of the last line that was looked at */
    /* Lines after query->after that are not kept any more, or all that are not if that is of another start. 0 if
     * query->after is 0. */
    uint64_t lost;
};

/* Keeps lines from now on. Nothing is kept before, or after NO_MEMORY. Call it once. */
ngd_status_t ngd_log_ring_start(size_t bytes);
void ngd_log_ring_stop(void);
/* For log.c. Does nothing unless started. */
void ngd_log_ring_add(ngd_log_level_t level, uint64_t time_ms, const char *component, const char *text, size_t n);
ngd_status_t ngd_log_ring_read(const struct ngd_log_query *query, struct ngd_arena *arena,
                               struct ngd_log_lines *lines_p);

#endif
