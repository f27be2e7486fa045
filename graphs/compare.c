/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/compare.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static double tolerance(ngd_dtype_t dtype)
{
    switch (dtype) {
    case NGD_F32:
        return NGD_COMPARE_F32;
    case NGD_F16:
        return NGD_COMPARE_F16;
    case NGD_BF16:
        return NGD_COMPARE_BF16;
    default:
        return 0;
    }
}

static double element_value(ngd_dtype_t dtype, const void *data, uint64_t i)
{
    float f;
    uint16_t h;
    int32_t w;
    int64_t l;

    switch (dtype) {
    case NGD_F32:
        memcpy(&f, (const char *)data + 4 * i, 4);
        return f;
    case NGD_F16:
        memcpy(&h, (const char *)data + 2 * i, 2);
        return ngd_f16_to_f32(h);
    case NGD_BF16:
        memcpy(&h, (const char *)data + 2 * i, 2);
        return ngd_bf16_to_f32(h);
    case NGD_I32:
        memcpy(&w, (const char *)data + 4 * i, 4);
        return w;
    case NGD_I64:
        memcpy(&l, (const char *)data + 8 * i, 8);
        return (double)l;
    case NGD_I8:
        return ((const int8_t *)data)[i];
    case NGD_F8_E4M3FN:
        return (double)ngd_f8_to_f32(((const uint8_t *)data)[i]);
    default:
        return ((const uint8_t *)data)[i];
    }
}

static double largest(ngd_dtype_t dtype, const void *data, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++) {
        double v = fabs(element_value(dtype, data, i));

        if (isfinite(v) && v > most)
            most = v;
    }
    return most;
}

static bool within_room(double got, double want, double room)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want))
        return got == want;
    return fabs(got - want) <= room;
}

static bool both_nan(ngd_dtype_t dtype, const void *got, const void *want, uint64_t i)
{
    return ngd_dtype_is_float(dtype) && isnan(element_value(dtype, got, i)) && isnan(element_value(dtype, want, i));
}

static bool compare_exactly(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n,
                            struct ngd_difference *diff)
{
    size_t size = ngd_dtype_bytes(dtype);

    for (uint64_t i = 0; i < n; i++) {
        if (memcmp((const char *)got + size * i, (const char *)want + size * i, size) == 0 ||
            both_nan(dtype, got, want, i))
            continue;
        if (diff->n++ == 0) {
            diff->index = i;
            diff->got = element_value(dtype, got, i);
            diff->want = element_value(dtype, want, i);
        }
    }
    return diff->n == 0;
}

/* share: allowed difference, as a fraction of the largest magnitude. */
static bool compare_floats(ngd_dtype_t dtype, double share, const void *got, const void *want, uint64_t n,
                           struct ngd_difference *diff_p)
{
    const double room = share * largest(dtype, want, n) + 1e-30;

    for (uint64_t i = 0; i < n; i++) {
        double g = element_value(dtype, got, i), w = element_value(dtype, want, i);

        if (within_room(g, w, room))
            continue;
        if (diff_p->n++ == 0) {
            diff_p->index = i;
            diff_p->got = g;
            diff_p->want = w;
        }
    }
    return diff_p->n == 0;
}

static bool equal_bytes(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n)
{
    return n == 0 || memcmp(got, want, n * ngd_dtype_bytes(dtype)) == 0;
}

bool ngd_compare_bits(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p)
{
    memset(diff_p, 0, sizeof(*diff_p));
    return equal_bytes(dtype, got, want, n) || compare_exactly(dtype, got, want, n, diff_p);
}

bool ngd_compare(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p)
{
    const double share = tolerance(dtype);

    memset(diff_p, 0, sizeof(*diff_p));
    if (equal_bytes(dtype, got, want, n))
        return true;
    return share == 0 ? compare_exactly(dtype, got, want, n, diff_p)
                      : compare_floats(dtype, share, got, want, n, diff_p);
}

bool ngd_compare_rounded(ngd_dtype_t dtype, ngd_dtype_t narrow, const void *got, const void *want, uint64_t n,
                         struct ngd_difference *diff_p)
{
    const double share = NGD_COMPARE_ROUNDED * fmax(tolerance(dtype), tolerance(narrow));

    memset(diff_p, 0, sizeof(*diff_p));
    return !ngd_dtype_is_float(dtype) || equal_bytes(dtype, got, want, n) ||
           compare_floats(dtype, share, got, want, n, diff_p);
}

ngd_dtype_t ngd_compare_narrowest(const struct ngd_graph *graph)
{
    ngd_dtype_t narrowest = NGD_F32;

    for (uint32_t i = 0; i < graph->n_values; i++) {
        const ngd_dtype_t dtype = graph->values[i].type.dtype;

        if (graph->values[i].cls == NGD_VALUE_NODE && tolerance(dtype) > tolerance(narrowest))
            narrowest = dtype;
    }
    return narrowest;
}

void ngd_difference_print(const struct ngd_difference *diff, uint64_t n, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "%" PRIu64 " of %" PRIu64 " elements differ; element %" PRIu64 " is %.9g, not %.9g", diff->n,
                      n, diff->index, diff->got, diff->want);
}
