/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: one family per row of metrics.def.
 *
 * A family has one static row. Without a label it is the metric itself, with a label it is the row
 * "other", so that finding a row never fails. Labelled rows are in a list that only grows. `lock` guards
 * the list and the labels; values are relaxed atomics. A row whose object is gone is hidden; once the
 * family is full, it is given to another label value.
 *
 * A scrape is not a snapshot: values change while it renders. This matters to readers only within one
 * histogram, so _count is computed from the buckets that were printed.
 */
#include "base/metrics.h"
#include "base/exemplar.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PREFIX          "npugraphd_"
#define LABEL_MAX_BYTES 160 /* an identity is shorter, so two identities never get the same label */
#define IDENTITY        "identity"

/* Upper bounds, in steps of 1-2-5 from 1 µs to 10 s. A replay of a small graph takes some µs, a capture
 * some seconds; the same bounds for all histograms keep dashboards comparable. */
static const ngd_nsec_t bounds[] = {
    1 * NGD_USEC,   2 * NGD_USEC,   5 * NGD_USEC,   10 * NGD_USEC,  20 * NGD_USEC,  50 * NGD_USEC,
    100 * NGD_USEC, 200 * NGD_USEC, 500 * NGD_USEC, 1 * NGD_MSEC,   2 * NGD_MSEC,   5 * NGD_MSEC,
    10 * NGD_MSEC,  20 * NGD_MSEC,  50 * NGD_MSEC,  100 * NGD_MSEC, 200 * NGD_MSEC, 500 * NGD_MSEC,
    1 * NGD_SEC,    2 * NGD_SEC,    5 * NGD_SEC,    10 * NGD_SEC,
};
#define N_BOUNDS (sizeof(bounds) / sizeof(bounds[0]))
_Static_assert(NGD_METRIC_BUCKETS == N_BOUNDS + 1, "one bucket is above all bounds");

