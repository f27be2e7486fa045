/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator table: rows of ops.def with their attribute schemas parsed, an index by name, and the
 * nearest name for a diagnosis.
 *
 * A row's shape rule is the function ngd_shape_<shape>. A row of kind SHAPE has its own row check
 * ngd_rows_<shape>; the other kinds share ngd_rows_leading and ngd_rows_none. The schemas in ops.def are text,
 * because people read them. A mistake in one aborts at the first use of the table, in any test.
 */
#include "base/nearest.h"
#include "graphs/op_int.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NGD_ROWS_FN_SHAPE(shape)   ngd_rows_##shape
#define NGD_ROWS_FN_LEADING(shape) ngd_rows_leading
#define NGD_ROWS_FN_NONE(shape)    ngd_rows_none

static struct ngd_op table[] = {
#define NGD_OP(ID, name_, min_in_, max_in_, n_out_, shape_, rows_, flags_, mutates_, host_, attrs_, doc_) \
    [NGD_OP_##ID] = {.id = NGD_OP_##ID,                                                                   \
                     .name = name_,                                                                       \
                     .min_in = min_in_,                                                                   \
                     .max_in = max_in_,                                                                   \
                     .n_out = n_out_,                                                                     \
                     .flags = flags_,                                                                     \
                     .rows = NGD_ROWS_##rows_,                                                            \
                     .mutates = mutates_,                                                                 \
                     .host = host_,                                                                       \
                     .doc = doc_,                                                                         \
                     .shape = ngd_shape_##shape_,                                                         \
                     .rows_ok = NGD_ROWS_FN_##rows_(shape_)},
#include "graphs/ops.def"
#undef NGD_OP
};

static const char *const schemas[] = {
#define NGD_OP(ID, name, min_in, max_in, n_out, shape, rows, flags, mutates, host, attrs, doc) [NGD_OP_##ID] = attrs,
#include "graphs/ops.def"
#undef NGD_OP
};

static const struct ngd_op *by_name[NGD_OP_MAX];

/* The text of the rows, without the last column. */
static const char rows_text[] =
#define NGD_OP(ID, name, min_in, max_in, n_out, shape, rows, flags, mutates, host, attrs, doc)                       \
#ID " " name " " #min_in " " #max_in " " #n_out " " #shape " " #rows " " #flags " " #mutates " " #host " " attrs \
        "\n"
#include "graphs/ops.def"
#undef NGD_OP
    ;

static struct ngd_digest table_digest;

static void bad_schema(const struct ngd_op *op, const char *at)
{
    fprintf(stderr, "ops.def: %s: bad attribute schema at \"%s\"\n", op->name, at);
    abort();
}

static const char *const type_names[] = {
    [NGD_ATTR_INT] = "int",   [NGD_ATTR_INTS] = "ints", [NGD_ATTR_FLOAT] = "float",
    [NGD_ATTR_BOOL] = "bool", [NGD_ATTR_STR] = "str",   [NGD_ATTR_DTYPE] = "dtype",
};

const char *ngd_attr_type_name(ngd_attr_type_t type)
{
    return type_names[type];
}

static bool word_is(const char *word, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(word, text, n) == 0;
}

static bool parse_default(struct ngd_attr_schema *a, const char *text)
{
    ngd_dtype_t dtype;
    char *end = NULL;

    switch (a->type) {
    case NGD_ATTR_INT:
        a->def_int = strtoll(text, &end, 10);
        return end != text && *end == '\0';
    case NGD_ATTR_INTS:
        return *text == '\0';
    case NGD_ATTR_FLOAT:
        a->def_float = strtod(text, &end);
        return end != text && *end == '\0';
    case NGD_ATTR_BOOL:
        a->def_int = strcmp(text, "true") == 0;
        return a->def_int || strcmp(text, "false") == 0;
    case NGD_ATTR_STR:
        return (size_t)snprintf(a->def_str, sizeof(a->def_str), "%s", text) < sizeof(a->def_str);
    case NGD_ATTR_DTYPE:
        a->def_int = -1;
        if (strcmp(text, "none") == 0)
            return true;
        if (!ngd_dtype_parse(text, strlen(text), &dtype))
            return false;
        a->def_int = dtype;
        return true;
    }
    return false;
}

/* Parses one "name:type[=default]" of n bytes. */
static bool parse_schema_attr(struct ngd_attr_schema *a, const char *text, size_t n)
{
    const char *colon = memchr(text, ':', n), *eq = memchr(text, '=', n);
    const char *type_end = eq ? eq : text + n;
    char def[32];

    if (!colon || colon >= type_end || (size_t)(colon - text) >= sizeof(a->name))
        return false;
    memcpy(a->name, text, (size_t)(colon - text));
    for (int t = 0; t <= NGD_ATTR_DTYPE; t++) {
        if (!word_is(colon + 1, (size_t)(type_end - colon - 1), type_names[t]))
            continue;
        a->type = (ngd_attr_type_t)t;
        a->required = !eq;
        if (!eq)
            return true;
        if ((size_t)snprintf(def, sizeof(def), "%.*s", (int)(text + n - eq - 1), eq + 1) >= sizeof(def))
            return false;
        return parse_default(a, def);
    }
    return false;
}

static void parse_schema(struct ngd_op *op, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, " ");

