/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_METRICS_H
#define NPUGRAPH_CTL_METRICS_H

/* Values out of the daemon's Prometheus text (Admin.Stats), and what two such texts say of the time between them. */
#include <stddef.h>
#include <stdint.h>

/* What a counter has grown by. One that is less than before began anew: the daemon was restarted, or the object was. */
static inline uint64_t ctl_grown(uint64_t before, uint64_t now)
{
    return now >= before ? now - before : now;
}

/* Of a counter or gauge, without the prefix npugraphd_: the sum of its rows; 0 when there is none. */
uint64_t ctl_metric_sum(const char *text, const char *name);

#define CTL_BUCKETS_MAX 64
struct ctl_histogram {
    size_t n;
    double bound[CTL_BUCKETS_MAX];   /* upper, seconds; the last is infinite */
    uint64_t below[CTL_BUCKETS_MAX]; /* observations up to the bound */
};
/* A histogram without labels of its own; n = 0 when there is none. */
void ctl_histogram_read(const char *text, const char *name, struct ctl_histogram *h);
/* What was observed between two readings of it. */
void ctl_histogram_since(struct ctl_histogram *now, const struct ctl_histogram *before);
uint64_t ctl_histogram_count(const struct ctl_histogram *h);
/* In seconds, interpolated within its bucket, as the daemon does; 0 when nothing was observed. */
double ctl_histogram_quantile(const struct ctl_histogram *h, double q);

#endif
