/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor goes over the bytes once. Each step asks it for so many bytes: what the file cannot have is refused, and
 * what only the bytes at hand lack ends the parse with `more`, so that the reader can come back with more of the file.
 */
#include "base/gguf.h"

#include "base/le.h"
#include "base/mem.h"
#include "base/read_at.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_READ    ((uint64_t)1 << 20)
#define ALIGNMENT_MAX ((int64_t)1 << 20)
/* The fewest bytes of a value (length of the key, key, type, u8) and of a tensor (length and name, rank, one dimension,
 * type, offset). */
#define VALUE_MIN     (8 + 1 + 4 + 1)
#define TENSOR_MIN    (8 + 1 + 4 + 8 + 4 + 8)

static const struct ngd_gguf_type gguf_types[] = {
    {"F32", 0, 1, 4},       {"F16", 1, 1, 2},       {"Q4_0", 2, 32, 18}, {"Q4_1", 3, 32, 20},
    {"Q5_0", 6, 32, 22},    {"Q5_1", 7, 32, 24},    {"Q8_0", 8, 32, 34}, {"Q4_K", 12, 256, 144},
    {"Q5_K", 13, 256, 176}, {"Q6_K", 14, 256, 210}, {"BF16", 30, 1, 2},  {"MXFP4", 39, 32, 17},
};
#define TYPE_NAMES "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4"

/* ---- the cursor ---- */

struct gguf_cursor {
    const uint8_t *bytes;
    uint64_t at, n, file_bytes;
    bool more;
    char where[96]; /* the field that is read, for errors */
    struct ngd_diag *diag;
};

/* Gives a pointer to the next n bytes, and moves behind them. */
static ngd_status_t take_bytes(struct gguf_cursor *c, uint64_t n, const uint8_t **p)
{
    if (n > c->file_bytes - c->at)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_TRUNCATED,
                            "%s: needs %" PRIu64 " bytes at byte %" PRIu64 ", but the file has %" PRIu64, c->where, n,
                            c->at, c->file_bytes);
    if (n > c->n - c->at) {
        c->more = true;
        return ngd_diag_set(c->diag, NGD_ERR_FILE_TRUNCATED, "%s: lies behind the first %" PRIu64 " bytes", c->where,
                            c->n);
    }
    *p = c->bytes + c->at;
    c->at += n;
    return NGD_OK;
}

static ngd_status_t take_uint(struct gguf_cursor *c, int bytes, uint64_t *v_p)
{
    const uint8_t *p = NULL;
    const ngd_status_t status = take_bytes(c, (uint64_t)bytes, &p);

    if (status == NGD_OK)
        *v_p = ngd_le_get(p, bytes);
    return status;
}

static ngd_status_t take_gguf_text(struct gguf_cursor *c, const char **s_p, uint64_t *n_p)
{
    const uint8_t *p = NULL;
    ngd_status_t status = take_uint(c, 8, n_p);

    if (status == NGD_OK)
        status = take_bytes(c, *n_p, &p);
    *s_p = (const char *)p;
    return status;
}

/* Names are printed in logs and on terminals. Keys are ASCII by definition, and so are all names of tensors. */
static ngd_status_t take_gguf_name(struct gguf_cursor *c, uint64_t most, const char **s_p, uint64_t *n_p)
{
    const ngd_status_t status = take_gguf_text(c, s_p, n_p);

    if (status != NGD_OK)
        return status;
    if (*n_p == 0 || *n_p > most)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT,
                            "%s: its name has %" PRIu64 " bytes; it must have 1 to %" PRIu64, c->where, *n_p, most);
    for (uint64_t i = 0; i < *n_p; i++)
        if ((unsigned char)(*s_p)[i] < 0x20 || (unsigned char)(*s_p)[i] >= 0x7f)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "%s: its name has the byte 0x%02x; names are ASCII",
                                c->where, (unsigned)(unsigned char)(*s_p)[i]);
    return NGD_OK;
}

/* ---- metadata ---- */

/* Bytes of a value; 0: a string or an array. */
static int gguf_value_bytes(enum ngd_gguf_value_type type)
{
    static const int8_t bytes[NGD_GGUF_N_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

    return bytes[type];
}

static ngd_status_t take_value_type(struct gguf_cursor *c, const char *what, enum ngd_gguf_value_type *type_p)
{
    uint64_t type = 0;
    const ngd_status_t status = take_uint(c, 4, &type);

    if (status == NGD_OK && type >= NGD_GGUF_N_VALUE_TYPES)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "%s: %s %" PRIu64 " is not a type of GGUF", c->where, what,
                            type);
    *type_p = (enum ngd_gguf_value_type)type;
    return status;
}

