/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two sets of options, copying them, and taking the new values of one over into the other. */
#include "base/config.h"
#include "base/mem.h"
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
        const bool same = ngd_config_same(opt, opts, from);
        const bool live = opt->change != NGD_CONFIG_RESTART;

        if (!same && live)
            exchange_values(opt, (char *)opts + opt->offset, (char *)from + opt->offset);
        if (same || live) /* the same value may stand in another line now */
            exchange_sources(end, (size_t)(opt - table), opts, from);
        if (!same)
            changed(ctx, opt, live);
    }
}

/* ---- copies ------------------------------------------------------------------------------------------------ */

/* Returns where the sources' field has the one of the option; NULL: they are not remembered. */
static char **source_field(const struct ngd_config_option *table, const struct ngd_config_option *opt, void *opts)
{
    const struct ngd_config_option *end = opt;

    while (end->name)
        end++;
    return end->offset ? &(*(char ***)((char *)opts + end->offset))[opt - table] : NULL;
}

/* Sets the source; NULL: the default. */
static ngd_status_t set_source(const struct ngd_config_option *table, const struct ngd_config_option *opt, void *opts,
                               const char *source)
{
    char **field = source_field(table, opt, opts), *copy = field && source ? ngd_strdup(source) : NULL;

    if (field && source && !copy)
        return NGD_ERR_NO_MEMORY;
    if (field) {
        ngd_free(*field);
        *field = copy;
    }
    return NGD_OK;
}

ngd_status_t ngd_config_replace(const struct ngd_config_option *table, void *opts, const struct ngd_config_option *opt,
                                char *const *values, size_t n, const char *source, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (opt->type != NGD_CONFIG_LIST && n != 1)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %zu values; allowed: one", opt->name, n);
    if (opt->type == NGD_CONFIG_LIST)
        status = ngd_config_set(table, opts, opt->name, "", diag); /* empties it */
    for (size_t i = 0; i < n && status == NGD_OK; i++)
        status = ngd_config_set(table, opts, opt->name, values[i], diag);
    if (status == NGD_OK && set_source(table, opt, opts, source) != NGD_OK)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory while setting %s", opt->name);
    return status;
}

/* Copies numbers, and makes copies of what belongs to the options. */
static ngd_status_t copy_value(const struct ngd_config_option *opt, void *to, const void *from)
{
    struct ngd_config_list list;
    char *text;

    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        *(bool *)to = *(const bool *)from;
        return NGD_OK;
    case NGD_CONFIG_ENUM:
        *(int *)to = *(const int *)from;
        return NGD_OK;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        *(int64_t *)to = *(const int64_t *)from;
        return NGD_OK;
    case NGD_CONFIG_STRING:
        text = ngd_strdup(*(char *const *)from);
        if (!text)
            return NGD_ERR_NO_MEMORY;
        ngd_free(*(char **)to);
        *(char **)to = text;
        return NGD_OK;
    case NGD_CONFIG_LIST:
        if (ngd_config_list_copy(from, &list) != NGD_OK)
            return NGD_ERR_NO_MEMORY;
        ngd_config_list_fini(to);
        *(struct ngd_config_list *)to = list;
        return NGD_OK;
    }
    return NGD_ERR_INTERNAL;
}

ngd_status_t ngd_config_copy_option(const struct ngd_config_option *table, const struct ngd_config_option *opt,
                                    void *to, const void *from)
{
    char **source = source_field(table, opt, (void *)(uintptr_t)from);
    ngd_status_t status = copy_value(opt, (char *)to + opt->offset, (const char *)from + opt->offset);

    return status == NGD_OK ? set_source(table, opt, to, source ? *source : NULL) : status;
}

ngd_status_t ngd_config_copy(const struct ngd_config_option *table, void *to, const void *from)
{
    struct ngd_diag unused = {0};
    ngd_status_t status = ngd_config_init(table, to, &unused);

    if (status != NGD_OK)
        return status;
    for (const struct ngd_config_option *opt = table; opt->name && status == NGD_OK; opt++)
        status = ngd_config_copy_option(table, opt, to, from);
    if (status != NGD_OK)
        ngd_config_fini(table, to);
    return status;
}
