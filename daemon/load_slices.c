/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/load_slices.h"

#include "base/mem.h"
#include "base/strbuf.h"
#include "daemon/gguf.h"
#include "daemon/load_order.h"
#include <inttypes.h>
#include <string.h>

static void put_shape(struct ngd_strbuf *sb, const int64_t *shape, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        ngd_strbuf_printf(sb, "%s%" PRId64, i > 0 ? "," : "", shape[i]);
}

static ngd_status_t refuse_shape(const struct ngd_load *load, const struct ngd_safetensor *t, const int64_t *whole,
                                 const struct ngd_load_slice *s, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;
    ngd_status_t status;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "[");
    put_shape(&sb, whole, t->rank);
    ngd_strbuf_printf(&sb, "]%s; it must be [", s->change ? " once it is changed" : "");
    put_shape(&sb, s->whole, s->rank);
    status = ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "%.300s: tensor %.200s is %s]", load->path, t->name,
                          ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return status;
}

/* Says that a slice wants a scalar as a vector of one element: publishers write a scale either way. */
static bool is_scalar(const struct ngd_safetensor *t, const struct ngd_load_slice *s)
{
    return t->rank == 0 && s->rank == 1 && s->whole[0] == 1 && !s->change && !s->order && s->dim == 0 &&
           s->begin == 0 && s->end == 1;
}

/* Checks a slice of a tensor that has the shape `whole` once it is loaded. */
static ngd_status_t check_slice(const struct ngd_load *load, const struct ngd_safetensor *t, const int64_t *whole,
                                const struct ngd_load_slice *s, struct ngd_diag *diag)
{
    if (is_scalar(t, s))
        return NGD_OK;
    if (s->rank != 0 && (s->rank != t->rank || memcmp(s->whole, whole, s->rank * sizeof(*whole)) != 0))
        return refuse_shape(load, t, whole, s, diag);
    if (s->dim < t->rank && s->begin >= 0 && s->begin < s->end && s->end <= whole[s->dim])
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%.300s: tensor %.200s has no slice %" PRId64 " to %" PRId64 " of dimension %" PRIu32
                        ": it has %" PRIu32 " dimensions, and the size of this one is %" PRId64,
                        load->path, t->name, s->begin, s->end, s->dim, t->rank, s->dim < t->rank ? whole[s->dim] : 0);
}

/* A slice of columns of a plane begins and ends with a block. */
static ngd_status_t check_blocks(const struct ngd_load *load, const struct ngd_loaded *t, struct ngd_diag *diag)
{
    const struct ngd_safetensor *x = t->tensor;
    const struct ngd_load_runs r = ngd_load_runs(t);

    if (!x->plane || (r.bytes % x->plane->bytes == 0 && (r.offset - x->offset) % x->plane->bytes == 0))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%.300s: tensor %.200s is quantised in blocks; a slice must begin and end with one, but this "
                        "one has elements %" PRId64 " to %" PRId64 " of dimension %" PRIu32,
                        load->path, x->name, t->slice->begin, t->slice->end, t->slice->dim);
}

/* Sets what the whole tensor becomes. */
static ngd_status_t choose_change(const struct ngd_load *load, struct ngd_loaded *t, const struct ngd_change *change,
                                  struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    ngd_status_t status = NGD_OK;

    memcpy(t->whole, t->tensor->shape, sizeof(t->whole));
    t->dtype = t->tensor->dtype;
    t->bytes = t->tensor->bytes;
    if (!change)
        return NGD_OK;
    status = ngd_change_check(change, t->tensor, t->whole, &t->dtype, &why);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "%.300s: %.400s", load->path, why.text);
    if (!ngd_change_keeps_shape(change))
        t->bytes = (uint64_t)t->whole[0] * (uint64_t)t->whole[1] * ngd_dtype_bytes(t->dtype);
    return NGD_OK;
}

static ngd_status_t check_cut(const struct ngd_load *load, const struct ngd_loaded *t, struct ngd_diag *diag)
{
    const struct ngd_load_slice *s = t->slice;
    struct ngd_change_part part;

    if (!s->change || ngd_change_in_place(s->change) ||
        ngd_change_source(s->change, t->tensor, s->dim, s->begin, s->end, &part))
        return check_blocks(load, t, diag);
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%.300s: tensor %.200s has packed numbers, and %" PRId64 " to %" PRId64 " of dimension %" PRIu32
                        " cut an i32",
                        load->path, t->tensor->name, s->begin, s->end, s->dim);
}

/* Sets the shape and bytes of the whole tensor, or of slice s. */
static ngd_status_t choose_part(const struct ngd_load *load, struct ngd_loaded *t, const struct ngd_load_slice *s,
                                struct ngd_diag *diag)
{
    ngd_status_t status = choose_change(load, t, s ? s->change : NULL, diag);

