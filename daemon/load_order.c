/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/load_order.h"

#include "base/mem.h"
#include <inttypes.h>
#include <string.h>

/* Numbers of a row, at most: its order, and two copies of it, are in memory at once. */
#define ORDERED_MAX ((int64_t)1 << 18)

/* Returns how many numbers an element of a weight has; 0: it is no weight of integers. */
static int64_t numbers_each(const struct ngd_loaded *t, const struct ngd_load_slice *slice)
{
    if (t->tensor->plane || t->tensor->rank != 2)
        return 0;
    if (slice->change)
        return slice->change->to == NGD_CHANGE_INT4 ? 8 : slice->change->to == NGD_CHANGE_I8 ? 1 : 0;
    return t->dtype == NGD_I8 ? 1 : 0;
}

/* Checks that each number from 0 to n - 1 is there. */
static ngd_status_t check_permutation(const struct ngd_load_slice *slice, struct ngd_diag *diag)
{
    uint8_t *seen = ngd_calloc(slice->n_order / 8 + 1, 1);
    ngd_status_t status = seen ? NGD_OK : NGD_ERR_NO_MEMORY;

    for (size_t i = 0; status == NGD_OK && i < slice->n_order; i++) {
        const int32_t at = slice->order[i];

        if (at < 0 || (size_t)at >= slice->n_order || seen[at / 8] >> at % 8 & 1)
            status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                  "the order of tensor %.200s has %" PRId32 " at %zu; it must name each of %zu "
                                  "columns once",
                                  slice->name, at, i, slice->n_order);
        else
            seen[at / 8] |= (uint8_t)(1u << at % 8);
    }
    ngd_free(seen);
    return status;
}

ngd_status_t ngd_load_order_check(const struct ngd_loaded *t, const struct ngd_load_slice *slice, struct ngd_diag *diag)
{
    const int64_t each = numbers_each(t, slice);

    if (each == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "tensor %.200s: only weights of i8 or int4 numbers may have an order of columns",
                            slice->name);
    if (slice->dim != 0 && (slice->begin != 0 || slice->end != t->whole[1]))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "tensor %.200s: a slice with an order of columns must have all of them", slice->name);
    if (t->whole[1] > ORDERED_MAX / each || t->whole[1] * each != (int64_t)slice->n_order)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "tensor %.200s has %" PRId64 " elements of %" PRId64 " numbers in a row, but its order has "
                            "%zu; an order has as many, and %" PRId64 " at most",
                            slice->name, t->whole[1], each, slice->n_order, ORDERED_MAX);
    return check_permutation(slice, diag);
}

/* Orders a row of bytes. old: room for it. */
static void order_bytes(uint8_t *row, uint8_t *old, const int32_t *order, size_t n)
{
    memcpy(old, row, n);
    for (size_t i = 0; i < n; i++)
        row[i] = old[order[i]];
}

/* The same for a row of nibbles. old: room for n bytes. */
static void order_nibbles(uint8_t *row, uint8_t *old, const int32_t *order, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        old[2 * i] = row[i] & 15;
        old[2 * i + 1] = row[i] >> 4;
    }
    for (size_t i = 0; i < n / 2; i++)
        row[i] = (uint8_t)(old[order[2 * i]] | old[order[2 * i + 1]] << 4);
}

ngd_status_t ngd_load_order_apply(const struct ngd_loaded *t, struct ngd_buffer *buffer, struct ngd_diag *diag)
{
    const struct ngd_load_slice *s = t->slice;
    const bool nibbles = s->change && s->change->to == NGD_CHANGE_INT4;
    const uint64_t bytes = nibbles ? s->n_order / 2 : s->n_order;
    uint8_t *direct = ngd_buffer_host_ptr(buffer), *room = ngd_malloc(2 * s->n_order + 1), *row;
    ngd_status_t status = room ? NGD_OK : NGD_ERR_NO_MEMORY;

    for (uint64_t at = 0; status == NGD_OK && at < t->bytes; at += bytes) {
        row = direct ? direct + at : room + s->n_order;
        if (!direct)
            status = ngd_buffer_read(buffer, at, row, bytes, diag);
        if (status != NGD_OK)
            break;
        if (nibbles)
            order_nibbles(row, room, s->order, s->n_order);
        else
            order_bytes(row, room, s->order, s->n_order);
        if (!direct)
            status = ngd_buffer_write(buffer, at, row, bytes, diag);
    }
    ngd_free(room);
    return status;
}
