/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/history.h"
#include "base/mem.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

const struct ngd_history_row ngd_history_rows[NGD_HISTORY_ROWS] = {
#define NGD_HISTORY(name, kind, metric) {NGD_HISTORY_##kind, name, metric},
#include "daemon/history.def"
#undef NGD_HISTORY
};

/* One more than are shown, because a sample is compared with the one before. */
#define ROOM(shown) ((shown) + 1)
static const struct {
    uint32_t seconds, room;
} steps[NGD_HISTORY_LEVELS] = {{1, ROOM(300)}, {10, ROOM(360)}, {60, ROOM(1440)}};

struct history_level {
    struct ngd_history_sample *ring;
    uint64_t n; /* samples so far; number i is at ring[i % room] */
    struct ngd_history_sample next;
    bool any; /* `next` has gauges of at least one second */
};

struct ngd_history {
    uint32_t n_devices;
    const char *devices[NGD_HISTORY_DEVICES];
    uint32_t slots[NGD_HISTORY_DEVICES];
    struct history_level levels[NGD_HISTORY_LEVELS];
};

ngd_status_t ngd_history_create(const struct ngd_history_params *params, struct ngd_history **history_p)
{
    struct ngd_history *h = NGD_NEW(struct ngd_history);

    if (!h)
        return NGD_ERR_NO_MEMORY;
    h->n_devices = params->n_devices < NGD_HISTORY_DEVICES ? params->n_devices : NGD_HISTORY_DEVICES;
    for (uint32_t i = 0; i < h->n_devices; i++) {
        h->devices[i] = params->devices[i];
        h->slots[i] = params->slots[i] ? params->slots[i] : 1;
    }
    for (int i = 0; i < NGD_HISTORY_LEVELS; i++) {
        h->levels[i].ring = NGD_NEW_N(struct ngd_history_sample, steps[i].room);
        if (!h->levels[i].ring) {
            ngd_history_destroy(h);
            return NGD_ERR_NO_MEMORY;
        }
    }
    *history_p = h;
    return NGD_OK;
}

void ngd_history_destroy(struct ngd_history *history)
{
    if (!history)
        return;
    for (int i = 0; i < NGD_HISTORY_LEVELS; i++)
        ngd_free(history->levels[i].ring);
    ngd_free(history);
}

/* ---- samples -------------------------------------------------------------------------------------------- */

static void read_buckets(ngd_metric_t metric, uint32_t bucket_p[NGD_METRIC_BUCKETS])
{
    uint64_t count[NGD_METRIC_BUCKETS];

    ngd_metric_buckets(metric, count);
    for (int i = 0; i < NGD_METRIC_BUCKETS; i++)
        bucket_p[i] = (uint32_t)count[i]; /* differences are right as long as they fit */
}

void ngd_history_read(struct ngd_history_sample *sample_p)
{
    int latency = 0;

    for (int i = 0; i < NGD_HISTORY_ROWS; i++) {
        const struct ngd_history_row *row = &ngd_history_rows[i];

        if (row->kind == NGD_HISTORY_LATENCY)
            read_buckets(row->metric, sample_p->bucket[latency++]);
        else
            sample_p->value[i] = ngd_metric_get(row->metric);
        /* A gauge is below 0 for a moment if its two sides are counted by different threads. */
        if (row->kind == NGD_HISTORY_GAUGE && (int64_t)sample_p->value[i] < 0)
            sample_p->value[i] = 0;
    }
}

static float larger(float a, float b)
{
    return isnan(a) || b > a ? b : a;
}

/* Adds a second to the sample that is being made: the newest counters, the largest gauges. */
static void join_sample(struct history_level *level, const struct ngd_history_sample *sample)
{
    struct ngd_history_sample *next = &level->next;
    const struct ngd_history_sample before = *next;

    *next = *sample;
    if (!level->any)
        return;
    for (int i = 0; i < NGD_HISTORY_ROWS; i++)
        if (ngd_history_rows[i].kind == NGD_HISTORY_GAUGE && before.value[i] > next->value[i])
            next->value[i] = before.value[i];
    for (int i = 0; i < NGD_HISTORY_DEVICES; i++) {
        struct ngd_history_device *d = &next->device[i];

        d->used = before.device[i].used > d->used ? before.device[i].used : d->used;
        d->temperature = larger(d->temperature, before.device[i].temperature);
        d->power = larger(d->power, before.device[i].power);
    }
}

