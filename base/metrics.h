/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_METRICS_H
#define NGD_BASE_METRICS_H

/*
 * Process-wide metrics, declared in metrics.def and rendered as Prometheus text.
 *
 * Unlabelled counters, gauges and histograms are arrays of relaxed atomics: adding never blocks and
 * never allocates, so the replay path may use them. A labelled family has one row per label value
 * (metrics.def names the label, or two: what it is and its owner); rows are found once, at object creation, with
 * ngd_metric_row(), and used by pointer afterwards; histograms have no label. What is cheaper to read than to count
 * (memory in use, sessions) is a gauge filled by a collector at scrape time. Threads: any. Bounds: NGD_METRIC_ROWS_MAX
 * rows per family; beyond it values go to the row "other".
 */
#include "base/clock.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_METRIC_ROWS_MAX 256

typedef enum ngd_metric {
#define NGD_METRIC(ID, kind, name, label, help) NGD_M_##ID,
#include "base/metrics.def"
#undef NGD_METRIC
    NGD_M_MAX
} ngd_metric_t;

struct ngd_metric_row;

void ngd_metric_add(ngd_metric_t m, uint64_t n);       /* counter without label */
void ngd_metric_set(ngd_metric_t m, int64_t v);        /* gauge without label */
void ngd_metric_inc(ngd_metric_t m);                   /* counter or gauge +1 */
void ngd_metric_dec(ngd_metric_t m);                   /* gauge -1 */
void ngd_metric_observe(ngd_metric_t m, ngd_nsec_t t); /* histogram of seconds, µs buckets */
uint64_t ngd_metric_get(ngd_metric_t m);               /* sum over rows; histograms: count */

/* Never NULL; the row of that label value, made on first use. The pointer stays valid for ever. */
struct ngd_metric_row *ngd_metric_row(ngd_metric_t m, const char *label_value);
/*
 * The same of a family with the labels "WHAT,owner". Rows of these families, and of those with the label "identity",
 * belong to somebody: ngd_metrics_render may leave them out.
 */
struct ngd_metric_row *ngd_metric_row_of(ngd_metric_t m, const char *label_value, const char *owner);
void ngd_metric_row_add(struct ngd_metric_row *row, uint64_t n);
void ngd_metric_row_set(struct ngd_metric_row *row, int64_t v);
uint64_t ngd_metric_row_get(const struct ngd_metric_row *row);
/* Drops a row whose object is gone from the exposition until it is asked for again. */
void ngd_metric_row_hide(struct ngd_metric_row *row);

const char *ngd_metric_name(ngd_metric_t m);

/* Which rows are shown that belong to somebody; the others are summed as "other". */
struct ngd_metric_view {
    bool all;
    const char *owner; /* whose rows; NULL: nobody's */
};
/* Prometheus text exposition 0.0.4. view: NULL shows all. */
void ngd_metrics_render(struct ngd_strbuf *sb, const struct ngd_metric_view *view);
/* Quantile (0..1) of an unlabelled histogram in seconds, interpolated in its bucket; 0 when empty. */
double ngd_metric_quantile(ngd_metric_t m, double q);

#endif
