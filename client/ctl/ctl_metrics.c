/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ctl/ctl_metrics.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "npugraphd_"

/* Finds the next line that begins with name, followed by '{' or ' '. The search begins at text, the beginning of a
 * line. */
static const char *next_row(const char *text, const char *name)
{
    const size_t n = strlen(name);

    while (*text != '\0') {
        if (strncmp(text, name, n) == 0 && (text[n] == '{' || text[n] == ' '))
            return text;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return NULL;
}

/* Returns the value of a line, which comes after its last blank: labels may have blanks, values never do. */
static const char *metric_value(const char *line)
{
    const char *p = line + strcspn(line, "\n");

    while (p > line && p[-1] != ' ')
        p--;
    return p;
}

uint64_t ctl_metric_sum(const char *text, const char *name)
{
    char full[128];
    uint64_t sum = 0;

    snprintf(full, sizeof(full), PREFIX "%s", name);
    for (const char *p = next_row(text, full); p != NULL; p = next_row(p + 1, full)) {
        sum += strtoull(metric_value(p), NULL, 10);
        p += strcspn(p, "\n") - 1;
    }
    return sum;
}

/* Parses a number in the C locale: the text has decimal points, whatever the user's locale is. */
static double parse_bound(const char *text)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), old;
    double v;

    if (strncmp(text, "+Inf", 4) == 0 || c == (locale_t)0) {
        if (c != (locale_t)0)
            freelocale(c);
        return INFINITY;
    }
    old = uselocale(c);
    v = strtod(text, NULL);
    uselocale(old);
    freelocale(c);
    return v;
}

void ctl_histogram_read(const char *text, const char *name, struct ctl_histogram *h)
{
    char full[128];

    h->n = 0;
    snprintf(full, sizeof(full), PREFIX "%s_bucket", name);
    for (const char *p = next_row(text, full); p != NULL && h->n < CTL_BUCKETS_MAX; p = next_row(p, full)) {
        const char *le = strstr(p, "le=\"");

        if (le != NULL && le < metric_value(p)) {
            h->bound[h->n] = parse_bound(le + 4);
            h->below[h->n++] = strtoull(metric_value(p), NULL, 10);
        }
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
}

void ctl_histogram_since(struct ctl_histogram *now, const struct ctl_histogram *before)
{
    if (before->n != now->n || ctl_histogram_count(before) > ctl_histogram_count(now))
        return; /* the two texts are from different daemons */
    for (size_t i = 0; i < now->n; i++)
        now->below[i] -= before->below[i] <= now->below[i] ? before->below[i] : now->below[i];
}

uint64_t ctl_histogram_count(const struct ctl_histogram *h)
{
    return h->n != 0 ? h->below[h->n - 1] : 0;
}

double ctl_histogram_quantile(const struct ctl_histogram *h, double q)
{
    const double rank = q * (double)ctl_histogram_count(h);
    double lower = 0, under = 0;

    for (size_t i = 0; i < h->n; i++) {
        const double n = (double)h->below[i] - under;

        if (n > 0 && (double)h->below[i] >= rank) /* only the lower bound of the last bucket is known */
            return isinf(h->bound[i]) ? lower : lower + (h->bound[i] - lower) * (rank - under) / n;
        under = (double)h->below[i];
        lower = h->bound[i];
    }
    return 0;
}
