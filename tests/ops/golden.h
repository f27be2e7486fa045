/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_GOLDEN_H
#define NGD_TESTS_OPS_GOLDEN_H

/*
 * Reads and compares the golden cases of operators: tests/golden/ops.json and ops.safetensors (tests/golden/README.md
 * has their form and the rule of comparison). A case becomes the text of a graph of one node, and its results are
 * compared element by element.
 */
#include "base/dtype.h"
#include "base/strbuf.h"
#include "graphs/op.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN __attribute__((unused)) static

struct golden {
    json_t *cases;  /* of the .json file; of ops.json an array */
    json_t *header; /* of the safetensors file */
    char *data;     /* behind the header */
    char *file;
};

struct golden_tensor {
    ngd_dtype_t dtype;
    uint32_t rank;
    int64_t dims[8];
    const char *data;
    uint64_t bytes;
};

GOLDEN void golden_die(const char *what)
{
    fprintf(stderr, "golden cases: %s\n", what);
    exit(2);
}

GOLDEN char *golden_read(const char *name, size_t *n_p)
{
    const char *top = getenv("top_srcdir");
    char path[4096];
    char *text;
    FILE *f;
    long n;

    snprintf(path, sizeof(path), "%s/tests/golden/%s", top ? top : ".", name);
    f = fopen(path, "rb");
    if (!f)
        golden_die(path);
    fseek(f, 0, SEEK_END);
    n = ftell(f);
    rewind(f);
    text = malloc((size_t)n + 1);
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n)
        golden_die(path);
    fclose(f);
    text[n] = '\0';
    *n_p = (size_t)n;
    return text;
}

/* Loads two files of tests/golden. */
GOLDEN void golden_load(struct golden *g, const char *json, const char *safetensors)
{
    json_error_t error;
    uint64_t header;
    size_t n;
    char *text = golden_read(json, &n);

    g->cases = json_loadb(text, n, 0, &error);
    free(text);
    if (!g->cases)
        golden_die(error.text);
    g->file = golden_read(safetensors, &n);
    memcpy(&header, g->file, sizeof(header));
    if (n < 8 || header > n - 8)
        golden_die("the safetensors header is longer than its file");
    g->header = json_loadb(g->file + 8, header, 0, &error);
    g->data = g->file + 8 + header;
    if (!json_is_object(g->header))
        golden_die(error.text);
}

GOLDEN void golden_open(struct golden *g)
{
    golden_load(g, "ops.json", "ops.safetensors");
    if (!json_is_array(g->cases))
        golden_die("ops.json is no list");
}

GOLDEN void golden_close(struct golden *g)
{
    json_decref(g->cases);
    json_decref(g->header);
    free(g->file);
}

GOLDEN struct golden_tensor golden_tensor(const struct golden *g, const char *name)
{
    json_t *entry = json_object_get(g->header, name), *shape = json_object_get(entry, "shape"),
           *range = json_object_get(entry, "data_offsets");
    struct golden_tensor t = {.rank = (uint32_t)json_array_size(shape)};
    int64_t begin = json_integer_value(json_array_get(range, 0)), end = json_integer_value(json_array_get(range, 1));

    if (!entry || !ngd_dtype_from_safetensors(json_string_value(json_object_get(entry, "dtype")), &t.dtype))
        golden_die(name);
    for (uint32_t d = 0; d < t.rank; d++)
        t.dims[d] = json_integer_value(json_array_get(shape, d));
    t.data = g->data + begin;
    t.bytes = (uint64_t)(end - begin);
    return t;
}

/* ---- a case ---- */

#define GOLDEN_MAX 16

struct golden_case {
    const char *name;
    const struct ngd_op *op; /* NULL: not of the table (sdpa) */
    json_t *attrs;
    uint32_t n_in, n_out;
    struct golden_tensor in[GOLDEN_MAX], out[GOLDEN_MAX];
    uint32_t none;            /* bit per operand: an optional operand that is absent */
    bool mutated[GOLDEN_MAX]; /* operand is compared afterwards */
    struct golden_tensor after[GOLDEN_MAX];
    double rel, abs;
};