static ngd_status_t take_array_head(struct gguf_cursor *c, struct ngd_gguf_value *v)
{
    ngd_status_t status = take_value_type(c, "the type of its elements", &v->type);

    if (status == NGD_OK && v->type == NGD_GGUF_ARRAY)
        status = ngd_diag_set(c->diag, NGD_ERR_FILE_UNSUPPORTED,
                              "%s: is an array of arrays; no key that is supported has one", c->where);
    return status == NGD_OK ? take_uint(c, 8, &v->n) : status;
}

/* Goes over v->n elements. */
static ngd_status_t skip_elements(struct gguf_cursor *c, const struct ngd_gguf_value *v)
{
    const uint64_t each = v->type == NGD_GGUF_STRING ? 8 : (uint64_t)gguf_value_bytes(v->type);
    const uint8_t *p;
    ngd_status_t status = NGD_OK;

    if (v->n > (c->file_bytes - c->at) / each)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_TRUNCATED,
                            "%s: has %" PRIu64 " elements of %" PRIu64 " bytes or more, but only %" PRIu64
                            " bytes of the file are left",
                            c->where, v->n, each, c->file_bytes - c->at);
    if (v->type != NGD_GGUF_STRING)
        return take_bytes(c, v->n * each, &p);
    for (uint64_t i = 0, len; i < v->n && status == NGD_OK; i++)
        status = take_gguf_text(c, (const char **)&p, &len);
    return status;
}

static ngd_status_t take_value(struct gguf_cursor *c, struct ngd_gguf_value *v)
{
    uint64_t key_bytes = 0;
    ngd_status_t status = take_gguf_name(c, 65535, &v->key, &key_bytes);

    if (status != NGD_OK)
        return status;
    v->key_bytes = (uint32_t)key_bytes;
    v->n = 1;
    snprintf(c->where, sizeof(c->where), "metadata %.*s", key_bytes < 80 ? (int)key_bytes : 80, v->key);
    status = take_value_type(c, "its type", &v->type);
    if (status == NGD_OK && v->type == NGD_GGUF_ARRAY) {
        v->array = true;
        status = take_array_head(c, v);
    }
    v->data = c->bytes + c->at;
    return status == NGD_OK ? skip_elements(c, v) : status;
}

static int order_of_texts(const char *a, size_t a_n, const char *b, size_t b_n)
{
    const int order = memcmp(a, b, a_n < b_n ? a_n : b_n);

    return order != 0 ? order : a_n < b_n ? -1 : a_n > b_n;
}

static int by_key(const void *a, const void *b)
{
    const struct ngd_gguf_value *x = a, *y = b;

    return order_of_texts(x->key, x->key_bytes, y->key, y->key_bytes);
}

static ngd_status_t take_values(struct gguf_cursor *c, uint64_t n, struct ngd_gguf *g)
{
    ngd_status_t status = NGD_OK;

    g->values = NGD_NEW_N(struct ngd_gguf_value, n + 1);
    if (!g->values)
        return NGD_ERR_NO_MEMORY;
    for (; g->n_values < n && status == NGD_OK; g->n_values++) {
        snprintf(c->where, sizeof(c->where), "metadata, value %zu of %" PRIu64, g->n_values + 1, n);
        status = take_value(c, &g->values[g->n_values]);
    }
    if (status != NGD_OK)
        return status;
    qsort(g->values, g->n_values, sizeof(*g->values), by_key);
    for (size_t i = 1; i < g->n_values; i++)
        if (by_key(&g->values[i - 1], &g->values[i]) == 0)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "metadata %.*s: is there twice",
                                g->values[i].key_bytes < 80 ? (int)g->values[i].key_bytes : 80, g->values[i].key);
    return NGD_OK;
}

/* ---- tensors ---- */

