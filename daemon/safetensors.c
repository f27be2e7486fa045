/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/safetensors.h"

#include "base/mem.h"
#include "daemon/json_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

ngd_status_t ngd_safetensors_header_bytes(const uint8_t first[8], uint64_t file_bytes, uint64_t *header_bytes_p,
                                          struct ngd_diag *diag)
{
    uint64_t n = 0;

    if (file_bytes < 8)
        return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED,
                            "the file has %" PRIu64 " bytes; a safetensors file begins with a length of 8 bytes",
                            file_bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    if (n < 2 || n > NGD_SAFETENSORS_MAX_HEADER)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "the header length is %" PRIu64 " bytes; it must be 2 to %" PRIu64, n,
                            NGD_SAFETENSORS_MAX_HEADER);
    if (n > file_bytes - 8)
        return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED,
                            "the header length is %" PRIu64 " bytes, but the file has only %" PRIu64 " more", n,
                            file_bytes - 8);
    *header_bytes_p = n;
    return NGD_OK;
}

static ngd_status_t parse_shape(const char *name, const json_t *shape, struct ngd_safetensor *t, struct ngd_diag *diag)
{
    uint64_t elements = 1;
    size_t i;
    json_t *v;

    if (!json_is_array(shape) || json_array_size(shape) > NGD_SAFETENSORS_MAX_RANK)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %s: shape must be a list of at most %d sizes", name,
                            NGD_SAFETENSORS_MAX_RANK);
    t->rank = (uint32_t)json_array_size(shape);
    json_array_foreach(shape, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                                "tensor %s: size %zu of its shape is not an integer of 0 or more", name, i);
        t->shape[i] = json_integer_value(v);
        if (__builtin_mul_overflow(elements, (uint64_t)t->shape[i], &elements))
            return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "tensor %s: its shape has more than 2^64 elements", name);
    }
    if (__builtin_mul_overflow(elements, (uint64_t)ngd_dtype_bytes(t->dtype), &t->bytes))
        return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "tensor %s: its shape has more than 2^64 bytes", name);
    return NGD_OK;
}

static ngd_status_t parse_offsets(const char *name, const json_t *offsets, uint64_t data_begin, uint64_t data_bytes,
                                  struct ngd_safetensor *t, struct ngd_diag *diag)
{
    const json_t *b = json_array_get(offsets, 0), *e = json_array_get(offsets, 1);
    json_int_t begin = json_integer_value(b), end = json_integer_value(e);

    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(e) || begin < 0 || end < begin)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %s: data_offsets must be two ascending integers", name);
    if ((uint64_t)end > data_bytes)
        return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED,
                            "tensor %s: ends at byte %" JSON_INTEGER_FORMAT ", but the data ends at %" PRIu64, name,
                            end, data_bytes);
    if ((uint64_t)(end - begin) != t->bytes)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "tensor %s: dtype and shape need %" PRIu64 " bytes, data_offsets give %" PRIu64, name,
                            t->bytes, (uint64_t)(end - begin));
    t->offset = data_begin + (uint64_t)begin;
    return NGD_OK;
}

static ngd_status_t parse_tensor(const char *name, const json_t *v, uint64_t data_begin, uint64_t data_bytes,
                                 struct ngd_safetensor *t, struct ngd_diag *diag)
{
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    ngd_status_t status;

    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "the name of a tensor has the control character 0x%02x",
                                (unsigned)*c);
    if (dtype == NULL)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %s: has no dtype", name);
    if (!ngd_dtype_from_safetensors(dtype, &t->dtype))
        return ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED, "tensor %s: dtype %.16s is not supported", name, dtype);
    status = parse_shape(name, json_object_get(v, "shape"), t, diag);
    if (status == NGD_OK)
        status = parse_offsets(name, json_object_get(v, "data_offsets"), data_begin, data_bytes, t, diag);
    if (status != NGD_OK)
        return status;
    t->name = ngd_strdup(name);
    return t->name ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static int by_offset(const void *a, const void *b)
{
    const struct ngd_safetensor *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first: they overlap nothing */
}