        if (op->n_attrs == NGD_OP_MAX_ATTRS || !parse_schema_attr(&op->attrs[op->n_attrs++], text, n))
            bad_schema(op, text);
        text += n;
        text += strspn(text, " ");
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct ngd_op *const *)a)->name, (*(const struct ngd_op *const *)b)->name);
}

static void init_table(void)
{
    for (int i = 0; i < NGD_OP_MAX; i++) {
        parse_schema(&table[i], schemas[i]);
        by_name[i] = &table[i];
    }
    qsort(by_name, NGD_OP_MAX, sizeof(by_name[0]), compare_names);
    ngd_digest_of(rows_text, sizeof(rows_text) - 1, &table_digest);
}

void ngd_op_table_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init_table);
}

const struct ngd_op *ngd_op_by_id(ngd_op_id_t id)
{
    ngd_op_table_init();
    return (unsigned)id < NGD_OP_MAX ? &table[id] : NULL;
}

/* Compares a name that is not terminated with one that is, in the order of memcmp. */
static int compare_op_name(const char *name, size_t n, const char *other)
{
    size_t m = strlen(other);
    int c = memcmp(name, other, n < m ? n : m);

    return c ? c : (n > m) - (n < m);
}

const struct ngd_op *ngd_op_find(const char *name, size_t n)
{
    size_t lo = 0, hi = NGD_OP_MAX;

    ngd_op_table_init();
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare_op_name(name, n, by_name[mid]->name);

        if (c == 0)
            return by_name[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* Finds an overload for a name that lacks one, those for tensors first: aten.add -> aten.add.Tensor. */
static const char *suggest_overload(const char *name, size_t n)
{
    const char *found = NULL;

    for (int i = 0; i < NGD_OP_MAX; i++) {
        const char *other = by_name[i]->name;

        if (strlen(other) <= n || memcmp(name, other, n) != 0 || other[n] != '.' ||
            (by_name[i]->flags & NGD_OPF_REFUSED))
            continue;
        if (strcmp(other + n, ".Tensor") == 0)
            return other;
        found = found ? found : other;
    }
    return found;
}

const char *ngd_op_suggest(const char *name, size_t n)
{
    struct ngd_nearest nearest;
    const char *overload;

    ngd_op_table_init();
    if (n == 0)
        return NULL;
    overload = suggest_overload(name, n);
    if (overload)
        return overload;
    ngd_nearest_init(&nearest, name, n);
    for (int i = 0; i < NGD_OP_MAX; i++)
        if (!(by_name[i]->flags & NGD_OPF_REFUSED))
            ngd_nearest_add(&nearest, by_name[i]->name);
    return nearest.name;
}

int ngd_op_attr_index(const struct ngd_op *op, const char *name, size_t n)
{
    for (int i = 0; i < op->n_attrs; i++)
        if (word_is(name, n, op->attrs[i].name))
            return i;
    return -1;
}

void ngd_op_table_digest(struct ngd_digest *digest_p)
{
    ngd_op_table_init();
    *digest_p = table_digest;
}