static ngd_status_t take_shape(struct gguf_cursor *c, struct ngd_gguf_tensor *t, uint64_t *elements_p)
{
    uint64_t rank = 0, size = 0;
    ngd_status_t status = take_uint(c, 4, &rank);

    if (status == NGD_OK && (rank < 1 || rank > NGD_GGUF_MAX_RANK))
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "%s: has %" PRIu64 " dimensions; it must have 1 to %d",
                            c->where, rank, NGD_GGUF_MAX_RANK);
    t->rank = (uint32_t)rank;
    *elements_p = 1;
    for (uint32_t i = 0; i < t->rank && status == NGD_OK; i++) {
        status = take_uint(c, 8, &size);
        if (status == NGD_OK && (size < 1 || size > INT64_MAX || __builtin_mul_overflow(*elements_p, size, elements_p)))
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT,
                                "%s: dimension %" PRIu32 " is %" PRIu64
                                "; dimensions are 1 or more, and elements below 2^64",
                                c->where, i, size);
        t->shape[t->rank - 1 - i] = (int64_t)size;
    }
    return status;
}

static ngd_status_t take_tensor_type(struct gguf_cursor *c, struct ngd_gguf_tensor *t)
{
    uint64_t id = 0;
    const ngd_status_t status = take_uint(c, 4, &id);

    for (size_t i = 0; i < sizeof(gguf_types) / sizeof(gguf_types[0]); i++)
        if (gguf_types[i].id == id)
            t->type = &gguf_types[i];
    if (status == NGD_OK && !t->type)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_UNSUPPORTED,
                            "%s: is of GGML type %" PRIu64 "; supported are %s. Quantise the model to one of these",
                            c->where, id, TYPE_NAMES);
    return status;
}

static ngd_status_t take_tensor(struct gguf_cursor *c, struct ngd_gguf_tensor *t)
{
    uint64_t name_bytes = 0, elements = 0, blocks;
    const char *name;
    ngd_status_t status = take_gguf_name(c, NGD_GGUF_NAME_BYTES - 1, &name, &name_bytes);

    if (status != NGD_OK)
        return status;
    memcpy(t->name, name, name_bytes);
    snprintf(c->where, sizeof(c->where), "tensor %s", t->name);
    status = take_shape(c, t, &elements);
    if (status == NGD_OK)
        status = take_tensor_type(c, t);
    if (status == NGD_OK)
        status = take_uint(c, 8, &t->offset);
    if (status != NGD_OK)
        return status;
    if (t->shape[t->rank - 1] % t->type->elements != 0)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT,
                            "%s: has rows of %" PRId64 " elements, but %s has blocks of %" PRIu32, c->where,
                            t->shape[t->rank - 1], t->type->name, t->type->elements);
    blocks = elements / t->type->elements;
    if (__builtin_mul_overflow(blocks, (uint64_t)t->type->bytes, &t->bytes))
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "%s: has more than 2^64 bytes", c->where);
    return NGD_OK;
}

/* The offsets of the table count from the data's first byte, and become those of the file. */
static ngd_status_t place_gguf_tensors(struct gguf_cursor *c, struct ngd_gguf *g, uint64_t alignment)
{
    const uint64_t begin = (c->at + alignment - 1) / alignment * alignment;
    const uint64_t room = begin < c->file_bytes ? c->file_bytes - begin : 0;

    for (size_t i = 0; i < g->n_tensors; i++) {
        struct ngd_gguf_tensor *t = &g->tensors[i];

        if (t->offset % alignment != 0)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT,
                                "tensor %s: its offset is %" PRIu64 ", not a multiple of the alignment, %" PRIu64,
                                t->name, t->offset, alignment);
        if (t->bytes > room || t->offset > room - t->bytes)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_TRUNCATED,
                                "tensor %s: has %" PRIu64 " bytes from %" PRIu64
                                " of the data, which end after %" PRIu64 " bytes: get the file again",
                                t->name, t->bytes, t->offset, room);
        t->offset += begin;
    }
    return NGD_OK;
}

static int gguf_by_offset(const void *a, const void *b)
{
    const struct ngd_gguf_tensor *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int gguf_by_name(const void *a, const void *b)
{
    const struct ngd_gguf_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static ngd_status_t order_tensors(struct gguf_cursor *c, struct ngd_gguf *g)
{
    struct ngd_gguf_tensor *t = g->tensors;

    qsort(t, g->n_tensors, sizeof(*t), gguf_by_offset);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (t[i].offset < t[i - 1].offset + t[i - 1].bytes)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "tensors %s and %s overlap", t[i - 1].name, t[i].name);
    qsort(t, g->n_tensors, sizeof(*t), gguf_by_name);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (strcmp(t[i - 1].name, t[i].name) == 0)
            return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "tensor %s: is there twice", t[i].name);
    return NGD_OK;
}