GOLDEN struct golden_case golden_case(const struct golden *g, size_t i)
{
    json_t *c = json_array_get(g->cases, i), *inputs = json_object_get(c, "inputs"),
           *outputs = json_object_get(c, "outputs"), *mutates = json_object_get(c, "mutates"),
           *tol = json_object_get(c, "tol"), *item;
    const char *op = json_string_value(json_object_get(c, "op"));
    struct golden_case r = {.name = json_string_value(json_object_get(c, "name")),
                            .attrs = json_object_get(c, "attrs")};
    size_t k;

    r.op = ngd_op_find(op, strlen(op));
    r.rel = json_number_value(json_object_get(tol, "rel"));
    r.abs = json_number_value(json_object_get(tol, "abs"));
    if (json_array_size(inputs) > GOLDEN_MAX || json_array_size(outputs) > GOLDEN_MAX)
        golden_die("a case has more than 16 operands or results");
    json_array_foreach(inputs, k, item)
    {
        r.in[r.n_in] = json_is_null(item) ? (struct golden_tensor){0} : golden_tensor(g, json_string_value(item));
        r.none |= (uint32_t)json_is_null(item) << r.n_in++;
    }
    json_array_foreach(outputs, k, item) r.out[r.n_out++] = golden_tensor(g, json_string_value(item));
    json_array_foreach(mutates, k, item)
    {
        json_int_t at = json_integer_value(json_object_get(item, "input"));

        r.mutated[at] = true;
        r.after[at] = golden_tensor(g, json_string_value(json_object_get(item, "expected")));
    }
    return r;
}

/* ---- as text ---- */

GOLDEN void golden_print_number(struct ngd_strbuf *sb, json_t *v, bool whole)
{
    if (json_is_string(v)) /* "-inf" */
        ngd_strbuf_append(sb, json_string_value(v));
    else if (whole)
        ngd_strbuf_printf(sb, "%lld", (long long)json_integer_value(v));
    else
        ngd_strbuf_printf(sb, "%.17g", json_number_value(v));
}

GOLDEN void golden_print_attr(struct ngd_strbuf *sb, const struct ngd_attr_schema *schema, json_t *v)
{
    json_t *item;
    size_t k;

    switch (schema->type) {
    case NGD_ATTR_INTS:
        ngd_strbuf_append(sb, "[");
        json_array_foreach(v, k, item)
            ngd_strbuf_printf(sb, "%s%lld", k ? ", " : "", (long long)json_integer_value(item));
        ngd_strbuf_append(sb, "]");
        break;
    case NGD_ATTR_BOOL:
        ngd_strbuf_append(sb, json_is_true(v) ? "true" : "false");
        break;
    case NGD_ATTR_STR:
        ngd_strbuf_json_string(sb, json_string_value(v));
        break;
    case NGD_ATTR_DTYPE:
        ngd_strbuf_append(sb, json_is_null(v) ? "none" : json_string_value(v));
        break;
    default:
        golden_print_number(sb, v, schema->type == NGD_ATTR_INT);
        break;
    }
}

GOLDEN void golden_print_type(struct ngd_strbuf *sb, const struct golden_tensor *t)
{
    ngd_strbuf_printf(sb, "%s[", ngd_dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->rank; d++)
        ngd_strbuf_printf(sb, "%s%lld", d ? "," : "", (long long)t->dims[d]);
    ngd_strbuf_append(sb, "]");
}

/* The class of operand i: mutated operands are states, host operands are host parameters, the
 * others as the test wants. */
typedef enum golden_class { GOLDEN_INPUT, GOLDEN_PARAM, GOLDEN_STATE, GOLDEN_HOST, GOLDEN_NONE } golden_class_t;

GOLDEN golden_class_t golden_class(const struct golden_case *c, uint32_t i, bool params)
{
    if (c->none >> i & 1)
        return GOLDEN_NONE;
    if (c->op->mutates >> i & 1)
        return GOLDEN_STATE;
    if (c->op->host >> i & 1)
        return GOLDEN_HOST;
    return params ? GOLDEN_PARAM : GOLDEN_INPUT;
}

