/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_METRICS_H
#define NPUGRAPH_CTL_METRICS_H

/* Reads values from the daemon's Prometheus text (Admin.Stats), and computes what happened between two such texts. */
#include <stddef.h>
#include <stdint.h>

/* Returns by how much a counter has grown. A counter that is less than before started again from 0: the daemon was
 * restarted, or the object is a new one. */
static inline uint64_t ctl_grown(uint64_t before, uint64_t now)
{
    return now >= before ? now - before : now;
}

/* Returns the sum of the rows of a counter or gauge, 0 if there is none. The name lacks the prefix npugraphd_. */
uint64_t ctl_metric_sum(const char *text, const char *name);

#define CTL_BUCKETS_MAX 64
struct ctl_histogram {
    size_t n;
    double bound[CTL_BUCKETS_MAX];   /* upper, seconds; the last is infinite */
    uint64_t below[CTL_BUCKETS_MAX]; /* observations up to the bound */
};
/* Reads a histogram that has no labels but its bounds. n = 0 if there is none. */
void ctl_histogram_read(const char *text, const char *name, struct ctl_histogram *h);
/* Subtracts `before` from `now`, which leaves the observations between the two. */
void ctl_histogram_since(struct ctl_histogram *now, const struct ctl_histogram *before);
uint64_t ctl_histogram_count(const struct ctl_histogram *h);
/* Returns the quantile in seconds, interpolated within its bucket as the daemon does; 0 without observations. */
double ctl_histogram_quantile(const struct ctl_histogram *h, double q);

#endif