void ngd_history_add(struct ngd_history *history, const struct ngd_history_sample *sample)
{
    for (int i = 0; i < NGD_HISTORY_LEVELS; i++) {
        struct history_level *level = &history->levels[i];
        const ngd_nsec_t step = steps[i].seconds * NGD_SEC;

        join_sample(level, sample);
        level->any = true;
        /* A timer may fire a little early, so half a second less counts as a whole step. */
        if (level->n > 0 && sample->at + NGD_SEC / 2 < level->ring[(level->n - 1) % steps[i].room].at + step)
            continue;
        level->ring[level->n++ % steps[i].room] = level->next;
        level->any = false;
    }
}

int ngd_history_level(uint64_t seconds)
{
    for (int i = 0; i < NGD_HISTORY_LEVELS; i++)
        if (steps[i].seconds == seconds)
            return i;
    return -1;
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

/* The samples that are printed: numbers first to end. */
struct history_span {
    const struct history_level *level;
    uint32_t room;
    uint64_t first, end;
};

static const struct ngd_history_sample *sample_at(const struct history_span *span, uint64_t number)
{
    return &span->level->ring[number % span->room];
}

static double sample_seconds(const struct history_span *span, uint64_t number)
{
    return (double)(sample_at(span, number)->at - sample_at(span, number - 1)->at) / (double)NGD_SEC;
}

static void open_column(struct ngd_strbuf *sb, const char *name, const char *suffix)
{
    ngd_strbuf_printf(sb, ",\n\"%s%s\": [", name, suffix);
}

/* Prints an entry of a column; NAN: null. */
static void put_entry(struct ngd_strbuf *sb, double v)
{
    if (sb->len > 0 && sb->data[sb->len - 1] != '[')
        ngd_strbuf_putc(sb, ',');
    if (isnan(v) || isinf(v))
        ngd_strbuf_append(sb, "null");
    else
        ngd_strbuf_printf(sb, "%.6g", v);
}

static void put_rates(const struct history_span *span, int row, struct ngd_strbuf *sb)
{
    open_column(sb, ngd_history_rows[row].name, "");
    for (uint64_t i = span->first; i <= span->end; i++) {
        const uint64_t now = sample_at(span, i)->value[row], before = sample_at(span, i - 1)->value[row];

        put_entry(sb, now > before ? (double)(now - before) / sample_seconds(span, i) : 0);
    }
    ngd_strbuf_putc(sb, ']');
}

static void put_gauges(const struct history_span *span, int row, struct ngd_strbuf *sb)
{
    open_column(sb, ngd_history_rows[row].name, "");
    for (uint64_t i = span->first; i <= span->end; i++)
        put_entry(sb, (double)sample_at(span, i)->value[row]);
    ngd_strbuf_putc(sb, ']');
}

/* Returns the quantile of what was observed within a sample, in microseconds; NAN: nothing was. */
static double sample_quantile(const struct history_span *span, uint64_t number, int latency, double q)
{
    const uint32_t *now = sample_at(span, number)->bucket[latency],
                   *before = sample_at(span, number - 1)->bucket[latency];
    uint64_t count[NGD_METRIC_BUCKETS], sum = 0;

    for (int i = 0; i < NGD_METRIC_BUCKETS; i++)
        sum += count[i] = (uint32_t)(now[i] - before[i]);
    return sum ? ngd_metric_buckets_quantile(count, q) * 1e6 : (double)NAN;
}

static void put_quantiles(const struct history_span *span, int row, int latency, struct ngd_strbuf *sb)
{
    static const struct {
        const char *suffix;
        double q;
    } quantiles[] = {{"_p50", 0.5}, {"_p99", 0.99}};

    for (size_t k = 0; k < sizeof(quantiles) / sizeof(quantiles[0]); k++) {
        open_column(sb, ngd_history_rows[row].name, quantiles[k].suffix);
        for (uint64_t i = span->first; i <= span->end; i++)
            put_entry(sb, sample_quantile(span, i, latency, quantiles[k].q));
        ngd_strbuf_putc(sb, ']');
    }
}

static void put_rows(const struct history_span *span, struct ngd_strbuf *sb)
{
    int latency = 0;

    for (int row = 0; row < NGD_HISTORY_ROWS; row++) {
        switch (ngd_history_rows[row].kind) {
        case NGD_HISTORY_RATE:
            put_rates(span, row, sb);
            break;
        case NGD_HISTORY_GAUGE:
            put_gauges(span, row, sb);
            break;
        case NGD_HISTORY_LATENCY:
            put_quantiles(span, row, latency++, sb);
            break;
        }
    }
}

typedef double (*device_value_fn)(const struct ngd_history *h, const struct history_span *span, uint64_t number,
                                  uint32_t device);

/* Returns the part of its slots' time that a device ran something. A replay counts when it ends, so a sample may have
 * more than its own time. */
static double busy_part(const struct ngd_history *h, const struct history_span *span, uint64_t number, uint32_t device)
{
    const ngd_nsec_t busy =
        sample_at(span, number)->device[device].busy - sample_at(span, number - 1)->device[device].busy;
    const double part = (double)busy / (double)NGD_SEC / sample_seconds(span, number) / h->slots[device];

    return part > 1 ? 1 : part;
}

static double used_bytes(const struct ngd_history *h, const struct history_span *span, uint64_t number, uint32_t device)
{
    (void)h;
    return (double)sample_at(span, number)->device[device].used;
}

static double hottest(const struct ngd_history *h, const struct history_span *span, uint64_t number, uint32_t device)
{
    (void)h;
    return (double)sample_at(span, number)->device[device].temperature;
}

static double power_drawn(const struct ngd_history *h, const struct history_span *span, uint64_t number,
                          uint32_t device)
{
    (void)h;
    return (double)sample_at(span, number)->device[device].power;
}

static void put_device_columns(const struct ngd_history *h, const struct history_span *span, uint32_t device,
                               struct ngd_strbuf *sb)
{
    static const struct {
        const char *name;
        device_value_fn value;
    } columns[] = {{"busy", busy_part}, {"used_bytes", used_bytes}, {"temperature", hottest}, {"power", power_drawn}};

    ngd_strbuf_append(sb, device ? ",\n{\"name\": " : "\n{\"name\": ");
    ngd_strbuf_json_string(sb, h->devices[device]);
    for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++) {
        open_column(sb, columns[k].name, "");
        for (uint64_t i = span->first; i <= span->end; i++)
            put_entry(sb, columns[k].value(h, span, i, device));
        ngd_strbuf_putc(sb, ']');
    }
    ngd_strbuf_putc(sb, '}');
}