    if (status == NGD_OK && s)
        status = check_slice(load, t->tensor, t->whole, s, diag);
    if (status != NGD_OK)
        return status;
    memcpy(t->shape, t->whole, sizeof(t->shape));
    if (!s || is_scalar(t->tensor, s) || (s->end - s->begin == t->shape[s->dim] && !s->change && !s->order))
        return NGD_OK;
    status = s->order ? ngd_load_order_check(t, s, diag) : NGD_OK;
    if (status != NGD_OK)
        return status;
    t->slice = s;
    t->bytes = t->bytes / (uint64_t)t->shape[s->dim] * (uint64_t)(s->end - s->begin);
    t->shape[s->dim] = s->end - s->begin;
    return check_cut(load, t, diag);
}

/* Chooses the wanted tensors, in the order of their names, or of the file. */
static ngd_status_t choose_names(struct ngd_load *load, struct ngd_diag *diag)
{
    const size_t n = load->n_names ? load->n_names : load->index.n;

    for (size_t i = 0; i < load->n_names && n > load->index.n; i++)
        if (!ngd_safetensors_find(&load->index, load->names[i]))
            return ngd_diag_set(diag, NGD_ERR_TENSOR_MISSING, "%.300s has no tensor %.200s", load->path,
                                load->names[i]);
    if (n > load->index.n || load->n_slices > load->index.n)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "%.300s has %zu tensors; the request has %zu names and %zu slices, but may have at most "
                            "one of each per tensor",
                            load->path, load->index.n, load->n_names, load->n_slices);
    load->tensors = NGD_NEW_N(struct ngd_loaded, n + 1);
    if (!load->tensors)
        return NGD_ERR_NO_MEMORY;
    for (; load->n_tensors < n; load->n_tensors++) {
        const size_t i = load->n_tensors;
        const struct ngd_safetensor *t =
            load->n_names ? ngd_safetensors_find(&load->index, load->names[i]) : &load->index.items[i];

        if (!t)
            return ngd_diag_set(diag, NGD_ERR_TENSOR_MISSING, "%.300s has no tensor %.200s", load->path,
                                load->names[i]);
        load->tensors[i].tensor = t;
    }
    return NGD_OK;
}

/* What a load wants from one tensor of the file. */
struct want {
    const struct ngd_load_slice *slice;
    bool wanted;
};

/* Gives each wanted tensor its slice. Each slice must be of a wanted tensor, and be its only one. */
static ngd_status_t choose_slices(const struct ngd_load *load, struct want *wants, struct ngd_diag *diag)
{
    for (size_t i = 0; i < load->n_tensors; i++)
        wants[load->tensors[i].tensor - load->index.items].wanted = true;
    for (size_t i = 0; i < load->n_slices; i++) {
        const char *name = load->slices[i].name;
        const struct ngd_safetensor *t = ngd_safetensors_find(&load->index, name);
        struct want *w = t ? &wants[t - load->index.items] : NULL;

        if (!w || !w->wanted)
            return ngd_diag_set(diag, NGD_ERR_TENSOR_MISSING,
                                "%.300s: the request has a slice of tensor %.200s, but does not load that tensor",
                                load->path, name);
        if (w->slice)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "%.300s: the request has two slices of tensor %.200s; one is allowed", load->path,
                                name);
        w->slice = &load->slices[i];
    }
    return NGD_OK;
}

ngd_status_t ngd_load_choose(struct ngd_load *load, struct ngd_diag *diag)
{
    ngd_status_t status = choose_names(load, diag);
    struct want *wants = status == NGD_OK ? NGD_NEW_N(struct want, load->index.n + 1) : NULL;

    if (status == NGD_OK)
        status = wants ? choose_slices(load, wants, diag) : NGD_ERR_NO_MEMORY;
    for (size_t i = 0; status == NGD_OK && i < load->n_tensors; i++) {
        struct ngd_loaded *t = &load->tensors[i];

        status = choose_part(load, t, wants[t->tensor - load->index.items].slice, diag);
    }
    ngd_free(wants);
    return status;
}

struct ngd_load_runs ngd_load_runs(const struct ngd_loaded *t)
{
    const struct ngd_safetensor *x = t->tensor;
    struct ngd_load_runs r = {.n = 1, .offset = x->offset, .bytes = x->bytes, .stride = x->bytes};

    if (!t->slice || x->bytes == 0)
        return r;
    for (uint32_t i = 0; i < t->slice->dim; i++)
        r.n *= (uint64_t)t->whole[i];
    r.stride = x->bytes / r.n;
    r.bytes = t->bytes / r.n;
    r.offset += r.stride / (uint64_t)t->whole[t->slice->dim] * (uint64_t)t->slice->begin;
    return r;
}
