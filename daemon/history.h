/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HISTORY_H
#define NGD_DAEMON_HISTORY_H

/*
 * What the daemon did lately, for the page for people: a sample a second for 5 minutes, one of 10 seconds for an hour,
 * and one of a minute for a day.
 *
 * A sample keeps counters and buckets as they were at its end, so what happened in it is a difference, and the sums of
 * all steps agree. Of gauges it keeps the largest value that it saw.
 *
 * Threads: the caller synchronises. Memory: about 2 MiB, allocated at once; the kernel gives pages as they fill.
 */
#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/strbuf.h"

#define NGD_HISTORY_DEVICES 16 /* devices beyond these are not kept */
#define NGD_HISTORY_LEVELS  3

typedef enum ngd_history_kind { NGD_HISTORY_RATE, NGD_HISTORY_GAUGE, NGD_HISTORY_LATENCY } ngd_history_kind_t;

struct ngd_history_row {
    ngd_history_kind_t kind;
    const char *name;
    ngd_metric_t metric;
};

enum {
#define NGD_HISTORY(name, kind, metric) NGD_HISTORY_ROW_##metric,
#include "daemon/history.def"
#undef NGD_HISTORY
    NGD_HISTORY_ROWS
};
enum {
    NGD_HISTORY_LATENCIES = 0
#define NGD_HISTORY(name, kind, metric) +(NGD_HISTORY_##kind == NGD_HISTORY_LATENCY)
#include "daemon/history.def"
#undef NGD_HISTORY
};
extern const struct ngd_history_row ngd_history_rows[NGD_HISTORY_ROWS];

struct ngd_history_device {
    ngd_nsec_t busy;          /* counter: time of all stream slots that ran something */
    uint64_t used;            /* bytes */
    float temperature, power; /* NAN: not known */
};

struct ngd_history_sample {
    ngd_nsec_t at;                                              /* ngd_now() */
    uint64_t value[NGD_HISTORY_ROWS];                           /* of rates and gauges */
    uint32_t bucket[NGD_HISTORY_LATENCIES][NGD_METRIC_BUCKETS]; /* of latencies, in the order of their rows */
    struct ngd_history_device device[NGD_HISTORY_DEVICES];
};

struct ngd_history;

struct ngd_history_params {
    uint32_t n_devices;
    const char *const *devices; /* names, borrowed */
    const uint32_t *slots;      /* stream slots of each device; copied */
};
ngd_status_t ngd_history_create(const struct ngd_history_params *params, struct ngd_history **history_p);
void ngd_history_destroy(struct ngd_history *history); /* NULL is fine */

/* Reads all rows that are metrics; the caller fills in time and devices. */
void ngd_history_read(struct ngd_history_sample *sample_p);
/* Adds a sample that was read a second after the one before. The first one is the base that the next is compared with.
 */
void ngd_history_add(struct ngd_history *history, const struct ngd_history_sample *sample);

/* Returns the level whose samples have `seconds`; -1: none. */
int ngd_history_level(uint64_t seconds);
/*
 * Prints the samples of a level whose numbers are above `since`, as columns. Samples are numbered from 1 on; "end" is
 * the newest. unix_now: the time at ngd_now(), in seconds. What is not known, or did not happen, is null.
 */
void ngd_history_json(const struct ngd_history *history, int level, uint64_t since, double unix_now,
                      struct ngd_strbuf *sb);

#endif