GOLDEN void golden_print_node(struct ngd_strbuf *sb, const struct golden_case *c)
{
    json_t *v;
    const char *name;
    bool first = true;

    for (uint32_t i = 0; i < c->n_out; i++)
        ngd_strbuf_printf(sb, "%s%%r%u", i ? ", " : "  ", i);
    ngd_strbuf_printf(sb, "%s%s(", c->n_out ? " = " : "  ", c->op->name);
    for (uint32_t i = 0; i < c->n_in; i++) {
        ngd_strbuf_append(sb, i ? ", " : "");
        if (c->none >> i & 1)
            ngd_strbuf_append(sb, "none");
        else
            ngd_strbuf_printf(sb, "%%a%u", i);
    }
    ngd_strbuf_append(sb, ")");
    json_object_foreach(c->attrs, name, v)
    {
        int at = ngd_op_attr_index(c->op, name, strlen(name));

        if (at < 0)
            golden_die(name);
        ngd_strbuf_printf(sb, "%s%s=", first ? " {" : ", ", name);
        golden_print_attr(sb, &c->op->attrs[at], v);
        first = false;
    }
    ngd_strbuf_append(sb, first ? "\n" : "}\n");
}

GOLDEN void golden_print(struct ngd_strbuf *sb, const struct golden_case *c, bool params)
{
    static const char *const words[] = {"input", "param", "state", "host"};

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"golden\" {\n");
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (c->none >> i & 1)
            continue;
        ngd_strbuf_printf(sb, "  %s %%a%u : ", words[golden_class(c, i, params)], i);
        golden_print_type(sb, &c->in[i]);
        ngd_strbuf_append(sb, "\n");
    }
    golden_print_node(sb, c);
    for (uint32_t i = 0; i < c->n_out; i++)
        ngd_strbuf_printf(sb, "%s\"r%u\" = %%r%u", i ? ", " : "  return ", i, i);
    ngd_strbuf_append(sb, c->n_out ? "\n}\n" : "}\n");
}

/* ---- comparison ---- */

GOLDEN double golden_value(ngd_dtype_t t, const char *p, uint64_t i)
{
    int64_t wide;
    int32_t narrow;
    uint16_t half;
    float f;

    switch (t) {
    case NGD_F32:
        memcpy(&f, p + 4 * i, 4);
        return (double)f;
    case NGD_F16:
    case NGD_BF16:
        memcpy(&half, p + 2 * i, 2);
        return (double)(t == NGD_F16 ? ngd_f16_to_f32(half) : ngd_bf16_to_f32(half));
    case NGD_I32:
        memcpy(&narrow, p + 4 * i, 4);
        return narrow;
    case NGD_I64:
        memcpy(&wide, p + 8 * i, 8);
        return (double)wide;
    case NGD_I8:
        return ((const int8_t *)p)[i];
    default:
        return ((const uint8_t *)p)[i];
    }
}

/*
 * Returns the error of element i in units of the allowed error: 0 is equal, above 1 is wrong. If no error is allowed,
 * as for integers, a difference gives infinity; of an i8 that is off by one, GOLDEN_NEXT.
 */
#define GOLDEN_NEXT 4096
GOLDEN double golden_error(const struct golden_case *c, const struct golden_tensor *want, const char *got, uint64_t i)
{
    size_t size = ngd_dtype_bytes(want->dtype);
    double a = golden_value(want->dtype, got, i), b = golden_value(want->dtype, want->data, i);

    if (memcmp(got + i * size, want->data + i * size, size) == 0 || (a != a && b != b))
        return 0;
    if (!ngd_dtype_is_float(want->dtype))
        return want->dtype == NGD_I8 && fabs(a - b) <= 1 ? GOLDEN_NEXT : INFINITY;
    if (a == b)
        return 0;
    if (!isfinite(a) || !isfinite(b))
        return INFINITY;
    return fabs(a - b) / (c->abs + c->rel * fabs(b));
}

/* Returns the largest error of a result, and its place. */
GOLDEN double golden_compare(const struct golden_case *c, const struct golden_tensor *want, const char *got,
                             uint64_t *at_p)
{
    uint64_t n = want->bytes / ngd_dtype_bytes(want->dtype);
    double worst = 0;

    *at_p = 0;
    for (uint64_t i = 0; i < n; i++) {
        double e = golden_error(c, want, got, i);

        if (!(e <= worst)) {
            worst = e;
            *at_p = i;
        }
    }
    return worst;
}

#endif