static ngd_status_t find_alignment(struct gguf_cursor *c, const struct ngd_gguf *g, uint64_t *alignment_p)
{
    const struct ngd_gguf_value *v = ngd_gguf_value(g, "general.alignment");
    const uint8_t *at = v ? v->data : NULL;
    int64_t alignment = 32;

    if (v && (v->array || !ngd_gguf_take_int(v, &at, &alignment) || alignment < 8 || alignment % 8 != 0 ||
              alignment > ALIGNMENT_MAX))
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT,
                            "metadata general.alignment: must be a multiple of 8, at most %" PRId64, ALIGNMENT_MAX);
    *alignment_p = (uint64_t)alignment;
    return NGD_OK;
}

static ngd_status_t take_tensors(struct gguf_cursor *c, uint64_t n, struct ngd_gguf *g)
{
    uint64_t alignment = 0;
    ngd_status_t status = find_alignment(c, g, &alignment);

    if (status != NGD_OK)
        return status;
    g->tensors = NGD_NEW_N(struct ngd_gguf_tensor, n + 1);
    if (!g->tensors)
        return NGD_ERR_NO_MEMORY;
    for (; g->n_tensors < n && status == NGD_OK; g->n_tensors++) {
        snprintf(c->where, sizeof(c->where), "tensor %zu of %" PRIu64, g->n_tensors + 1, n);
        status = take_tensor(c, &g->tensors[g->n_tensors]);
    }
    if (status == NGD_OK)
        status = place_gguf_tensors(c, g, alignment);
    return status == NGD_OK ? order_tensors(c, g) : status;
}

/* ---- the header ---- */

bool ngd_gguf_is(const uint8_t first[4])
{
    return memcmp(first, "GGUF", 4) == 0;
}

/* Checks a count before memory is taken for it. */
static ngd_status_t check_count(struct gguf_cursor *c, const char *what, uint64_t n, uint64_t most, uint64_t each)
{
    if (n > most)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_UNSUPPORTED,
                            "the header counts %" PRIu64 " %s; at most %" PRIu64 " are supported", n, what, most);
    if (n * each > c->file_bytes - c->at)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_TRUNCATED,
                            "the header counts %" PRIu64 " %s, for which the file is too short", n, what);
    return NGD_OK;
}

static ngd_status_t take_head(struct gguf_cursor *c, uint64_t *n_tensors_p, uint64_t *n_values_p)
{
    const uint8_t *magic = NULL;
    uint64_t version = 0;
    ngd_status_t status;

    snprintf(c->where, sizeof(c->where), "the header");
    status = take_bytes(c, 4, &magic);
    if (status == NGD_OK && !ngd_gguf_is(magic))
        return ngd_diag_set(c->diag, NGD_ERR_FILE_CORRUPT, "the file does not begin with GGUF");
    if (status == NGD_OK)
        status = take_uint(c, 4, &version);
    if (status == NGD_OK && version != 2 && version != 3)
        return ngd_diag_set(c->diag, NGD_ERR_FILE_UNSUPPORTED,
                            version % 65536 == 0 ? "the file is of version %" PRIu64 " of GGUF, or is big-endian; "
                                                   "versions 2 and 3, little-endian, are supported"
                                                 : "the file is of version %" PRIu64 " of GGUF; versions 2 and 3 are "
                                                   "supported: convert the model again",
                            version);
    if (status == NGD_OK)
        status = take_uint(c, 8, n_tensors_p);
    if (status == NGD_OK)
        status = take_uint(c, 8, n_values_p);
    if (status == NGD_OK)
        status = check_count(c, "values of metadata", *n_values_p, NGD_GGUF_MAX_VALUES, VALUE_MIN);
    return status == NGD_OK ? check_count(c, "tensors", *n_tensors_p, NGD_GGUF_MAX_TENSORS, TENSOR_MIN) : status;
}

ngd_status_t ngd_gguf_parse(const uint8_t *bytes, uint64_t n, uint64_t file_bytes, struct ngd_gguf *gguf_p,
                            bool *more_p, struct ngd_diag *diag)
{
    struct gguf_cursor c = {.bytes = bytes, .n = n, .file_bytes = file_bytes, .diag = diag};
    struct ngd_gguf g = {0};
    uint64_t n_tensors = 0, n_values = 0;
    ngd_status_t status = take_head(&c, &n_tensors, &n_values);

    if (status == NGD_OK)
        status = take_values(&c, n_values, &g);
    if (status == NGD_OK)
        status = take_tensors(&c, n_tensors, &g);
    *more_p = c.more;
    if (status == NGD_OK)
        *gguf_p = g;
    else
        ngd_gguf_fini(&g);
    return status;
}