static struct history_span find_span(const struct ngd_history *h, int level, uint64_t since)
{
    struct history_span span = {.level = &h->levels[level], .room = steps[level].room, .first = 1};
    const uint64_t n = span.level->n;

    span.end = n ? n - 1 : 0;
    if (span.end > span.room - 1)
        span.first = span.end - span.room + 2;
    if (since >= span.first)
        span.first = (since < span.end ? since : span.end) + 1;
    return span;
}

void ngd_history_json(const struct ngd_history *history, int level, uint64_t since, double unix_now,
                      struct ngd_strbuf *sb)
{
    const struct history_span span = find_span(history, level, since);
    const ngd_nsec_t now = ngd_now();

    ngd_strbuf_printf(sb, "{\"step_s\": %" PRIu32 ", \"end\": %" PRIu64, steps[level].seconds, span.end);
    open_column(sb, "time", "");
    for (uint64_t i = span.first; i <= span.end; i++) {
        ngd_strbuf_append(sb, i > span.first ? "," : "");
        ngd_strbuf_printf(sb, "%.1f", unix_now - (double)(now - sample_at(&span, i)->at) / (double)NGD_SEC);
    }
    ngd_strbuf_putc(sb, ']');
    put_rows(&span, sb);
    open_column(sb, "devices", "");
    for (uint32_t d = 0; d < history->n_devices; d++)
        put_device_columns(history, &span, d, sb);
    ngd_strbuf_append(sb, "]}\n");
}
