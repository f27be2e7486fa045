/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two sets of options, and taking the new values of one over into the other. */
#include "base/config.h"
#include <string.h>

static bool same_lists(const struct ngd_config_list *a, const struct ngd_config_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return true;
}

bool ngd_config_same(const struct ngd_config_option *opt, const void *a, const void *b)
{
    const void *x = (const char *)a + opt->offset, *y = (const char *)b + opt->offset;

    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case NGD_CONFIG_ENUM:
        return *(const int *)x == *(const int *)y;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        return *(const int64_t *)x == *(const int64_t *)y;
    case NGD_CONFIG_STRING:
        return strcmp(*(char *const *)x, *(char *const *)y) == 0;
    case NGD_CONFIG_LIST:
        return same_lists(x, y);
    }
    return true;
}

/* Exchanges the option's values. Other threads may read numbers at the same time. */
static void exchange_values(const struct ngd_config_option *opt, void *to, void *from)
{
#define EXCHANGE(type) *(type *)from = __atomic_exchange_n((type *)to, *(type *)from, __ATOMIC_RELAXED)
    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        EXCHANGE(bool);
        break;
    case NGD_CONFIG_ENUM:
        EXCHANGE(int);
        break;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        EXCHANGE(int64_t);
        break;
    case NGD_CONFIG_STRING:
        EXCHANGE(char *);
        break;
    case NGD_CONFIG_LIST: {
        struct ngd_config_list list = *(struct ngd_config_list *)to;

        *(struct ngd_config_list *)to = *(struct ngd_config_list *)from;
        *(struct ngd_config_list *)from = list;
        break;
    }
    }
#undef EXCHANGE
}

/* Exchanges the sources of option i, which describe the values that each side has now. */
static void exchange_sources(const struct ngd_config_option *end, size_t i, void *to, void *from)
{
    char **a, **b, *text;

    if (!end->offset)
        return;
    a = *(char ***)((char *)to + end->offset);
    b = *(char ***)((char *)from + end->offset);
    text = a[i];
    a[i] = b[i];
    b[i] = text;
}

void ngd_config_reload(const struct ngd_config_option *table, void *opts, void *from,
                       void (*changed)(void *ctx, const struct ngd_config_option *opt, bool taken), void *ctx)
{
    const struct ngd_config_option *end = table;

    while (end->name)
        end++;
    for (const struct ngd_config_option *opt = table; opt < end; opt++) {
        bool same = ngd_config_same(opt, opts, from);

        if (!same && opt->reloadable)
            exchange_values(opt, (char *)opts + opt->offset, (char *)from + opt->offset);
        if (same || opt->reloadable) /* the same value may stand in another line now */
            exchange_sources(end, (size_t)(opt - table), opts, from);
        if (!same)
            changed(ctx, opt, opt->reloadable);
    }
}