static ngd_status_t check_overlaps(struct ngd_safetensors *index, struct ngd_diag *diag)
{
    qsort(index->items, index->n, sizeof(*index->items), by_offset);
    for (size_t i = 1; i < index->n; i++)
        if (index->items[i].offset < index->items[i - 1].offset + index->items[i - 1].bytes)
            return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensors %s and %s overlap", index->items[i - 1].name,
                                index->items[i].name);
    return NGD_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct ngd_safetensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

ngd_status_t ngd_safetensors_order(struct ngd_safetensors *index, struct ngd_diag *diag)
{
    index->by_name = NGD_NEW_N(const struct ngd_safetensor *, index->n + 1);
    if (!index->by_name)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < index->n; i++)
        index->by_name[i] = &index->items[i];
    qsort(index->by_name, index->n, sizeof(*index->by_name), by_name);
    for (size_t i = 1; i < index->n; i++)
        if (by_name(&index->by_name[i - 1], &index->by_name[i]) == 0)
            return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "two tensors have the name %s", index->by_name[i]->name);
    return NGD_OK;
}

static ngd_status_t parse_tensors(json_t *root, uint64_t header_bytes, uint64_t file_bytes,
                                  struct ngd_safetensors *index, struct ngd_diag *diag)
{
    const char *name;
    json_t *v;

    index->items = NGD_NEW_N(struct ngd_safetensor, json_object_size(root) + 1);
    if (!index->items)
        return NGD_ERR_NO_MEMORY;
    json_object_foreach(root, name, v)
    {
        ngd_status_t status;

        if (strcmp(name, "__metadata__") == 0)
            continue;
        status = parse_tensor(name, v, 8 + header_bytes, file_bytes - 8 - header_bytes, &index->items[index->n], diag);
        if (status != NGD_OK)
            return status;
        index->n++;
    }
    const ngd_status_t status = check_overlaps(index, diag);

    return status == NGD_OK ? ngd_safetensors_order(index, diag) : status;
}

static ngd_status_t check_values(const char *json, uint64_t header_bytes, struct ngd_diag *diag)
{
    size_t n, depth;

    ngd_json_measure(json, header_bytes, &n, &depth);
    if (n <= NGD_SAFETENSORS_MAX_VALUES)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED,
                        "the header has about %zu values; at most %zu are supported; split the file", n,
                        NGD_SAFETENSORS_MAX_VALUES);
}

static ngd_status_t parse_json_header(const char *json, uint64_t header_bytes, json_t **root_p, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    const ngd_status_t status = ngd_json_object(json, header_bytes, root_p, &why);

    return status == NGD_ERR_INVALID_ARGUMENT ? ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "the header is %s", why.text)
                                              : status;
}

ngd_status_t ngd_safetensors_parse(const char *json, uint64_t header_bytes, uint64_t file_bytes,
                                   struct ngd_safetensors *index_p, struct ngd_diag *diag)
{
    struct ngd_safetensors index = {0};
    ngd_status_t status;
    json_t *root;

    status = check_values(json, header_bytes, diag);
    if (status != NGD_OK)
        return status;
    status = parse_json_header(json, header_bytes, &root, diag);
    if (status != NGD_OK)
        return status;
    status = parse_tensors(root, header_bytes, file_bytes, &index, diag);
    json_decref(root);
    if (status != NGD_OK)
        ngd_safetensors_fini(&index);
    else
        *index_p = index;
    return status;
}

void ngd_safetensors_fini(struct ngd_safetensors *index)
{
    for (size_t i = 0; i < index->n; i++)
        ngd_free(index->items[i].name);
    ngd_free(index->items);
    ngd_free(index->by_name);
    *index = (struct ngd_safetensors){0};
}

static int compare_tensor_name(const void *key, const void *item)
{
    const struct ngd_safetensor *const *t = item;

    return strcmp(key, (*t)->name);
}

const struct ngd_safetensor *ngd_safetensors_find(const struct ngd_safetensors *index, const char *name)
{
    const struct ngd_safetensor **found =
        index->n ? bsearch(name, index->by_name, index->n, sizeof(*index->by_name), compare_tensor_name) : NULL;

    return found ? *found : NULL;
}
