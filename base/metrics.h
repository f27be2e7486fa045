/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_METRICS_H
#define NGD_BASE_METRICS_H

/*
 * Process-wide metrics, declared in metrics.def and rendered as Prometheus text.
 *
 * Unlabelled counters, gauges and histograms are arrays of relaxed atomics: adding never blocks and
 * never allocates, so the replay path may use them. A labelled family has one row per label value;
 * metrics.def names its label, or two labels: the object and its owner. Histograms have no label. An object finds its
 * row once, when it is created, with ngd_metric_row(), and uses the pointer afterwards. Values that are cheaper to read
 * than to count (memory in use, sessions) are gauges that a collector sets at scrape time. Threads: any.
 * Bounds: NGD_METRIC_ROWS_MAX rows per family; beyond it values go to the row "other".
 */
#include "base/clock.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_METRIC_ROWS_MAX 256
#define NGD_METRIC_BUCKETS  23 /* of each histogram; the last one is above all bounds */

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
uint64_t ngd_metric_get(ngd_metric_t m); /* sum over rows, without gauges of what is gone; histograms: count */

/* Returns the row of that label value and makes it on first use. Never NULL; the pointer stays valid for ever. */
struct ngd_metric_row *ngd_metric_row(ngd_metric_t m, const char *label_value);
/*
 * Returns the row of a family with two labels, "WHAT,owner". Rows of these families, and of families with the label
 * "identity", belong to an identity: ngd_metrics_render may leave them out.
 */
struct ngd_metric_row *ngd_metric_row_of(ngd_metric_t m, const char *label_value, const char *owner);
void ngd_metric_row_add(struct ngd_metric_row *row, uint64_t n);
void ngd_metric_row_set(struct ngd_metric_row *row, int64_t v);
uint64_t ngd_metric_row_get(const struct ngd_metric_row *row);
/* Hides the row of an object that is gone from the exposition, until ngd_metric_row() asks for the row again. */
void ngd_metric_row_hide(struct ngd_metric_row *row);

const char *ngd_metric_name(ngd_metric_t m);

/* Which identities' rows are shown; the others are summed as "other". */
struct ngd_metric_view {
    bool all;
    const char *owner; /* the identity whose rows are shown; NULL: none */
};
/* Prometheus text exposition 0.0.4. view: NULL shows all. */
void ngd_metrics_render(struct ngd_strbuf *sb, const struct ngd_metric_view *view);
/* Returns the quantile q (0..1) of a histogram in seconds, interpolated in its bucket; 0 if it is empty. */
double ngd_metric_quantile(ngd_metric_t m, double q);
/* Copies the counts of a histogram's buckets, which are not cumulative. Counts of two times may be subtracted. */
void ngd_metric_buckets(ngd_metric_t m, uint64_t count_p[NGD_METRIC_BUCKETS]);
/* As ngd_metric_quantile, of such counts. */
double ngd_metric_buckets_quantile(const uint64_t count[NGD_METRIC_BUCKETS], double q);

#endif