enum kind { KIND_COUNTER, KIND_TIME_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

struct histogram {
    _Atomic uint64_t bucket[N_BOUNDS + 1]; /* not cumulative; the last is above all bounds */
    _Atomic uint64_t sum_ns;
};

struct exemplar {
    uint8_t trace[NGD_EXEMPLAR_TRACE];
    ngd_nsec_t value, at; /* at: Unix time; 0: there is none */
};

struct ngd_metric_row {
    _Atomic int64_t value; /* counters: as uint64_t */
    struct ngd_metric_row *next;
    bool hidden;
    char label[LABEL_MAX_BYTES + 1], owner[LABEL_MAX_BYTES + 1];
};

static const struct {
    const char *name, *label, *help;
    enum kind kind;
} families[] = {
#define NGD_METRIC(ID, kind, name, label, help) [NGD_M_##ID] = {name, label, help, KIND_##kind},
#include "base/metrics.def"
#undef NGD_METRIC
};

#define NGD_METRIC(ID, kind, name, label, help) \
    _Static_assert(KIND_##kind != KIND_HISTOGRAM || sizeof(label) == 1, "histograms have no label");
#include "base/metrics.def"
#undef NGD_METRIC

static struct ngd_mutex lock = NGD_MUTEX_INITIALIZER(NGD_RANK_METRICS);
static struct {
    struct ngd_metric_row base;
    struct histogram hist;
    struct exemplar exemplars[N_BOUNDS + 1] NGD_GUARDED_BY(lock);
    struct ngd_metric_row *rows NGD_GUARDED_BY(lock); /* in the order in which they were made */
    unsigned n_rows NGD_GUARDED_BY(lock);
    bool other_used; /* the row "other" of a labelled family is shown */
} state[NGD_M_MAX];

static bool labelled(ngd_metric_t m)
{
    return families[m].label[0] != '\0';
}

/* Returns the length of the first label's name in bytes. */
static size_t label_len(ngd_metric_t m)
{
    return strcspn(families[m].label, ",");
}

/* Returns true if the family's rows belong to identities. */
static bool owned(ngd_metric_t m)
{
    return families[m].label[label_len(m)] != '\0' || strcmp(families[m].label, IDENTITY) == 0;
}

static size_t histogram_bucket(ngd_nsec_t t)
{
    size_t lo = 0, hi = N_BOUNDS;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (t <= bounds[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void hist_observe(struct histogram *h, ngd_nsec_t t)
{
    if (t < 0)
        t = 0;
    atomic_fetch_add_explicit(&h->bucket[histogram_bucket(t)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, (uint64_t)t, memory_order_relaxed);
}

static uint64_t hist_count(const struct histogram *h)
{
    uint64_t n = 0;

    for (size_t i = 0; i <= N_BOUNDS; i++)
        n += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
    return n;
}

void ngd_metric_add(ngd_metric_t m, uint64_t n)
{
    ngd_metric_row_add(&state[m].base, n);
}

void ngd_metric_set(ngd_metric_t m, int64_t v)
{
    ngd_metric_row_set(&state[m].base, v);
}

void ngd_metric_inc(ngd_metric_t m)
{
    ngd_metric_row_add(&state[m].base, 1);
}

void ngd_metric_dec(ngd_metric_t m)
{
    ngd_metric_row_add(&state[m].base, (uint64_t)-1);
}

void ngd_metric_observe(ngd_metric_t m, ngd_nsec_t t)
{
    hist_observe(&state[m].hist, t);
}

void ngd_metric_exemplar(ngd_metric_t m, ngd_nsec_t t, const uint8_t trace[NGD_EXEMPLAR_TRACE])
{
    struct exemplar e = {.value = t < 0 ? 0 : t};
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    e.at = (ngd_nsec_t)now.tv_sec * NGD_SEC + now.tv_nsec;
    memcpy(e.trace, trace, sizeof(e.trace));
    ngd_mutex_lock(&lock);
    state[m].exemplars[histogram_bucket(e.value)] = e;
    ngd_mutex_unlock(&lock);
}

static uint64_t row_value(const struct ngd_metric_row *row)
{
    return (uint64_t)atomic_load_explicit(&row->value, memory_order_relaxed);
}

uint64_t ngd_metric_get(ngd_metric_t m)
{
    uint64_t sum = families[m].kind == KIND_HISTOGRAM ? hist_count(&state[m].hist) : row_value(&state[m].base);

    if (!labelled(m))
        return sum;
    ngd_mutex_lock(&lock);
    for (struct ngd_metric_row *row = state[m].rows; row; row = row->next)
        sum += row->hidden && families[m].kind == KIND_GAUGE ? 0 : row_value(row);
    ngd_mutex_unlock(&lock);
    return sum;
}

/* Copies a label value, cut to its limit and made valid UTF-8: some values come from clients (names of graphs). */
static void copy_label(char out[LABEL_MAX_BYTES + 1], const char *value)
{
    size_t len = 0, n = strlen(value);

    while (n > 0) {
        size_t step = ngd_utf8_step(value, n);
        const char *from = step ? value : "?";
        size_t width = step ? step : 1;

        if (len + width > LABEL_MAX_BYTES)
            break;
        memcpy(out + len, from, width);
        len += width;
        value += width;
        n -= width;
    }
    out[len] = '\0';
}

static struct ngd_metric_row *find_row(ngd_metric_t m, const char *label, const char *owner) NGD_REQUIRES(lock)
{
    for (struct ngd_metric_row *row = state[m].rows; row; row = row->next)
        if (strcmp(row->label, label) == 0 && strcmp(row->owner, owner) == 0)
            return row;
    return NULL;
}

static struct ngd_metric_row *new_row(ngd_metric_t m) NGD_REQUIRES(lock)
{
    struct ngd_metric_row **end = &state[m].rows, *row;

    row = NGD_NEW(struct ngd_metric_row);
    if (!row)
        return NULL;
    while (*end)
        end = &(*end)->next;
    *end = row;
    state[m].n_rows++;
    return row;
}

/* Takes a hidden row of a full family for another label value. The row starts at zero, because to Prometheus it is a
 * new series; its old count is added to "other". */
static struct ngd_metric_row *recycle_row(ngd_metric_t m) NGD_REQUIRES(lock)
{
    for (struct ngd_metric_row *row = state[m].rows; row; row = row->next) {
        int64_t value;

        if (!row->hidden)
            continue;
        value = atomic_exchange_explicit(&row->value, 0, memory_order_relaxed);
        if (families[m].kind != KIND_GAUGE)
            ngd_metric_row_add(&state[m].base, (uint64_t)value);
        return row;
    }
    return NULL;
}

struct ngd_metric_row *ngd_metric_row(ngd_metric_t m, const char *label_value)
{
    return ngd_metric_row_of(m, label_value, strcmp(families[m].label, IDENTITY) == 0 ? label_value : "");
}

struct ngd_metric_row *ngd_metric_row_of(ngd_metric_t m, const char *label_value, const char *owner_name)
{
    char label[LABEL_MAX_BYTES + 1], owner[LABEL_MAX_BYTES + 1];
    struct ngd_metric_row *row;

    if (!labelled(m))
        return &state[m].base;
    copy_label(label, label_value);
    copy_label(owner, owner_name);
    ngd_mutex_lock(&lock);
    row = find_row(m, label, owner);
    if (!row) {
        row = state[m].n_rows < NGD_METRIC_ROWS_MAX ? new_row(m) : recycle_row(m);
        if (row) {
            memcpy(row->label, label, sizeof(label));
            memcpy(row->owner, owner, sizeof(owner));
        }
    }
    if (row)
        row->hidden = false;
    else
        state[m].other_used = true;
    ngd_mutex_unlock(&lock);
    return row ? row : &state[m].base;
}

void ngd_metric_row_add(struct ngd_metric_row *row, uint64_t n)
{
    atomic_fetch_add_explicit(&row->value, (int64_t)n, memory_order_relaxed);
}

void ngd_metric_row_set(struct ngd_metric_row *row, int64_t v)
{
    atomic_store_explicit(&row->value, v, memory_order_relaxed);
}

uint64_t ngd_metric_row_get(const struct ngd_metric_row *row)
{
    return row_value(row);
}

void ngd_metric_row_hide(struct ngd_metric_row *row)
{
    if (!row)
        return;
    ngd_mutex_lock(&lock);
    row->hidden = true;
    ngd_mutex_unlock(&lock);
}

const char *ngd_metric_name(ngd_metric_t m)
{
    return (unsigned)m < NGD_M_MAX ? families[m].name : "?";
}

static void put_escaped_label(struct ngd_strbuf *sb, const char *s, bool quotes)
{
    for (; *s; s++) {
        if (*s == '\\')
            ngd_strbuf_append(sb, "\\\\");
        else if (*s == '\n')
            ngd_strbuf_append(sb, "\\n");
        else if (*s == '"' && quotes)
            ngd_strbuf_append(sb, "\\\"");
        else
            ngd_strbuf_putc(sb, *s);
    }
}

static void put_label(struct ngd_strbuf *sb, char before, const char *name, size_t n_name, const char *value)
{
    ngd_strbuf_putc(sb, before);
    ngd_strbuf_append_n(sb, name, n_name);
    ngd_strbuf_append(sb, "=\"");
    put_escaped_label(sb, value, true);
    ngd_strbuf_putc(sb, '"');
}

/* row: NULL without a label. le: the bound of a bucket, otherwise NULL. */
static void put_series(struct ngd_strbuf *sb, ngd_metric_t m, const char *suffix, const struct ngd_metric_row *row,
                       const char *le)
{
    const size_t n = label_len(m);

    ngd_strbuf_printf(sb, PREFIX "%s%s", families[m].name, suffix);
    if (row || le) {
        if (row)
            put_label(sb, '{', families[m].label, n, row->label);
        if (row && families[m].label[n])
            put_label(sb, ',', families[m].label + n + 1, strlen(families[m].label + n + 1), row->owner);
        if (le) /* only histograms, which have no other label */
            put_label(sb, '{', "le", 2, le);
        ngd_strbuf_putc(sb, '}');
    }
    ngd_strbuf_putc(sb, ' ');
}

static void put_seconds(struct ngd_strbuf *sb, ngd_nsec_t t)
{
    ngd_strbuf_printf(sb, "%lld.%09lld", (long long)(t / NGD_SEC), (long long)(t % NGD_SEC));
}

static void put_exemplar(struct ngd_strbuf *sb, ngd_metric_t m, size_t bucket)
{
    struct exemplar e;

    ngd_mutex_lock(&lock);
    e = state[m].exemplars[bucket];
    ngd_mutex_unlock(&lock);
    if (!e.at)
        return;
    ngd_strbuf_append(sb, " # {trace_id=\"");
    for (size_t i = 0; i < sizeof(e.trace); i++)
        ngd_strbuf_printf(sb, "%02x", e.trace[i]);
    ngd_strbuf_append(sb, "\"} ");
    put_seconds(sb, e.value);
    ngd_strbuf_putc(sb, ' ');
    put_seconds(sb, e.at);
}

static void put_histogram(struct ngd_strbuf *sb, ngd_metric_t m, bool exemplars)
{
    const struct histogram *h = &state[m].hist;
    uint64_t sum = atomic_load_explicit(&h->sum_ns, memory_order_relaxed), total = 0;
    char le[32];

    for (size_t i = 0; i <= N_BOUNDS; i++) {
        total += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
        if (i < N_BOUNDS)
            snprintf(le, sizeof(le), "%g", (double)bounds[i] / (double)NGD_SEC);
        else
            snprintf(le, sizeof(le), "+Inf");
        put_series(sb, m, "_bucket", NULL, le);
        ngd_strbuf_printf(sb, "%llu", (unsigned long long)total);
        if (exemplars)
            put_exemplar(sb, m, i);
        ngd_strbuf_putc(sb, '\n');
    }
    put_series(sb, m, "_sum", NULL, NULL);
    ngd_strbuf_printf(sb, "%llu.%09llu\n", (unsigned long long)(sum / NGD_SEC), (unsigned long long)(sum % NGD_SEC));
    put_series(sb, m, "_count", NULL, NULL);
    ngd_strbuf_printf(sb, "%llu\n", (unsigned long long)total);
}

/* row: NULL without a label. */
static void put_value(struct ngd_strbuf *sb, ngd_metric_t m, const struct ngd_metric_row *row, int64_t v)
{

    switch (families[m].kind) {
    case KIND_HISTOGRAM:
        break; /* put_metric_family */
    case KIND_GAUGE:
        put_series(sb, m, "", row, NULL);
        ngd_strbuf_printf(sb, "%lld\n", (long long)v);
        break;
    case KIND_COUNTER:
        put_series(sb, m, "", row, NULL);
        ngd_strbuf_printf(sb, "%llu\n", (unsigned long long)v);
        break;
    case KIND_TIME_COUNTER:
        put_series(sb, m, "", row, NULL);
        ngd_strbuf_printf(sb, "%llu.%06llu\n", (unsigned long long)v / 1000000u, (unsigned long long)v % 1000000u);
        break;
    }
}

static bool shows(const struct ngd_metric_view *view, ngd_metric_t m, const struct ngd_metric_row *row)
{
    return view->all || !owned(m) || (view->owner && strcmp(view->owner, row->owner) == 0);
}

/* The sum of the rows that are not shown ("other") includes the counters of objects that are gone: it must not fall. */
static void put_metric_rows(struct ngd_strbuf *sb, ngd_metric_t m, const struct ngd_metric_view *view)
{
    static const struct ngd_metric_row other_row = {.label = "other", .owner = "other"};
    int64_t other = (int64_t)row_value(&state[m].base);
    bool any = false;

    ngd_mutex_lock(&lock);
    for (const struct ngd_metric_row *row = state[m].rows; row; row = row->next) {
        if (!shows(view, m, row)) {
            any = true;
            other += row->hidden && families[m].kind == KIND_GAUGE ? 0 : (int64_t)row_value(row);
        } else if (!row->hidden) {
            put_value(sb, m, row, (int64_t)row_value(row));
        }
    }
    if (any || state[m].other_used || other != 0)
        put_value(sb, m, &other_row, other);
    ngd_mutex_unlock(&lock);
}

/* Returns the length of the family's name in its own lines: in OpenMetrics, a counter's has no suffix. */
static int family_name_len(ngd_metric_t m, bool open)
{
    const size_t n = strlen(families[m].name), suffix = strlen("_total");

    if (open && n > suffix && strcmp(families[m].name + n - suffix, "_total") == 0)
        return (int)(n - suffix);
    return (int)n;
}

static void put_metric_family(struct ngd_strbuf *sb, ngd_metric_t m, const struct ngd_metric_view *view, bool open)
{
    static const char *const kinds[] = {
        [KIND_COUNTER] = "counter",
        [KIND_TIME_COUNTER] = "counter",
        [KIND_GAUGE] = "gauge",
        [KIND_HISTOGRAM] = "histogram",
    };

    const int n = family_name_len(m, open);

    ngd_strbuf_printf(sb, "# HELP " PREFIX "%.*s ", n, families[m].name);
    put_escaped_label(sb, families[m].help, open);
    ngd_strbuf_printf(sb, "\n# TYPE " PREFIX "%.*s %s\n", n, families[m].name, kinds[families[m].kind]);
    if (families[m].kind == KIND_HISTOGRAM)
        put_histogram(sb, m, open && view->all); /* traces are somebody's, and exemplars do not say whose */
    else if (labelled(m))
        put_metric_rows(sb, m, view);
    else
        put_value(sb, m, NULL, (int64_t)row_value(&state[m].base));
}

void ngd_metrics_render(struct ngd_strbuf *sb, const struct ngd_metric_view *view)
{
    static const struct ngd_metric_view all = {.all = true};

    for (int m = 0; m < NGD_M_MAX; m++)
        put_metric_family(sb, (ngd_metric_t)m, view ? view : &all, false);
}

void ngd_metrics_render_open(struct ngd_strbuf *sb, const struct ngd_metric_view *view)
{
    static const struct ngd_metric_view all = {.all = true};

    for (int m = 0; m < NGD_M_MAX; m++)
        put_metric_family(sb, (ngd_metric_t)m, view ? view : &all, true);
}

void ngd_metric_buckets(ngd_metric_t m, uint64_t count_p[NGD_METRIC_BUCKETS])
{
    for (size_t i = 0; i <= N_BOUNDS; i++)
        count_p[i] = atomic_load_explicit(&state[m].hist.bucket[i], memory_order_relaxed);
}

double ngd_metric_buckets_quantile(const uint64_t count[NGD_METRIC_BUCKETS], double q)
{
    uint64_t total = 0;
    double rank, below = 0;

    for (size_t i = 0; i <= N_BOUNDS; i++)
        total += count[i];
    if (total == 0)
        return 0;
    rank = (q < 0 ? 0 : q > 1 ? 1 : q) * (double)total;
    for (size_t i = 0; i < N_BOUNDS; i++) {
        double n = (double)count[i], lo = i ? (double)bounds[i - 1] : 0, hi = (double)bounds[i];

        if (n > 0 && below + n >= rank)
            return (lo + (hi - lo) * (rank - below) / n) / (double)NGD_SEC;
        below += n;
    }
    return (double)bounds[N_BOUNDS - 1] / (double)NGD_SEC; /* the last bucket has no upper bound */
}

double ngd_metric_quantile(ngd_metric_t m, double q)
{
    uint64_t count[NGD_METRIC_BUCKETS];

    ngd_metric_buckets(m, count);
    return ngd_metric_buckets_quantile(count, q);
}