ngd_status_t ngd_gguf_read(int fd, uint64_t file_bytes, struct ngd_gguf *gguf_p, struct ngd_diag *diag)
{
    const uint64_t most = file_bytes < NGD_GGUF_MAX_HEADER ? file_bytes : NGD_GGUF_MAX_HEADER;
    uint64_t have = 0, n = most < FIRST_READ ? most : FIRST_READ;
    uint8_t *bytes = NULL;
    bool more = true;
    ngd_status_t status = NGD_OK;

    while (more) {
        uint8_t *grown = ngd_realloc(bytes, n + 1);

        status = grown ? NGD_OK : NGD_ERR_NO_MEMORY;
        more = false;
        if (grown)
            bytes = grown;
        if (status == NGD_OK)
            status = ngd_read_at(fd, bytes + have, n - have, have, diag);
        if (status == NGD_OK)
            status = ngd_gguf_parse(bytes, n, file_bytes, gguf_p, &more, diag);
        have = n;
        if (more && n == most) {
            more = false;
            status = ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED,
                                  "the header has more than %" PRIu64 " bytes, which is the most that is supported",
                                  NGD_GGUF_MAX_HEADER);
        }
        n = n < most / 4 ? 4 * n : most;
    }
    if (status == NGD_OK)
        gguf_p->bytes = bytes;
    else
        ngd_free(bytes);
    return status;
}

void ngd_gguf_fini(struct ngd_gguf *g)
{
    ngd_free(g->values);
    ngd_free(g->tensors);
    ngd_free(g->bytes);
    *g = (struct ngd_gguf){0};
}

/* ---- looking up ---- */

static int compare_gguf_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct ngd_gguf_tensor *)item)->name);
}

const struct ngd_gguf_tensor *ngd_gguf_tensor(const struct ngd_gguf *g, const char *name)
{
    return g->n_tensors ? bsearch(name, g->tensors, g->n_tensors, sizeof(*g->tensors), compare_gguf_name) : NULL;
}

static int compare_gguf_key(const void *key, const void *item)
{
    const struct ngd_gguf_value *v = item;

    return order_of_texts(key, strlen(key), v->key, v->key_bytes);
}

const struct ngd_gguf_value *ngd_gguf_value(const struct ngd_gguf *g, const char *key)
{
    return g->n_values ? bsearch(key, g->values, g->n_values, sizeof(*g->values), compare_gguf_key) : NULL;
}

bool ngd_gguf_take_int(const struct ngd_gguf_value *value, const uint8_t **at_p, int64_t *v_p)
{
    const enum ngd_gguf_value_type type = value->type;
    const int bytes = gguf_value_bytes(type);
    uint64_t v;

    if (bytes == 0 || type == NGD_GGUF_F32 || type == NGD_GGUF_F64 || type == NGD_GGUF_BOOL)
        return false;
    v = ngd_le_get(*at_p, bytes);
    if ((type == NGD_GGUF_I8 || type == NGD_GGUF_I16 || type == NGD_GGUF_I32) && v >> (8 * bytes - 1) != 0)
        v |= UINT64_MAX << (8 * bytes);
    if (type == NGD_GGUF_U64 && v > INT64_MAX)
        return false;
    *at_p += bytes;
    *v_p = (int64_t)v;
    return true;
}

bool ngd_gguf_take_number(const struct ngd_gguf_value *value, const uint8_t **at_p, double *v_p)
{
    int64_t whole;
    float f;

    if (value->type == NGD_GGUF_F32) {
        const uint32_t bits = (uint32_t)ngd_le_get(*at_p, 4);

        memcpy(&f, &bits, sizeof(f));
        *v_p = (double)f;
        *at_p += 4;
        return true;
    }
    if (value->type == NGD_GGUF_F64) {
        const uint64_t bits = ngd_le_get(*at_p, 8);

        memcpy(v_p, &bits, sizeof(*v_p));
        *at_p += 8;
        return true;
    }
    if (!ngd_gguf_take_int(value, at_p, &whole))
        return false;
    *v_p = (double)whole;
    return true;
}

bool ngd_gguf_take_string(const struct ngd_gguf_value *value, const uint8_t **at_p, const char **s_p, size_t *n_p)
{
    if (value->type != NGD_GGUF_STRING)
        return false;
    *n_p = (size_t)ngd_le_get(*at_p, 8);
    *s_p = (const char *)*at_p + 8;
    *at_p += 8 + *n_p;
    return true;
}
